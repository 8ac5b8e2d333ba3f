"""What of a release is made of the source alone: wheel, source distribution, chart, manifests.

The same commit gives the same bytes.
"""

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tools import manifests, product_images
from tools.manifests import CHART, DEPLOY
from tools.product_images import REPOSITORY
from tools.release.origin import Origin
from tools.release.plain_tar import Entry, read_tar_gz, write_tar

SUMS = "SHA256SUMS"
_LATEST = "latest"


class ReleaseError(Exception):
    """There is no release; the message says why, and what to do."""


def check_source(origin: Origin, *, allow_dirty: bool) -> Origin:
    """Return the source of a release, which has a time in any case. Pure.

    Raises:
        ReleaseError: it is not one commit, and nobody said that this is a trial.
    """
    if not allow_dirty and not origin.revision:
        raise ReleaseError(
            "this folder is not a git repository, so the release could not name its commit: make it in a clone, or set"
            " ALLOW_DIRTY=1 for a trial"
        )
    if not allow_dirty and origin.changed:
        shown = ", ".join(origin.changed[:3]) + (", ..." if len(origin.changed) > 3 else "")
        raise ReleaseError(f"files differ from the commit ({shown}): commit them, or set ALLOW_DIRTY=1 for a trial")
    return origin if origin.epoch is not None else replace(origin, epoch=0)


def make_packages(folder: Path, origin: Origin) -> None:
    """Copy the wheel that is in the images, and make the source distribution."""
    shutil.copy(product_images.own_wheel(), folder)
    path = product_images.make_sdist(folder)
    write_tar(path, read_tar_gz(path), epoch=origin.epoch or 0)


def make_chart(folder: Path, origin: Origin) -> Path:
    """Package the chart as ``helm package`` does; its images have the version as their tag."""
    # Not at the top, as in tools/manifests.py.
    import helm_python

    with TemporaryDirectory(prefix="driverwright-chart-") as scratch:
        copy = shutil.copytree(CHART, Path(scratch) / CHART.name)
        for name, before, after in (
            ("values.yaml", f"\n  tag: {_LATEST}\n", f"\n  tag: '{origin.version}'\n"),
            ("README.md", f'| tag of all images | `"{_LATEST}"` |', f'| tag of all images | `"{origin.version}"` |'),
        ):
            path = copy / name
            path.write_text(exchanged(path.read_text(), before, after, of=name))
        packed = Path(helm_python.package(copy, destination=folder))
    write_tar(packed, read_tar_gz(packed), epoch=origin.epoch or 0)
    return packed


def exchanged(text: str, before: str, after: str, *, of: str) -> str:
    """Replace what is in a text once. Pure.

    Raises:
        ReleaseError: it is not, or more often.
    """
    if text.count(before) != 1:
        raise ReleaseError(f"{of} should have {before.strip()!r} once, and has it {text.count(before)} times")
    return text.replace(before, after)


def make_manifests(folder: Path, origin: Origin) -> Path:
    """Pack ``deploy/`` without the chart, and the overlay; the images have the version as their tag."""
    values = {**manifests.VALUES, "images": {"tag": origin.version}}
    texts = {
        path: path.read_text() for part in (DEPLOY, REPOSITORY / "examples/overlay") for path in part.rglob("*.yaml")
    }
    texts = {path: text.replace(f":{_LATEST}\n", f":{origin.version}\n") for path, text in texts.items()}
    texts |= manifests.files(values)
    texts = {path: text for path, text in texts.items() if CHART not in path.parents}
    texts[REPOSITORY / "LICENSE"] = (REPOSITORY / "LICENSE").read_text()
    entries = [Entry(f"{stem(origin)}/{path.relative_to(REPOSITORY)}", text.encode()) for path, text in texts.items()]
    packed = folder / f"{stem(origin)}-manifests.tar.gz"
    write_tar(packed, entries, epoch=origin.epoch or 0)
    return packed


def write_sums(folder: Path) -> None:
    """Write the digests of all files in a folder, as ``sha256sum --check`` reads them."""
    lines = []
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    (folder / SUMS).write_text("".join(lines))


def stem(origin: Origin) -> str:
    """Return how the names of files begin."""
    return f"driverwright-{origin.version}"
