"""Which labels do other programs' NodeFeature objects give a node? Those of allowed namespaces."""
