"""How a driver leaves nodes: what is loaded where, and the unload pods. Pure."""
