"""What is wrong with DriverContainers before they are applied."""
