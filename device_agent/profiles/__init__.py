"""Profiles of the cards of a node, in NVIDIA's words, and how the node gets from one to the next."""
