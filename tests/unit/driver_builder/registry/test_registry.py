"""What a registry's answers mean, above all those that a healthy one never gives.

The answers of a real registry are the subject of the integration tests; here a script gives those that it cannot be
made to give: token services, rate limits, web pages, broken content.
"""

import base64
import hashlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.archives.image_archive import ImageArchive, read_image_archive
from driver_builder.base.errors import RegistryRefused, RegistryUnavailable
from driver_builder.model.image_state import Absent, ImageState, Invalid, Present, Unauthorized, Unreachable
from driver_builder.model.registry_reach import Reach
from driver_builder.registry.credentials import Credentials
from driver_builder.registry.registry import RegistryClient
from driver_builder.registry.registry_auth import Challenge, Purpose
from driver_builder.registry.registry_responses import Response
from driver_builder.registry.registry_transport import MAX_ANSWER, RegistryTransport
from tests.support.driver_builder.image_tars import docker_20, tar_of
from tests.support.driver_builder.scripted_registry import Reply, Request, Script, scripted_registry
from tests.support.loopback import LOOPBACK

ANNA = Credentials(username="anna", password="s3cret")
CONFIG = json.dumps({"config": {"Labels": {"key": "k1"}}}).encode()
CONFIG_DIGEST = f"sha256:{hashlib.sha256(CONFIG).hexdigest()}"
MANIFEST = json.dumps({"schemaVersion": 2, "config": {"digest": CONFIG_DIGEST}, "layers": []}).encode()
DIGEST = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"
INDEX = json.dumps({"schemaVersion": 2, "manifests": []}).encode()
HTML = b"<html><body>Log in to the hotel's network</body></html>"


def error(status: int, code: str, **headers: str) -> Reply:
    """An error in the registries' own format."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, headers=names, body=json.dumps({"errors": [{"code": code, "message": "m"}]}).encode())


def always(reply: Reply) -> Script:
    """The same answer to everything."""
    return lambda _: reply


def image(request: Request) -> Reply:
    """A registry with one image, under any tag."""
    if "/blobs/" in request.path:
        return Reply(body=CONFIG)
    return Reply(body=MANIFEST, headers={"Docker-Content-Digest": DIGEST})


def broken_config(request: Request) -> Reply:
    """The config is other content than its digest says."""
    return Reply(body=b"{}") if "/blobs/" in request.path else Reply(body=MANIFEST)


def lost_config(request: Request) -> Reply:
    """The manifest is there, its config is not."""
    return error(404, "BLOB_UNKNOWN") if "/blobs/" in request.path else Reply(body=MANIFEST)


def plain_404(request: Request) -> Reply:
    """A registry whose proxy answers a 404 of its own."""
    if request.path == "/v2/":
        return Reply(headers={"Docker-Distribution-Api-Version": "registry/2.0"})
    return Reply(status=404, body=b"not found")


def inspect(script: Script, reference: str = "1", credentials: Credentials | None = None) -> ImageState:
    """Ask a registry of this script."""
    with scripted_registry(script) as registry:
        client = RegistryClient(registry.host, plain_http=True, credentials=credentials, reach=LOOPBACK)
        return client.inspect("team/driver", reference)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param(image, Present(digest=DIGEST, labels={"key": "k1"}), id="an image"),
        pytest.param(
            always(Reply(body=INDEX)),
            Present(digest=f"sha256:{hashlib.sha256(INDEX).hexdigest()}", labels={}),
            id="an index of several platforms has no labels",
        ),
        pytest.param(always(error(404, "MANIFEST_UNKNOWN")), Absent(), id="no such tag"),
        pytest.param(always(error(404, "NAME_UNKNOWN")), Absent(), id="no such repository"),
        pytest.param(plain_404, Absent(), id="a 404 without a code from what is a registry"),
    ],
)
def test_what_is_known_is_known(script: Script, expected: ImageState) -> None:
    """Present with its labels, or proven absent."""
    assert inspect(script) == expected


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        pytest.param(
            always(Reply(status=404, body=HTML)), Invalid, "404 (no error", id="a web server without the page"
        ),
        pytest.param(always(Reply(body=HTML)), Invalid, "200 (no error of a registry)", id="a captive portal"),
        pytest.param(
            always(Reply(body=b'{"schemaVersion": 1}')), Invalid, "not return a manifest", id="a manifest of 2014"
        ),
        pytest.param(always(error(400, "NAME_INVALID")), Invalid, "NAME_INVALID", id="a name it does not like"),
        pytest.param(broken_config, Invalid, "did not return content", id="a config that was changed"),
        pytest.param(lost_config, Invalid, "BLOB_UNKNOWN", id="a config that is lost"),
        pytest.param(
            always(Reply(body=MANIFEST, headers={"Docker-Content-Digest": "sha256:0"})),
            Invalid,
            "sha256:0",
            id="bad digest",
        ),
        pytest.param(always(Reply(body=b"[" * 100_000)), Invalid, "not return a manifest", id="an answer of brackets"),
        pytest.param(always(Reply(body=b" " * (MAX_ANSWER + 1))), Invalid, "more than", id="an endless answer"),
        pytest.param(
            lambda request: Reply(status=302, headers={"Location": request.path}), Invalid, "redirects", id="a circle"
        ),
        pytest.param(always(error(403, "DENIED")), Unauthorized, "DENIED", id="forbidden"),
        pytest.param(always(error(401, "UNAUTHORIZED")), Unauthorized, "no credentials were sent", id="unauthorised"),
        pytest.param(always(error(503, "UNAVAILABLE")), Unreachable, "503", id="server error"),
        pytest.param(always(Reply(status=502, body=HTML)), Unreachable, "502", id="a gateway's web page"),
        pytest.param(
            always(Reply(body=b"{", headers={"Content-Length": "100", "Connection": "close"})),
            Unreachable,
            "connection",
            id="an answer that breaks off",
        ),
    ],
)
def test_nothing_but_a_proven_absence_is_absent(script: Script, kind: type, words: str) -> None:
    """Each other answer has its own state, with the registry's own message."""
    state = inspect(script)
    assert isinstance(state, kind)
    assert isinstance(state, Unauthorized | Unreachable | Invalid)
    assert words in state.message


def platform(architecture: object, digest: object = DIGEST, system: str = "linux") -> dict[str, object]:
    """One entry of an index."""
    return {"digest": digest, "platform": {"os": system, "architecture": architecture}}


ATTESTATION = platform("unknown", "sha256:1", "unknown")


def index_of(*entries: object) -> Script:
    """A registry whose tag names an index; images are found by digest."""
    index = json.dumps({"schemaVersion": 2, "manifests": entries}).encode()
    return lambda request: image(request) if "sha256:" in request.path else Reply(body=index)


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([platform("arm64"), platform("amd64", "sha256:0")], id="by its architecture"),
        pytest.param([ATTESTATION, platform("arm64"), platform("arm64", "sha256:0")], id="the first of variants"),
        pytest.param(["x", {}, {"platform": 1}, platform(1), platform("arm64", 1), platform("arm64")], id="odd ones"),
    ],
)
def test_an_index_gives_the_labels_of_one_architecture(entries: list[object]) -> None:
    """Under the digest of the index, which is what nodes pull."""
    with scripted_registry(index_of(*entries)) as registry:
        state = RegistryClient(registry.host, plain_http=True, reach=LOOPBACK).inspect(
            "team/driver", "1", architecture="arm64"
        )
    assert isinstance(state, Present)
    assert (state.labels, state.digest == DIGEST) == ({"key": "k1"}, False)


def test_an_index_without_the_architecture_is_invalid() -> None:
    """Not absent: a build must not take the place of somebody's index."""
    with scripted_registry(index_of(platform("amd64"), ATTESTATION)) as registry:
        state = RegistryClient(registry.host, plain_http=True, reach=LOOPBACK).inspect(
            "team/driver", "1", architecture="arm64"
        )
    assert isinstance(state, Invalid)
    assert "no image for arm64 at team/driver:1, which is an index of several platforms: amd64" in state.message


def test_a_rate_limit_is_no_absence() -> None:
    """429 says nothing about the image; the state carries the pause that the registry asks for."""
    state = inspect(always(error(429, "TOOMANYREQUESTS", Retry_After="30")))
    assert isinstance(state, Unreachable)
    assert (state.retry_after, "limits the rate" in state.message) == (30, True)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda children: (
            st.lists(children, max_size=3)
            | st.dictionaries(
                st.sampled_from(["manifests", "config", "digest", "platform", "os", "Labels", "x"]),
                children,
                max_size=4,
            )
        ),
    )
)
def test_any_manifest_and_config_is_a_state(content: object) -> None:
    """A registry can answer any JSON; the pass of the other drivers goes on."""
    config = json.dumps(content).encode()
    described = {"digest": f"sha256:{hashlib.sha256(config).hexdigest()}"}
    for manifest in ({"config": described}, content if isinstance(content, dict) else {}):
        client = RegistryClient("r.io")
        body = json.dumps({"schemaVersion": 2} | manifest).encode()
        client._transport = MemoryTransport(manifest=body, blob=config)  # type: ignore[assignment]
        assert isinstance(client.inspect("a", "1", architecture="amd64"), Present | Invalid)


class MemoryTransport:
    """Answers without a network: the same manifest and the same blob to everything."""

    def __init__(self, *, manifest: bytes, blob: bytes) -> None:
        self._manifest, self._blob = manifest, blob

    def request(self, _method: str, path: str, **_: object) -> Response:
        """Answer by what is asked for."""
        body = self._manifest if "/manifests/" in path else self._blob
        return Response(status=200, url=path, headers={}, body=body)


def test_a_digest_is_believed_only_with_its_content() -> None:
    """Who asks by digest gets that content, or Invalid."""
    assert inspect(image, DIGEST) == Present(digest=DIGEST, labels={"key": "k1"})
    assert isinstance(inspect(image, "sha256:" + "0" * 64), Invalid)


def token_registry(request: Request) -> Reply:
    """A registry with a token service of its own."""
    if request.path == "/token":
        good = {"Basic " + base64.b64encode(b"anna:s3cret").decode()}
        is_form = b"refresh_token=t0ken" in request.body and b"grant_type=refresh_token" in request.body
        if request.headers.get("Authorization") in good or is_form:
            return Reply(body=b'{"token": "good"}' if request.method == "GET" else b'{"access_token": "good"}')
        return error(401, "UNAUTHORIZED")
    if request.headers.get("Authorization") == "Bearer good":
        return image(request)
    challenge = (
        f'Bearer realm="http://{request.headers["Host"]}/token",service="reg",scope="repository:team/driver:pull"'
    )
    return error(401, "UNAUTHORIZED", WWW_Authenticate=challenge)


@pytest.mark.parametrize(
    ("credentials", "kind"),
    [
        pytest.param(ANNA, Present, id="password"),
        pytest.param(Credentials(identity_token="t0ken"), Present, id="identity token"),
        pytest.param(Credentials(username="anna", password="wrong"), Unauthorized, id="wrong password"),
        pytest.param(None, Unauthorized, id="nobody"),
    ],
)
def test_a_token_is_fetched_with_the_credentials(credentials: Credentials | None, kind: type) -> None:
    """And used for the requests that follow."""
    assert isinstance(inspect(token_registry, credentials=credentials), kind)


def test_a_token_is_fetched_once() -> None:
    """Four requests for an image and its config, twice, take one token."""
    with scripted_registry(token_registry) as registry:
        client = RegistryClient(registry.host, plain_http=True, credentials=ANNA, reach=LOOPBACK)
        assert client.inspect("team/driver", "1") == client.inspect("team/driver", "2")
        (token,) = [request for request in registry.requests if request.path == "/token"]
    assert token.query == "service=reg&scope=repository%3Ateam%2Fdriver%3Apull"


@pytest.mark.parametrize(
    ("token_reply", "kind"),
    [
        pytest.param(Reply(body=HTML), Invalid, id="a web page"),
        pytest.param(Reply(body=b"{}"), Invalid, id="no token"),
        pytest.param(Reply(status=503), Unreachable, id="out of order"),
        pytest.param(Reply(status=403), Unauthorized, id="forbidden"),
    ],
)
def test_a_token_service_may_fail_too(token_reply: Reply, kind: type) -> None:
    """Its failures are distinguished as the registry's own are."""
    assert isinstance(
        inspect(lambda request: token_reply if request.path == "/token" else token_registry(request)), kind
    )


def test_credentials_go_to_the_registry_only(tmp_path: Path) -> None:
    """An upload that the registry sends elsewhere carries no password there."""
    with scripted_registry(always(Reply(status=201))) as store:

        def registry_script(request: Request) -> Reply:
            if "Authorization" not in request.headers:
                return error(401, "UNAUTHORIZED", WWW_Authenticate='Basic realm="r"')
            if request.method == "POST":
                return Reply(status=202, headers={"Location": f"http://{store.host}/put?state=x%2Fy"})
            return Reply(status=201 if request.method == "PUT" else 404)

        with scripted_registry(registry_script) as registry:
            reach = Reach(allowed=frozenset({"127.0.0.1"}))
            client = RegistryClient(registry.host, plain_http=True, credentials=ANNA, reach=reach)
            client.push("team/driver", archive(tmp_path))
    assert len(store.requests) == 2
    assert all("Authorization" not in request.headers for request in store.requests)
    assert all(request.query.startswith("state=x%2Fy&digest=sha256%3A") for request in store.requests)


def test_a_password_is_not_sent_unencrypted_because_a_registry_says_so() -> None:
    """A registry behind TLS that names a token service without it is refused; nothing is sent."""
    with scripted_registry(token_registry) as service:
        transport = RegistryTransport("registry.example.com", credentials=ANNA)
        challenge = Challenge(scheme="bearer", parameters={"realm": f"http://{service.host}/token"})
        with pytest.raises(RegistryRefused, match="unencrypted"):
            transport._fetch_token(challenge, Purpose(repository="a", writing=False))
        assert service.requests == []


def archive(directory: Path) -> ImageArchive:
    """A small image."""
    return read_image_archive(docker_20(directory / "image.tar", [tar_of({"a": b"1"})]), directory)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        pytest.param(error(403, "DENIED"), RegistryRefused, id="read only"),
        pytest.param(Reply(status=413, body=HTML), RegistryRefused, id="too large for a proxy"),
        pytest.param(Reply(status=202), RegistryRefused, id="no place to upload to"),
        pytest.param(error(500, "UNKNOWN"), RegistryUnavailable, id="server error"),
        pytest.param(Reply(status=507), RegistryUnavailable, id="disk full"),
    ],
)
def test_a_push_that_fails_says_whether_to_try_again(reply: Reply, kind: type[Exception], tmp_path: Path) -> None:
    """Refused is final, unavailable is not."""
    script = lambda request: Reply(status=404) if request.method == "HEAD" else reply  # noqa: E731
    with scripted_registry(script) as registry, pytest.raises(kind, match=registry.host):
        RegistryClient(registry.host, plain_http=True, reach=LOOPBACK).push("team/driver", archive(tmp_path))


def test_what_is_not_there_cannot_be_tagged() -> None:
    """The message names image and tag."""
    with scripted_registry(always(error(404, "MANIFEST_UNKNOWN"))) as registry:
        client = RegistryClient(registry.host, plain_http=True, reach=LOOPBACK)
        with pytest.raises(RegistryRefused, match=f"cannot tag team/driver@{DIGEST} as v1"):
            client.tag("team/driver", DIGEST, "v1")


@pytest.fixture
def silent_host() -> Iterator[str]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_silence_is_unreachable(silent_host: str) -> None:
    """After the timeout, which the message names."""
    state = RegistryClient(silent_host, plain_http=True, timeout=0.2, reach=LOOPBACK).inspect("a", "1")
    assert state == Unreachable(message=f"registry {silent_host}: no response within 0.2 s", is_silent=True)


@pytest.mark.parametrize(
    ("host", "options", "words"),
    [
        pytest.param("registry.invalid", {}, "name cannot be resolved", id="no such name"),
        pytest.param("127.0.0.1:1", {"plain_http": True}, "connection refused", id="nobody listens"),
    ],
)
def test_no_connection_is_unreachable(host: str, options: dict[str, Any], words: str) -> None:
    """The message says what went wrong in words of this program."""
    state = RegistryClient(host, timeout=5, **options, reach=LOOPBACK).inspect("a", "1")
    assert isinstance(state, Unreachable)
    assert words in state.message


def test_a_registry_without_tls_is_unreachable_with_tls() -> None:
    """The message says what to change."""
    with scripted_registry(image) as registry:
        state = RegistryClient(registry.host, reach=LOOPBACK).inspect("a", "1")
    assert isinstance(state, Unreachable)
    assert "plainHttp" in state.message


def test_a_name_that_is_no_host_is_invalid() -> None:
    """An invalid host name is a registry error; no foreign exception escapes."""
    assert isinstance(RegistryClient("a b:c").inspect("a", "1"), Invalid)
