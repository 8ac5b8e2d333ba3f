"""What a repository has under its tags, and the removal of images, with and without a registry's list of referrers."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from driver_builder.archives.image_archive import INDEX_TYPE
from driver_builder.base.errors import RegistryRefused, RegistryUnauthorized, RegistryUnavailable
from driver_builder.registry import image_removal
from driver_builder.registry.image_removal import TaggedManifests, documents_of, read_tags, remove
from driver_builder.registry.referrers import fallback_tag, push_referrer
from driver_builder.registry.registry import RegistryClient
from tests.support.driver_builder.scripted_registry import (
    MemoryRegistry,
    Reply,
    Request,
    Script,
    scripted_registry,
)
from tests.support.loopback import LOOPBACK

REPOSITORY = "team/edu"


def manifest(name: str) -> bytes:
    """The manifest of an image of 10 bytes."""
    parts = {"config": {"size": 3}, "layers": [{"size": 3}, {"size": 4}]}
    return json.dumps({"schemaVersion": 2, "name": name, **parts}).encode()


def digest_of(content: bytes) -> str:
    """Its digest."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


IMAGE, OTHER = manifest("image"), manifest("other")
DIGEST = digest_of(IMAGE)


@dataclass(frozen=True)
class Place:
    """A registry with an image under ``1-k`` and another one under ``2-k``."""

    memory: MemoryRegistry
    client: RegistryClient

    def attach(self, content: bytes, subject: bytes = IMAGE) -> str:
        """Attach a document."""
        return push_referrer(
            self.client, REPOSITORY, subject=subject, artifact_type="application/spdx+json", content=content
        )

    def documents(self, **options: frozenset[str]) -> set[str]:
        """Find what belongs to the image."""
        return set(documents_of(self.client, REPOSITORY, DIGEST, read_tags(self.client, REPOSITORY), **options))


@pytest.fixture(
    params=[
        pytest.param({}, id="not a list"),
        pytest.param({"keeps_referrers": True}, id="list"),
        pytest.param({"keeps_tags": True}, id="tags that stay"),
    ]
)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A registry of each kind."""
    memory = MemoryRegistry(page=2, **request.param)
    with scripted_registry(memory) as server:
        client = RegistryClient(server.host, plain_http=True, reach=LOOPBACK)
        client.put_manifest(REPOSITORY, IMAGE, tag="1-k")
        client.put_manifest(REPOSITORY, OTHER, tag="2-k")
        yield Place(memory, client)


def test_every_tag_is_read_page_by_page(place: Place) -> None:
    """With sizes; an index lists more digests, and each has the index's tag as a name."""
    index = json.dumps({"schemaVersion": 2, "manifests": [{"digest": DIGEST}, {"digest": "x"}, 1]}).encode()
    for tag in ("both", "x"):
        place.client.put_manifest(REPOSITORY, index, tag=tag, media_type=INDEX_TYPE)
    place.client.put_manifest(REPOSITORY, IMAGE, tag="stable")
    seen = read_tags(place.client, REPOSITORY)
    assert seen.tags.keys() == {"1-k", "2-k", "both", "stable", "x"}
    assert seen.sizes == {DIGEST: 10, digest_of(OTHER): 10}
    assert seen.names == {
        DIGEST: {"1-k", "stable", "both", "x"},
        digest_of(OTHER): {"2-k"},
        digest_of(index): {"both", "x"},
    }


def test_an_image_goes_with_its_tag_and_everything_that_refers_to_it(place: Place) -> None:
    """Bill of materials, log, signature and the list of referrers; all of the other image stays."""
    place.attach(b"materials")
    place.attach(b"log")
    signature = place.client.put_manifest(REPOSITORY, manifest("signature"), tag=f"{fallback_tag(DIGEST)}.sig")
    before = set(place.memory.manifests)
    place.attach(b"materials of the other", OTHER)
    others = set(place.memory.manifests) - before | {"2-k", digest_of(OTHER)}

    found, tagged = place.documents(), read_tags(place.client, REPOSITORY)
    assert signature in found
    assert len(found) == (3 if place.memory.keeps_referrers else 4)
    assert [remove(place.client, REPOSITORY, digest, tagged) for digest in (DIGEST, *sorted(found))] == [
        True, *(True for _ in found),
    ]  # fmt: skip
    assert others <= set(place.memory.manifests)
    assert not {DIGEST, *found} & set(place.memory.manifests)
    assert set(place.memory.tags) == {tag for tag in others if not tag.startswith("sha256:")}
    assert not remove(place.client, REPOSITORY, DIGEST, tagged)


def test_a_tag_that_names_another_image_meanwhile_stays() -> None:
    """Though it named the one that is removed when the repository was read."""
    memory = MemoryRegistry(keeps_tags=True)
    with scripted_registry(memory) as server:
        client = RegistryClient(server.host, plain_http=True, reach=LOOPBACK)
        for tag in ("1-k", "stable"):
            client.put_manifest(REPOSITORY, IMAGE, tag=tag)
        tagged = read_tags(client, REPOSITORY)
        client.put_manifest(REPOSITORY, OTHER, tag="stable")
        assert remove(client, REPOSITORY, DIGEST, tagged)
    assert memory.tags == ["stable"]


def test_what_is_left_of_an_image_is_found_when_it_is_gone(place: Place) -> None:
    """A removal that was interrupted goes on."""
    place.attach(b"materials")
    before = place.documents()
    assert place.client.delete_manifest(REPOSITORY, DIGEST)
    assert place.documents() == before != set()


def test_what_has_a_name_of_its_own_stays(place: Place) -> None:
    """A document that somebody has tagged, and anything that is needed or belongs to another image."""
    mine, tagged = place.attach(b"mine"), place.attach(b"tagged")
    foreign = place.attach(b"foreign", OTHER)
    place.client.put_manifest(REPOSITORY, place.memory.manifests[tagged][1], tag="sbom")
    protected = place.client.put_manifest(REPOSITORY, manifest("needed"))
    place.client.put_manifest(REPOSITORY, manifest("needed"), tag=f"{fallback_tag(DIGEST)}.sig")
    # Somebody lists in vain what does not refer to the image.
    listed = [{"digest": digest} for digest in (mine, tagged, foreign, protected, digest_of(OTHER), DIGEST)]
    index = json.dumps({"schemaVersion": 2, "manifests": listed}).encode()
    place.client.put_manifest(REPOSITORY, index, tag=fallback_tag(DIGEST), media_type=INDEX_TYPE)
    assert place.documents(protected=frozenset({protected})) == {mine, digest_of(index)}


def test_a_tag_that_goes_meanwhile_names_nothing() -> None:
    """It was listed, and is not there any more."""
    memory = MemoryRegistry()

    def script(request: Request) -> Reply:
        return Reply(body=b'{"tags": ["1-k", 7]}') if request.path.endswith("/tags/list") else memory(request)

    with scripted_registry(script) as server:
        assert read_tags(RegistryClient(server.host, plain_http=True, reach=LOOPBACK), REPOSITORY) == TaggedManifests()


def answer(status: int, code: str = "", body: bytes = b"") -> Script:
    """A registry that gives one answer to everything."""
    error = json.dumps({"errors": [{"code": code, "message": "no"}]}).encode()
    return lambda _request: Reply(status=status, body=error if code else body)


def endless(request: Request) -> Reply:
    """A registry whose list of tags has no end."""
    return Reply(body=b'{"tags": ["a"]}', headers={"Link": f'<{request.path}?last=a>; rel="next"'})


def elsewhere(request: Request) -> Reply:
    """A registry whose list goes on nowhere."""
    return Reply(body=b'{"tags": ["a"]}', headers={"Link": f'<http://[>; rel="next" {request.path}'})


@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        pytest.param(answer(403, "DENIED"), RegistryUnauthorized, "DENIED", id="denied"),
        pytest.param(answer(503), RegistryUnavailable, "503", id="unavailable"),
        pytest.param(answer(404), RegistryRefused, "404", id="a 404 of something else"),
        pytest.param(answer(200, body=b"<html>"), RegistryRefused, "did not list tags/list", id="a web page"),
        pytest.param(answer(200, body=b"[]"), RegistryRefused, "did not list tags/list", id="another shape"),
        pytest.param(endless, RegistryRefused, "more of team/edu than", id="endless"),
        pytest.param(elsewhere, RegistryRefused, "not a URL", id="a next page that is none"),
    ],
)
def test_tags_that_cannot_all_be_read_are_an_error(script: Script, error: type[Exception], words: str) -> None:
    """A part of them would look like images without other tags."""
    with scripted_registry(script) as server, pytest.raises(error, match=words):
        read_tags(RegistryClient(server.host, plain_http=True, reach=LOOPBACK), REPOSITORY)


def test_a_repository_that_the_registry_does_not_know_has_no_tags() -> None:
    """A registry may forget a repository whose last image is gone."""
    with scripted_registry(answer(404, "NAME_UNKNOWN")) as server:
        client = RegistryClient(server.host, plain_http=True, reach=LOOPBACK)
        assert read_tags(client, REPOSITORY) == TaggedManifests()


def test_too_many_tags_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one costs a request."""
    monkeypatch.setattr(image_removal, "MAX_TAGS", 2)
    with (
        scripted_registry(answer(200, body=b'{"tags": ["a", "b", "c"]}')) as server,
        pytest.raises(RegistryRefused, match="3 tags"),
    ):
        read_tags(RegistryClient(server.host, plain_http=True, reach=LOOPBACK), REPOSITORY)


@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        pytest.param(answer(405, "UNSUPPORTED"), RegistryRefused, "did not remove .*UNSUPPORTED", id="unsupported"),
        pytest.param(answer(403, "DENIED"), RegistryUnauthorized, "DENIED", id="denied"),
        pytest.param(answer(401, "UNAUTHORIZED"), RegistryUnauthorized, "UNAUTHORIZED", id="no password"),
        pytest.param(answer(404), RegistryRefused, "did not remove", id="a 404 of something else"),
        pytest.param(answer(400, "UNSUPPORTED"), RegistryRefused, "did not remove", id="bad request"),
        pytest.param(answer(500), RegistryUnavailable, "500", id="failure"),
    ],
)
def test_a_removal_that_was_not_done_is_an_error(script: Script, error: type[Exception], words: str) -> None:
    """The message has the registry's words."""
    with scripted_registry(script) as server, pytest.raises(error, match=words):
        RegistryClient(server.host, plain_http=True, reach=LOOPBACK).delete_manifest(REPOSITORY, DIGEST)
