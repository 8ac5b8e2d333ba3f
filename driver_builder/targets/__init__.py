"""What should each target of a driver run? Pure."""
