"""Container images on the guests' second disk, loaded before they boot.

An emulated CPU takes minutes to unpack an image that this machine unpacks in a second. So a containerd of the host,
the same version as the guests', pulls the images into a folder, which becomes the file system that guests mount at
/var/lib/containerd.
"""

from __future__ import annotations

import hashlib
import json
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

from testbed.command import run
from testbed.errors import TestbedError
from testbed.guest.disk import make_file_system
from testbed.process import Processes
from testbed.progress import Progress
from testbed.registry import Registry

PACKAGES = ("containerd",)
_FREE_MIB = 1024
_NAME = "preload-containerd"
_READY_TIMEOUT = 240.0
_MANIFEST_TYPES = (
    "application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json, "
    "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json"
)


def split_reference(reference: str, registry: Registry) -> tuple[str, str]:
    """Split an image reference into the repository's path in the registry and its tag or digest."""
    for host in (registry.host, f"localhost:{registry.port}"):
        if reference.startswith(f"{host}/"):
            path = reference.removeprefix(f"{host}/")
            repository, separator, name = path.partition("@") if "@" in path else path.rpartition(":")
            return (repository, name) if separator else (path, "latest")
    hint = f"push it to the testbed's registry first, as {registry.host}/..."
    raise TestbedError(f"{reference} is not in the testbed's registry", hint=hint)


def digest_of(reference: str, registry: Registry) -> str:
    """Return the digest of an image in the registry."""
    repository, name = split_reference(reference, registry)
    request = urllib.request.Request(f"{registry.url}/v2/{repository}/manifests/{name}", method="HEAD")  # noqa: S310
    request.add_header("Accept", _MANIFEST_TYPES)
    if registry.username is not None:
        request.add_header("Authorization", "Basic " + b64encode(_credentials(registry).encode()).decode())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=30) as response:
            return str(response.headers["Docker-Content-Digest"])
    except urllib.error.HTTPError as error:
        with error:
            raise TestbedError(f"the registry has no {reference}: HTTP {error.code}") from error


def ensure_images_disk(processes: Processes, registry: Registry, images: Sequence[str], progress: Progress) -> Path:
    """Return the template of the guests' second disk, with these images; made anew only when one has changed."""
    digests = {image: digest_of(image, registry) for image in sorted(set(images))}
    key = hashlib.sha256(json.dumps(digests).encode()).hexdigest()[:12]
    template = processes.folder / f"images-{key}.img"
    if not template.exists():
        with progress.step(f"Load {len(digests)} images for the guests") as step:
            content = processes.folder / f"images-{key}"
            try:
                _pull(processes, registry, list(digests), content, progress)
                step.detail("writing the file system")
                fresh = template.with_suffix(".new")
                make_file_system(content / "root", fresh, free_mib=_FREE_MIB)
                fresh.rename(template)
            finally:
                run(["rm", "-rf", content])
    return template


def _pull(processes: Processes, registry: Registry, images: Sequence[str], content: Path, progress: Progress) -> None:
    content.mkdir()
    config, address = content / "config.toml", content / "c.sock"
    config.write_text(_configuration(content, address))
    ctr = ["ctr", "--address", str(address), "--namespace", "k8s.io"]
    processes.spawn(_NAME, ["containerd", "--config", config])
    try:
        processes.wait_ready(
            _NAME, lambda: address.exists() and "Server:" in run([*ctr, "version"], check=False), _READY_TIMEOUT
        )
        login = ["--user", _credentials(registry)] if registry.username is not None else []
        for image in images:
            with progress.step(f"Load {image}"):
                run([*ctr, "images", "pull", "--plain-http", "--snapshotter=overlayfs", *login, image], timeout=300)
                # Without the label containerd's Kubernetes side does not see what another client has pulled.
                run([*ctr, "images", "label", image, "io.cri-containerd.image=managed"])
    finally:
        processes.stop(_NAME)


def _credentials(registry: Registry) -> str:
    return f"{registry.username}:{registry.password}"


def _configuration(content: Path, address: Path) -> str:
    snapshotters = [f"io.containerd.snapshotter.v1.{name}" for name in ("aufs", "btrfs", "zfs", "devmapper")]
    unused = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.restart", "io.containerd.internal.v1.opt"]
    return f"""version = 2
root = "{content}/root"
state = "{content}/state"
disabled_plugins = {json.dumps(unused + snapshotters)}
[grpc]
  address = "{address}"
"""
