"""What does a plan know of the cluster? Nodes, pods and requests, as values. Pure."""
