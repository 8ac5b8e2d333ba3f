"""How much of a shared card's memory each pod may use, who uses more, and which process is ended for it. Pure."""
