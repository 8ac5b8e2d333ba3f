"""What an admin writes: DriverContainer and its spec, read and checked."""
