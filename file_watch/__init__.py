"""What changes in the files of a node, for the programs that run on each node."""
