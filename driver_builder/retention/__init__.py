"""Which of the images that this cluster pushed nobody needs any more, and their removal."""
