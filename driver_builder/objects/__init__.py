"""What we write into the cluster and read back: DaemonSets, unload pods, records on Nodes, load reports."""
