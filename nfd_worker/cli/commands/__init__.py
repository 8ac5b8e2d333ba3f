"""The commands: one module for each, imported when it is asked for."""
