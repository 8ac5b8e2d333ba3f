"""An image as files on disk: read from a ``docker save`` tar, labelled, inspected, and described for a registry.

Place in the flow: a builder leaves a tar, :func:`read_image_archive` makes an :class:`ImageArchive` of it, ``verify``
looks into its layers, ``registry`` pushes it. Nothing here runs a program or speaks to an engine.

Sources of the formats: the Docker image specification 1.2 (``manifest.json``, what ``docker save`` writes in every
version), and the OCI image specification 1.0 (layout, config, manifest, and how layers delete files).

The same layers, settings and labels always have the same digest: what differs from one run of a builder to the next
(time stamps, history, ids of containers) is left out of the config.
"""

import gzip
import hashlib
import json
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, cast

from driver_builder.archives.bounded_tar import TarTooLarge
from driver_builder.archives.image_files import MAX_IMAGE, ImageFile, files_of
from driver_builder.archives.image_layers import Layer, absolute, invalid_image, store_layer
from driver_builder.archives.saved_tar import SavedTar

INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
NO_TIME = "1970-01-01T00:00:00Z"

_PLATFORM_FIELDS = ("architecture", "os", "os.version", "os.features", "variant")
_RUN_FIELDS = ("User", "ExposedPorts", "Env", "Entrypoint", "Cmd", "Volumes", "WorkingDir", "StopSignal", "Labels")
"""What an OCI config says about running the image; the engine's other fields change with every build."""

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

    def files(self, prefix: str) -> Iterator[ImageFile]:
        """The regular files at and below ``prefix``, as a container sees them, each to be read before the next.

        Links are not followed; a hard link reads as the file it is.

        Raises:
            VerificationFailed: IMAGE_INVALID, a layer is damaged or exceeds a limit.
        """
        return files_of(self.layers, absolute(prefix))


def sha256(content: bytes) -> str:
    """``sha256:<hex>``, as registries write digests."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    """What a manifest says about a blob or about another manifest: type, digest, size in bytes."""
    return {"mediaType": media_type, "digest": sha256(content), "size": len(content)}


def canonical_json(value: Mapping[str, Any]) -> bytes:
    """The one text of a value, whatever the order of its keys: digests must not depend on it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def read_image_archive(path: Path, directory: Path) -> ImageArchive:
    """Read a ``docker save`` tar or a tarred OCI layout; its layers go to ``directory``, which the caller removes.

    Raises:
        VerificationFailed: IMAGE_INVALID, it is damaged, holds several images or has layers compressed with zstd.
    """
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("rb") as file:
            parts = SavedTar(file)
            config_name, layer_names = _contents(parts)
            config = _clean_config(json.loads(parts.read(config_name)))
            room = _Room(MAX_IMAGE)
            layers = tuple(
                store_layer(room.taken_by(_chunks(parts, name)), directory / f"layer-{number}.tar.gz")
                for number, name in enumerate(layer_names)
            )
    except TarTooLarge as error:
        raise invalid_image(f"{path.name}: {error}") from error
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise invalid_image(f"{path.name} cannot be read: {error}") from error
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise invalid_image(f"{path.name} is not an image as docker save writes it: {error!r}") from error
    expected = config["rootfs"]["diff_ids"]
    if [layer.diff_id for layer in layers] != expected:
        raise invalid_image(f"the layers in {path.name} are not those its config names: expected {', '.join(expected)}")
    return ImageArchive(config=config, layers=layers)


class _Room:
    """The unpacked size that all layers together may have."""

    def __init__(self, size: int) -> None:
        self._left = size

    def taken_by(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Pass on the chunks of a layer.

        Raises:
            VerificationFailed: IMAGE_INVALID, when there is no room left.
        """
        for chunk in chunks:
            self._left -= len(chunk)
            if self._left < 0:
                raise invalid_image(
                    f"the layers of the image have more than {MAX_IMAGE} bytes; keep only what nodes need"
                )
            yield chunk


def _contents(tar: SavedTar) -> tuple[str, list[str]]:
    """The names of config and layers: from ``manifest.json``, or from the OCI index without one."""
    if "manifest.json" in tar:
        (image,) = json.loads(tar.read("manifest.json"))
        return image["Config"], image["Layers"]
    (entry,) = json.loads(tar.read("index.json"))["manifests"]
    manifest = json.loads(tar.read(_blob(entry)))
    return _blob(manifest["config"]), [_blob(layer) for layer in manifest["layers"]]


def _blob(descriptor: Mapping[str, str]) -> str:
    return "blobs/" + descriptor["digest"].replace(":", "/")


def _clean_config(config: Mapping[str, Any]) -> dict[str, Any]:
    run = config.get("config") or {}
    return {
        **{name: config[name] for name in _PLATFORM_FIELDS if config.get(name)},
        "created": NO_TIME,
        "config": {name: run[name] for name in _RUN_FIELDS if run.get(name)},
        "rootfs": {"type": "layers", "diff_ids": [str(diff_id) for diff_id in config["rootfs"]["diff_ids"]]},
    }


def _chunks(tar: SavedTar, name: str) -> Iterator[bytes]:
    """The layer's plain tar: engines with a containerd image store save their layers compressed."""
    member = tar.open(name)
    magic = member.read(len(_ZSTD_MAGIC))
    member.seek(0)
    if magic == _ZSTD_MAGIC:
        raise invalid_image(f"layer {name} is compressed with zstd; let the engine save it as plain tar or gzip")
    plain = cast(IO[bytes], gzip.GzipFile(fileobj=member)) if magic.startswith(_GZIP_MAGIC) else member
    while chunk := plain.read(_CHUNK):
        yield chunk
