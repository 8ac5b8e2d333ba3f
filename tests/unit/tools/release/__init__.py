"""Unit tests of tools/release."""
