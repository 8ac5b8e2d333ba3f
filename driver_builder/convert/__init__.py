"""What do the objects of another operator become? Pure."""
