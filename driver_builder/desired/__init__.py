"""What each target of a driver should run. Pure."""
