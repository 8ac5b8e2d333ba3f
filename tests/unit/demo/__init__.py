"""Unit tests of the scenario: its pure parts."""
