"""Everything that a release has, in one folder. Nothing here pushes or publishes it.

What is made of the source alone has the same bytes for the same commit; images do not, because they install packages of
the day.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import docker

from driver_builder.archives.image_archive import ImageArchive
from driver_builder.builds.pipeline.spdx import SPDX_TYPE
from driver_builder.cli.output import table
from driver_builder.model.images import ImageRef
from driver_builder.registry.image_store import push_image
from driver_builder.registry.layout_registry import LayoutRegistry
from driver_builder.registry.oci_layout import opened_layout
from driver_builder.registry.referrers import push_referrer
from tools import product_images
from tools.product_images import BASE_IMAGE, Say
from tools.release import image_sizes, source_files
from tools.release.bill_of_materials import bill_of_materials
from tools.release.image_packages import parse_packages, read_documents
from tools.release.image_sizes import LIMITS, Weight, megabytes
from tools.release.origin import Origin, oci_labels
from tools.release.plain_tar import Entry, write_tar
from tools.release.source_files import ReleaseError, stem

NAMES = ("nfd-worker", "driver-builder", "device-agent", "loader", "buildah")
"""The images that an installation needs."""
HOST = "docker.io"
"""What names of images without a host mean. Nothing of ours is there: ``bundle --import`` moves them elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """An image of the release, its bill of materials, and what it weighs."""

    name: str
    reference: ImageRef
    image: ImageArchive
    materials: bytes
    weight: Weight


def make_release(
    api: docker.APIClient,
    origin: Origin,
    folder: Path,
    *,
    base_image: str = BASE_IMAGE,
    names: Sequence[str] = NAMES,
    say: Say,
) -> list[Made]:
    """Write all files of a release with these images into an empty folder; returns the images.

    Raises:
        ReleaseError: an image is larger than it may be.
        ImageError: a tool failed.
    """
    say("packages, chart, manifests")
    source_files.make_packages(folder, origin)
    source_files.make_chart(folder, origin)
    source_files.make_manifests(folder, origin)
    with TemporaryDirectory(prefix="driverwright-release-") as name:
        scratch = Path(name)
        say("images")
        built = product_images.build_all(
            api, HOST, base_image=base_image, say=lambda _: None, names=names, push=False, tag=origin.version,
            labels=oci_labels(origin, base_image=base_image),
        )  # fmt: skip
        base = image_sizes.layers_of(api, base_image)
        made = []
        for image, reference in built.items():
            say(f"image {image}")
            made.append(_made(image, image_sizes.saved(api, reference, scratch / image), base, origin))
        say("archive of all images")
        _write_images(made, folder, scratch / "layout", origin)
    for item in made:
        (folder / f"{stem(origin)}-{item.name}.spdx.json").write_bytes(item.materials + b"\n")
    wrong = [message for item in made if (message := image_sizes.too_large(item.name, item.weight.over_base))]
    if wrong:
        raise ReleaseError("; ".join(wrong))
    source_files.write_sums(folder)
    return made


def _made(name: str, saved: ImageArchive, base: Sequence[str], origin: Origin) -> Made:
    image = replace(saved, config={**saved.config, "created": origin.created}, annotations=saved.labels)
    documents = read_documents(image)
    reference = ImageRef(HOST, f"driverwright/{name}", origin.version)
    base_layers = image_sizes.number_of_base_layers(image, base)
    return Made(
        name=name,
        reference=reference,
        image=image,
        materials=bill_of_materials(image, reference, documents, origin),
        weight=image_sizes.weigh(image, base_layers, parse_packages(documents)),
    )


def _write_images(made: Iterable[Made], folder: Path, layout_folder: Path, origin: Origin) -> None:
    """Write an archive with an OCI image layout of all images, which ``docker load`` reads as well."""
    loaded = []
    with opened_layout(layout_folder) as layout:
        store = LayoutRegistry(layout, HOST)
        for item in made:
            repository, manifest = item.reference.repository, item.image.manifest_bytes
            digest = push_image(store, repository, item.image)
            push_referrer(store, repository, subject=manifest, artifact_type=SPDX_TYPE, content=item.materials)
            store.tag(repository, digest, item.reference.reference)
            loaded.append(for_docker(json.loads(manifest), item.reference))
    (layout_folder / "manifest.json").write_text(json.dumps(loaded))
    files = [path for path in layout_folder.rglob("*") if path.is_file()]
    entries = [Entry(str(path.relative_to(layout_folder)), path) for path in files]
    (system,) = {f"{item.image.config['os']}-{item.image.config['architecture']}" for item in made}
    write_tar(folder / f"{stem(origin)}-images-{system}.tar", entries, epoch=origin.epoch or 0)


def for_docker(manifest: Mapping[str, Any], reference: ImageRef) -> dict[str, Any]:
    """Describe an image of a layout as the Docker image specification 1.2 does. Pure."""
    config, *layers = (
        "blobs/" + descriptor["digest"].replace(":", "/") for descriptor in (manifest["config"], *manifest["layers"])
    )
    return {"Config": config, "RepoTags": [str(reference)], "Layers": layers}


def summary(folder: Path, made: Sequence[Made]) -> str:
    """Write what makes up the programs' images, and tables of all images and of all files."""
    reports = [image_sizes.report(item.name, item.weight) for item in made if item.name in LIMITS]
    files = [(path.name, megabytes(path.stat().st_size)) for path in sorted(folder.iterdir())]
    return "\n\n".join(
        [*reports, table(("IMAGE", "BASE MB", "OVER IT MB", "AT MOST"), _rows(made)), table(("FILE", "MB"), files)]
    )


def _rows(made: Iterable[Made]) -> Iterator[tuple[str, str, str, str]]:
    for item in made:
        limit = LIMITS.get(item.name)
        sizes = megabytes(item.weight.base), megabytes(item.weight.over_base), megabytes(limit) if limit else "-"
        yield (str(item.reference), *sizes)
