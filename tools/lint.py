"""Everything ``make lint`` checks, one line each, all of them even when one fails."""

import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from testbed.cache import cache_root, locked

_SHELL = (
    "driver_builder/loader/loader.sh",
    "driver_builder/builds/job/build.sh",
    "driver_builder/builds/job/pull.sh",
    "driver_builder/builds/job/storage.sh",
    "dockerfiles/lookup/apt.sh",
    "dockerfiles/lookup/dnf.sh",
    "dockerfiles/lookup/zypper.sh",
    "examples/edu-driver/workload/factorial",
    "tools/set_up.sh",
    "tools/machine",
    "tools/tree/archive.sh",
    "tools/tree/build.sh",
    "tools/tree/checks.sh",
    "tools/tree/enter.sh",
    "tools/tree/remains.sh",
    "testbed/guest/guest-init.sh",
    "testbed/guest/initramfs-init.sh",
    ".ci/run",
)

BIN = Path(sys.executable).parent
ROOT = Path(__file__).parents[1]

CHECKS: dict[str, list[str]] = {
    "format": ["ruff", "format", "--check", "."],
    "rules": ["ruff", "check", "."],
    # What it has found in an equal file of another checkout it need not find again.
    "types": ["mypy", f"--cache-dir={cache_root() / 'mypy'}"],
    "import layers": ["lint-imports"],
    "dependencies": [
        "deptry",
        "kube_api",
        "feature_rules",
        "device_resources",
        "file_watch",
        "nvml_inventory",
        "nfd_worker",
        "driver_builder",
        "device_agent",
    ],
    "yaml": ["yamllint", "--strict", "deploy", "examples", ".yamllint"],
}


def main() -> int:
    """Run every check; 1 when one of them found something."""
    failed = []
    for name, argv in {**CHECKS, **_dockerfiles(), **_shell()}.items():
        began = time.monotonic()
        program = BIN / argv[0]
        command = [str(program) if program.exists() else argv[0], *argv[1:]]
        with locked("mypy") if argv[0] == "mypy" else nullcontext():
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        verdict = "ok" if done.returncode == 0 else "FAILED"
        print(f"lint: {name}: {verdict} ({time.monotonic() - began:.1f} s)", flush=True)
        if done.returncode:
            print(done.stdout + done.stderr, flush=True)
            failed.append(name)
    if failed:
        print(f"lint: failed: {', '.join(failed)}")
    return 1 if failed else 0


def _dockerfiles() -> dict[str, list[str]]:
    """Dockerfiles as they are, and templates as they were rendered; other shapes of these are checked by tests/unit."""
    files = sorted(ROOT.glob("dockerfiles/*/Dockerfile")) + sorted(ROOT.glob("examples/**/Dockerfile"))
    files += sorted(ROOT.glob("tests/data/golden/*.Dockerfile"))
    return {"dockerfiles": ["hadolint", *(str(path.relative_to(ROOT)) for path in files)]}


def _shell() -> dict[str, list[str]]:
    files = [ROOT / part for part in _SHELL]
    names = [str(path.relative_to(ROOT)) for path in files if path.exists()]
    return {"shell": ["shellcheck", "--external-sources", "--severity=warning", *names]}


if __name__ == "__main__":
    sys.exit(main())
