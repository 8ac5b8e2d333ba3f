"""``python -m driver_builder``."""

import sys

from driver_builder.commands.cli import main

if __name__ == "__main__":
    sys.exit(main())
