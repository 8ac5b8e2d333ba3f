"""The log of a good build, attached to its image in a registry."""

import json

import pytest

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.archives.image_archive import MANIFEST_TYPE, canonical_json, sha256
from driver_builder.builds.bounded_log import unpacked
from driver_builder.builds.log_artifacts import LOG_TYPE, LogArtifacts
from driver_builder.model.build import BuildRequest, ModuleSpec, SourceFiles
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.images import ImageRef
from driver_builder.nodes.changes import StartBuild
from driver_builder.registry.referrers import fallback_tag
from driver_builder.registry.registry_access import Registries
from tests.support.driver_builder.factories import target
from tests.support.driver_builder.memory_client import MemoryClient
from tests.support.driver_builder.scripted_registry import MemoryRegistry, scripted_registry
from tests.support.loopback import LOOPBACK

MANIFEST = canonical_json({"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": {}, "layers": []})
DIGEST = sha256(MANIFEST)


def action(host: str) -> StartBuild:
    """The build of an image at that registry."""
    request = BuildRequest(
        recipe="debian:1", driver=DriverKey("team/edu"), version="1", target=target(), template="debian",
        base_image="debian:bookworm-slim", source=SourceFiles(files={}), modules=(ModuleSpec(name="edu"),),
    )  # fmt: skip
    registry = RegistrySettings(plain_http=True)
    return StartBuild(
        namespace="n", request=request, image=ImageRef(host, "team/edu", "1-k"), registry=registry, waiting=1
    )


def attach(host: str) -> None:
    """Attach a log to the image."""
    LogArtifacts(Registries(MemoryClient(), reach=LOOPBACK)).attach(action(host), DIGEST, ["one", "\x1b[31mtwo\x1b[0m"])


def test_a_log_is_found_by_its_image() -> None:
    """As a document that refers to the image's digest, compressed, without what would speak to a terminal."""
    memory = MemoryRegistry()
    memory.manifests[DIGEST] = (MANIFEST_TYPE, MANIFEST)
    with scripted_registry(memory) as server:
        attach(server.host)
    (entry,) = memory.manifest(fallback_tag(DIGEST))["manifests"]
    assert entry["artifactType"] == LOG_TYPE
    document = json.loads(memory.manifests[entry["digest"]][1])
    assert document["subject"]["digest"] == DIGEST
    (layer,) = document["layers"]
    assert unpacked(memory.blobs[layer["digest"]]) == "one\ntwo\n"


def test_a_log_that_cannot_be_attached_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """The image is pushed and good: nothing is raised."""
    with scripted_registry(MemoryRegistry()) as server:
        attach(server.host)
    assert "cannot attach its log to the image" in caplog.text
    attach("127.0.0.1:1")
    assert "connection refused" in caplog.text
