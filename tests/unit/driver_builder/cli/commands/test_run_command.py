"""The command ``run``: how the controller ends."""

import argparse
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from driver_builder import config
from driver_builder.base import telemetry
from driver_builder.base.errors import ConfigurationError
from driver_builder.base.retry import Backoff
from driver_builder.cli.commands import run_command
from driver_builder.cli.common import EXIT_FAILED, EXIT_OK
from driver_builder.cluster.observe import Observer
from driver_builder.config import Settings
from driver_builder.controller.feature_rules_sync import FeatureRulesSync
from driver_builder.controller.rule_compiler import CONFIG_MAP
from driver_builder.snapshot.snapshot import Snapshot
from kube_api.client import Client, WatchEvent
from kube_api.resources import CONFIG_MAPS, LEASES, NODE_FEATURE_RULES
from tests.support.driver_builder.factories import NAMESPACE
from tests.support.driver_builder.memory_client import MemoryClient
from tests.unit.driver_builder.controller.test_rule_compiler import GOOD, rule_object

TRIES = 6000
"""A test that fails ends after a minute."""
LEASE_PATH = LEASES.path(namespace=NAMESPACE, name="driver-builder")


class Watched(MemoryClient):
    """An API server whose watches end as ``ending`` does."""

    def __init__(self, ending: Callable[[], None]) -> None:
        super().__init__()
        self.ending = ending

    def watch(self, *_: Any, **__: Any) -> Iterator[WatchEvent]:
        """End."""
        self.ending()
        yield from ()


def settings(**environment: str) -> Settings:
    """Make settings of environment variables."""
    environment = {"loader_image": "r.io/loader:1", "no_feature_rules": "true", **environment}
    flags = argparse.Namespace(namespace=[NAMESPACE])
    return config.settings(flags, {f"DRIVER_BUILDER_{name.upper()}": value for name, value in environment.items()})


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> dict[int, Callable[..., None]]:
    """Return the handlers of signals, which stay as they are in this process."""
    handlers: dict[int, Callable[..., None]] = {}
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    monkeypatch.setattr(Backoff, "next", lambda _self: 0.0)
    return handlers


class Hanging(Watched):
    """An API server whose watches fail while a reconcile waits for an answer, which comes when ``health`` says no."""

    def __init__(self) -> None:
        super().__init__(self._end)
        self.health: list[Callable[[], bool]] = []
        self.said: list[bool] = []
        self._hangs = threading.Event()

    def wait(self) -> None:
        """Wait as a reconcile does that gets no answer."""
        if self._hangs.is_set():
            return
        (healthy,) = self.health
        self._hangs.set()
        for _ in range(TRIES):
            self.said.append(healthy())
            if not self.said[-1]:
                break
            time.sleep(0.01)

    def _end(self) -> None:
        assert self._hangs.wait(60)
        fail()


def ended(client: MemoryClient, monkeypatch: pytest.MonkeyPatch, health: list[Callable[[], bool]]) -> int:
    """Run the controller until it ends; returns its exit code."""
    monkeypatch.setattr(Client, "from_environment", lambda *_, **__: client)
    monkeypatch.setattr(telemetry, "serve", lambda _port, *, healthy: health.append(healthy))
    return run_command.run(argparse.Namespace(), settings())


def fail() -> None:
    """Fail as a bug does."""
    raise MemoryError("an allocation failed")


@pytest.mark.usefixtures("signals")
def test_a_thread_that_cannot_be_kept_alive_ends_the_process_with_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its container is started anew, and the next controller need not wait for the Lease."""
    client = Watched(fail)
    assert ended(client, monkeypatch, []) == EXIT_FAILED
    assert client.get(LEASE_PATH)["spec"]["holderIdentity"] == ""


@pytest.mark.usefixtures("signals")
def test_healthz_says_no_while_a_pass_hangs_and_a_thread_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process cannot end before its pass does: the kubelet ends it."""
    client = Hanging()
    observe = Observer.observe

    def slowly(observer: Observer) -> Snapshot:
        client.wait()
        return observe(observer)

    monkeypatch.setattr(Observer, "observe", slowly)
    assert ended(client, monkeypatch, client.health) == EXIT_FAILED
    assert client.said[-1] is False


def test_a_controller_that_is_stopped_ends_well(
    signals: dict[int, Callable[..., None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After SIGTERM the exit code is 0, and the next controller need not wait for the Lease."""
    once = threading.Lock()

    def told() -> None:
        if once.acquire(blocking=False):
            signals[signal.SIGTERM]()

    client = Watched(told)
    assert ended(client, monkeypatch, []) == EXIT_OK
    assert client.get(LEASE_PATH)["spec"]["holderIdentity"] == ""


class Slow(MemoryClient):
    """An API server that gets SIGTERM while it writes the workers' rules, and answers once ``go_on`` is set."""

    def __init__(self, signals: dict[int, Callable[..., None]]) -> None:
        super().__init__()
        self.go_on = threading.Event()
        self.holder = ""
        self._signals = signals
        self.objects[NODE_FEATURE_RULES.path(name="boards")] = rule_object("boards", GOOD)
        known = {"name": CONFIG_MAP, "namespace": NAMESPACE, "uid": "1", "resourceVersion": "1"}
        self.objects[CONFIG_MAPS.path(namespace=NAMESPACE, name=CONFIG_MAP)] = {"metadata": known}

    def watch(self, *_: Any, **__: Any) -> Iterator[WatchEvent]:
        """Nothing happens until the end of the test."""
        self.go_on.wait(60)
        yield from ()

    def patch(self, path: str, body: Any, **options: Any) -> Any:
        """Take a write while the controller ends; remembers who had the Lease."""
        if path.endswith(f"/configmaps/{CONFIG_MAP}"):
            self._signals[signal.SIGTERM]()
            assert self.go_on.wait(60)
            self.holder = self.get(LEASE_PATH)["spec"]["holderIdentity"]
        return super().patch(path, body, **options)


def test_the_lease_is_kept_until_the_rules_of_the_workers_are_written(
    signals: dict[int, Callable[..., None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two controllers would write one ConfigMap; the answer comes when somebody waits for its thread, or nobody did."""
    client, join = Slow(signals), threading.Thread.join

    def joined(thread: threading.Thread, timeout: float | None = None) -> None:
        if thread.name == FeatureRulesSync.name:
            client.go_on.set()
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", joined)
    monkeypatch.setattr(Client, "from_environment", lambda *_, **__: client)
    with_rules = settings(no_feature_rules="", port="0", identity="one", feature_rules_namespace=NAMESPACE)
    assert run_command.run(argparse.Namespace(), with_rules) == EXIT_OK
    client.go_on.set()
    for thread in threading.enumerate():
        if thread.name == FeatureRulesSync.name:
            join(thread)
    assert client.holder == "one"


def test_without_the_loaders_image_nothing_begins() -> None:
    """Every driver pod needs it: the error names the flag."""
    with pytest.raises(ConfigurationError, match="--loader-image"):
        run_command.run(argparse.Namespace(), settings(loader_image=""))
