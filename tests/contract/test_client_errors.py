"""Whatever answers in the API server's place: the client raises a KubeApiError and nothing else."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from kubernetes.client import Configuration

from kube_api.client import Client
from kube_api.connection import Connection
from kube_api.errors import (
    Gone,
    KubeApiError,
    ServerUnavailable,
    TooManyRequests,
    Unreachable,
)
from kube_api.kubeconfig import connection_of
from kube_api.once import OnceConnection
from tests.contract.misbehaving_server import Handler, misbehaving_server


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Start the server that misbehaves."""
    with misbehaving_server() as url:
        yield url


def pooled(server: str) -> Connection:
    """Connect as with a kubeconfig."""
    settings = Configuration()
    settings.host = server
    return connection_of(settings)


def once(server: str) -> Connection:
    """Connect as the worker's publish child does."""
    return OnceConnection(server, "", dict)


PATIENT = 30.0
"""Seconds: no machine is so busy that the server's answer takes that long."""
IMPATIENT = 0.3


@pytest.fixture(params=[pooled, once])
def connection(server: str, request: pytest.FixtureRequest) -> Connection:
    """Connect in either way."""
    made: Connection = request.param(server)
    return made


@pytest.fixture
def client(connection: Connection) -> Client:
    """Make a client that waits for the answer, however busy the machine is."""
    return Client(connection, timeout_seconds=PATIENT)


def watched(client: Client, path: str) -> list[str]:
    """Follow a watch to its end."""
    return [event.object["metadata"]["name"] for event in client.watch(path, resource_version="1")]


VERBS: dict[str, Callable[[Client, str], object]] = {
    "get": lambda client, path: client.get(path),
    "list": lambda client, path: client.list(path),
    "create": lambda client, path: client.create(path, {}),
    "replace": lambda client, path: client.replace(path, {}),
    "apply": lambda client, path: client.apply(path, {}, field_manager="test"),
    "patch": lambda client, path: client.patch(path, [], content_type="application/json-patch+json"),
    "delete": lambda client, path: client.delete(path, uid="1"),
    "watch": watched,
    "follow": lambda client, path: list(client.follow(path, silence_seconds=PATIENT)),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("path", [path for path in Handler.faults if path != "/hang"])
def test_no_foreign_error_escapes(client: Client, verb: str, path: str) -> None:
    """Every verb on every fault ends with a value or with an error of the one tree."""
    with suppress(KubeApiError):
        VERBS[verb](client, path)


@pytest.mark.parametrize(
    ("verb", "path", "kind"),
    [
        pytest.param("get", "/close", Unreachable, id="connection closed"),
        pytest.param("get", "/nonsense", Unreachable, id="not HTTP"),
        pytest.param("get", "/bad-gateway", ServerUnavailable, id="a proxy's 502"),
        pytest.param("get", "/login-page", Unreachable, id="a login page"),
        pytest.param("get", "/redirect", KubeApiError, id="redirect"),
        pytest.param("get", "/cut-json", Unreachable, id="JSON cut off"),
        pytest.param("get", "/short-body", Unreachable, id="body shorter than announced"),
        pytest.param("follow", "/short-body", Unreachable, id="follow: text shorter than announced"),
        pytest.param("get", "/a-list", Unreachable, id="JSON that is no object"),
        pytest.param("list", "/no-metadata", Unreachable, id="a list that is none"),
        pytest.param("get", "/deep-error", ServerUnavailable, id="an error too deep to read"),
        pytest.param("get", "/too-many", TooManyRequests, id="429"),
        pytest.param("follow", "/watch-cut", Unreachable, id="follow: connection lost"),
        pytest.param("follow", "/too-many", TooManyRequests, id="follow: 429"),
        pytest.param("watch", "/watch-gone", Gone, id="watch: too old"),
        pytest.param("watch", "/watch-timeout", Gone, id="watch: version of the future"),
        pytest.param("watch", "/watch-error", ServerUnavailable, id="watch: server error"),
        pytest.param("watch", "/watch-error-without-code", ServerUnavailable, id="watch: error without code"),
        pytest.param("watch", "/watch-cut", Unreachable, id="watch: connection lost within a line"),
        pytest.param("watch", "/watch-nonsense", Unreachable, id="watch: no JSON"),
        pytest.param("watch", "/watch-no-event", Unreachable, id="watch: no event"),
        pytest.param("watch", "/watch-list", Unreachable, id="watch: a list"),
        pytest.param("watch", "/watch-odd-error", Unreachable, id="watch: an error without status"),
        pytest.param("watch", "/gone", Gone, id="watch: refused as too old"),
    ],
)
def test_a_fault_has_its_class(client: Client, verb: str, path: str, kind: type[KubeApiError]) -> None:
    """Each fault is told apart as far as a caller must."""
    with pytest.raises(KubeApiError) as caught:
        VERBS[verb](client, path)
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(VERBS["get"], id="get"),
        pytest.param(lambda client, path: list(client.follow(path, silence_seconds=IMPATIENT)), id="follow"),
    ],
)
def test_no_answer_in_time_is_reported(connection: Connection, ask: Callable[[Client, str], object]) -> None:
    """A server that hangs is as good as none."""
    with pytest.raises(Unreachable):
        ask(Client(connection, timeout_seconds=IMPATIENT), "/hang")


@pytest.mark.parametrize(
    ("path", "seconds"),
    [
        pytest.param("/too-many", 7.0, id="seconds"),
        pytest.param("/odd-retry", None, id="a digit that is not a number"),
        pytest.param("/date-retry", None, id="a date"),
    ],
)
def test_the_server_says_when_to_come_back(client: Client, path: str, seconds: float | None) -> None:
    """Retry-After is passed on where it is a number of seconds."""
    with pytest.raises(KubeApiError) as caught:
        client.get(path)
    assert caught.value.retry_after == seconds


def test_a_watch_gives_whole_lines(client: Client) -> None:
    """Chunks end anywhere; events are whole."""
    assert watched(client, "/watch") == ["a"]


def test_events_before_a_fault_are_given(client: Client) -> None:
    """What came whole is given out before the error is raised."""
    events = client.watch("/watch-cut", resource_version="1")
    assert next(events).kind == "ADDED"
    with pytest.raises(Unreachable):
        next(events)


def test_the_client_is_usable_after_a_fault(client: Client) -> None:
    """No fault leaves a connection behind that spoils the next answer."""
    for path in ("/close", "/short-body", "/watch-cut", "/hang"):
        with pytest.raises(KubeApiError):
            watched(client, path)
        assert client.get("/good")["metadata"]["name"] == "a"


def test_nobody_listens() -> None:
    """A port without a server is Unreachable."""
    settings = Configuration()
    settings.host = "http://127.0.0.1:9"
    with pytest.raises(Unreachable, match="no response from the API server"):
        Client(connection_of(settings)).get("/api")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(None, id="missing"),
        pytest.param("", id="empty"),
        pytest.param("{", id="no YAML"),
        pytest.param("[]", id="a list"),
        pytest.param("kind: Config\n", id="no context"),
    ],
)
def test_an_unusable_kubeconfig_says_where_was_looked(tmp_path: Path, text: str | None) -> None:
    """Whatever is wrong with a kubeconfig, the message says what to pass instead."""
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(Unreachable, match="--kubeconfig FILE"):
        Client.from_environment(str(path))


def test_expired_credentials_that_cannot_be_read_anew(server: str) -> None:
    """A token file that is gone when the token must be refreshed is no foreign error."""

    def refresh(_settings: Configuration) -> None:
        raise FileNotFoundError("token")

    settings = Configuration()
    settings.host = server
    settings.api_key = {"authorization": "Bearer old"}
    settings.refresh_api_key_hook = refresh  # type: ignore[assignment]
    with pytest.raises(Unreachable, match="token"):
        Client(connection_of(settings)).get("/good")
