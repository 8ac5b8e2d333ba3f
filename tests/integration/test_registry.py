"""Images in a real registry: absent, pushed, tagged, refused, and a registry that is away."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from driver_builder.credentials import Credentials, credentials_for, parse_docker_config
from driver_builder.errors import RegistryRefused, RegistryUnavailable
from driver_builder.image_archive import ImageArchive, read_image_archive
from driver_builder.image_state import Absent, Present, Unauthorised, Unreachable
from driver_builder.registry import RegistryClient
from tests.proving_ground.ground import ProvingGround
from tests.unit.driver_builder.image_tars import docker_20, special, tar_of

pytestmark = pytest.mark.integration

LABELS = {"driverwright.io/key": "k1"}


@pytest.fixture
def repository(request: pytest.FixtureRequest) -> str:
    """A repository of the test's own."""
    return f"integration/{request.node.name.replace('_', '-').lower()}"


@pytest.fixture
def image(tmp_path: Path) -> ImageArchive:
    """An image of two layers."""
    lower = tar_of({"driver/": special(tarfile.DIRTYPE), "driver/loader": b"#!/bin/busybox sh\n" * 100})
    upper = tar_of({"driver/kernel": b"6.1.0-55-cloud-amd64\n"})
    return read_image_archive(docker_20(tmp_path / "image.tar", [lower, upper]), tmp_path).with_labels(LABELS)


@pytest.fixture
def with_password(engine_ground: ProvingGround) -> Iterator[Credentials]:
    """The registry asks for a password while the test runs."""
    engine_ground.registry.set_auth("anna", "s3cret")
    yield Credentials(username="anna", password="s3cret")
    engine_ground.registry.set_auth(None)


def client_of(ground: ProvingGround, credentials: Credentials | None = None) -> RegistryClient:
    """A client of the ground's registry."""
    return RegistryClient(ground.registry.host, plain_http=True, credentials=credentials, timeout=10)


def uploads(ground: ProvingGround) -> int:
    """How many blobs and manifests the registry has taken, by its own log."""
    return ground.processes.log("registry").read_text().count("http.request.method=PUT")


def test_an_image_is_pushed_by_digest_and_then_tagged(
    engine_ground: ProvingGround,
    repository: str,
    image: ImageArchive,
) -> None:
    """The tag names nothing until the whole image is there; an engine pulls what was pushed."""
    client = client_of(engine_ground)
    assert client.inspect(repository, "v1") == Absent()

    digest = client.push(repository, image)
    assert client.inspect(repository, "v1") == Absent()
    assert client.inspect(repository, digest) == Present(digest=digest, labels=LABELS)

    client.tag(repository, digest, "v1")
    assert client.inspect(repository, "v1") == Present(digest=digest, labels=LABELS)
    assert client.inspect(repository, "v2") == Absent()

    engine = engine_ground.engine.client()
    try:
        engine.pull(f"{engine_ground.registry.host}/{repository}", tag="v1")
        pulled = engine.inspect_image(f"{engine_ground.registry.host}/{repository}@{digest}")
    finally:
        engine.close()
    assert pulled["Config"]["Labels"] == LABELS
    assert pulled["RootFS"]["Layers"] == [layer.diff_id for layer in image.layers]


def test_pushing_again_transfers_nothing(
    engine_ground: ProvingGround,
    repository: str,
    image: ImageArchive,
) -> None:
    """Nor does another image upload the layers it shares."""
    client = client_of(engine_ground)
    before = uploads(engine_ground)
    digest = client.push(repository, image)
    first = uploads(engine_ground) - before
    assert client.push(repository, image) == digest
    assert uploads(engine_ground) - before == first
    other = client.push(repository, image.with_labels({"a": "b"}))
    assert other != digest
    # Its own config and its own manifest; a blob's upload is logged as often as any other request.
    assert uploads(engine_ground) - before - first < first


def test_a_tag_moves_and_the_old_image_stays(
    engine_ground: ProvingGround,
    repository: str,
    image: ImageArchive,
) -> None:
    """Nodes that were given the digest are not disturbed."""
    client = client_of(engine_ground)
    old = client.push(repository, image)
    client.tag(repository, old, "v1")
    new = client.push(repository, image.with_labels({"driverwright.io/key": "k2"}))
    client.tag(repository, new, "v1")
    client.tag(repository, new, "v1")
    assert client.inspect(repository, "v1") == Present(digest=new, labels={"driverwright.io/key": "k2"})
    assert client.inspect(repository, old) == Present(digest=old, labels=LABELS)


def test_a_push_that_was_cut_off_is_completed(
    engine_ground: ProvingGround,
    repository: str,
    image: ImageArchive,
) -> None:
    """A builder killed between two layers leaves no image, and the next one uploads the rest."""
    client = client_of(engine_ground)
    first, _ = image.layers
    client.upload(repository, first.digest, first.path)
    assert client.inspect(repository, image.digest) == Absent()
    assert client.push(repository, image) == image.digest
    assert client.inspect(repository, image.digest) == Present(digest=image.digest, labels=LABELS)


def test_a_password_opens_the_registry(
    engine_ground: ProvingGround,
    with_password: Credentials,
    repository: str,
    image: ImageArchive,
) -> None:
    """As an image pull secret holds it."""
    secret = json.dumps({"auths": {engine_ground.registry.host: {"username": "anna", "password": "s3cret"}}}).encode()
    credentials = credentials_for(parse_docker_config(secret), engine_ground.registry.host)
    assert credentials == with_password
    client = client_of(engine_ground, credentials)
    assert client.inspect(repository, "v1") == Absent()
    client.tag(repository, client.push(repository, image), "v1")
    assert client.inspect(repository, "v1") == Present(digest=image.digest, labels=LABELS)


@pytest.mark.usefixtures("with_password")
@pytest.mark.parametrize(
    "credentials",
    [
        pytest.param(None, id="nobody"),
        pytest.param(Credentials(username="anna", password="wrong"), id="wrong password"),
        pytest.param(Credentials(username="otto", password="s3cret"), id="unknown user"),
    ],
)
def test_without_the_password_nothing_is_known_and_nothing_pushed(
    engine_ground: ProvingGround,
    credentials: Credentials | None,
    image: ImageArchive,
) -> None:
    """Unauthorised is not absent: it must never start a build."""
    client = client_of(engine_ground, credentials)
    state = client.inspect("integration/any", "v1")
    assert isinstance(state, Unauthorised)
    assert "UNAUTHORIZED" in state.message
    assert "s3cret" not in state.message
    with pytest.raises(RegistryRefused, match="denies access"):
        client.push("integration/any", image)


def test_a_registry_that_is_away_is_unreachable_until_it_is_back(
    engine_ground: ProvingGround,
    repository: str,
    image: ImageArchive,
) -> None:
    """The same client goes on once the registry answers again."""
    client = client_of(engine_ground)
    client.tag(repository, client.push(repository, image), "v1")
    engine_ground.registry.stop()
    try:
        state = client.inspect(repository, "v1")
        assert state == Unreachable(message=f"registry {engine_ground.registry.host}: connection refused")
        with pytest.raises(RegistryUnavailable, match="connection refused"):
            client.push(repository, image)
    finally:
        engine_ground.registry.start()
    assert client.inspect(repository, "v1") == Present(digest=image.digest, labels=LABELS)
