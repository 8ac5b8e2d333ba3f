"""Registries that answer anything: each answer is a state of the image, in bounded time, and quotes no other host."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.archives.image_archive import sha256
from driver_builder.model.image_state import Absent, Invalid, Present, Unauthorized, Unreachable
from driver_builder.model.images import MODULES_LABEL, ImageRef
from driver_builder.model.registry_reach import Reach, parse_hosts, parse_networks
from driver_builder.plan.plan import plan
from driver_builder.registry import registry_connection
from driver_builder.registry.registry import MAX_LABELS, RegistryClient
from driver_builder.registry.registry_access import Registries
from tests.support.driver_builder.factories import SETTINGS, snapshot, with_images
from tests.support.driver_builder.memory_client import MemoryClient
from tests.support.driver_builder.scripted_registry import Reply, Request, ScriptedRegistry, scripted_registry
from tests.support.loopback import LOOPBACK

BAD = (Invalid, Unreachable, Unauthorized)


def challenge(text: str) -> Reply:
    """Ask who is there."""
    return Reply(status=401, headers={"WWW-Authenticate": text})


def token(body: bytes) -> Reply:
    """A token service's answer."""
    return Reply(body=body)


@pytest.mark.parametrize(
    ("reply", "token_body"),
    [
        pytest.param(Reply(body=b'{"schemaVersion":2,"manifests":5}'), b"", id="manifests is a number"),
        pytest.param(
            Reply(status=429, headers={"Retry-After": "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"}),
            b"",
            id="Retry-After with a huge year",
        ),
        pytest.param(challenge('Bearer realm="http://["'), b"", id="realm is not a URL"),
        pytest.param(challenge('Bearer realm="http:///x"'), b"", id="realm without a host"),
        pytest.param(challenge('Bearer realm="http://a:99999/x"'), b"", id="realm with a port that is none"),
        pytest.param(Reply(status=302, headers={"Location": "http://["}), b"", id="redirect to no URL"),
        pytest.param(Reply(status=302, headers={"Location": "gopher://x/"}), b"", id="redirect to another scheme"),
        pytest.param(
            challenge('Bearer realm="/token"'), b'{"token":"abc","expires_in":1' + b"0" * 400 + b"}", id="huge number"
        ),
        pytest.param(challenge('Bearer realm="/token"'), '{"token":"漢字"}'.encode(), id="token beyond latin-1"),
        pytest.param(challenge('Bearer realm="/token"'), b'{"token":"' + b"a" * 20000 + b'"}', id="token too long"),
        pytest.param(challenge('Bearer realm="/token"'), b"[" * 60000, id="token of nested lists"),
        pytest.param(
            Reply(status=401, body=b'{"errors":[{"code":"DENIED","message":"\\ud800"}]}'), b"", id="lone surrogate"
        ),
        pytest.param(Reply(status=500, body=b'{"errors":' + b"[" * 60000), b"", id="nested error"),
        pytest.param(Reply(body=b"[" * 1000000), b"", id="nested manifest"),
        pytest.param(Reply(status=400, body=b"\x1b[31mred" * 100), b"", id="escapes"),
    ],
)
def test_any_answer_is_a_state(reply: Reply, token_body: bytes) -> None:
    """Nothing that a registry says is an exception, and its words are short and printable."""

    def script(request: Request) -> Reply:
        if request.path == "/token":
            return token(token_body)
        return reply

    with scripted_registry(script) as registry:
        state = inspect(registry.host)
    assert isinstance(state, BAD)
    assert len(state.message) < 600
    assert state.message.isprintable()


def inspect(host: str) -> object:
    """Ask for an image, as the controller does."""
    return Registries(MemoryClient(), reach=LOOPBACK).inspect(
        "n", RegistrySettings(plain_http=True), ImageRef(host, "a", "1"), "amd64"
    )


def test_a_bug_of_ours_is_a_state_of_one_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not foreseen concerns the image that it was found with."""
    monkeypatch.setattr(RegistryClient, "_inspect", lambda *_: 1 / 0)
    state = inspect("r.io")
    assert isinstance(state, Invalid)
    assert "ZeroDivisionError" in state.message


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({MODULES_LABEL: "[" * 30000}, id="nested modules"),
        pytest.param(
            {MODULES_LABEL: '[{"name":1,"identity":"a"},{"name":"a","identity":"b"}]'}, id="names of two types"
        ),
        pytest.param({MODULES_LABEL: '[{"name":"\\ud800","identity":"b"}]'}, id="lone surrogate in a name"),
        pytest.param({MODULES_LABEL: '[{"name":"a","identity":"' + "b" * 300 + '"}]'}, id="long identity"),
    ],
)
def test_any_label_of_an_image_can_be_planned_with(labels: dict[str, str]) -> None:
    """A prebuilt image's labels are its author's."""
    seen = with_images(snapshot(), Present(digest="sha256:" + "d" * 64, labels=labels))
    decided = plan(seen, SETTINGS)
    assert json.dumps(str(decided)).isascii()


def test_labels_are_bounded_where_they_come_in() -> None:
    """Long and numberless ones are left out, lone surrogates replaced."""
    labels = {"long": "x" * 40000, "half": "\ud800", "number": 5} | {f"n{number}": "" for number in range(1000)}
    config = json.dumps({"config": {"Labels": labels}}).encode()
    manifest = json.dumps({"schemaVersion": 2, "config": {"digest": sha256(config)}}).encode()

    def script(request: Request) -> Reply:
        return Reply(body=config if "/blobs/" in request.path else manifest)

    with scripted_registry(script) as registry:
        state = inspect(registry.host)
    assert isinstance(state, Present)
    assert (len(state.labels), state.labels["half"]) == (MAX_LABELS, "?")
    assert not {"long", "number"} & state.labels.keys()


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", id="body"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n", id="body without a length"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX-Slow: ", id="header"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 ", id="interim answers"),
    ],
)
def test_a_deadline_bounds_the_whole_exchange(head: bytes) -> None:
    """A registry that sends a byte now and then is left when the time is over."""
    with dripping(head) as host:
        state = RegistryClient(host, plain_http=True, timeout=5, deadline=0.4, reach=LOOPBACK).inspect("a", "1")
    assert state == Unreachable(message=f"registry {host}: no response within 0.4 s", is_silent=True)


@contextmanager
def dripping(head: bytes) -> Iterator[str]:
    """Answer with ``head``, then a byte at a time until the peer goes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(head)
                while True:
                    connection.sendall(b" ")
                    time.sleep(0.05)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        # Whoever has got no processor until its time was over has not connected.
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


def test_an_upload_has_the_time_that_its_size_needs() -> None:
    """Its deadline grows with the body: the registry that takes it slowly is not cut off."""
    # The other exchanges have no more, on a busy machine as well.
    deadline = 3.0

    def script(request: Request) -> Reply:
        if request.method == "PUT":
            time.sleep(deadline + 0.2)
            return Reply(status=201)
        return Reply(status=202 if request.method == "POST" else 404, headers={"Location": "/up"})

    with scripted_registry(script) as registry:
        RegistryClient(registry.host, plain_http=True, timeout=60, deadline=deadline, reach=LOOPBACK).upload(
            "a", "sha256:0", b"x" * 2**20
        )
    assert registry.requests[-1].method == "PUT"


SECRET_WORDS = b'{"AccessKeyId": "ASIAEXAMPLE"}'


def astray(target: str) -> Reply:
    """Send readers and writers elsewhere."""
    return Reply(status=302, headers={"Location": target})


def test_a_registry_sends_nobody_to_this_machine() -> None:
    """A redirect, an upload's location and a token service on loopback are never connected to."""
    with scripted_registry(lambda _: Reply(body=SECRET_WORDS)) as inside:

        def script(request: Request) -> Reply:
            if request.path.startswith("/v2/realm"):
                return challenge(f'Bearer realm="http://{inside.host}/token"')
            if request.method == "POST":
                return Reply(status=202, headers={"Location": f"http://{inside.host}/put"})
            return Reply(status=404) if request.method == "HEAD" else astray(f"http://{inside.host}/latest")

        with scripted_registry(script) as registry:
            client = RegistryClient(registry.host, plain_http=True, reach=LOOPBACK)
            for repository in ("redirect", "realm"):
                state = client.inspect(repository, "1")
                assert isinstance(state, Invalid)
                assert "--registry-allowed-hosts" in state.message
            with pytest.raises(Exception, match="--registry-allowed-hosts"):
                client.upload("write", "sha256:0", b"chosen")
    assert inside.requests == []


@pytest.mark.parametrize("status", [200, 400, 401, 500])
def test_another_host_is_never_quoted(status: int) -> None:
    """What it says may be anybody's secret: the status code is all."""
    with (
        scripted_registry(lambda _: Reply(status=status, body=SECRET_WORDS)) as store,
        scripted_registry(lambda _: astray(f"http://{store.host}/x")) as registry,
    ):
        allowed = Reach(allowed=frozenset({store.host}), local=True)
        state = RegistryClient(registry.host, plain_http=True, reach=allowed).inspect("a", "1")
    assert isinstance(state, BAD)
    assert "ASIA" not in state.message
    assert len(store.requests) == 1


def test_a_name_that_changes_its_address_gains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is resolved once, and each address is checked: the next answer of its DNS server is not asked for."""
    plain, asked = socket.getaddrinfo, []
    answers = [["192.0.2.1", "127.0.0.1"], ["192.0.2.1"], ["127.0.0.1"]]

    def resolve(host: str, port: int, *words: object, **settings: object) -> object:
        if host != "rebind.example":
            return plain(host, port, *words, **settings)  # type: ignore[arg-type]
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in answers[len(asked) - 1]]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with scripted_registry(lambda _: astray("http://rebind.example/x")) as registry:
        state = RegistryClient(registry.host, plain_http=True, reach=LOOPBACK).inspect("a", "1")
    assert isinstance(state, Invalid)
    assert "127.0.0.1" in state.message
    assert len(asked) == 1


INSIDE = "10.96.0.1"
"""An address of the cluster's Services."""


@contextmanager
def cluster_service(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedRegistry]:
    """Serve a store and its tokens at an address of the cluster, under the name ``svc.example``."""
    plain = socket.getaddrinfo

    def resolve(host: str, port: int, *words: object, **settings: object) -> object:
        if host == "svc.example":
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (INSIDE, port))]
        # This machine plays the one that has the address.
        return plain("127.0.0.1" if host == INSIDE else host, port, *words, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with scripted_registry(lambda request: token(b'{"token":"abc"}' if request.path == "/token" else b"{}")) as inside:
        yield inside


def leads_to(host: str) -> Callable[[Request], Reply]:
    """Make a registry that sends readers to a host: to its tokens by ``realm``, to its blobs by any other name."""

    def script(request: Request) -> Reply:
        if not request.path.startswith("/v2/realm"):
            return astray(f"http://{host}/blob")
        if request.headers.get("Authorization") == "Bearer abc":
            return Reply(status=404, body=b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')
        return challenge(f'Bearer realm="http://{host}/token"')

    return script


@pytest.mark.parametrize("repository", ["redirect", "realm"])
def test_a_registry_sends_nobody_into_a_forbidden_range(repository: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A redirect and a token service at an address of ``--registry-forbidden-ranges`` are never connected to."""
    with cluster_service(monkeypatch) as inside:
        name = f"svc.example:{inside.host.rpartition(':')[2]}"
        with scripted_registry(leads_to(name)) as registry:
            forbidden = Reach(forbidden=parse_networks("10.96.0.0/12"), local=True)
            state = RegistryClient(registry.host, plain_http=True, reach=forbidden).inspect(repository, "1")
    assert isinstance(state, Invalid)
    assert f"{name}, which is {INSIDE}" in state.message
    assert inside.requests == []


@pytest.mark.parametrize("repository", ["redirect", "realm"])
@pytest.mark.parametrize("forbidden", ["", "10.96.0.0/12"], ids=["no range", "allowed host"])
def test_a_host_that_the_setting_allows_is_gone_to(
    forbidden: str, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exchange goes on where no range is set, and where ``--registry-allowed-hosts`` names the host."""
    with cluster_service(monkeypatch) as inside:
        name = f"svc.example:{inside.host.rpartition(':')[2]}"
        with scripted_registry(leads_to(name)) as registry:
            hosts = parse_hosts(name if forbidden else "")
            settings = Reach(forbidden=parse_networks(forbidden), allowed=hosts, local=True)
            state = RegistryClient(registry.host, plain_http=True, reach=settings).inspect(repository, "1")
    assert inside.requests
    if repository == "realm":
        assert state == Absent()


@contextmanager
def resolved(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> Iterator[None]:
    """Let every name have these addresses."""
    entries = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]
    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", lambda *_words, **_settings: entries)
        yield


@pytest.mark.parametrize(
    ("name", "addresses"),
    [
        pytest.param("127.0.0.1:1", ["127.0.0.1"], id="loopback"),
        pytest.param("localhost:1", ["::1", "127.0.0.1"], id="loopback by its name"),
        pytest.param("169.254.169.254", ["169.254.169.254"], id="metadata of a cloud"),
        pytest.param("a.example.com", ["169.254.169.254"], id="a name that leads there"),
        pytest.param("a.example.com", ["192.0.2.1", "127.0.0.1"], id="a name of which one address leads there"),
        pytest.param("a.example.com", ["::ffff:127.0.0.1"], id="in a form of IPv6"),
        pytest.param("0.0.0.0:1", ["0.0.0.0"], id="any address"),
    ],
)
def test_a_spec_sends_nobody_to_this_machine(name: str, addresses: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes spec.image could ask there as the controller: it is not connected to, and the flag is named."""
    asked: list[object] = []
    monkeypatch.setattr(registry_connection, "create_connection", lambda *words, **_settings: asked.append(words))
    with resolved(monkeypatch, *addresses):
        state = RegistryClient(name, plain_http=True).inspect("a", "1")
    assert isinstance(state, Invalid)
    assert "--registry-allowed-hosts" in state.message
    assert asked == []


@pytest.mark.parametrize(
    ("address", "ranges", "hosts"),
    [
        pytest.param("10.96.0.9", "", "", id="a registry in the cluster"),
        pytest.param("10.96.0.9", "10.96.0.0/12", "", id="in a range that redirects must not lead to"),
        pytest.param("192.168.1.2", "", "", id="a registry at home"),
        pytest.param("127.0.0.1", "", "registry.example.com", id="loopback, which the setting allows"),
        pytest.param("169.254.20.10", "", "registry.example.com:80", id="link-local, which the setting allows"),
    ],
)
def test_a_registry_of_the_cluster_needs_no_setting(
    address: str, ranges: str, hosts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what is never a registry for a pod does."""
    asked: list[str] = []

    def connect(address: tuple[str, int], *_words: object, **_settings: object) -> None:
        asked.append(address[0])
        raise ConnectionRefusedError

    monkeypatch.setattr(registry_connection, "create_connection", connect)
    settings = Reach(forbidden=parse_networks(ranges), allowed=parse_hosts(hosts))
    with resolved(monkeypatch, address):
        state = RegistryClient("registry.example.com", plain_http=True, reach=settings).inspect("a", "1")
    assert isinstance(state, Unreachable)
    assert asked == [address]


def test_a_proxy_is_not_sent_inside_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it would connect to is checked by its name."""
    with scripted_registry(lambda _: astray("http://169.254.169.254/latest")) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.host}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        state = RegistryClient("registry.example.com", plain_http=True).inspect("a", "1")
    assert isinstance(state, Invalid)
    assert "169.254.169.254" in state.message
    assert len(proxy.requests) == 1


def test_a_404_of_a_registry_is_still_an_absence() -> None:
    """All this takes nothing from a registry in order."""
    body = b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}'
    with scripted_registry(lambda _: Reply(status=404, body=body)) as registry:
        assert inspect(registry.host) == Absent()
