"""What tests with real parts share."""
