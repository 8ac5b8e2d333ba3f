"""An image as files on disk: read from a ``docker save`` tar, labelled, looked into, and described for a registry.

Place in the flow: a builder leaves a tar, :func:`read_image_archive` makes an :class:`ImageArchive` of it, ``verify``
looks into its layers, ``registry`` pushes it. Nothing here runs a program or speaks to an engine.

Sources of the formats: the Docker image specification 1.2 (``manifest.json``, what ``docker save`` writes in every
version), and the OCI image specification 1.0 (layout, config, manifest, and how layers delete files).

The same layers, settings and labels always give the same digest: what tells one run of a builder from another one
(time stamps, history, ids of containers) is left out of the config.
"""

import gzip
import hashlib
import json
import posixpath
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, cast

from driver_builder.errors import VerificationFailed, VerificationFailure
from driver_builder.oci.image_layers import Layer, absolute, store_layer

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
NO_TIME = "1970-01-01T00:00:00Z"

_PLATFORM_FIELDS = ("architecture", "os", "os.version", "os.features", "variant")
_RUN_FIELDS = ("User", "ExposedPorts", "Env", "Entrypoint", "Cmd", "Volumes", "WorkingDir", "StopSignal", "Labels")
"""What an OCI config says about running the image; the engine's own fields beside them change with every build."""

_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageArchive:
    """An image of one platform. ``config`` is its OCI config, ``layers`` lie beside each other, lowest first.

    ``annotations`` are those of its manifest: they can be read without fetching the config.
    """

    config: Mapping[str, Any] = field(repr=False)
    layers: tuple[Layer, ...]
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        """The labels in the config."""
        return dict(self.config.get("config", {}).get("Labels", {}))

    @property
    def config_bytes(self) -> bytes:
        """The config blob."""
        return canonical_json(self.config)

    @property
    def manifest_bytes(self) -> bytes:
        """The OCI manifest: what the image's digest is the digest of."""
        config = self.config_bytes
        layers = [{"mediaType": LAYER_TYPE, "digest": layer.digest, "size": layer.size} for layer in self.layers]
        return canonical_json(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST_TYPE,
                "config": descriptor(CONFIG_TYPE, config),
                "layers": layers,
                **({"annotations": dict(self.annotations)} if self.annotations else {}),
            }
        )

    @property
    def digest(self) -> str:
        """``sha256:...`` of the manifest."""
        return sha256(self.manifest_bytes)

    def with_provenance(self, facts: Mapping[str, str]) -> "ImageArchive":
        """The same image with ``facts`` as labels of its config and as annotations of its manifest."""
        return replace(self.with_labels(facts), annotations={**self.annotations, **facts})

    def with_labels(self, labels: Mapping[str, str]) -> "ImageArchive":
        """The same image with ``labels`` beside (and over) those it has."""
        run = {**self.config.get("config", {}), "Labels": self.labels | dict(labels)}
        return replace(self, config={**self.config, "config": run})

    def with_layers(self, layers: Sequence[Layer]) -> "ImageArchive":
        """The same image made of other layers."""
        rootfs = {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]}
        return replace(self, config={**self.config, "rootfs": rootfs}, layers=tuple(layers))

    def read_files(self, prefix: str) -> dict[str, bytes]:
        """The regular files at and below ``prefix``, as a container would see them, by absolute path.

        Links are not followed; a hard link reads as the file it is.
        """
        files: dict[str, bytes] = {}
        for layer in self.layers:
            with tarfile.open(layer.path, "r:gz") as tar:
                changes = _Changes()
                added = {
                    path: _content(tar, member)
                    for path, member in changes.follow(tar)
                    if member.isreg() or member.islnk()
                    if _is_below(path, absolute(prefix))
                }
            files = {path: content for path, content in files.items() if not changes.hide(path)} | added
        return files


def sha256(content: bytes) -> str:
    """``sha256:<hex>``, as registries write digests."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    """What a manifest says about a blob or about another manifest: type, digest, size in bytes."""
    return {"mediaType": media_type, "digest": sha256(content), "size": len(content)}


def canonical_json(value: Mapping[str, Any]) -> bytes:
    """The one text that a value has, whatever order it was made in: what is digested must not depend on that."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def read_image_archive(path: Path, directory: Path) -> ImageArchive:
    """Read a ``docker save`` tar or a tarred OCI layout; its layers go to ``directory``, the caller's to remove.

    Raises:
        VerificationFailed: IMAGE_INVALID, when it is damaged, holds several images or has layers compressed with zstd.
    """
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(path) as tar:
            config_name, layer_names = _contents(tar)
            config = _clean_config(json.loads(_member(tar, config_name)))
            layers = tuple(
                store_layer(_chunks(tar, name), directory / f"layer-{number}.tar.gz")
                for number, name in enumerate(layer_names)
            )
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise _invalid(f"{path.name} cannot be read: {error}") from error
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise _invalid(f"{path.name} is no image as docker save writes it: {error!r}") from error
    expected = config["rootfs"]["diff_ids"]
    if [layer.diff_id for layer in layers] != expected:
        raise _invalid(f"the layers in {path.name} are not those its config names: expected {', '.join(expected)}")
    return ImageArchive(config=config, layers=layers)


def _invalid(message: str) -> VerificationFailed:
    return VerificationFailed(VerificationFailure.IMAGE_INVALID, message)


def _contents(tar: tarfile.TarFile) -> tuple[str, list[str]]:
    """The names of config and layers: from ``manifest.json``, or from the OCI index where there is none."""
    if "manifest.json" in tar.getnames():
        (image,) = json.loads(_member(tar, "manifest.json"))
        return image["Config"], image["Layers"]
    (entry,) = json.loads(_member(tar, "index.json"))["manifests"]
    manifest = json.loads(_member(tar, _blob(entry)))
    return _blob(manifest["config"]), [_blob(layer) for layer in manifest["layers"]]


def _blob(descriptor: Mapping[str, str]) -> str:
    return "blobs/" + descriptor["digest"].replace(":", "/")


def _open_member(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    member = tar.extractfile(name)
    if member is None:
        raise _invalid(f"{name} in the image archive is no file")
    return member


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    with _open_member(tar, name) as member:
        return member.read()


def _clean_config(config: Mapping[str, Any]) -> dict[str, Any]:
    run = config.get("config") or {}
    return {
        **{name: config[name] for name in _PLATFORM_FIELDS if config.get(name)},
        "created": NO_TIME,
        "config": {name: run[name] for name in _RUN_FIELDS if run.get(name)},
        "rootfs": {"type": "layers", "diff_ids": [str(diff_id) for diff_id in config["rootfs"]["diff_ids"]]},
    }


def _chunks(tar: tarfile.TarFile, name: str) -> Iterator[bytes]:
    """The layer's plain tar: engines that keep images as a registry does save their layers compressed."""
    with _open_member(tar, name) as member:
        magic = member.read(len(_ZSTD_MAGIC))
        member.seek(0)
        if magic == _ZSTD_MAGIC:
            raise _invalid(f"layer {name} is compressed with zstd; let the engine save it as plain tar or gzip")
        plain = cast(IO[bytes], gzip.GzipFile(fileobj=member)) if magic.startswith(_GZIP_MAGIC) else member
        while chunk := plain.read(_CHUNK):
            yield chunk


class _Changes:
    """What one layer hides of the layers below it.

    A whiteout ``.wh.NAME`` hides NAME and all below it, ``.wh..wh..opq`` all below its directory; a file hides what was
    at its path, also a directory; a directory hides a file, never what lies in a directory of its name.
    """

    def __init__(self) -> None:
        self.whole: set[str] = set()
        self.contents: set[str] = set()
        self.only: set[str] = set()

    def follow(self, tar: tarfile.TarFile) -> Iterator[tuple[str, tarfile.TarInfo]]:
        """Yield the members that are no whiteouts, with their absolute paths, and remember what each one hides."""
        for member in tar:
            path = absolute(member.name)
            folder, name = posixpath.split(path)
            if name == _OPAQUE:
                self.contents.add(folder)
            elif name.startswith(_WHITEOUT):
                self.whole.add(posixpath.join(folder, name.removeprefix(_WHITEOUT)))
            else:
                (self.only if member.isdir() else self.whole).add(path)
                yield path, member

    def hide(self, path: str) -> bool:
        """Whether the file at ``path`` of a lower layer is gone."""
        above = set(_folders(path))
        return path in self.whole | self.only or not above.isdisjoint(self.whole | self.contents)


def _folders(path: str) -> Iterator[str]:
    while path != "/":
        path = posixpath.dirname(path)
        yield path


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    return file.read() if file else b""
