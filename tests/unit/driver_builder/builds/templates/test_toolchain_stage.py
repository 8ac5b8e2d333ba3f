"""A toolchain's Dockerfile out of a template's, and one that begins with a toolchain; for each of our templates."""

import re
from dataclasses import replace
from typing import Any

import pytest

from driver_builder.builds.templates.templates import (
    Variant,
    render,
    template_versions,
    templates_directory,
)
from driver_builder.builds.templates.toolchain_stage import REFRESHED, from_toolchain, toolchain_dockerfile
from driver_builder.model.build import Source, SourceArchive, SourceFiles, SourceGit, SourcePackage
from tests.unit.driver_builder.builds.templates.test_templates import REQUEST

IMAGE = f"registry.example.com/drivers/edu@sha256:{'0' * 64}"
FILES = SourceFiles(files={"Makefile": b"obj-m := edudrv.o"})
GIT = SourceGit(url="https://a.example/x.git", commit="0" * 40)
ARCHIVE = SourceArchive(url="https://a.example/x.tar", sha256="0" * 64)
PACKAGE = SourcePackage(name="edu-dkms")
PACKAGE_MANAGERS = re.compile(r"\b(?:apt-get|dnf|yum|zypper|curl)\b")
WITHOUT_STAGE = "generic"
"""Installs nothing that is a kernel's before the driver's source says how that is configured."""
with_stage = pytest.mark.parametrize("template", sorted(template_versions().keys() - {WITHOUT_STAGE}))


def dockerfile(template: str, source: Source = FILES, variant: Variant = Variant.ENGINE, **changes: Any) -> str:
    """Render a template of ours."""
    return render(replace(REQUEST, template=template, source=source, **changes), templates_directory(), variant)


def commands(text: str) -> str:
    """Drop comments."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


@with_stage
@pytest.mark.parametrize("variant", list(Variant))
def test_a_driver_is_built_from_it_without_a_package_manager(template: str, variant: Variant) -> None:
    """The only image besides is empty, and the driver's own stage is the same to the letter."""
    whole = dockerfile(template, variant=variant)
    made = from_toolchain(whole, IMAGE)
    assert PACKAGE_MANAGERS.search(commands(whole))
    assert not PACKAGE_MANAGERS.search(commands(made))
    assert re.findall(r"^FROM .*", made, re.MULTILINE) == [
        f"FROM {IMAGE} AS headers", "FROM headers AS build", "FROM scratch",
    ]  # fmt: skip
    assert made.partition("FROM headers AS build")[2] == whole.partition("FROM headers AS build")[2]


@with_stage
def test_it_is_the_beginning_of_the_template(template: str) -> None:
    """Command by command, so that an engine has it in its cache; nothing of the driver is in it, nor of its source."""
    text = toolchain_dockerfile(dockerfile(template))
    assert text is not None
    whole = dockerfile(template)
    assert whole.startswith(text) or text in whole
    assert "edudrv" not in text
    assert "COPY source/" not in text
    of_others = [toolchain_dockerfile(dockerfile(template, source)) or "" for source in (GIT, ARCHIVE)]
    assert [other.split() for other in of_others] == [text.split()] * 2
    assert toolchain_dockerfile(dockerfile(template, variant=Variant.JOB)) == text


@pytest.mark.parametrize("template", ["debian", "ubuntu", "flatcar"])
@pytest.mark.parametrize("source", [GIT, ARCHIVE, PACKAGE])
def test_lists_of_packages_are_refreshed_where_the_driver_needs_some(template: str, source: Source) -> None:
    """Those in the toolchain name versions that the archive has replaced; without an archive they have to do."""
    made = from_toolchain(dockerfile(template, source), IMAGE)
    assert made.startswith(f"FROM {IMAGE} AS headers\n{REFRESHED}\nFROM headers AS build\n")


@pytest.mark.parametrize("template", ["rhel", "sles"])
def test_what_fetches_a_source_stays(template: str) -> None:
    """On these distributions that is another stage, with an archive of its own."""
    made = from_toolchain(dockerfile(template, GIT), IMAGE)
    assert re.findall(r"^FROM .*", made, re.MULTILINE) == [
        "FROM debian:bookworm-slim AS tools", f"FROM {IMAGE} AS headers", "FROM tools AS source",
        "FROM headers AS build", "FROM scratch",
    ]  # fmt: skip
    assert REFRESHED not in made


def test_a_template_without_the_stage_has_none() -> None:
    """Its Dockerfile stays as it is."""
    whole = dockerfile(WITHOUT_STAGE)
    assert toolchain_dockerfile(whole) is None
    assert from_toolchain(whole, IMAGE) == whole
