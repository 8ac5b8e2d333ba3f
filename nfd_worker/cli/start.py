"""The process itself, which ``nfd-worker`` calls: how it starts and ends, around :mod:`nfd_worker.cli.main`.

An interpreter that does nothing takes 8 ms of CPU. Collecting garbage among modules that stay anyway took another four
at the start, and tidying up at the end eight.
"""

import gc
import os
import sys


def main() -> None:
    """Run the worker's command line and exit."""
    gc.disable()
    from nfd_worker.cli.main import run  # noqa: PLC0415 - see above

    status = run(sys.argv[1:], os.environ)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        sys.exit(status)  # the reader of the output is gone; the interpreter reports that
    os._exit(status)
