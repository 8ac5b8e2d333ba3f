"""Documents attached to an image, in registries that list them and in those that do not."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from driver_builder.base.errors import RegistryRefused
from driver_builder.registry.referrers import fallback_tag, push_referrer, with_referrer
from driver_builder.registry.registry import RegistryClient
from tests.support.driver_builder.scripted_registry import MemoryRegistry, scripted_registry
from tests.support.loopback import LOOPBACK

SUBJECT = b'{"schemaVersion": 2}'
DIGEST = f"sha256:{hashlib.sha256(SUBJECT).hexdigest()}"
TAG = DIGEST.replace(":", "-")
SPDX = "application/spdx+json"


@pytest.fixture(params=[False, True], ids=["not a list", "list"])
def registry(request: pytest.FixtureRequest) -> Iterator[tuple[RegistryClient, MemoryRegistry]]:
    """A registry of each kind."""
    memory = MemoryRegistry(keeps_referrers=request.param)
    with scripted_registry(memory) as server:
        yield RegistryClient(server.host, plain_http=True, reach=LOOPBACK), memory


def push(client: RegistryClient, content: bytes) -> str:
    """Attach a document."""
    return push_referrer(
        client, "team/edu", subject=SUBJECT, artifact_type=SPDX, content=content, annotations={"a": "b"}
    )


def test_a_document_refers_to_its_image(registry: tuple[RegistryClient, MemoryRegistry]) -> None:
    """As an artifact of its own media type, with the empty config that OCI has for those."""
    client, memory = registry
    manifest = memory.manifest(push(client, b"document"))
    assert manifest["subject"] == {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": DIGEST,
        "size": len(SUBJECT),
    }
    assert (manifest["artifactType"], manifest["annotations"]) == (SPDX, {"a": "b"})
    assert manifest["config"]["digest"] == "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert [memory.blobs[layer["digest"]] for layer in manifest["layers"]] == [b"document"]


def test_the_list_is_kept_where_the_registry_keeps_none(registry: tuple[RegistryClient, MemoryRegistry]) -> None:
    """Under a tag made of the image's digest; each document once, however often it is pushed."""
    client, memory = registry
    digests = [push(client, b"one"), push(client, b"two"), push(client, b"one")]
    if memory.keeps_referrers:
        assert TAG not in memory.manifests
        return
    index = memory.manifest(TAG)
    assert memory.manifests[TAG][0] == index["mediaType"] == "application/vnd.oci.image.index.v1+json"
    assert [entry["digest"] for entry in index["manifests"]] == digests[:2]
    assert all((entry["artifactType"], entry["annotations"]) == (SPDX, {"a": "b"}) for entry in index["manifests"])


def test_what_others_attached_stays() -> None:
    """Entries and fields of the index that are not ours are kept."""
    memory = MemoryRegistry()
    other = {"schemaVersion": 2, "mediaType": "x", "manifests": [{"digest": "sha256:0"}], "annotations": {"c": "d"}}
    memory.manifests[TAG] = ("x", json.dumps(other).encode())
    with scripted_registry(memory) as server:
        digest = push(RegistryClient(server.host, plain_http=True, reach=LOOPBACK), b"one")
    index = memory.manifest(TAG)
    assert [entry["digest"] for entry in index["manifests"]] == ["sha256:0", digest]
    assert index["annotations"] == {"c": "d"}


def test_a_tag_that_is_no_list_is_left_alone() -> None:
    """Somebody's image under that tag is not overwritten."""
    memory = MemoryRegistry()
    memory.manifests[TAG] = ("x", SUBJECT)
    with scripted_registry(memory) as server, pytest.raises(RegistryRefused, match=f"team/edu:{TAG}.*remove that tag"):
        push(RegistryClient(server.host, plain_http=True, reach=LOOPBACK), b"one")
    assert memory.manifests[TAG] == ("x", SUBJECT)


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        pytest.param(None, ["sha256:1"], id="none yet"),
        pytest.param({"manifests": []}, ["sha256:1"], id="an empty one"),
        pytest.param({"manifests": ["x", {"digest": "sha256:0"}]}, ["sha256:0", "sha256:1"], id="others"),
        pytest.param({"manifests": [{"digest": "sha256:1"}]}, None, id="listed already"),
    ],
)
def test_an_entry_is_added_once(index: dict[str, Any] | None, expected: list[str] | None) -> None:
    """None says that nothing has to be written."""
    made = with_referrer(index, {"digest": "sha256:1"})
    entries = None if made is None else [entry["digest"] for entry in made["manifests"] if isinstance(entry, dict)]
    assert entries == expected


def test_the_list_has_a_tag_of_its_own() -> None:
    """The digest, with the one character that no tag may have replaced."""
    assert fallback_tag("sha256:" + "a" * 64) == "sha256-" + "a" * 64
