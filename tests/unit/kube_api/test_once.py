"""The publish child's connection: TLS, time, and what it sends; against servers that speak on real sockets."""

import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from kube_api import once
from kube_api.client import Client
from kube_api.credentials import ServiceAccount
from kube_api.errors import Unreachable
from kube_api.once import OnceConnection, format_request
from testbed.pki import CertificateAuthority

NODE = b'{"kind": "Node"}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(NODE), NODE)
PATIENT, IMPATIENT = 30.0, 0.3


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    """Make the cluster's authority."""
    return CertificateAuthority(tmp_path_factory.mktemp("pki"))


@contextmanager
def serving(serve: Callable[[socket.socket], object], context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serve each connection with a function, after it sent a head; gives the port."""

    def accept(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=answer, args=[connection], daemon=True).start()

    def answer(plain: socket.socket) -> None:
        with suppress(OSError), plain:
            connection = context.wrap_socket(plain, server_side=True) if context else plain
            with connection:
                received = b""
                while b"\r\n\r\n" not in received and (chunk := connection.recv(1 << 16)):
                    received += chunk
                requests.append(received)
                serve(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        requests.clear()
        threading.Thread(target=accept, args=[listener], daemon=True).start()
        yield listener.getsockname()[1]
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


requests: list[bytes] = []
"""What the newest server was asked."""


def context_of(authority: CertificateAuthority, *hosts: str) -> ssl.SSLContext:
    """Make a server's side of TLS with a certificate for these hosts."""
    pair = authority.issue_files("-".join(hosts), "kube-apiserver", hosts=hosts)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{pair}.crt", f"{pair}.key")
    return context


def account(folder: Path, authority: CertificateAuthority, port: int) -> ServiceAccount:
    """Mount an account."""
    (folder / "token").write_text("first\n")
    return ServiceAccount(f"https://127.0.0.1:{port}", ca_file=str(authority.file), token_file=str(folder / "token"))


def get(connection: OnceConnection, seconds: float = PATIENT) -> object:
    """Ask for the Node."""
    return Client(connection, timeout_seconds=seconds).get("/api/v1/nodes/n")


# ---------------------------------------------------------------- TLS and credentials


def test_a_pod_asks_with_the_token_of_this_moment(tmp_path: Path, authority: CertificateAuthority) -> None:
    """The kubelet replaces it, also between two requests of one child."""
    with serving(lambda to: to.sendall(ANSWER), context_of(authority, "127.0.0.1")) as port:
        connection = account(tmp_path, authority, port).once()
        client = Client(connection)
        assert client.get("/api/v1/nodes/n") == {"kind": "Node"}
        (tmp_path / "token").write_text("second")
        client.apply("/api/v1/nodes/n", {"a": "\u00e9"}, field_manager="nfd-worker")
    first, second = (request.decode() for request in requests)
    assert first.startswith(f"GET /api/v1/nodes/n HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n")
    assert "\r\nAuthorization: Bearer first\r\n" in first
    assert second.startswith("PATCH /api/v1/nodes/n?fieldManager=nfd-worker&force=true HTTP/1.1\r\n")
    assert "\r\nAuthorization: Bearer second\r\n" in second
    head, _, body = second.partition("\r\n\r\n")
    assert f"\r\nContent-Length: {len(body)}\r\n" in head + "\r\n"
    assert json.loads(body) == {"a": "\u00e9"}


@pytest.mark.parametrize(
    ("is_ours", "host", "reason"),
    [
        pytest.param(False, "127.0.0.1", "verify failed", id="another authority"),
        pytest.param(True, "10.0.0.1", "doesn't match|mismatch", id="another server"),
        pytest.param(True, "localhost", "doesn't match|mismatch", id="a name, where an address was asked for"),
    ],
)
def test_a_server_that_is_not_the_clusters_gets_no_token(
    tmp_path: Path, authority: CertificateAuthority, is_ours: bool, host: str, reason: str
) -> None:
    """It is not even sent the request."""
    issuer = authority if is_ours else CertificateAuthority(tmp_path / "other")
    with (
        serving(lambda to: to.sendall(ANSWER), context_of(issuer, host)) as port,
        pytest.raises(Unreachable, match=reason),
    ):
        get(OnceConnection(f"https://127.0.0.1:{port}", str(authority.file), dict))
    assert b"".join(requests) == b""


def test_a_server_without_tls_gets_no_token(authority: CertificateAuthority) -> None:
    """What it says instead of a handshake is an error of TLS."""
    with (
        serving(lambda to: to.sendall(ANSWER)) as port,
        pytest.raises(Unreachable),
    ):
        get(OnceConnection(f"https://127.0.0.1:{port}", str(authority.file), dict), IMPATIENT)
    assert b"GET" not in b"".join(requests)


def lenient_context(make: Callable[..., ssl.SSLContext], **words: str) -> ssl.SSLContext:
    """Make a context as Python 3.10 to 3.11.3 do with OpenSSL 3."""
    context = make(**words)
    context.options |= getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    return context


@pytest.mark.parametrize("is_lenient", [False, True], ids=["this Python's contexts", "Python 3.11.2's contexts"])
def test_a_body_that_somebody_cut_off_is_not_its_end(
    authority: CertificateAuthority, monkeypatch: pytest.MonkeyPatch, is_lenient: bool
) -> None:
    """Without a length the end of TLS is the end of the body; the end of the connection alone is not."""
    if is_lenient:
        make = partial(lenient_context, ssl.create_default_context)
        monkeypatch.setattr(ssl, "create_default_context", make)

    def cut(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + NODE)
        # Behind TLS's back.
        with socket.socket(fileno=connection.detach()) as plain:
            plain.shutdown(socket.SHUT_WR)

    def end(connection: ssl.SSLSocket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + NODE)
        with suppress(OSError):
            connection.unwrap()

    context = context_of(authority, "127.0.0.1")
    for serve, is_whole in ((cut, False), (end, True)):
        with serving(serve, context) as port, ExitStack() as stack:  # type: ignore[arg-type]
            if not is_whole:
                stack.enter_context(pytest.raises(Unreachable, match="cut off"))
            assert get(OnceConnection(f"https://127.0.0.1:{port}", str(authority.file), dict)) == {"kind": "Node"}


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_files_that_are_gone_are_no_foreign_error(
    tmp_path: Path, authority: CertificateAuthority, missing: str
) -> None:
    """A pod that is being deleted may lose them."""
    with serving(lambda to: to.sendall(ANSWER), context_of(authority, "127.0.0.1")) as port:
        ours = account(tmp_path, authority, port)
        ours = ours._replace(ca_file=str(tmp_path / "none")) if missing == "ca.crt" else ours
        if missing == "token":
            (tmp_path / "token").unlink()
        with pytest.raises(Unreachable, match="No such file"):
            get(ours.once())  # type: ignore[arg-type]


# ---------------------------------------------------------------- time and size


def drip(*pieces: bytes) -> Callable[[socket.socket], None]:
    """Send pieces, and the last one again and again, never as long as a read would wait."""

    def serve(connection: socket.socket) -> None:
        for piece in pieces[:-1]:
            connection.sendall(piece)
        stopped = threading.Event()
        while not stopped.wait(IMPATIENT / 10):
            connection.sendall(pieces[-1])

    return serve


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([b"H"], id="no status line"),
        pytest.param([b"HTTP/1.1 200 OK\r\n", b"X: x\r\n"], id="headers without an end"),
        pytest.param([b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b"x"], id="a body"),
        pytest.param([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"], id="chunks"),
        pytest.param([b"HTTP/1.1 200 OK\r\n\r\n", b"x"], id="a body without a length"),
    ],
)
def test_a_response_that_drips_ends_in_time(pieces: list[bytes]) -> None:
    """The time is for all of it: without that, each byte would grant another read's worth, for ever."""
    with serving(drip(*pieces)) as port, pytest.raises(Unreachable, match="timed out"):
        get(OnceConnection(f"http://127.0.0.1:{port}", "", dict), IMPATIENT)


def test_a_response_without_an_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child has the memory of its container, and no more."""
    monkeypatch.setattr(once, "MAX_BODY", 1 << 20)

    def endless(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b"x" * (1 << 16))

    with serving(endless) as port, pytest.raises(Unreachable, match="more than 1 MiB"):
        get(OnceConnection(f"http://127.0.0.1:{port}", "", dict))


# ---------------------------------------------------------------- what is sent


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        pytest.param("GET", "/a b", {}, id="a blank in a name"),
        pytest.param("GET", "/a\r\nX: y", {}, id="a line in a name"),
        pytest.param("GET", "/\u00e9", {}, id="a letter in a name"),
        pytest.param("GET", "a", {}, id="no path"),
        pytest.param("GET\r\n", "/a", {}, id="no method"),
        pytest.param("GET", "/a", {"Authorization": "Bearer a\r\nX: y"}, id="a line in a token"),
        pytest.param("GET", "/a", {"Authorization": "Bearer \x00"}, id="a control character in a token"),
    ],
)
def test_a_name_or_a_token_cannot_end_its_line(method: str, path: str, headers: dict[str, str]) -> None:
    """They come from an environment and from a file."""
    with pytest.raises(Unreachable, match="cannot be"):
        format_request(method, path, headers, None)


@pytest.mark.parametrize("server", ["http://127.0.0.1:x", "http://127.0.0.1:", "https://[::1]:1x"])
def test_an_address_that_is_none_is_no_foreign_error(server: str) -> None:
    """It comes from the environment."""
    with pytest.raises(Unreachable, match="is not the address of a server"):
        get(OnceConnection(server, "", dict))


# ---------------------------------------------------------------- what it costs

EXCHANGE = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from kube_api.client import Client
from kube_api.credentials import ServiceAccount
import nfd_worker.publish.publish_child
Client(ServiceAccount(*sys.argv[2:]).once()).apply("/api/v1/nodes/n", {}, field_manager="nfd-worker")
print(json.dumps(sorted(sys.modules)))
"""


def test_the_publish_child_imports_little(tmp_path: Path, authority: CertificateAuthority) -> None:
    """Each of these would cost every publish as much as an empty interpreter, or half of that."""
    with serving(lambda to: to.sendall(ANSWER), context_of(authority, "127.0.0.1")) as port:
        ours = account(tmp_path, authority, port)
        path = json.dumps([str(Path(__file__).parents[3]), *(entry for entry in sys.path if "site-packages" in entry)])
        command = [sys.executable, "-I", "-S", "-c", EXCHANGE, path, *ours]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    loaded = set(json.loads(done.stdout))
    assert "ssl" in loaded
    assert not loaded & {
        "argparse", "dataclasses", "datetime", "email", "http", "ipaddress", "kubernetes", "logging", "urllib",
        "urllib3", "yaml",
    }  # fmt: skip
