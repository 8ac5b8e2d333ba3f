"""What makes up an image."""

from pathlib import Path

import pytest

from tests.unit.tools.release.images import BASE, DEBIAN, PYTHON, image
from tools.release.image_packages import parse_packages, read_documents
from tools.release.image_sizes import LIMITS, Weight, number_of_base_layers, report, too_large, weigh


@pytest.fixture(scope="module")
def weight(tmp_path_factory: pytest.TempPathFactory) -> Weight:
    """Weigh the image, whose lowest layer is its base."""
    made = image(tmp_path_factory.mktemp("image"))
    base = number_of_base_layers(made, [made.layers[0].diff_id])
    return weigh(made, base, parse_packages(read_documents(made)))


def test_each_byte_is_somebodys(weight: Weight) -> None:
    """Those of the base, and over it each once, what a higher layer replaces included."""
    assert weight.base == sum(map(len, BASE.values()))
    assert weight.over_base == sum(map(len, (*DEBIAN.values(), *PYTHON.values())))


def test_files_count_for_the_package_that_has_them(weight: Weight) -> None:
    """Compiled files for that of their source; files of nobody for their folder."""
    parts = dict(weight.parts)
    assert parts["python3.11 (deb)"] == 500
    assert parts["libpython3.11-minimal (deb)"] == 30 + 40
    assert parts["google_re2 (pypi)"] == 20 + 25 + 200 + 3
    assert parts["/opt/driverwright"] == 7
    assert parts["/var/lib/dpkg"] == sum(len(text) for path, text in DEBIAN.items() if "/dpkg/" in path)


def test_the_largest_come_first(weight: Weight) -> None:
    """So what to remove is seen at once."""
    sizes = [size for _, size in weight.parts]
    assert sizes == sorted(sizes, reverse=True)


def test_an_image_on_another_base_stands_on_nothing(tmp_path: Path) -> None:
    """All of its layers count, as those of the loader do."""
    made = image(tmp_path)
    assert number_of_base_layers(made, ["sha256:another"]) == 0
    assert number_of_base_layers(made, [layer.diff_id for layer in made.layers[:2]]) == 2


def test_a_report_has_the_parts_and_the_sum_beside_the_limit() -> None:
    """What is small is one line."""
    parts = tuple((f"p{number}", 2_000_000) for number in range(20))
    text = report("nfd-worker", Weight(base=74_900_000, parts=parts))
    assert text.splitlines()[0].split() == ["NFD-WORKER", "MB"]
    assert [line.split()[0] for line in text.splitlines()[1:13]] == [f"p{number}" for number in range(12)]
    assert [line.split() for line in text.splitlines()[13:]] == [
        ["8", "others", "16.0"],
        ["over", "the", "base", "40.0", "of", "at", "most", "60.0"],
        ["the", "base", "74.9"],
    ]


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("nfd-worker", LIMITS["nfd-worker"], ""),
        ("nfd-worker", 60_100_000, "nfd-worker has 60.1 MB over its base, at most 60.0 are allowed"),
        ("buildah", 10**9, ""),
    ],
)
def test_an_image_may_not_be_larger_than_its_limit(name: str, size: int, message: str) -> None:
    """Those of the programs have one."""
    assert too_large(name, size) == message
