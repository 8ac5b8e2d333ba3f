"""The whole loop as a story of steps: ``make demo`` tells it to a person, ``tests/cluster`` asserts it."""
