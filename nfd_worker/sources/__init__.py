"""The feature sources."""
