"""One image from request to registry, with a builder that has the image already."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from driver_builder.building.pipeline import build_and_push
from driver_builder.errors import RegistryUnavailable, VerificationFailed
from driver_builder.model.build import BuildRequest, BuiltImage, LogSink, ModuleSpec, SourceFiles
from driver_builder.model.images import ImageRef
from driver_builder.oci.registries import Registries
from driver_builder.oci.registry import RegistryClient
from driver_builder.planning.actions import StartBuild
from driver_builder.spec.driver_spec import RegistrySettings
from tests.unit.driver_builder.factories import KERNEL, target
from tests.unit.driver_builder.image_tars import docker_20, tar_of
from tests.unit.driver_builder.model_world import MemoryClient
from tests.unit.driver_builder.scripted_registry import (
    MemoryRegistry,
    Reply,
    Request,
    ScriptedRegistry,
    scripted_registry,
)

TAG = "1-k"
MODULES = Path(__file__).parents[2] / "data" / "modules"
SYMVERS = (MODULES / f"{KERNEL}.symvers").read_text()
FILES = {
    f"lib/modules/{KERNEL}/updates/dw_helper.ko": (MODULES / "dw_helper.ko").read_bytes(),
    f"lib/modules/{KERNEL}/modules.dep": b"updates/dw_helper.ko:\n",
    "driver/loader": b"#!/bin/busybox sh\n",
}
REQUEST = BuildRequest(
    key="k",
    driver="team/helper",
    version="1",
    target=target(),
    template="debian",
    base_image="debian:bookworm-slim",
    source=SourceFiles(files={}),
    modules=(ModuleSpec(name="dw_helper"),),
)


class ReadyBuilder:
    """A builder whose image lies there."""

    def __init__(self, module_symvers: str = SYMVERS) -> None:
        self._module_symvers = module_symvers

    def build(
        self,
        request: BuildRequest,  # noqa: ARG002  # of the protocol
        *,
        directory: Path,
        log: LogSink,
        cancelled: threading.Event,  # noqa: ARG002
    ) -> BuiltImage:
        """Write the image."""
        log("built")
        archive = docker_20(directory / "image.tar", [tar_of(FILES)])
        return BuiltImage(archive=archive, module_symvers=self._module_symvers, compiler="gcc 12.2.0")


@pytest.fixture
def memory() -> MemoryRegistry:
    """What the registry keeps."""
    return MemoryRegistry()


@pytest.fixture
def server(memory: MemoryRegistry) -> Iterator[ScriptedRegistry]:
    """Serve the registry."""
    with scripted_registry(memory) as server:
        yield server


def build(host: str, builder: ReadyBuilder | None = None) -> tuple[str, list[str]]:
    """Carry out one build; gives digest and log."""
    log: list[str] = []
    action = StartBuild(
        namespace="driverwright",
        request=REQUEST,
        image=ImageRef(host, "team/helper", TAG),
        registry=RegistrySettings(plain_http=True),
        waiting=1,
    )
    digest = build_and_push(
        action,
        builder=builder or ReadyBuilder(),
        registries=Registries(MemoryClient()),
        log=log.append,
        cancelled=threading.Event(),
    )
    return digest, log


def test_a_build_ends_as_a_tagged_image_with_its_papers(server: ScriptedRegistry, memory: MemoryRegistry) -> None:
    """Provenance on the image, the bill of materials attached to it."""
    digest, log = build(server.host)
    assert memory.manifests[TAG] == memory.manifests[digest]
    assert memory.manifest(TAG)["annotations"]["io.driverwright.build-key"] == "k"
    (entry,) = memory.manifest(digest.replace(":", "-"))["manifests"]
    (document,) = memory.manifest(entry["digest"])["layers"]
    names = {item["name"] for item in json.loads(memory.blobs[document["digest"]])["packages"]}
    assert {"dw_helper.ko", "loader", "gcc"} <= names
    assert log[-1] == f"tagged {server.host}/team/helper:{TAG}"


def test_the_tag_is_moved_last(server: ScriptedRegistry) -> None:
    """Whoever sees it finds everything else."""
    build(server.host)
    puts = [request.path.rpartition("/")[2] for request in server.requests if request.method == "PUT"]
    assert puts[-1] == TAG


def test_building_again_gives_the_same_image_and_papers(server: ScriptedRegistry, memory: MemoryRegistry) -> None:
    """Nothing in them bears the time of the build."""
    digest, _ = build(server.host)
    before = (dict(memory.manifests), dict(memory.blobs))
    assert build(server.host)[0] == digest
    assert (memory.manifests, memory.blobs) == before


def test_what_does_not_fit_is_not_pushed(server: ScriptedRegistry) -> None:
    """Not one byte of it."""
    with pytest.raises(VerificationFailed):
        build(server.host, ReadyBuilder(module_symvers=""))
    assert server.requests == []


def test_without_its_papers_an_image_has_no_tag(memory: MemoryRegistry) -> None:
    """A registry that fails while they are attached leaves an image that nobody looks for."""

    def failing(request: Request) -> Reply:
        failed = request.method == "PUT" and b"subject" in request.body
        return Reply(status=503) if failed else memory(request)

    with scripted_registry(failing) as server:
        with pytest.raises(RegistryUnavailable):
            build(server.host)
        client = RegistryClient(server.host, plain_http=True)
        assert client.fetch_manifest("team/helper", TAG) is None
