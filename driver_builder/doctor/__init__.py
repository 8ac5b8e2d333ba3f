"""Is everything in place before the first driver, and what does a bug report need? Pure: facts in, findings out."""
