"""Which devices a resource has on this node, whether they work, and who gets which."""
