"""What an admin writes: the DriverContainer, read, checked and as frozen values."""
