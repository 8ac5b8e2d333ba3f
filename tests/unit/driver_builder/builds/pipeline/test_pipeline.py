"""One image from request to registry, with a builder that has the image already."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.archives.image_archive import MANIFEST_TYPE, sha256
from driver_builder.base.errors import RegistryRefused, RegistryUnavailable, VerificationFailed
from driver_builder.builds.pipeline.pipeline import build_and_push
from driver_builder.model.build import BuildRequest, BuiltImage, LogSink, ModuleSpec, SourceFiles
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.images import ImageRef
from driver_builder.nodes.changes import StartBuild
from driver_builder.registry.registry import RegistryClient
from driver_builder.registry.registry_access import Registries
from tests.support.driver_builder.factories import KERNEL, target
from tests.support.driver_builder.image_tars import docker_20, tar_of
from tests.support.driver_builder.memory_client import MemoryClient
from tests.support.driver_builder.scripted_registry import (
    MemoryRegistry,
    Reply,
    Request,
    ScriptedRegistry,
    scripted_registry,
)
from tests.support.loopback import LOOPBACK

TAG = "1-k"
MODULES = Path(__file__).parents[4] / "data" / "modules"
SYMVERS = (MODULES / f"{KERNEL}.symvers").read_text()
FILES = {
    f"lib/modules/{KERNEL}/updates/dw_helper.ko": (MODULES / "dw_helper.ko").read_bytes(),
    f"lib/modules/{KERNEL}/modules.dep": b"updates/dw_helper.ko:\n",
    "driver/loader": b"#!/bin/busybox sh\n",
}
REQUEST = BuildRequest(
    recipe="k",
    driver=DriverKey("team/helper"),
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


def build(
    host: str,
    builder: ReadyBuilder | None = None,
    registries: Registries | None = None,
    pushed: Callable[[str], None] = lambda _digest: None,
) -> tuple[str, list[str]]:
    """Carry out one build; returns digest and log."""
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
        registries=registries or Registries(MemoryClient(), reach=LOOPBACK),
        log=log.append,
        cancelled=threading.Event(),
        pushed=pushed,
    )
    return digest, log


def test_a_build_ends_as_a_tagged_image_with_its_papers(server: ScriptedRegistry, memory: MemoryRegistry) -> None:
    """Provenance on the image, the bill of materials attached to it."""
    digest, log = build(server.host)
    assert memory.manifests[TAG] == memory.manifests[digest]
    assert memory.manifest(TAG)["annotations"]["io.driverwright.build-key"] == REQUEST.key
    (entry,) = memory.manifest(digest.replace(":", "-"))["manifests"]
    (document,) = memory.manifest(entry["digest"])["layers"]
    names = {item["name"] for item in json.loads(memory.blobs[document["digest"]])["packages"]}
    assert {"dw_helper.ko", "gcc"} <= names
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
    del memory.manifests[TAG]
    assert build(server.host)[0] == digest
    assert (memory.manifests, memory.blobs) == before


def test_what_does_not_fit_is_not_pushed(server: ScriptedRegistry) -> None:
    """Not one byte of it."""
    with pytest.raises(VerificationFailed):
        build(server.host, ReadyBuilder(module_symvers=""))
    assert {request.method for request in server.requests} == {"GET"}


def test_an_image_that_is_there_by_now_is_not_built_again(server: ScriptedRegistry) -> None:
    """A build may wait for hours for its turn, and another controller may have done it."""
    digest, _ = build(server.host)
    again, log = build(server.host)
    assert again == digest
    assert "built" not in log


class SlowerBuilder(ReadyBuilder):
    """Somebody else pushes while this one builds."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__()
        self._meanwhile = meanwhile

    def build(self, *words: Any, **more: Any) -> BuiltImage:
        """Let the other one win."""
        self._meanwhile()
        return super().build(*words, **more)


def test_who_comes_second_takes_the_image_of_the_first(server: ScriptedRegistry, memory: MemoryRegistry) -> None:
    """Nodes may run it already: its tag is not moved."""
    registries = Registries(MemoryClient(), reach=LOOPBACK)
    config = json.dumps({"config": {"Labels": {"io.driverwright.build-key": REQUEST.key}}}).encode()
    other = json.dumps({"schemaVersion": 2, "config": {"digest": sha256(config)}}).encode()

    def push() -> None:
        memory.blobs[sha256(config)] = config
        memory.manifests |= {TAG: (MANIFEST_TYPE, other), sha256(other): (MANIFEST_TYPE, other)}

    digest, log = build(server.host, SlowerBuilder(push), registries)
    assert digest == sha256(other)
    assert memory.manifests[TAG][1] == other
    assert f"was pushed by another client meanwhile: using {digest}" in log[-1]
    assert list(registries.pushed().values()) == [digest]


def test_a_tag_that_names_something_else_is_not_moved(server: ScriptedRegistry, memory: MemoryRegistry) -> None:
    """Nobody knows what it is, and nodes are given nothing."""
    other = json.dumps({"schemaVersion": 2}).encode()

    def push() -> None:
        memory.manifests[TAG] = (MANIFEST_TYPE, other)

    with pytest.raises(RegistryRefused):
        build(server.host, SlowerBuilder(push))
    assert memory.manifests[TAG][1] == other


def test_what_was_pushed_is_remembered(server: ScriptedRegistry) -> None:
    """By the tag that this build gave it: a plan takes a tag that we moved ourselves."""
    registries = Registries(MemoryClient(), reach=LOOPBACK)
    digest, _ = build(server.host, None, registries)
    assert registries.pushed() == {ImageRef(server.host, "team/helper", TAG): digest}


def test_what_was_there_already_is_remembered(server: ScriptedRegistry) -> None:
    """A try before, or the controller before a restart, may have moved the tag."""
    digest, _ = build(server.host)
    registries = Registries(MemoryClient(), reach=LOOPBACK)
    build(server.host, None, registries)
    assert list(registries.pushed().values()) == [digest]


def test_what_was_pushed_is_reported_before_it_has_a_tag(server: ScriptedRegistry, memory: MemoryRegistry) -> None:
    """A controller that is killed in between has recorded it; what another client pushed is not reported."""
    found: list[tuple[str, bool]] = []
    digest, _ = build(server.host, pushed=lambda digest: found.append((digest, TAG in memory.manifests)))
    assert found == [(digest, False)]
    build(server.host, pushed=lambda digest: found.append((digest, True)))
    assert found == [(digest, False)]


def test_a_tag_that_was_moved_without_an_answer_is_remembered(memory: MemoryRegistry) -> None:
    """The registry did it, and its answer was lost."""
    registries = Registries(MemoryClient(), reach=LOOPBACK)

    def mute(request: Request) -> Reply:
        answer = memory(request)
        return Reply(status=503) if request.method == "PUT" and request.path.endswith(f"/{TAG}") else answer

    with scripted_registry(mute) as server, pytest.raises(RegistryUnavailable):
        build(server.host, None, registries)
    assert list(registries.pushed().values()) == [sha256(memory.manifests[TAG][1])]


def test_without_its_papers_an_image_has_no_tag(memory: MemoryRegistry) -> None:
    """A registry that fails while they are attached leaves an image that nobody looks for."""

    def failing(request: Request) -> Reply:
        failed = request.method == "PUT" and b"subject" in request.body
        return Reply(status=503) if failed else memory(request)

    with scripted_registry(failing) as server:
        with pytest.raises(RegistryUnavailable):
            build(server.host)
        client = RegistryClient(server.host, plain_http=True, reach=LOOPBACK)
        assert client.fetch_manifest("team/helper", TAG) is None
