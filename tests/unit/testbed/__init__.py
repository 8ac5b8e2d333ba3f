"""Unit tests of the proving ground: its pure parts."""
