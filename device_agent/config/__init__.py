"""What can be set: flags, environment, and the file that describes resources."""
