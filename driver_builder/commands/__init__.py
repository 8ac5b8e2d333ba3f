"""The command line: one module for each command that a person can call."""
