"""What is in an image? Layers, files, bounds."""
