"""The command line of driver-builder."""
