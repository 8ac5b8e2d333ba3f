"""Unit tests of the story: its pure parts."""
