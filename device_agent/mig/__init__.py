"""MIG layouts: what a file asks for, where instances may be on a card, and what has to change. Pure."""
