"""What is in a DriverContainer? Its spec, read and checked, and the status that we write. Pure."""
