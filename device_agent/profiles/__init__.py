"""What a profile makes of the node's cards, and how the node gets from one profile to the next."""
