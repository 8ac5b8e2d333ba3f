"""What do we write into the cluster and read back? DaemonSets, records on Nodes, load reports. Pure."""
