"""Parts of ``bench/scale.py``: what a fleet costs the controller."""
