"""What the controller reads of the cluster and the registries, as one snapshot."""
