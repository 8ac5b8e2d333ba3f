"""The user space of the test driver ``dw_probe`` 2.5, as an archive on a web server of this machine."""

import hashlib
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from driver_builder.model.userspace import UserspaceArchive
from tests.support.real_parts import web_server

VERSION_FILE = "lib/libprobe.so.2.5"


@contextmanager
def served(root: Path) -> Iterator[UserspaceArchive]:
    """Serve what lies below a top folder: a library, a link to it, a program with a set-id bit, and firmware."""
    tree = root / "probe-libraries"
    for name, text in ((VERSION_FILE, "library"), ("bin/probe", "program"), ("fw/probe.bin", "firmware")):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    (tree / "bin/probe").chmod(0o4755)
    (tree / "lib/libprobe.so").symlink_to("libprobe.so.2.5")
    with tarfile.open(root / "libraries.tar.gz", "w:gz") as archive:
        archive.add(tree, arcname=tree.name)
    with web_server.served(root) as url:
        sha256 = hashlib.sha256((root / "libraries.tar.gz").read_bytes()).hexdigest()
        yield UserspaceArchive(url=f"{url}/libraries.tar.gz", sha256=sha256)
