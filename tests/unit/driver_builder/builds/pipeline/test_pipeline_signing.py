"""What is signed on the way to the registry, and that nothing gets there that was to be signed and is not."""

import base64
import json
from dataclasses import replace
from threading import Event
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.base.errors import BuildFailed, RegistryUnavailable
from driver_builder.base.reasons import Reason
from driver_builder.builds.pipeline.pipeline import build_and_push, build_and_verify
from driver_builder.builds.signing_secrets import SigningSecrets
from driver_builder.model.build import Signing
from driver_builder.model.images import SIGNER_LABEL, ImageRef
from driver_builder.nodes.changes import StartBuild
from driver_builder.registry.image_signature import has_signature, signature_tag
from driver_builder.registry.registry import RegistryClient
from driver_builder.registry.registry_access import Registries
from kube_api.resources import SECRETS
from tests.support.driver_builder.memory_client import MemoryClient
from tests.support.driver_builder.module_signing import a_signer, key_bytes
from tests.support.driver_builder.scripted_registry import (
    MemoryRegistry,
    Reply,
    Request,
    ScriptedRegistry,
    scripted_registry,
)
from tests.support.loopback import LOOPBACK
from tests.unit.driver_builder.builds.pipeline.test_pipeline import REQUEST, TAG, ReadyBuilder

OURS, OTHER = a_signer("ours"), a_signer("other")
IMAGE_KEY = ec.generate_private_key(ec.SECP256R1())
SIGNING = Signing(key_secret="modules", certificate_secret="public", image_key_secret="images")
SIGNED = replace(REQUEST, signing=SIGNING, signing_certificate=OURS.der)


def cluster(**changes: bytes) -> MemoryClient:
    """A cluster with the keys in Secrets; an empty one is not there."""
    pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    contents = {"modules": key_bytes(OURS), "images": IMAGE_KEY.private_bytes(*pem), **changes}
    client = MemoryClient()
    for name, content in contents.items():
        if content:
            body = {"metadata": {"name": name}, "data": {"key": base64.b64encode(content).decode()}}
            client.create(SECRETS.path(namespace="team"), body)
    return client


class CountingBuilder(ReadyBuilder):
    """A builder that counts its builds."""

    count = 0

    def build(self, *arguments: Any, **named: Any) -> Any:
        """Count."""
        self.count += 1
        return super().build(*arguments, **named)


def build(
    server: ScriptedRegistry, client: MemoryClient | None = None, builder: ReadyBuilder | None = None, **changes: Any
) -> tuple[str, list[str]]:
    """Carry out a build; returns digest and log."""
    log: list[str] = []
    action = StartBuild(
        namespace="team",
        request=replace(SIGNED, **changes),
        image=ImageRef(server.host, "team/helper", TAG),
        registry=RegistrySettings(plain_http=True),
        waiting=1,
    )
    client = client or cluster()
    digest = build_and_push(
        action,
        builder=builder or ReadyBuilder(),
        registries=Registries(client, reach=LOOPBACK),
        secrets=SigningSecrets(client),
        log=log.append,
        cancelled=Event(),
    )
    return digest, log


def test_modules_and_image_are_signed(server: ScriptedRegistry, memory: MemoryRegistry) -> None:
    """The verification demands it of the modules; the image says by whom, and its signature is found."""
    digest, log = build(server)
    assert "signed 1 modules as CN=ours" in log
    assert f"signed {digest}" in log
    assert "'ours'" in memory.manifest(TAG)["annotations"][SIGNER_LABEL]
    image = ImageRef(server.host, "team/helper", digest)
    assert has_signature(RegistryClient(server.host, plain_http=True, reach=LOOPBACK), image, IMAGE_KEY.public_key())


def test_signing_again_gives_the_same_image(server: ScriptedRegistry) -> None:
    """Equal parts, equal digest: a controller that was killed pushes what is there already."""
    assert build(server)[0] == build(server)[0]


def test_the_tag_is_moved_after_the_image_is_signed(server: ScriptedRegistry) -> None:
    """Whoever sees it can check it."""
    digest, _ = build(server)
    puts = [request.path.rpartition("/")[2] for request in server.requests if request.method == "PUT"]
    assert puts[-2:] == [signature_tag(digest), TAG]


def test_an_image_that_could_not_be_signed_has_no_tag(memory: MemoryRegistry) -> None:
    """It is whole, and nobody looks for it."""

    def failing(request: Request) -> Reply:
        return Reply(status=503) if request.method == "PUT" and request.path.endswith(".sig") else memory(request)

    with scripted_registry(failing) as server, pytest.raises(RegistryUnavailable):
        build(server)
    assert TAG not in memory.manifests


@pytest.mark.parametrize(
    "client",
    [
        pytest.param(cluster(modules=b""), id="no key of modules"),
        pytest.param(cluster(modules=key_bytes(OTHER)), id="another key"),
        pytest.param(cluster(images=b""), id="no key of images"),
        pytest.param(cluster(images=key_bytes(OURS)), id="an RSA key for images"),
    ],
)
def test_without_its_key_nothing_is_built_or_pushed(server: ScriptedRegistry, client: MemoryClient) -> None:
    """The build would be in vain."""
    builder = CountingBuilder()
    with pytest.raises(BuildFailed) as caught:
        build(server, client, builder)
    assert caught.value.reason is Reason.SIGNING_FAILED
    assert builder.count == 0
    assert not [request for request in server.requests if request.method == "PUT"]


def test_where_no_secrets_can_be_read_nothing_is_signed_in_silence() -> None:
    """A call without them is an error."""
    action = StartBuild(
        namespace="team",
        request=SIGNED,
        image=ImageRef("r.io", "team/helper", TAG),
        registry=RegistrySettings(),
        waiting=0,
    )
    with pytest.raises(BuildFailed, match="cannot read Secrets"):
        build_and_verify(
            action,
            builder=ReadyBuilder(),
            registries=Registries(MemoryClient(), reach=LOOPBACK),
            log=lambda _line: None,
            cancelled=Event(),
        )


def test_a_check_without_a_push_signs_as_well() -> None:
    """Otherwise it would find an unsigned module, which is no fault of the driver."""
    log: list[str] = []
    action = StartBuild(
        namespace="team",
        request=SIGNED,
        image=ImageRef("r.io", "team/helper", TAG),
        registry=RegistrySettings(),
        waiting=0,
    )
    secrets = SigningSecrets(cluster())
    build_and_verify(
        action,
        builder=ReadyBuilder(),
        registries=Registries(MemoryClient(), reach=LOOPBACK),
        secrets=secrets,
        log=log.append,
        cancelled=Event(),
    )
    assert "signed 1 modules as CN=ours" in log


def test_no_key_is_said_or_pushed(server: ScriptedRegistry) -> None:
    """Not one line of it."""
    _, log = build(server)
    lines = [line.encode() for line in key_bytes(OURS).decode().splitlines()[1:-1]]
    everything = [json.dumps(log).encode(), *(request.body for request in server.requests)]
    assert not [line for line in lines for content in everything if line in content]
