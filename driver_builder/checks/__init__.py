"""Is everything in place, why has this node no driver, and what is wrong with this manifest? Pure."""
