"""The image `debian:<codename>-slim`, made on this machine, because its registry may not be reachable.

It is that of the tree's release, or of another one that is named: `debian:trixie-slim` for drivers of Debian 13.
Its apt sources are the machine's own, security archive included, so that a recipe that installs kernel headers works
in it as it does in the published image, and no recipe has to name a mirror.
"""

from __future__ import annotations

import hashlib
import io
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import docker

from testbed import apt_sources, archive_faults
from testbed.cache import cache_root, cached_folder, kept_folder, remove_entry
from testbed.command import run, run_logged
from testbed.errors import ArchiveError, CommandError, TestbedError
from testbed.packages import archives_of, machine_archives, release_codename
from testbed.progress import Progress, Step, warn

PACKAGES = ("debootstrap", "debian-archive-keyring")
_STAYS_FRESH_DAYS = 7
_DEBOOTSTRAP_TIMEOUT = 900.0
# What the published slim images leave out.
_LEFT_OUT = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/info",
    "usr/share/locale",
    "var/cache/apt",
    "var/lib/apt/lists",
)
_CARRIED_OPTIONS = re.compile(r'^Acquire::(Check-Valid-Until|Check-Date|https?::Proxy(::\S+)?) "[^"]*";$')


def base_image_ref(codename: str = "") -> str:
    """Return the reference under which the image is found: the name of the published one."""
    return f"debian:{codename or release_codename()}-slim"


def base_image_archive(progress: Progress, codename: str = "") -> Path:
    """Return the image's root file system as an archive; the name of its folder says what and how old it is."""
    with progress.step(f"Provide the base image {base_image_ref(codename)}") as step:
        return _cached_archive(codename or release_codename(), step)


def import_base_image(client: docker.APIClient, archive: Path, codename: str = "") -> None:
    """Give the image to an engine."""
    repository, tag = base_image_ref(codename).split(":")
    answer = client.import_image(str(archive), repository=repository, tag=tag, changes=['CMD ["bash"]'])
    if '"error' in str(answer):
        raise TestbedError(f"the engine refused {archive}: {answer}")


def ensure_base_image(client: docker.APIClient, codename: str, progress: Progress) -> str:
    """Have the image of a Debian release in an engine; return its reference."""
    reference = base_image_ref(codename)
    if not client.images(reference):
        import_base_image(client, base_image_archive(progress, codename), codename)
    return reference


def ensure_image_with_components(client: docker.APIClient, components: Sequence[str], progress: Progress) -> str:
    """Have the base image with more components of the same archives (contrib, non-free); return its reference."""
    reference = f"{base_image_ref()}-{'-'.join(components)}"
    archives = [
        replace(archive, components=tuple(dict.fromkeys((*archive.components, *components))))
        for archive in machine_archives()
    ]
    lines = " ".join(f"'{line}'" for line in apt_sources.sources_text(archives).splitlines())
    dockerfile = f"FROM {base_image_ref()}\nRUN printf '%s\\n' {lines} >/etc/apt/sources.list\n"
    with progress.step(f"Provide the base image {reference}"):
        for line in client.build(
            fileobj=io.BytesIO(dockerfile.encode()), tag=reference, network_mode="none", rm=True, decode=True
        ):
            if "error" in line:
                raise TestbedError(f"the engine did not build {reference}: {line['error']}")
    return reference


def _cached_archive(codename: str, step: Step) -> Path:
    archives = archives_of(codename)
    sources = apt_sources.sources_text(archives)
    digest = hashlib.sha256(sources.encode()).hexdigest()[:8]
    name = f"base-image-{codename}-{digest}"
    today = int(time.time() // 86400)
    kept = _kept_images(f"{name}-*")
    if kept and today - _day(kept[0]) < _STAYS_FRESH_DAYS:
        return kept[0] / "image.tar"
    try:
        fresh = cached_folder(f"{name}-{today}", lambda folder: _make(folder, archives, step), step)
    except ArchiveError as error:
        if not kept:
            raise
        warn(f"the base image of {today - _day(kept[0])} days ago is used:\n{error}")
        return kept[0] / "image.tar"
    for folder in cache_root().glob(f"{name}-*"):
        if folder != fresh:
            remove_entry(folder)
    return fresh / "image.tar"


def _kept_images(pattern: str) -> list[Path]:
    """Return the images of the cache that are whole, the newest first."""
    names = sorted((path.name for path in cache_root().glob(pattern)), key=lambda name: -_day(Path(name)))
    return list(filter(None, map(kept_folder, names)))


def _day(folder: Path) -> int:
    return int(folder.name.rsplit("-", 1)[1])


def _make(folder: Path, archives: list[apt_sources.Archive], step: Step) -> None:
    root, main = folder / "root", archives[0]
    log = folder.parent / f"base-image-{main.suite}.log"
    log.unlink(missing_ok=True)
    argv = ["debootstrap", "--variant=minbase", f"--keyring={apt_sources.KEYRING}", main.suite, str(root), main.uri]
    try:
        run_logged(argv, log=log, step=step, timeout=_DEBOOTSTRAP_TIMEOUT)
    except CommandError as error:
        raise archive_faults.explained(f"debootstrap (its log is {log})", error) from error
    (root / "etc/apt/sources.list").write_text(apt_sources.sources_text(archives))
    (root / "etc/apt/apt.conf.d/90machine").write_text(carried_options(run(["apt-config", "dump", "Acquire"])))
    for place in _LEFT_OUT:
        run(["sh", "-c", f"rm -rf '{root}/{place}'/*"])
    step.detail("packing")
    run(["tar", "--create", "--file", folder / "image.tar", "--directory", root, "--one-file-system", "."])
    run(["rm", "-rf", root])
    log.unlink()


def carried_options(apt_config_dump: str) -> str:
    """Choose those of the machine's apt options without which its archives cannot be used from inside the image."""
    lines = (line for line in apt_config_dump.splitlines() if _CARRIED_OPTIONS.match(line))
    return "".join(f"{line}\n" for line in lines)
