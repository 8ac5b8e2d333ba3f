"""The kubelet as a client and a server: the service of one resource, and its registration."""
