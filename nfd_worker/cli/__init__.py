"""The command line of nfd-worker."""
