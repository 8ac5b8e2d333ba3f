"""The controller: its loop, what it writes, and what ends it."""
