"""What ``doctor`` reads and asks: the cluster, the registries, the engine. It changes nothing."""
