"""``python -m driver_builder``."""

import sys

from driver_builder.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
