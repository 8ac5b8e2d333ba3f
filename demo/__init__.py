"""The whole loop as a scenario of steps: ``make demo`` shows it to a person, ``tests/cluster`` asserts it."""
