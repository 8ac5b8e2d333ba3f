"""Scans of GPUs in a child process."""
