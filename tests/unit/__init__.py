"""Tests of driverwright."""
