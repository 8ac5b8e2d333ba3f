"""Requests to one registry: who gets the password, who is waited for, which way they go."""

import base64
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from driver_builder.base.errors import RegistryRefused, RegistryUnauthorized, RegistryUnavailable
from driver_builder.model.registry_reach import Reach
from driver_builder.registry.credentials import Credentials
from driver_builder.registry.registry_responses import RegistryBusy
from driver_builder.registry.registry_transport import RegistryTransport
from tests.support.driver_builder.scripted_registry import Reply, Request, Script, scripted_registry

ANNA = Credentials(username="anna", password="s3cret")
BASIC = "Basic YW5uYTpzM2NyZXQ="
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a proxy that the test sets is used."""
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def transport(host: str, credentials: Credentials | None = ANNA, **options: object) -> RegistryTransport:
    """Speak plain HTTP to a host, which may send to others of this machine."""
    words = {"reach": Reach(allowed=frozenset({"127.0.0.1"})), **options}
    return RegistryTransport(host, plain_http=True, credentials=credentials, **words)  # type: ignore[arg-type]


def guarded(script: Script, challenge: str = 'Basic realm="r"') -> Script:
    """Ask for a password first."""

    def answer(request: Request) -> Reply:
        if "Authorization" in request.headers:
            return script(request)
        return Reply(status=401, headers={"WWW-Authenticate": challenge})

    return answer


def redirect(target: str, status: int = 307) -> Reply:
    """Send elsewhere."""
    return Reply(status=status, headers={"Location": target})


def json_web_token(repository: str, *actions: str) -> str:
    """Make a token as Docker's services do; the signature is not read."""
    access = [{"type": "repository", "name": repository, "actions": actions}]
    payload = base64.urlsafe_b64encode(json.dumps({"access": access}).encode()).decode().rstrip("=")
    return f"e30.{payload}.c2ln"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_blob_is_read_from_a_store_without_the_password(status: int) -> None:
    """The registry is shown who asks, the store it sends to is not."""
    with scripted_registry(lambda _: Reply(body=b"blob")) as store:
        target = f"http://{store.host}/bucket?signature=x"
        with scripted_registry(guarded(lambda _: redirect(target, status))) as registry:
            answer = transport(registry.host).request("GET", "/v2/a/blobs/sha256:0", repository="a")
    assert answer.body == b"blob"
    assert [request.headers.get("Authorization") for request in registry.requests] == [None, BASIC]
    assert [request.headers.get("Authorization") for request in store.requests] == [None]


def test_a_redirect_within_the_registry_keeps_the_password() -> None:
    """Its own pages are its own."""
    script = lambda request: Reply(body=b"1") if request.path == "/v2/b" else redirect("/v2/b")  # noqa: E731
    with scripted_registry(guarded(script)) as registry:
        assert transport(registry.host).request("GET", "/v2/a", repository="a").body == b"1"
    assert registry.requests[-1].headers["Authorization"] == BASIC


@pytest.mark.parametrize(
    ("method", "reply", "words"),
    [
        pytest.param("PUT", redirect("/v2/b"), "redirect to", id="what is written is not sent elsewhere"),
        pytest.param("GET", Reply(status=302), "redirect to", id="a redirect to nowhere"),
        pytest.param("GET", redirect("/v2/a"), "more than 5 times", id="a circle"),
    ],
)
def test_some_redirects_are_not_followed(method: str, reply: Reply, words: str) -> None:
    """The error says that the registry is wrong, with the address."""
    with scripted_registry(lambda _: reply) as registry, pytest.raises(RegistryRefused, match=words):
        transport(registry.host).request(method, "/v2/a", repository="a")


@pytest.mark.parametrize("status", [403, 404])
def test_what_a_store_lacks_is_not_absent_from_the_registry(status: int) -> None:
    """A dead link is the registry's fault; its query, which lets anybody read, and the store's words are not said."""
    with scripted_registry(lambda _: Reply(status=status, body=b"no key")) as store:
        target = f"http://{store.host}/bucket?signature=x"
        with (
            scripted_registry(lambda _: redirect(target)) as registry,
            pytest.raises(RegistryRefused, match=f"/bucket, which responds with {status}$"),
        ):
            transport(registry.host).request("GET", "/v2/a/manifests/1", repository="a")


def test_tls_is_not_lost_on_the_way() -> None:
    """An upload address without TLS, which a registry behind a wrong proxy gives, gets neither content nor password."""
    with scripted_registry(lambda _: Reply()) as plain:
        secure = RegistryTransport("registry.example.com", credentials=ANNA)
        with pytest.raises(RegistryRefused, match="X-Forwarded-Proto"):
            secure.request("PUT", f"http://{plain.host}/upload?state=1", repository="a", body=b"1")
    assert plain.requests == []


def test_a_wrong_password_is_tried_once() -> None:
    """Registries that count failed logins lock no account because of a repeated request."""
    challenge = Reply(status=401, headers={"WWW-Authenticate": 'Basic realm="r"'})
    with scripted_registry(lambda _: challenge) as registry:
        speaker = transport(registry.host)
        for _ in range(2):
            with pytest.raises(RegistryUnauthorized, match="user 'anna'"):
                speaker.request("GET", "/v2/a/manifests/1", repository="a")
    assert [request.headers.get("Authorization") for request in registry.requests] == [None, BASIC, BASIC]


class TokenService:
    """A registry with tokens: each is good for one purpose and some seconds."""

    def __init__(self, seconds: int = 300, *, challenge_scope: bool = True) -> None:
        self.now = 0.0
        self.seconds = seconds
        self.challenge_scope = challenge_scope
        self.given: dict[str, tuple[float, str]] = {}

    def __call__(self, request: Request) -> Reply:
        """Answer as registry or as token service."""
        if request.path == "/token":
            token = f"t{len(self.given)}"
            self.given[token] = (self.now + self.seconds, request.query)
            return Reply(body=json.dumps({"token": token, "expires_in": self.seconds}).encode())
        actions = "pull" if request.method in ("GET", "HEAD") else "pull,push"
        shown = request.headers.get("Authorization", "").removeprefix("Bearer ")
        ends, query = self.given.get(shown, (0.0, ""))
        if self.now < ends and query.endswith(actions.replace(",", "%2C")):
            return Reply(body=b"here")
        scope = f',scope="repository:a:{actions}"' if self.challenge_scope else ""
        realm = f"http://{request.headers['Host']}/token"
        return Reply(status=401, headers={"WWW-Authenticate": f'Bearer realm="{realm}",service="reg"{scope}'})


@pytest.mark.parametrize("challenge_scope", [True, False])
def test_reading_and_writing_have_a_token_each(challenge_scope: bool) -> None:
    """Whether or not the challenge names the scope; each token is fetched once."""
    service = TokenService(challenge_scope=challenge_scope)
    with scripted_registry(service) as registry:
        speaker = transport(registry.host, clock=lambda: service.now)
        for method in ("HEAD", "POST", "GET", "PUT"):
            assert speaker.request(method, "/v2/a/x", repository="a").status == 200
    assert [query for _, query in service.given.values()] == [
        "service=reg&scope=repository%3Aa%3Apull",
        "service=reg&scope=repository%3Aa%3Apull%2Cpush",
    ]


def test_a_token_is_renewed_before_it_ends() -> None:
    """A push of minutes goes on with a new one."""
    service = TokenService(seconds=100)
    with scripted_registry(service) as registry:
        speaker = transport(registry.host, clock=lambda: service.now)
        for now in (0.0, 80.0, 90.0):
            service.now = now
            assert speaker.request("GET", "/v2/a/x", repository="a").body == b"here"
    assert len(service.given) == 2


def test_a_token_that_the_registry_no_longer_takes_is_renewed() -> None:
    """Clocks differ, and registries are restarted with new keys."""
    service = TokenService()
    with scripted_registry(service) as registry:
        speaker = transport(registry.host, clock=lambda: service.now)
        speaker.request("GET", "/v2/a/x", repository="a")
        service.given["t0"] = (0.0, "")
        assert speaker.request("GET", "/v2/a/x", repository="a").body == b"here"


def test_an_anonymous_token_is_asked_for_without_a_password() -> None:
    """Public registries give one to anybody."""
    with scripted_registry(TokenService()) as registry:
        assert transport(registry.host, None).request("GET", "/v2/a/x", repository="a").body == b"here"
    (token,) = [request for request in registry.requests if request.path == "/token"]
    assert "Authorization" not in token.headers


def limited(times: int, **headers: str) -> Callable[[Request], Reply]:
    """Limit the first requests."""
    left = [times]

    def answer(_: Request) -> Reply:
        left[0] -= 1
        return Reply(body=b"here") if left[0] < 0 else Reply(status=429, headers=headers)

    return answer


@pytest.mark.parametrize(
    ("times", "patience", "waited"),
    [
        pytest.param(1, 60, [30.0], id="once"),
        pytest.param(2, 60, [30.0, 30.0], id="as long as patience lasts"),
        pytest.param(0, 60, [], id="not limited"),
    ],
)
def test_a_registry_is_waited_for_as_it_asks(times: int, patience: float, waited: list[float]) -> None:
    """A push goes on after the pause that the registry named."""
    waits: list[float] = []
    with scripted_registry(limited(times, **{"Retry-After": "30"})) as registry:
        speaker = transport(registry.host, patience=patience, wait=waits.append)
        assert speaker.request("GET", "/v2/a/x", repository="a").body == b"here"
    assert waits == waited


@pytest.mark.parametrize(
    ("patience", "waited"),
    [pytest.param(0, [], id="none"), pytest.param(59, [30.0], id="too little")],
)
def test_patience_ends(patience: float, waited: list[float]) -> None:
    """Then the error says how long a pause the registry asks for."""
    waits: list[float] = []
    with scripted_registry(limited(9, **{"Retry-After": "30"})) as registry:
        speaker = transport(registry.host, patience=patience, wait=waits.append)
        with pytest.raises(RegistryBusy) as caught:
            speaker.request("GET", "/v2/a/x", repository="a")
    assert caught.value.retry_after == 30
    assert waits == waited


def test_waiting_ends_when_the_build_is_cancelled() -> None:
    """The registry is not asked again and again for a build that nobody wants any more."""
    cancelled = threading.Event()
    cancelled.set()
    with scripted_registry(limited(9, **{"Retry-After": "1"})) as registry:
        speaker = transport(registry.host, patience=300, wait=cancelled.wait)
        with pytest.raises(RegistryBusy):
            speaker.request("GET", "/v2/a/x", repository="a")
    assert len(registry.requests) == 1


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """As every other client of the machine does, with the same variables."""
    with scripted_registry(lambda _: Reply(body=b"by proxy")) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.host}")
        assert transport("registry.example.com").request("GET", "/v2/a/x", repository="a").body == b"by proxy"
    assert proxy.requests[0].headers["Host"] == "registry.example.com"


def test_a_host_in_no_proxy_is_asked_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry inside needs no way outside."""
    with scripted_registry(lambda _: Reply(body=b"direct")) as registry:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")
        assert transport(registry.host).request("GET", "/v2/a/x", repository="a").body == b"direct"


@pytest.mark.parametrize(
    ("proxy", "kind", "words"),
    [
        pytest.param("http://127.0.0.1:1", RegistryUnavailable, "the proxy failed", id="nobody listens"),
        pytest.param("http://anna:s3cret@proxy:port", RegistryRefused, "HTTPS_PROXY", id="no URL"),
    ],
)
def test_a_proxy_that_fails_is_named(
    proxy: str, kind: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And never with its password."""
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with pytest.raises(kind, match=words) as caught:
        transport("registry.example.com").request("GET", "/v2/a/x", repository="a")
    assert "s3cret" not in str(caught.value)


def test_a_proxy_that_wants_a_password_is_no_answer_of_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """407 is the proxy's word."""
    with scripted_registry(lambda _: Reply(status=407)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.host}")
        with pytest.raises(RegistryUnavailable, match="the proxy requires a password"):
            transport("registry.example.com").request("GET", "/v2/a/x", repository="a")


def test_passwords_on_this_machine_are_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only a Secret gives credentials: ~/.netrc of the controller's user does not."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login otto password other\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with scripted_registry(lambda _: Reply()) as registry:
        transport(registry.host, None).request("GET", "/v2/a/x", repository="a")
    assert "Authorization" not in registry.requests[0].headers


@pytest.mark.parametrize(
    ("token", "granted"),
    [
        pytest.param(json_web_token("a", "pull", "push"), {"pull", "push"}, id="both"),
        pytest.param(json_web_token("a", "pull"), {"pull"}, id="less than requested"),
        pytest.param(json_web_token("b", "pull", "push"), set(), id="another repository"),
        pytest.param("opaque", None, id="a token that says nothing"),
        pytest.param("a.!.c", None, id="a token that is none"),
    ],
)
def test_a_token_says_what_it_grants(token: str, granted: set[str] | None) -> None:
    """Push is requested for the repository, whatever scope the registry names for its root; nothing is written."""

    def script(request: Request) -> Reply:
        if request.path == "/token":
            return Reply(body=json.dumps({"token": token}).encode())
        challenge = f'Bearer realm="http://{request.headers["Host"]}/token",service="reg",scope="repository:x:pull"'
        return Reply(status=401, headers={"WWW-Authenticate": challenge})

    with scripted_registry(script) as registry:
        assert transport(registry.host).granted("a") == granted
    asked, wanted = registry.requests
    assert (asked.method, asked.path) == ("GET", "/v2/")
    assert (wanted.method, wanted.query) == ("GET", "service=reg&scope=repository%3Aa%3Apull%2Cpush")
    assert wanted.headers["Authorization"] == BASIC


@pytest.mark.parametrize("script", [lambda _: Reply(), guarded(lambda _: Reply())], ids=["no password", "Basic"])
def test_a_registry_without_tokens_does_not_say_what_it_grants(script: Script) -> None:
    """Only a push would show it."""
    with scripted_registry(script) as registry:
        assert transport(registry.host).granted("a") is None


def test_a_token_service_that_refuses_the_password_is_an_error() -> None:
    """As in any request."""

    def script(request: Request) -> Reply:
        challenge = f'Bearer realm="http://{request.headers["Host"]}/token"'
        return Reply(status=401, headers={} if request.path == "/token" else {"WWW-Authenticate": challenge})

    with scripted_registry(script) as registry, pytest.raises(RegistryUnauthorized, match="user 'anna'"):
        transport(registry.host).granted("a")
