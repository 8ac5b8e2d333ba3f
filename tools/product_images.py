"""Builds the images of our own programs and of the example workload, and pushes them.

``python -m tools.product_images --registry HOST[/PATH]`` (``make images``) does it for a registry of yours.
"""

import argparse
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import docker
from docker.errors import DockerException
from docker.utils import kwargs_from_env

from testbed.cache import cached_folder, forget_old
from tools.kept_pushes import push_kept
from tools.release.origin import OriginError, oci_labels, read_origin

REPOSITORY = Path(__file__).parents[1]
BASE_IMAGE = "debian:bookworm-slim"
_WHEELS_KEPT = 6
_IMAGES_KEPT = 10
"""Those of two sources."""
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
IMAGE_PYTHON = "3.11"
"""What Debian bookworm, the base of our images, has as python3."""

_PLATFORMS = ["any", "manylinux1_x86_64", "manylinux2010_x86_64", "manylinux2014_x86_64"]
_PLATFORMS += [f"manylinux_2_{minor}_x86_64" for minor in range(5, 37)]

_SOURCE = (
    "kube_api",
    "feature_rules",
    "device_resources",
    "file_watch",
    "nvml_inventory",
    "nfd_worker",
    "driver_builder",
    "device_agent",
    "deploy/crds",
    "deploy/driver-builder",
    "dockerfiles",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)

Say = Callable[[str], None]


class ImageError(Exception):
    """An image could not be built or pushed; the message carries the tool's own words."""


def local_engine(address: str | None = None) -> docker.APIClient:
    """Reach the engine at ``address``, else where DOCKER_HOST says, else at the default socket.

    Raises:
        ImageError: when none answers.
    """
    settings = {"base_url": address} if address else kwargs_from_env()
    try:
        return docker.APIClient(**settings, version="auto", timeout=600)
    except DockerException as error:
        raise ImageError(f"no container engine answers: {error}; start one, or set DOCKER_HOST") from error


NAMES = ("nfd-worker", "driver-builder", "loader", "buildah", "edu-workload")
"""What the base of ``deploy/`` and the example need."""
EVERY = (*NAMES, "device-agent")
_PROGRAMS = ("nfd-worker", "driver-builder", "device-agent")


def build_all(
    api: docker.APIClient,
    registry: str,
    *,
    base_image: str,
    say: Say,
    names: Collection[str] = NAMES,
    keep: bool = False,
    push: bool = True,
    tag: str = "latest",
    labels: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Build and push the images of these names; gives name to reference.

    ``registry`` is ``host[:port][/path]``; the engine must be logged in where that needs a password. With ``keep`` what
    is built is kept in the cache, and what any engine has built before is taken from there. ``labels`` come beside
    those of the Dockerfiles.
    """
    programs = _programs(say) if set(_PROGRAMS).intersection(names) else []
    loader = REPOSITORY / "driver_builder/loader"
    of_loader = [(path.name, path.read_bytes()) for path in (loader / "loader.sh", loader / "unzstd.c")]
    images = {}
    for image, dockerfile, files in (
        ("nfd-worker", REPOSITORY / "dockerfiles/nfd-worker/Dockerfile", programs),
        ("driver-builder", REPOSITORY / "dockerfiles/driver-builder/Dockerfile", programs),
        ("device-agent", REPOSITORY / "dockerfiles/device-agent/Dockerfile", programs),
        ("loader", REPOSITORY / "dockerfiles/loader/Dockerfile", of_loader),
        ("buildah", REPOSITORY / "dockerfiles/buildah/Dockerfile", []),
        ("edu-workload", *_workload()),
    ):
        if image not in names:
            continue
        reference = f"{registry}/driverwright/{image}:{tag}"
        context = [("Dockerfile", dockerfile.read_bytes()), *files]
        build = _build_once if keep else _build
        build(api, reference, _tar(context), base_image, _prefixed(image, say), labels=labels or {})
        if push:
            say(f"{image}: pushing")
            if keep:
                push_kept(api, reference, partial(_push, api, reference))
            else:
                _push(api, reference)
        images[image] = reference
    return images


def _programs(say: Say) -> list[tuple[str, bytes]]:
    """The wheels of all programs, as files of a build context."""
    say("collecting wheels")
    return [(f"wheels/{wheel.name}", wheel.read_bytes()) for wheel in kept_wheels()]


def push_base_image(api: docker.APIClient, registry: str, *, base_image: str) -> str:
    """Push the base image of drivers, for builds on nodes without the engine that has it; gives its reference there."""
    reference = f"{registry}/{base_image}"
    repository, _, tag = reference.rpartition(":")
    api.tag(base_image, repository, tag)
    push_kept(api, reference, partial(_push, api, reference))
    return reference


def _prefixed(name: str, say: Say) -> Say:
    return lambda line: say(f"{name}: {line}")


def kept_wheels() -> list[Path]:
    """Return the wheels that the images are made of, kept in the cache.

    Ours is made anew for another source, those it needs for other dependencies and each day.
    """
    own = own_wheel()
    needed = cached_folder(
        f"wheels/needed-{_digest(('pyproject.toml',))}-{IMAGE_PYTHON}-{time.time() // 86400:.0f}",
        lambda folder: _download_needed(own, folder),
    )
    forget_old(needed, _WHEELS_KEPT)
    return sorted((own, *needed.glob("*.whl")), key=lambda wheel: wheel.name)


def own_wheel() -> Path:
    """Return the wheel of all programs, kept in the cache; another source makes another one."""
    folder = cached_folder(f"wheels/own-{_digest(_SOURCE)}", make_wheel)
    forget_old(folder, _WHEELS_KEPT)
    return next(folder.glob("*.whl"))


def _digest(parts: Iterable[str]) -> str:
    """Digest files, and all files below folders."""
    digest = hashlib.sha256()
    for part in parts:
        path = REPOSITORY / part
        files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
        for file in files:
            if "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(REPOSITORY)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def make_wheel(folder: Path) -> None:
    """Make the wheel of all programs: the same source gives the same bytes."""
    with _copied_source() as source:
        make_wheel_of(source, folder)


def make_wheel_of(source: Path, folder: Path) -> None:
    """Make the wheel of a source: setuptools writes into it."""
    _run([*_PIP, "wheel", "--no-deps", "--wheel-dir", str(folder), str(source)])


def make_sdist(folder: Path) -> Path:
    """Make the source distribution, from which the same wheel can be made; return it."""
    with _copied_source() as source:
        _run([sys.executable, "-m", "build", "--sdist", "--outdir", str(folder), str(source)])
    return next(folder.glob("*.tar.gz"))


@contextmanager
def _copied_source() -> Iterator[Path]:
    """Give a copy, because setuptools leaves a build folder behind and would pack what it finds there next time."""
    with TemporaryDirectory(prefix="driverwright-source-") as name:
        # Not what Python keeps beside modules: a process that imports one makes a file there and renames it.
        copy_folder = partial(shutil.copytree, ignore=shutil.ignore_patterns("__pycache__"))
        for part in _SOURCE:
            path = REPOSITORY / part
            copy = copy_folder if path.is_dir() else shutil.copy2
            copy(path, Path(name) / part)
        yield Path(name)


def _download_needed(own: Path, folder: Path) -> None:
    """Download every wheel that ours needs on the images' Python."""
    platforms = [word for platform in _PLATFORMS for word in ("--platform", platform)]
    _run(
        [*_PIP, "download", "--only-binary=:all:", "--python-version", IMAGE_PYTHON, "--implementation", "cp",
         *platforms, "--dest", str(folder), f"driverwright[agent,builder,nvidia] @ {own.as_uri()}"]
    )  # fmt: skip
    (folder / own.name).unlink()


def _workload() -> tuple[Path, list[tuple[str, bytes]]]:
    folder = REPOSITORY / "examples/edu-driver/workload"
    files = [(path.name, path.read_bytes()) for path in sorted(folder.iterdir()) if path.name != "Dockerfile"]
    return folder / "Dockerfile", files


def _run(argv: list[str]) -> None:
    # A fixed time in the wheel keeps its bytes, and with them the engine's layer cache, the same for the same source.
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "315532800"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise ImageError(f"{' '.join(argv[:5])} ... ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def _build_once(
    api: docker.APIClient, reference: str, context: io.BytesIO, base_image: str, say: Say, *, labels: Mapping[str, str]
) -> None:
    """Build an image, unless it is kept; each day anew, because of the packages it installs."""
    base = api.inspect_image(base_image)["Id"]
    repository, _, tag = reference.rpartition(":")
    neutral = f"kept/{repository.rpartition('/')[2]}"
    day = f"{time.time() // 86400:.0f}"
    names = f"{neutral} {base} {day} {sorted(labels.items())}\0"
    key = hashlib.sha256(names.encode() + context.getvalue()).hexdigest()

    def make(folder: Path) -> None:
        _build(api, f"{neutral}:{tag}", context, base_image, say, labels=labels)
        with (folder / "image.tar").open("wb") as file:
            file.writelines(api.get_image(f"{neutral}:{tag}"))

    kept = cached_folder(f"images/{key[:16]}", make)
    forget_old(kept, _IMAGES_KEPT)
    if not api.images(f"{neutral}:{tag}"):
        say("taking it from the cache")
        with (kept / "image.tar").open("rb") as file:
            api.load_image(file)
    api.tag(f"{neutral}:{tag}", repository, tag)


def _build(
    api: docker.APIClient, reference: str, context: io.BytesIO, base_image: str, say: Say, *, labels: Mapping[str, str]
) -> None:
    stream = api.build(
        fileobj=context, custom_context=True, tag=reference, rm=True, forcerm=True, decode=True,
        network_mode="host", buildargs={"BASE_IMAGE": base_image}, labels=dict(labels),
    )  # fmt: skip
    log: list[str] = []
    for item in stream:
        if "error" in item:
            raise ImageError(f"building {reference}: {item['error']}\n" + "\n".join(log[-20:]))
        line = str(item.get("stream", "")).strip()
        if line:
            log.append(line)
            say(line)


def _push(api: docker.APIClient, reference: str) -> None:
    for item in api.push(reference, stream=True, decode=True):
        if "error" in item:
            raise ImageError(f"pushing {reference}: {item['error']}")


def _tar(files: Iterable[tuple[str, bytes]]) -> io.BytesIO:
    """Make a context whose bytes depend on nothing but the files, so that the engine's cache holds."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in sorted(files):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            tar.addfile(member, io.BytesIO(content))
    buffer.seek(0)
    return buffer


def main() -> int:
    """Build and push for a registry of the user's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--registry", required=True, metavar="HOST[/PATH]", help="where to push to")
    parser.add_argument("--tag", default="latest", help="their tag (default: latest)")
    parser.add_argument("--base-image", default=BASE_IMAGE, help="base of all images")
    parser.add_argument("--docker-host", help="container engine (default: DOCKER_HOST)")
    flags = parser.parse_args()
    try:
        api = local_engine(flags.docker_host)
        labels = oci_labels(read_origin(REPOSITORY, os.environ), base_image=flags.base_image)
        images = build_all(
            api, flags.registry, base_image=flags.base_image, say=print, names=EVERY, tag=flags.tag, labels=labels
        )
    except (ImageError, OriginError, DockerException) as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    for name, reference in images.items():
        print(f"{name}: {reference}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
