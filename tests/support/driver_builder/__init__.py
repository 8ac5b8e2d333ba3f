"""Models, factories and data for the tests of driver_builder."""
