"""``make test``: every test, in two processes side by side, because the real parts spend most of their time waiting.

One process runs what boots real kernels as nodes, and is shown as it goes; the other all the rest, shown at its end.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]

sys.path.insert(0, str(ROOT))

from tests.proving_ground.packages import ensure_packages, why_unsupported  # noqa: E402
from tests.proving_ground.progress import PlainLines  # noqa: E402

COLLECTED_WITH = ("busybox-static", "gcc")
"""What tests look for when they are collected, so it has to be there before."""

PYTEST = [sys.executable, "-m", "pytest", "--durations=10"]
NO_TESTS = 5
"""pytest's exit status when nothing was selected."""


def main() -> int:
    """Run both; 1 when either of them found something."""
    began = time.monotonic()
    if why_unsupported() is None:
        ensure_packages(COLLECTED_WITH, PlainLines())
    with tempfile.TemporaryFile("w+") as output:
        rest = subprocess.Popen([*PYTEST, "-m", "not e2e"], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        try:
            kernels = subprocess.run([*PYTEST, "-m", "e2e"], cwd=ROOT, check=False).returncode
            statuses = [kernels, rest.wait()]
        finally:
            rest.terminate()
            rest.wait()
        output.seek(0)
        print(f"\n---- the other tests ----\n{output.read()}", flush=True)
    passed = all(status in (0, NO_TESTS) for status in statuses)
    print(f"make test: {'passed' if passed else 'FAILED'} in {time.monotonic() - began:.0f} s", flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
