"""Run the proving ground by hand: `python -m tests.proving_ground`."""

import sys

from tests.proving_ground.cli import main

sys.exit(main())
