"""Writing the Node: the publish child and what it decides."""
