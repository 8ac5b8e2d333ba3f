"""A tiny image for pods: static busybox, used as the sandbox ("pause") of every pod and for the testbed's checks."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import docker

from testbed.command import run
from testbed.errors import TestbedError
from testbed.progress import Progress
from testbed.registry import Registry

PACKAGES = ("busybox-static",)
_BUSYBOX = Path("/bin/busybox")
# As process 1 it must take SIGTERM itself, else each pod's end waits for a time-out.
_PAUSE = 'CMD ["/bin/sh", "-c", "trap exit TERM INT; while :; do sleep 3600 & wait; done"]'


def small_image_ref(registry: Registry) -> str:
    """Return the image's reference in the testbed's registry."""
    return f"{registry.host}/proving-ground/busybox:1"


def ensure_small_image(client: docker.APIClient, registry: Registry, progress: Progress) -> str:
    """Have the image in the engine and in the registry; return its reference."""
    reference = small_image_ref(registry)
    repository, tag = reference.rsplit(":", 1)
    with progress.step("Provide the pause image"):
        archive = busybox_archive(_BUSYBOX.read_bytes(), run([_BUSYBOX, "--list"]).split())
        client.import_image_from_data(archive, repository=repository, tag=tag, changes=[_PAUSE])
        for line in client.push(repository, tag=tag, auth_config=registry.auth_config, stream=True, decode=True):
            if "error" in line:
                raise TestbedError(f"push of {reference} failed: {line['error']}")
    return reference


def busybox_archive(busybox: bytes, applets: list[str]) -> bytes:
    """Return a tar archive with busybox and a link for each of its applets."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for folder in ("bin", "etc", "tmp", "proc", "sys", "dev", "run"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            archive.addfile(entry)
        program = tarfile.TarInfo("bin/busybox")
        program.mode, program.size = 0o755, len(busybox)
        archive.addfile(program, io.BytesIO(busybox))
        for applet in applets:
            if applet != "busybox":
                link = tarfile.TarInfo(f"bin/{applet}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(link)
    return buffer.getvalue()
