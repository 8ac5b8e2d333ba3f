"""Pushes to the registries of testbeds, each of which begins empty: what any engine has pushed before is kept.

An engine compresses the layers of an image each time that it pushes it, which takes longer than all else that a test
does with our own images.
"""

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker

from driver_builder.model.registry_reach import Reach
from driver_builder.registry.registry import RegistryClient
from testbed.cache import cached_folder, forget_old

_MANIFEST = "manifest.json"
_MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
_LARGEST = 1 << 30
_KEPT = 24
"""The images of three sources."""


def push_kept(api: docker.APIClient, reference: str, push: Callable[[], None]) -> None:
    """Have an image of the engine in the registry that its name says; ``push`` lets the engine push it."""
    host, _, rest = reference.partition("/")
    repository, _, tag = rest.rpartition(":")
    registry = RegistryClient(host, plain_http=True, timeout=600, reach=Reach(local=True))
    pushed: list[bool] = []

    def make(folder: Path) -> None:
        push()
        pushed.append(True)
        content = _manifest(f"http://{host}/v2/{repository}/manifests/{tag}")
        (folder / _MANIFEST).write_bytes(content)
        for digest in _blobs(json.loads(content)):
            (folder / digest).write_bytes(registry.fetch_blob(repository, digest, limit=_LARGEST))

    kept = cached_folder(f"pushed/{api.inspect_image(reference)['Id'].rpartition(':')[2][:16]}", make)
    forget_old(kept, _KEPT)
    if pushed:
        return
    content = (kept / _MANIFEST).read_bytes()
    for digest in _blobs(json.loads(content)):
        registry.upload(repository, digest, kept / digest)
    registry.put_manifest(repository, content, tag=tag, media_type=_MANIFEST_TYPE)


def _manifest(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"Accept": _MANIFEST_TYPE})  # noqa: S310 - a testbed's registry
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
        content: bytes = answer.read()
    return content


def _blobs(manifest: dict[str, Any]) -> list[str]:
    return [item["digest"] for item in (manifest["config"], *manifest["layers"])]
