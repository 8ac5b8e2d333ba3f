"""Measurements and long trials, one command each; ``make bench`` runs the short ones."""
