"""What does a registry contain, and with which Secrets and CAs is it asked? The client."""
