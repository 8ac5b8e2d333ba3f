"""The status of a DriverContainer: targets, conditions, Events. Pure."""
