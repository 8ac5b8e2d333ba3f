"""Registries that keep callers waiting, on real sockets, and a fleet of drivers whose images are there."""

import itertools
import json
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.archives.image_archive import MANIFEST_TYPE, sha256
from driver_builder.base.reasons import Reason
from driver_builder.cluster.image_answers import ImageAnswers
from driver_builder.registry.registry import RegistryClient
from driver_builder.registry.registry_access import Registries
from kube_api.client import Client, Object
from kube_api.errors import Conflict
from kube_api.resources import CONFIG_MAPS, DRIVER_CONTAINERS
from tests.support.driver_builder.factories import KERNEL, NAMESPACE, driver_object
from tests.support.driver_builder.model_world import World
from tests.support.driver_builder.scripted_registry import MemoryRegistry, Reply, Request, scripted_registry
from tests.support.loopback import LOOPBACK

DRIP_SECONDS = 0.05
TURN_SECONDS = 0.2
KINDS = ("dripping body", "dripping header", "black hole", "other words each time")
GOOD = "zz-good"
"""Its registry answers; it comes last in every reconcile."""


@contextmanager
def hostile_registry(kind: str) -> Iterator[str]:
    """Serve one; returns its host."""
    if kind == "black hole":
        made = _black_hole()
    elif kind == "other words each time":
        made = _babble()
    else:
        body = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
        made = _dripping(body if kind == "dripping body" else b"HTTP/1.1 200 OK\r\nX-Slow: ")
    with made as host:
        yield host


@contextmanager
def _dripping(head: bytes) -> Iterator[str]:
    """Answer everybody with ``head``, then a byte now and then."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        listener.settimeout(DRIP_SECONDS)
        stop = threading.Event()

        def serve() -> None:
            with ExitStack() as stack:
                connections: list[socket.socket] = []
                while not stop.is_set():
                    with suppress(TimeoutError):
                        connections.append(stack.enter_context(listener.accept()[0]))
                        connections[-1].sendall(head)
                    for connection in connections:
                        with suppress(OSError):
                            connection.sendall(b" ")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield _host(listener)
        finally:
            stop.set()
            thread.join()


@contextmanager
def _black_hole() -> Iterator[str]:
    """Let no connection come about: the queue of those to be accepted is full, so that packets are dropped."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield _host(listener)


@contextmanager
def _babble() -> Iterator[str]:
    """Refuse each time in other words."""

    def script(_: Request) -> Reply:
        words = {"errors": [{"code": "UNKNOWN", "message": str(uuid.uuid4()) * 3}]}
        return Reply(status=400, body=json.dumps(words).encode())

    with scripted_registry(script) as registry:
        yield registry.host


def _host(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


class PatientRegistries(Registries):
    """The controller's registries with another deadline for each question."""

    def __init__(self, client: Client, seconds: float) -> None:
        super().__init__(client)
        self._seconds = seconds

    def connect(
        self,
        namespace: str,
        settings: RegistrySettings,
        host: str,
        repository: str = "",
        *,
        patience: float = 0,
        wait: Callable[[float], object] = lambda _seconds: None,
    ) -> RegistryClient:
        """Make a client that waits so long."""
        assert namespace
        assert repository
        assert (patience, wait(0)) == (0, None)
        return RegistryClient(
            host, plain_http=settings.plain_http, timeout=self._seconds, deadline=self._seconds, reach=LOOPBACK
        )


class FleetWorld(World):
    """A world with one driver whose registry answers, ``GOOD``, and others with an image each in hostile registries.

    ``waits`` lets each reconcile ask the registries itself and wait ``seconds`` at most; otherwise they are asked in
    the background.
    """

    def __init__(self, good_host: str, good: MemoryRegistry, *, seconds: float, waits: bool = False) -> None:
        super().__init__()
        self.woken = threading.Event()
        self._good = good
        asked = PatientRegistries(self.client, seconds)
        self.answers = ImageAnswers(asked, wake=self.woken.set)
        self.inspector = asked if waits else self.answers
        self.add_node("node-a", KERNEL)
        self.add_driver(GOOD, image=f"{good_host}/drivers/good", registry={"plainHttp": True})

    def add_hostile(self, hosts: Sequence[str], number: int, namespace: str = NAMESPACE) -> None:
        """Add drivers with an image each, on some hosts in turn."""
        self.namespaces = tuple(dict.fromkeys((*self.namespaces, namespace)))
        path = CONFIG_MAPS.path(namespace=namespace)
        with suppress(Conflict):
            self.client.create(path, {"metadata": {"name": "edu-source"}, "data": {"edudrv.c": "int x;"}})
        for count, host in zip(range(number), itertools.cycle(hosts), strict=False):
            name = f"hostile-{count:02}"
            image = {
                "image": f"{host}/drivers/{name}",
                "registry": {"plainHttp": True},
                "module": {"names": [f"m{count}"]},
            }
            body = driver_object(name, namespace=namespace, spec_changes=image, finalizer=False)
            self.client.create(DRIVER_CONTAINERS.path(namespace=namespace), body)

    def finish_builds(self) -> None:
        """Let builds end with a push, as the controller's do."""
        before = set(self.registries.images)
        super().finish_builds()
        for image in self.registries.images.keys() - before:
            config = json.dumps({"architecture": "amd64", "config": {"Labels": self.registries.images[image]}}).encode()
            manifest = json.dumps({"schemaVersion": 2, "config": {"digest": sha256(config)}, "layers": []}).encode()
            self._good.blobs[sha256(config)] = config
            self._good.manifests[image.reference] = (MANIFEST_TYPE, manifest)
            self.answers.forget(image)

    def passes(self) -> list[float]:
        """Reconcile until the good driver is ready, again when an answer is news; returns the seconds of each."""
        seconds = [self.one_pass()]
        while self.reason(GOOD) != Reason.ALL_NODES_READY:
            self.woken.wait(TURN_SECONDS)
            self.woken.clear()
            seconds.append(self.one_pass())
        return seconds

    def one_pass(self) -> float:
        """Do a pass, and all that comes of it before the next one; returns the seconds of the pass."""
        began = time.perf_counter()
        self.reconcile()
        seconds = time.perf_counter() - began
        self.finish_builds()
        self.turn()
        self.now += 1
        return seconds

    def reason(self, name: str, namespace: str = NAMESPACE) -> str:
        """Return why a driver is as it is."""
        status: Object = self.client.get(DRIVER_CONTAINERS.path(namespace=namespace, name=name))["status"]
        return str(status["targets"][0]["reason"])


@contextmanager
def fleet(*, seconds: float, waits: bool = False) -> Iterator[FleetWorld]:
    """Make a world of a good driver and its registry, whose questions end with the block."""
    good = MemoryRegistry()
    with scripted_registry(good) as registry:
        world = FleetWorld(registry.host, good, seconds=seconds, waits=waits)
        yield world
        world.answers.stop()


@contextmanager
def hostile_registries(number: int) -> Iterator[tuple[str, ...]]:
    """Serve some, of all kinds in turn; returns their hosts."""
    with ExitStack() as stack:
        kinds = itertools.islice(itertools.cycle(KINDS), number)
        yield tuple([stack.enter_context(hostile_registry(kind)) for kind in kinds])
