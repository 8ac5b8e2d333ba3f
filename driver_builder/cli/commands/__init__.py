"""The commands: one module for each, with its flags and what it does."""
