"""What can a person call? Commands, and how they print."""
