"""What a program's image has over its base, by package.

``python -m tools.release.image_sizes`` builds the images and prints it.

Sizes are those of the files, unpacked, in all layers above the base, as ``docker images`` counts them.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from posixpath import basename, dirname, join
from tempfile import TemporaryDirectory

import docker
from docker.errors import DockerException

from driver_builder.archives.image_archive import ImageArchive, read_image_archive
from driver_builder.archives.image_layers import absolute, opened_layer
from driver_builder.cli.output import table
from tools import product_images
from tools.product_images import BASE_IMAGE, ImageError
from tools.release.image_packages import Package, canonical, parse_packages, read_documents

MEGABYTE = 1_000_000
LIMITS = {"nfd-worker": 60 * MEGABYTE, "driver-builder": 150 * MEGABYTE, "device-agent": 80 * MEGABYTE}
"""What the image of each program may have over its base."""
_SHOWN = 12
_DEPTH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """Bytes of an image: of its base, and over it by package or, where no package has the files, by folder."""

    base: int
    parts: tuple[tuple[str, int], ...]

    @property
    def over_base(self) -> int:
        """What all parts have together."""
        return sum(size for _, size in self.parts)


def weigh(image: ImageArchive, base_layers: int, packages: Iterable[Package]) -> Weight:
    """Weigh an image whose lowest layers are those of its base.

    Raises:
        VerificationFailed: a layer is damaged.
    """
    owners = {path: f"{package.name} ({package.kind})" for package in packages for path in package.files}
    sizes: Counter[str] = Counter()
    base = 0
    for number, layer in enumerate(image.layers):
        with opened_layer(layer) as tar:
            for member in tar:
                if not member.isreg():
                    continue
                if number < base_layers:
                    base += member.size
                else:
                    sizes[owner_of(canonical(absolute(member.name)), owners)] += member.size
    return Weight(base=base, parts=tuple(sizes.most_common()))


def owner_of(path: str, owners: dict[str, str]) -> str:
    """Return the package that has a file, or whose source a compiled file is of; else the folder. Pure."""
    folder, name = dirname(path), basename(path)
    if basename(folder) == "__pycache__":
        source = join(dirname(folder), f"{name.partition('.')[0]}.py")
        if source in owners:
            return owners[source]
    return owners.get(path) or "/".join(dirname(path).split("/")[:_DEPTH])


def number_of_base_layers(image: ImageArchive, base: Sequence[str]) -> int:
    """Return how many layers are the base's, none where the image stands on nothing. Pure."""
    layers = [layer.diff_id for layer in image.layers]
    return len(base) if layers[: len(base)] == list(base) else 0


def report(name: str, weight: Weight) -> str:
    """Write what makes up an image: the largest parts, and the sum beside the limit. Pure."""
    limit = LIMITS.get(name)
    rows = [(part, megabytes(size)) for part, size in weight.parts[:_SHOWN]]
    rest = weight.parts[_SHOWN:]
    if rest:
        rows.append((f"{len(rest)} others", megabytes(sum(size for _, size in rest))))
    rows.append(("over the base", megabytes(weight.over_base) + (f" of at most {megabytes(limit)}" if limit else "")))
    rows.append(("the base", megabytes(weight.base)))
    return table((name.upper(), "MB"), rows)


def megabytes(size: int) -> str:
    """Write a size with one decimal place."""
    return f"{size / MEGABYTE:.1f}"


def too_large(name: str, over_base: int) -> str:
    """Return what is wrong with the size of an image, empty where nothing is. Pure."""
    limit = LIMITS.get(name)
    if limit is None or over_base <= limit:
        return ""
    return f"{name} has {megabytes(over_base)} MB over its base, at most {megabytes(limit)} are allowed"


def saved(api: docker.APIClient, reference: str, folder: Path) -> ImageArchive:
    """Save an image of the engine below a folder, which the caller removes."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "image.tar"
    with path.open("wb") as file:
        file.writelines(api.get_image(reference))
    image = read_image_archive(path, folder)
    path.unlink()
    return image


def layers_of(api: docker.APIClient, reference: str) -> list[str]:
    """Return the digests of the layers that an image of the engine has."""
    return list(api.inspect_image(reference)["RootFS"]["Layers"])


def main() -> int:
    """Build the images of the programs, and print their sizes; 1 where one is too large."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-image", default=BASE_IMAGE, help="base of all images")
    parser.add_argument("--docker-host", help="container engine (default: DOCKER_HOST)")
    flags = parser.parse_args()
    wrong = []
    try:
        api = product_images.local_engine(flags.docker_host)
        images = product_images.build_all(
            api, "docker.io", base_image=flags.base_image, say=lambda _: None, names=tuple(LIMITS), push=False
        )
        base = layers_of(api, flags.base_image)
        for name, reference in images.items():
            with TemporaryDirectory(prefix="driverwright-image-") as folder:
                image = saved(api, reference, Path(folder))
                weight = weigh(image, number_of_base_layers(image, base), parse_packages(read_documents(image)))
            print(f"{report(name, weight)}\n")
            wrong.append(too_large(name, weight.over_base))
    except (ImageError, DockerException) as error:
        print(f"image sizes: {error}", file=sys.stderr)
        return 1
    for message in filter(None, wrong):
        print(f"image sizes: {message}", file=sys.stderr)
    return 1 if any(wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
