"""Profiles of the cards of a node, in NVIDIA's words: which resources they are, and which are shared."""
