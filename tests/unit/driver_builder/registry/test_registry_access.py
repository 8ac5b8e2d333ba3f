"""The registries of the drivers: credentials out of Secrets, and how long an answer is believed."""

import base64
import gc
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from driver_builder.api.build_settings import ConfigMapKey
from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.archives.image_archive import MANIFEST_TYPE, sha256
from driver_builder.base.errors import RegistryRefused
from driver_builder.model.image_state import Absent, ImageState, Invalid, Present, Unauthorized, Unreachable
from driver_builder.model.images import ImageRef
from driver_builder.model.registry_reach import Reach
from driver_builder.registry import registry_access as registries_module
from driver_builder.registry.credentials import Credentials
from driver_builder.registry.image_signature import push_signature
from driver_builder.registry.registry import RegistryClient
from driver_builder.registry.registry_access import Registries
from kube_api.errors import Forbidden, ServerUnavailable
from kube_api.resources import CONFIG_MAPS, SECRETS
from testbed.pki import CertificateAuthority
from tests.support.driver_builder.factories import DIGEST, NAMESPACE
from tests.support.driver_builder.memory_client import MemoryClient
from tests.support.driver_builder.scripted_registry import MemoryRegistry, scripted_registry
from tests.support.loopback import LOOPBACK

IMAGE = ImageRef("r.io", "edu", "1")
PRESENT = Present(digest=DIGEST)
PLAIN = RegistrySettings()
WITH_SECRET = RegistrySettings(secret="push")


class Scripted:
    """A registry client that answers what the test says, in the place of the real one."""

    answers: list[ImageState]
    made: list[dict[str, object]]

    def __init__(self, host: str, *, patience: float, wait: object, deadline: object, **words: object) -> None:
        assert (patience, deadline) == (0, None)
        assert callable(wait)
        self.made.append({"host": host, **words})

    def inspect(self, repository: str, reference: str, *, architecture: str) -> ImageState:
        """Return the next answer."""
        assert architecture in ("", "amd64", "arm64")
        assert (repository, reference) == ("edu", "1")
        return self.answers.pop(0)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
    """Put the scripted registry in place."""

    class Fresh(Scripted):
        answers: list[ImageState] = []  # noqa: RUF012 - a class of its own for each test
        made: list[dict[str, object]] = []  # noqa: RUF012

    monkeypatch.setattr(registries_module, "RegistryClient", Fresh)
    return Fresh


class Clock:
    """A clock that the test moves."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def secret(config: object) -> dict[str, object]:
    """Make a dockerconfigjson Secret."""
    data = {".dockerconfigjson": base64.b64encode(json.dumps(config).encode()).decode()}
    return {"metadata": {"name": "push"}, "data": data}


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(PRESENT, id="present"),
        pytest.param(Absent(), id="absent"),
        pytest.param(Unreachable(message="500"), id="a server error"),
        pytest.param(Unauthorized(message="x"), id="unauthorised"),
        pytest.param(Invalid(message="x"), id="invalid"),
    ],
)
def test_a_command_gets_the_current_state(scripted: type[Scripted], state: ImageState) -> None:
    """Who waits for an answer gets a new one each time."""
    scripted.answers[:] = [state, PRESENT]
    registries = Registries(MemoryClient(), reach=LOOPBACK)
    assert registries.inspect(NAMESPACE, PLAIN, IMAGE) == state
    assert registries.inspect(NAMESPACE, PLAIN, IMAGE) == PRESENT


def test_a_silent_registry_is_left_alone_for_longer_each_time(scripted: type[Scripted]) -> None:
    """One time-out is the answer for all its images; other namespaces and settings ask for themselves."""
    silent = Unreachable(message="no answer", is_silent=True)
    scripted.answers[:] = [silent, PRESENT, silent, silent, PRESENT, silent]
    clock = Clock()
    registries = Registries(MemoryClient(), clock=clock, reach=LOOPBACK)
    told = []
    for now, namespace, image in (
        (0.0, NAMESPACE, IMAGE),
        (0.0, NAMESPACE, ImageRef("r.io", "edu", "1")),
        (0.0, "other", IMAGE),
        (4.9, NAMESPACE, IMAGE),
        (5.0, NAMESPACE, IMAGE),
        (14.9, NAMESPACE, IMAGE),
        (15.0, NAMESPACE, IMAGE),
        (35.0, NAMESPACE, IMAGE),
        (36.0, NAMESPACE, IMAGE),
        (40.9, NAMESPACE, IMAGE),
    ):
        clock.now = now
        state = registries.inspect(namespace, PLAIN, image)
        told.append((type(state).__name__, len(scripted.made)))
    assert told == [
        ("Unreachable", 1),
        ("Unreachable", 1),
        ("Present", 2),
        ("Unreachable", 2),
        ("Unreachable", 3),
        ("Unreachable", 3),
        ("Unreachable", 4),
        ("Present", 5),
        ("Unreachable", 6),
        ("Unreachable", 6),
    ]


def test_a_pause_that_a_registry_asks_for_is_kept(scripted: type[Scripted]) -> None:
    """Until it is over, what the registry said is the answer for all its images; other registries are asked."""
    limited = Unreachable(message="limits", retry_after=30.0)
    scripted.answers[:] = [limited, PRESENT, limited, PRESENT]
    clock = Clock()
    registries = Registries(MemoryClient(), clock=clock, reach=LOOPBACK)
    for now, image, expected in (
        (0.0, IMAGE, limited),
        (1.0, ImageRef("r.io", "edu", "2"), limited),
        (1.0, ImageRef("other.io", "edu", "1"), PRESENT),
        (29.9, IMAGE, limited),
        (30.0, IMAGE, limited),
        (59.9, IMAGE, limited),
        (60.0, IMAGE, PRESENT),
    ):
        clock.now = now
        assert registries.inspect(NAMESPACE, PLAIN, image) == expected
    assert scripted.answers == []


def test_each_architecture_has_its_own_answer(scripted: type[Scripted]) -> None:
    """One tag may be an index of several platforms, and have a driver for some."""
    scripted.answers[:] = [PRESENT, PRESENT, Invalid(message="no image for arm64")]
    registries = Registries(MemoryClient(), reach=LOOPBACK)
    for _ in range(2):
        assert registries.inspect(NAMESPACE, PLAIN, IMAGE, "amd64") == PRESENT
    assert isinstance(registries.inspect(NAMESPACE, PLAIN, IMAGE, "arm64"), Invalid)


def test_another_account_has_its_own_limit(scripted: type[Scripted]) -> None:
    """A pause is that of one Secret: an admin who gives a better one need not wait."""
    scripted.answers[:] = [Unreachable(message="limits", retry_after=30.0), PRESENT]
    client = MemoryClient()
    client.create(SECRETS.path(namespace=NAMESPACE), secret({"auths": {"r.io": {"username": "a", "password": "b"}}}))
    registries = Registries(client, reach=LOOPBACK)
    assert isinstance(registries.inspect(NAMESPACE, PLAIN, IMAGE), Unreachable)
    assert registries.inspect(NAMESPACE, WITH_SECRET, IMAGE) == PRESENT


def test_the_repository_chooses_among_the_credentials_of_a_host(scripted: type[Scripted]) -> None:
    """A Secret with an entry for ``r.io/edu`` alone is as good as one for all of ``r.io``."""
    scripted.answers[:] = [PRESENT]
    client = MemoryClient()
    client.create(SECRETS.path(namespace=NAMESPACE), secret({"auths": {"r.io/edu": {"username": "team"}}}))
    assert Registries(client, reach=LOOPBACK).inspect(NAMESPACE, WITH_SECRET, IMAGE) == PRESENT
    assert scripted.made[0]["credentials"] == Credentials(username="team")


def test_the_secret_gives_the_credentials(scripted: type[Scripted]) -> None:
    """The Secret of the driver's namespace is read, and only for drivers that name one."""
    scripted.answers[:] = [PRESENT, PRESENT]
    client = MemoryClient()
    auth = {"auths": {"r.io": {"username": "anna", "password": "s3cret"}}}
    reach = Reach(allowed=frozenset({"tokens.r.io"}))
    client.create(SECRETS.path(namespace=NAMESPACE), secret(auth))
    registries = Registries(client, ca_file="/ca.pem", reach=reach, plain_http_passwords=True)
    registries.inspect(NAMESPACE, RegistrySettings(secret="push", plain_http=True), IMAGE)
    registries.inspect(NAMESPACE, PLAIN, IMAGE)
    assert scripted.made == [
        {
            "host": "r.io",
            "credentials": Credentials(username="anna", password="s3cret"),
            "plain_http": True,
            "ca_file": "/ca.pem",
            "reach": reach,
        },
        {"host": "r.io", "credentials": None, "plain_http": False, "ca_file": "/ca.pem", "reach": reach},
    ]


def test_a_password_is_not_sent_in_the_clear_unless_a_setting_allows_it(scripted: type[Scripted]) -> None:
    """Without TLS is the author's choice, the Secret may be somebody else's: nothing is asked."""
    client = MemoryClient()
    client.create(SECRETS.path(namespace=NAMESPACE), secret({"auths": {"r.io": {"username": "a", "password": "b"}}}))
    state = Registries(client, reach=LOOPBACK).inspect(
        NAMESPACE, RegistrySettings(secret="push", plain_http=True), IMAGE
    )
    assert isinstance(state, Invalid)
    assert "allow it with --registry-plain-http-passwords" in state.message
    assert scripted.made == []


@pytest.mark.usefixtures("scripted")
@pytest.mark.parametrize(
    ("stored", "kind", "words"),
    [
        pytest.param(None, Unauthorized, "create secret docker-registry push --docker-server=r.io", id="no Secret"),
        pytest.param(secret({"auths": {"other.io": {}}}), Unauthorized, "has no credentials for r.io", id="other host"),
        pytest.param(secret([]), Invalid, "not a JSON object", id="another shape"),
        pytest.param({"metadata": {"name": "push"}, "data": {}}, Invalid, "", id="empty Secret"),
        pytest.param({"metadata": {"name": "push"}}, Invalid, "", id="Secret without data"),
    ],
)
def test_a_wrong_secret_is_an_answer_not_an_error(
    stored: dict[str, object] | None, kind: type[Unauthorized | Invalid], words: str
) -> None:
    """One driver's wrong Secret does not end the pass for all."""
    client = MemoryClient()
    if stored is not None:
        client.create(SECRETS.path(namespace=NAMESPACE), stored)
    state = Registries(client, reach=LOOPBACK).inspect(NAMESPACE, WITH_SECRET, IMAGE)
    assert isinstance(state, kind)
    assert words in state.message


def test_a_ca_file_that_is_not_there_is_named() -> None:
    """As an answer about the image: the pass of the others goes on."""
    state = Registries(MemoryClient(), ca_file="/no/such/ca.pem", reach=LOOPBACK).inspect(NAMESPACE, PLAIN, IMAGE)
    assert isinstance(state, Invalid)
    assert "/no/such/ca.pem, does not exist: see --registry-ca-file" in state.message


@pytest.fixture
def ca(tmp_path: Path) -> str:
    """A certificate that no system knows."""
    return CertificateAuthority(tmp_path / "ca").file.read_text()


WITH_CA = RegistrySettings(ca_config_map=ConfigMapKey(name="ca", key="ca.crt"))


def config_map(**texts: str) -> dict[str, object]:
    """Make the ConfigMap of a CA."""
    return {"metadata": {"name": "ca"}, "data": {key.replace("_", "."): text for key, text in texts.items()}}


def test_a_driver_has_a_ca_of_its_own(scripted: type[Scripted], ca: str) -> None:
    """It takes the place of the controller's, and stays a file for as long as somebody may read it."""
    scripted.answers[:] = [PRESENT] * 3
    client = MemoryClient()
    ca = f"# Főtanúsítvány\n{ca}"
    client.create(CONFIG_MAPS.path(namespace=NAMESPACE), config_map(ca_crt=ca))
    registries = Registries(client, ca_file="/ca.pem", reach=LOOPBACK)
    for settings in (WITH_CA, WITH_CA, PLAIN):
        registries.inspect(NAMESPACE, settings, IMAGE)
    first, again, plain = (Path(str(made["ca_file"])) for made in scripted.made)
    assert first == again
    assert (first.read_text(), plain) == (ca, Path("/ca.pem"))
    del registries
    gc.collect()
    assert not first.exists()


@pytest.mark.usefixtures("scripted")
@pytest.mark.parametrize(
    ("stored", "words"),
    [
        pytest.param(None, "create configmap ca --from-file=ca.crt", id="no ConfigMap"),
        pytest.param(config_map(other_pem="x"), "has no text 'ca.crt' (it has other.pem)", id="another key"),
        pytest.param({"metadata": {"name": "ca"}}, "has no text 'ca.crt' (it has none)", id="empty ConfigMap"),
        pytest.param(config_map(ca_crt="no certificate"), "holds no certificate in PEM", id="another text"),
        pytest.param(config_map(ca_crt=""), "holds no certificate in PEM", id="empty text"),
        pytest.param(config_map(ca_crt="\x00\xff"), "holds no certificate in PEM", id="no text at all"),
    ],
)
def test_a_wrong_ca_is_an_answer_not_an_error(stored: dict[str, object] | None, words: str) -> None:
    """It names field and ConfigMap; the reconciles of other drivers go on."""
    client = MemoryClient()
    if stored is not None:
        client.create(CONFIG_MAPS.path(namespace=NAMESPACE), stored)
    state = Registries(client, reach=LOOPBACK).inspect(NAMESPACE, WITH_CA, IMAGE)
    assert isinstance(state, Invalid)
    assert state.message.startswith(f"spec.registry.caConfigMap: ConfigMap {NAMESPACE}/ca")
    assert words in state.message


@pytest.mark.usefixtures("scripted")
def test_a_builder_gets_an_exception() -> None:
    """Where there is no state to give, a missing Secret is raised."""
    with pytest.raises(RegistryRefused, match="does not exist"):
        Registries(MemoryClient(), reach=LOOPBACK).connect(NAMESPACE, WITH_SECRET, "r.io")


@pytest.mark.usefixtures("scripted")
def test_an_api_server_that_is_away_is_an_error() -> None:
    """A Secret that cannot be read now is no answer about the image."""
    client = MemoryClient()
    client.faults = [ServerUnavailable("500", status=500)]
    with pytest.raises(ServerUnavailable):
        Registries(client, reach=LOOPBACK).inspect(NAMESPACE, WITH_SECRET, IMAGE)


def test_a_secret_is_read_once_for_the_images_of_a_pass(scripted: type[Scripted]) -> None:
    """For as long as an account is believed; then its password may be another."""
    scripted.answers[:] = [PRESENT] * 4
    client, clock, reads = MemoryClient(), Clock(), []
    client.create(SECRETS.path(namespace=NAMESPACE), secret({"auths": {"r.io": {"username": "a", "password": "b"}}}))
    plain = client.get
    client.get = lambda path: reads.append(path) or plain(path)  # type: ignore[func-returns-value,method-assign]
    registries = Registries(client, account_seconds=10.0, clock=clock, reach=LOOPBACK)
    for now in (0.0, 0.1, 9.9, 10.0):
        clock.now = now
        assert registries.inspect(NAMESPACE, WITH_SECRET, IMAGE) == PRESENT
    assert len(reads) == 2


def test_a_secret_that_may_not_be_read_concerns_its_drivers(scripted: type[Scripted]) -> None:
    """The pass of the others goes on."""
    client = MemoryClient()
    client.faults = [Forbidden('secrets "push" is forbidden', status=403)]
    state = Registries(client, reach=LOOPBACK).inspect(NAMESPACE, WITH_SECRET, IMAGE)
    assert isinstance(state, Unauthorized)
    assert "forbidden" in state.message
    assert scripted.made == []


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param(WITH_SECRET, {"r.io": "anna", "base.io": "bert"}, id="all of a Secret's hosts"),
        pytest.param(PLAIN, {}, id="no Secret, none"),
    ],
)
def test_a_builder_is_given_all_credentials(settings: RegistrySettings, expected: dict[str, str]) -> None:
    """Base and source images may lie in other registries than the one that is pushed to."""
    client = MemoryClient()
    auths = {"r.io": {"username": "anna", "password": "a"}, "base.io": {"username": "bert", "password": "b"}}
    client.create(SECRETS.path(namespace=NAMESPACE), secret({"auths": auths}))
    known = Registries(client, reach=LOOPBACK).credentials(NAMESPACE, settings, "r.io")
    assert {host: credentials.username for host, credentials in known.items()} == expected


def test_a_signature_is_looked_for_with_the_key_of_the_secret() -> None:
    """A presence says whether the image is signed with it; without a key nobody looks."""
    key, client = ec.generate_private_key(ec.SECP256R1()), MemoryClient()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    data = {"key": base64.b64encode(pem).decode()}
    client.create(SECRETS.path(namespace=NAMESPACE), {"metadata": {"name": "image-key"}, "data": data})
    plain = RegistrySettings(plain_http=True)
    memory = MemoryRegistry()
    content = json.dumps({"schemaVersion": 2, "config": {"digest": sha256(b"{}")}}).encode()
    memory.blobs[sha256(b"{}")] = b"{}"
    memory.manifests |= {"1": (MANIFEST_TYPE, content), sha256(content): (MANIFEST_TYPE, content)}
    with scripted_registry(memory) as server:
        image = ImageRef(server.host, "edu", "1")

        def is_signed(signed_by: str | None) -> bool | None:
            state = Registries(client, reach=LOOPBACK).inspect(NAMESPACE, plain, image, signed_by=signed_by)
            assert isinstance(state, Present)
            return state.is_signed

        assert (is_signed(None), is_signed("image-key")) == (None, False)
        push_signature(RegistryClient(server.host, plain_http=True, reach=LOOPBACK), image.at(sha256(content)), key)
        assert (is_signed(None), is_signed("image-key")) == (None, True)
        state = Registries(client, reach=LOOPBACK).inspect(NAMESPACE, plain, image, signed_by="gone")
    assert isinstance(state, Invalid)
    assert "signing.imageKeySecretRef" in state.message
