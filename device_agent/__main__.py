"""``python -m device_agent``."""

from device_agent.cli.start import main

main()
