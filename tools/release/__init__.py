"""Makes a release, and says what is in it."""
