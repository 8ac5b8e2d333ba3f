"""Who has which device, and how much each card is used: what the exporter and whoever watches limits read."""
