"""``python -m tests.support.soak.shifted_controller FILE ARGUMENT...``: driver-builder with a wrong clock.

FILE has the seconds by which the clock of this process is ahead, and is read again whenever the time is asked for. The
monotonic clock stays right, as it does when somebody sets a machine's clock.
"""

from __future__ import annotations

import datetime
import os
import sys
import time

_real_time = time.time
_file = os.open(sys.argv[1], os.O_RDONLY)


def _offset() -> float:
    return float(os.pread(_file, 32, 0) or b"0")


class _Shifted(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> _Shifted:
        return cls.fromtimestamp(time.time(), tz)


time.time = lambda: _real_time() + _offset()
datetime.datetime = _Shifted  # type: ignore[misc]


if __name__ == "__main__":
    from driver_builder.cli.main import main

    sys.exit(main(sys.argv[2:]))
