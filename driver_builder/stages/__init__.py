"""What follows on a node once a driver is proven there: device plugin, its validation, labels for others. Pure."""
