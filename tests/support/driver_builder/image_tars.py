"""Image archives as Docker's engine saves them, made of plain values."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from driver_builder.archives.image_archive import ImageArchive

Entry = bytes | tarfile.TarInfo
"""A file's content, or any other kind of entry."""


def tar_of(files: Mapping[str, Entry]) -> bytes:
    """One plain tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, entry in files.items():
            content = entry if isinstance(entry, bytes) else b""
            info = tarfile.TarInfo(name) if isinstance(entry, bytes) else entry
            info.name, info.size = name, len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def special(kind: bytes, target: str = "") -> tarfile.TarInfo:
    """A directory, a link or a device."""
    info = tarfile.TarInfo()
    info.type, info.linkname = kind, target
    return info


def read_files(image: ImageArchive, prefix: str) -> dict[str, bytes]:
    """The files at and below ``prefix`` with their contents."""
    return {file.path: file.read() for file in image.files(prefix)}


def digest(content: bytes) -> str:
    """Only the hex digits."""
    return hashlib.sha256(content).hexdigest()


def config_of(layers: Sequence[bytes], **fields: Any) -> bytes:
    """A config as the classic builder leaves it, with fields that differ from run to run."""
    return json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": "2026-11-21T12:30:36.073495236Z",
            "container": "34bd01981386",
            "container_config": {"Hostname": "34bd01981386"},
            "docker_version": "20.10.24+dfsg1",
            "config": {"Entrypoint": ["/driver/loader.sh"], "Image": "sha256:63adc8f2bf5a", "Cmd": None},
            "history": [{"created": "2026-11-21T12:30:35.824423796Z", "created_by": "COPY"}],
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest(layer)}" for layer in layers]},
            **fields,
        }
    ).encode()


def docker_20(path: Path, layers: Sequence[bytes], config: bytes | None = None) -> Path:
    """Write the layout of Docker 20.10: a folder for each layer."""
    config = config or config_of(layers)
    names = [f"{digest(layer)[:12]}{number}/layer.tar" for number, layer in enumerate(layers)]
    manifest = [{"Config": f"{digest(config)}.json", "RepoTags": None, "Layers": names}]
    files = {f"{digest(config)}.json": config, "manifest.json": json.dumps(manifest).encode()}
    path.write_bytes(tar_of(files | dict(zip(names, layers, strict=True))))
    return path


def docker_25(path: Path, layers: Sequence[bytes], stored: Sequence[bytes] | None = None) -> Path:
    """Write the layout of Docker 25 and newer: an OCI layout, with a manifest.json beside it."""
    config = config_of(layers)
    blobs = {f"blobs/sha256/{digest(blob)}": blob for blob in (config, *(stored or layers))}
    config_name, *names = blobs
    manifest = [{"Config": config_name, "RepoTags": None, "Layers": names}]
    path.write_bytes(tar_of(blobs | {"manifest.json": json.dumps(manifest).encode(), "index.json": b"{}"}))
    return path


def oci_layout(path: Path, layers: Sequence[bytes], stored: Sequence[bytes] | None = None) -> Path:
    """Write a tarred OCI layout as buildah and skopeo do, without manifest.json."""
    config = config_of(layers)
    described = [{"digest": f"sha256:{digest(layer)}"} for layer in stored or layers]
    manifest = json.dumps({"config": {"digest": f"sha256:{digest(config)}"}, "layers": described}).encode()
    blobs = {f"blobs/sha256/{digest(blob)}": blob for blob in (config, manifest, *(stored or layers))}
    index = {"manifests": [{"digest": f"sha256:{digest(manifest)}"}]}
    path.write_bytes(tar_of(blobs | {"index.json": json.dumps(index).encode()}))
    return path
