"""docs/distributions.md names the template and the base image of each distribution as the code has them."""

import re
from pathlib import Path

from driver_builder.targets import resolve_target

PAGE = Path(__file__).parents[2] / "docs" / "distributions.md"

WORDS = {"{version}": "VERSION", "{major}": "MAJOR", "{codename}": "CODENAME"}
"""How the page writes what stands for a part of the release."""


def rows() -> dict[str, tuple[str, set[str]]]:
    """Read the first table: the ID of os-release -> its template, and the base images of its row."""
    found: dict[str, tuple[str, set[str]]] = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        ids = re.findall(r"`([a-z-]+)`", cells[0])
        if line.startswith("|") and len(cells) == 4 and ids:
            images = set(re.findall(r"`([^`]+)`", cells[2]))
            found |= {name: (cells[1].strip("`"), images) for name in ids}
    return found


def test_the_page_names_every_distribution_and_its_template() -> None:
    """Whoever adds a distribution adds its row."""
    assert {name: template for name, (template, _) in rows().items()} == resolve_target.TEMPLATES


def test_the_page_names_the_base_images() -> None:
    """In its words for version, major release and codename."""
    for name, image in resolve_target.BASE_IMAGES.items():
        for part, word in WORDS.items():
            image = image.replace(part, word)  # noqa: PLW2901 - one replacement after the other
        assert image in rows()[name][1], name
