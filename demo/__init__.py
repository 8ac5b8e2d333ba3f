"""The whole loop as a story of steps: ``make demo`` tells it to a person, ``tests/e2e`` asserts it."""
