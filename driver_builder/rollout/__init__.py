"""How fast working drivers are replaced: waves."""
