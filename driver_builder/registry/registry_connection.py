"""Connections to a registry and to where it redirects: to checked addresses only, and with a deadline.

Place in the flow: ``registry_transport`` makes its session here. A time-out of ``requests`` bounds each wait for data;
:class:`Deadline` bounds the whole exchange, so that no peer can hold a thread by sending a byte now and then. A name is
resolved once, and the checked address is the one that is connected to: a DNS server that changes its answer later
changes nothing.
"""

import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.utils import select_proxy
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError
from urllib3.util.connection import create_connection

from driver_builder.base.errors import RegistryRefused
from driver_builder.model.registry_reach import Reach

PORTS: Mapping[str, int] = {"http": 80, "https": 443}


class Deadline:
    """Shuts the watched connections down after ``seconds``; used as a context."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.has_passed = False
        self._ends = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._watched: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._pass)
        self._timer.daemon = True

    def __enter__(self) -> "Deadline":
        """Start the clock."""
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the clock; the connections stay as they are."""
        self._timer.cancel()
        with self._lock:
            for watched in self._watched:
                watched.close()
            self._watched.clear()

    def left(self, most: float) -> float:
        """Seconds until then, at most ``most``, and never 0, which sockets take for no time-out."""
        return max(0.001, min(most, self._ends - time.monotonic()))

    def watch(self, connection: socket.socket) -> None:
        """Shut a connection down with the others; it may be wrapped in TLS, closed or forgotten meanwhile."""
        copy = socket.socket(fileno=socket.dup(connection.fileno()))
        with self._lock:
            self._watched.append(copy)
            if self.has_passed:
                _shut_down(copy)

    def _pass(self) -> None:
        with self._lock:
            self.has_passed = True
            for watched in self._watched:
                _shut_down(watched)


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class Guard:
    """Checks the addresses that connections of one registry go to; ``deadline`` is that of the current exchange.

    ``own`` is the registry's own host and port, which the spec names: it may be in a range that redirects must not
    lead to, because a registry in the cluster is one, but it is not this host, nor on the local link.
    """

    def __init__(self, registry: str, own: tuple[str, int], reach: Reach) -> None:
        self.deadline: Deadline | None = None
        self._registry = registry
        self._own = own
        self._reach = reach

    def addresses(self, host: str, port: int) -> list[str]:
        """Resolve a name.

        Raises:
            RegistryRefused: when one of its addresses may not be connected to.
            socket.gaierror, UnicodeError: when it cannot be resolved.
        """
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        if self._reach.allows_host(host, port):
            return addresses
        if (host.lower(), port) == self._own:
            if refusal := self._reach.refusal_of_own(addresses):
                raise RegistryRefused(
                    f"registry {self._registry} has the address {refusal}, of this host, the local link or a cloud's"
                    " own services, and is not asked; to allow it, add the host to --registry-allowed-hosts"
                )
            return addresses
        if refusal := self._reach.refusal(addresses):
            raise RegistryRefused(
                f"registry {self._registry} refers to {host}:{port}, which is {refusal}: a registry must not refer"
                " to such an address; to allow it, add the host to --registry-allowed-hosts"
            )
        return addresses

    def check_behind_proxy(self, url: str) -> None:
        """Check a host that a proxy connects to, as far as its name can be resolved here.

        Raises:
            RegistryRefused: when one of its addresses may not be connected to.
        """
        parts = urlsplit(url)
        with suppress(OSError, UnicodeError):
            self.addresses(parts.hostname or "", parts.port or PORTS.get(parts.scheme, 0))


class _GuardedConnection(HTTPConnection):
    """A connection whose addresses a guard has checked."""

    def __init__(self, *words: Any, guard: Guard, **settings: Any) -> None:
        self._guard = guard
        super().__init__(*words, **settings)

    def request(self, *words: Any, **settings: Any) -> None:
        """Send a request; a connection that is used again has a new deadline."""
        if self.sock is not None and self._guard.deadline is not None:
            self._guard.deadline.watch(self.sock)
        super().request(*words, **settings)

    def _new_conn(self) -> socket.socket:
        """Connect to the first address that answers."""
        try:
            # The proxy's, which is the admin's choice; the host behind it was checked as far as possible.
            addresses = [self.host] if self.proxy is not None else self._guard.addresses(self.host, self.port)
        except (socket.gaierror, UnicodeError) as error:
            raise NameResolutionError(self.host, self, error) from error  # type: ignore[arg-type]
        failure: Exception | None = None
        for address in addresses:
            try:
                return self._connected(address)
            except TimeoutError as error:
                failure = ConnectTimeoutError(self, f"Connection to {self.host} timed out.")
                failure.__cause__ = error
            except socket.gaierror as error:
                raise NameResolutionError(self.host, self, error) from error
            except OSError as error:
                failure = NewConnectionError(self, f"Failed to establish a new connection: {error}")
                failure.__cause__ = error
        raise failure or NewConnectionError(self, f"{self.host} has no address")

    def _connected(self, address: str) -> socket.socket:
        deadline = self._guard.deadline
        most = self.timeout if isinstance(self.timeout, int | float) else None
        made = create_connection(
            (address, self.port),
            deadline.left(most) if deadline and most else most,
            source_address=self.source_address,
            socket_options=self.socket_options,
        )
        if deadline is not None:
            deadline.watch(made)
        return made


class _GuardedTlsConnection(_GuardedConnection, HTTPSConnection):
    """The same with TLS."""


class _Adapter(HTTPAdapter):
    """Makes guarded connections, also to proxies."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._pools = {
            "http": partial(_pool, HTTPConnectionPool, _GuardedConnection, guard),
            "https": partial(_pool, HTTPSConnectionPool, _GuardedTlsConnection, guard),
        }
        super().__init__()

    def init_poolmanager(self, *words: Any, **settings: Any) -> None:
        """Make the pools of direct connections."""
        super().init_poolmanager(*words, **settings)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, proxy: str, **settings: Any) -> Any:
        """Make the pools of connections through a proxy."""
        manager = super().proxy_manager_for(proxy, **settings)
        if not proxy.lower().startswith("socks"):
            manager.pool_classes_by_scheme = self._pools
        return manager

    def send(self, request: requests.PreparedRequest, *words: Any, **settings: Any) -> requests.Response:
        """Send a request."""
        if select_proxy(request.url or "", settings.get("proxies") or {}):
            self._guard.check_behind_proxy(request.url or "")
        return super().send(request, *words, **settings)


def _pool(kind: type[HTTPConnectionPool], connection: type, guard: Guard, *words: Any, **settings: Any) -> Any:
    made = kind(*words, **settings)
    made.ConnectionCls = partial(connection, guard=guard)  # type: ignore[assignment]
    return made


def guarded_session(guard: Guard) -> requests.Session:
    """A session all of whose connections are guarded."""
    session = requests.Session()
    for scheme in PORTS:
        session.mount(f"{scheme}://", _Adapter(guard))
    return session
