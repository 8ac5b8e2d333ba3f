"""The archives that guests boot from, read by another program."""

import subprocess
from pathlib import Path

from testbed.guest import cpio
from testbed.packages import ensure_packages


def test_another_program_reads_the_archive(tmp_path: Path) -> None:
    """What is written here is what cpio understands, links and contents included."""
    ensure_packages(("busybox-static",))
    entries = [cpio.program("d/run", "#!/bin/sh\n"), cpio.link("d/link", "run")]
    subprocess.run(
        ["/bin/busybox", "cpio", "-i", "-d"], input=cpio.archive(entries), cwd=tmp_path, check=True, capture_output=True
    )
    assert (tmp_path / "d/link").read_text() == "#!/bin/sh\n"
    assert (tmp_path / "d/run").stat().st_mode & 0o777 == 0o755
