"""Drivers that begin with the toolchain of their kernel: real engine, registry and package archive.

The archive loses the headers of a kernel; drivers for that kernel are built all the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from driver_builder.builds.docker.docker_engine import docker_engine
from driver_builder.builds.templates.templates import render, templates_directory
from driver_builder.model.build import BuildRequest, ModuleSpec, SourceFiles
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.engine_images import is_reserved
from driver_builder.model.images import ImageRef
from driver_builder.model.toolchain import toolchain_image, toolchain_key
from driver_builder.registry.credentials import Credentials
from driver_builder.registry.registry import RegistryClient
from testbed.testbed import Testbed
from tests.engine.test_docker_builder import newest_kernel
from tests.engine.test_failure_classes import GOOD_MAKEFILE, LONELY_KERNEL, compiled, ready
from tests.support.loopback import LOOPBACK
from tests.support.real_parts.apt_repository import Archive, served_headers
from tests.support.real_parts.build_bench import BuildBench
from tests.support.real_parts.images import derive

pytestmark = pytest.mark.every_engine

STAGED_TEMPLATE = """\
FROM {{ base_image }} AS headers
RUN echo installing the headers; mkdir /facts; echo "{{ kernel_version }} SMP" >/facts/vermagic; \\
    echo gcc >/facts/compiler; echo 0x0 >/facts/Module.symvers
FROM headers AS build
COPY source/ /src/
RUN sh /src/build.sh {{ kernel_version }}
FROM scratch
COPY --from=build /out/ /
"""
INSTALLS = ("installing the headers", "apt-get", "driverwright: looking for")
"""What a log has when compiler and headers are installed."""
OTHER_SOURCE = b"""\
#include <linux/module.h>
#include <linux/pci.h>
MODULE_DESCRIPTION("another driver");
MODULE_LICENSE("GPL");
"""


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a template whose headers are installed in no time."""
    folder = tmp_path_factory.mktemp("templates")
    (folder / "staged.Dockerfile.j2").write_text(STAGED_TEMPLATE)
    return folder


def bench(ground: Testbed, repository: str, templates: Path | None, *, toolchains: bool = True) -> BuildBench:
    """A controller's queue that builds into a repository of the test's own."""
    host, engine = ground.registry.host, ground.engine.socket
    return BuildBench(
        engine=engine, host=host, repository=f"toolchains/{repository}", templates=templates, toolchains=toolchains
    )


def quick(ground: Testbed, version: str, **changes: Any) -> BuildRequest:
    """A module that is compiled already, by the quick template."""
    return replace(ready(version=version, template="staged", base_image=ground.small_image), **changes)


def installed(build: BuildBench) -> list[str]:
    """The lines of the last builds that say that something is installed; the log begins anew."""
    found = [line for line in build.log if any(words in line for words in INSTALLS)]
    build.log.clear()
    return found


def toolchain_tag(request: BuildRequest) -> str:
    """The tag of a request's toolchain."""
    return f"toolchain-{toolchain_key(request)}"


@pytest.mark.every_engine(always=True)
def test_the_second_build_for_a_kernel_installs_nothing(engine_ground: Testbed, staged: Path) -> None:
    """The engine pulls what the first build has left in the registry, with the driver's password where it wants one."""
    registry = engine_ground.registry
    registry.set_auth("builder", "the password")
    try:
        with bench(engine_ground, "second", staged) as build:
            build.set_password("the password")
            first, second = quick(engine_ground, "1"), quick(engine_ground, "2", driver=DriverKey("integration/other"))
            assert build.build(first) is None, build.log
            assert installed(build)
            assert build.build(second) is None, build.log
            assert any(line.startswith("building from toolchain ") for line in build.log)
            assert installed(build) == []
            tags = build.tags(auth=("builder", "the password"))
        assert {f"1-{first.key}", f"2-{second.key}", toolchain_tag(first)} <= set(tags)
    finally:
        registry.set_auth(None)


def test_a_requested_rebuild_installs_anew(engine_ground: Testbed, staged: Path) -> None:
    """Its toolchain is another one."""
    with bench(engine_ground, "rebuilt", staged) as build:
        assert build.build(quick(engine_ground, "1")) is None, build.log
        installed(build)
        rebuilt = quick(engine_ground, "1", rebuild="0a")
        assert build.build(rebuilt) is None, build.log
        assert not any("building from toolchain" in line for line in build.log)
        assert toolchain_tag(rebuilt) in build.tags()


def test_a_toolchain_that_the_registry_has_lost_in_part_fails_no_build(engine_ground: Testbed, staged: Path) -> None:
    """The engine cannot pull it; the driver is built as if there were none, and the log says so."""
    with bench(engine_ground, "damaged", staged) as build:
        first = quick(engine_ground, "1", base_image=_own_base(engine_ground))
        assert build.build(first) is None, build.log
        _lose_layers(engine_ground, first, "toolchains/damaged")
        _forget_builds(engine_ground)
        build.log.clear()
        assert build.build(replace(first, version="2")) is None, build.log
        assert any("toolchain" in line and "is not used: " in line for line in build.log), build.log


def _forget_builds(ground: Testbed) -> None:
    """Remove what builds have left in the engine: one whose images containerd keeps asks for no layer that it has."""
    with docker_engine(ground.engine.socket) as api:
        tags = [tag for image in api.images() for tag in image["RepoTags"] or ()]
        for tag in filter(is_reserved, tags):
            api.remove_image(tag)
        api.prune_images()


def _own_base(ground: Testbed) -> str:
    """A base image whose layers no other image in the registry has."""
    name = "toolchains/own-base:1"
    derive(ground, name, {}, "RUN echo mine >/mine", base=ground.small_image)
    return name


def _lose_layers(ground: Testbed, request: BuildRequest, repository: str) -> None:
    """Remove the layers of a toolchain from the registry's disk."""
    reference = toolchain_image(request, ImageRef(ground.registry.host, repository, "1"))
    assert reference is not None
    known = Credentials()
    client = RegistryClient(ground.registry.host, credentials=known, plain_http=True, reach=LOOPBACK)
    manifest = client.fetch_manifest(repository, reference.reference)
    assert manifest is not None
    for layer in manifest["layers"]:
        digest = layer["digest"].removeprefix("sha256:")
        blobs = ground.folder / "registry" / "storage" / "docker" / "registry" / "v2" / "blobs" / "sha256"
        shutil.rmtree(blobs / digest[:2] / digest)


# ---------------------------------------------------------------- an archive that loses headers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the archive serves."""
    return tmp_path_factory.mktemp("archive")


@pytest.fixture(scope="module")
def archive(folder: Path) -> Iterator[Archive]:
    """An archive with headers that nobody else has."""
    with served_headers(folder, like=newest_kernel(), kernel=LONELY_KERNEL, suites=["bookworm"]) as made:
        yield made


def trusting(ground: Testbed, archive: Archive) -> str:
    """The Debian image that trusts the archive's key, with the compiler as the template installs it."""
    name = "toolchains/base:1"
    instructions = render(compiled(), templates_directory(None)).partition("\n")[2]
    compiler, *_ = instructions.partition("\nWORKDIR ")
    trust = "COPY key.asc /etc/apt/trusted.gpg.d/test.asc"
    derive(ground, name, {"key.asc": archive.public_key}, compiler, trust, network="host")
    return name


@pytest.mark.long
def test_a_driver_is_built_after_the_archive_has_lost_the_headers(
    engine_ground: Testbed, archive: Archive, folder: Path
) -> None:
    """A new version, and another driver, for a kernel whose headers are in no archive any more; by our own template."""
    base_image = trusting(engine_ground, archive)
    first = compiled(base_image=base_image, recipe="debian:1", args={"HEADERS_MIRROR": archive.url})
    with bench(engine_ground, "lost", None) as build:
        assert build.build(first) is None, build.log[-20:]
        assert installed(build)
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        files = {"other.c": OTHER_SOURCE, "Makefile": GOOD_MAKEFILE.replace(b"dw.o", b"other.o")}
        other = replace(
            first,
            driver=DriverKey("integration/other"),
            modules=(ModuleSpec(name="other"),),
            source=SourceFiles(files=files),
        )
        for request in (replace(first, version="2"), other):
            assert build.build(request) is None, build.log[-20:]
            assert any(line.startswith("building from toolchain ") for line in build.log)
            assert installed(build) == []
        assert {f"2-{replace(first, version='2').key}", f"1-{other.key}"} <= set(build.tags())
    with bench(engine_ground, "lost-without", None, toolchains=False) as build:
        # A rebuild: the engine itself has kept what the first build installed.
        failure = build.build(replace(first, rebuild="0a"))
        assert failure is not None
        assert failure.reason == "HeadersMissing", failure
