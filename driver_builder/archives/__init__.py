"""Container images as archives: layers, files, bounds."""
