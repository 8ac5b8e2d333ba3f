"""What can be typed after ``device-agent``."""
