"""What is in the cluster and in the registries? Caches fed by watches, and the one reader of a snapshot."""
