"""Why one node has, or has not, one driver."""
