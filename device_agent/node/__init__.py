"""The agent's own Node: which profile its label asks for, and the answer that is written there; only with a token."""
