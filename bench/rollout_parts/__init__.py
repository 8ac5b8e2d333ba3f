"""The parts of ``bench/rollout.py``."""
