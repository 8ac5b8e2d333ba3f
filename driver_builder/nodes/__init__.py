"""How far is each node with its driver, and which actions are there? Pure."""
