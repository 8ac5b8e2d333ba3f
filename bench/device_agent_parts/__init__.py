"""Parts of ``bench/device_agent_memory.py``."""
