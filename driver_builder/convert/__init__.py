"""Objects of other operators, made DriverContainers."""
