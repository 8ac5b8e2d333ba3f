"""Third parties' labels: NodeFeature objects of allowed namespaces, applied to the nodes that they name."""
