"""Builds: the queue, why they fail, and their logs."""
