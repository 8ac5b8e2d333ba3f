"""Parts of bench/worker.py."""
