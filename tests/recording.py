"""A plugin of pytest: a test that passes leaves in its JUnit file what it ran on, as the running parts tell it.

``make records`` reads these files. Nothing is taken from what was installed, asked for or downloaded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from docker.errors import DockerException

from testbed import fixtures
from testbed.api import ApiError, is_node_ready
from testbed.guest import script
from testbed.packages import surrounding_system
from testbed.testbed import Testbed
from tests.support.records import PROPERTY, Found

Say = Callable[..., None]
WITH_NODES = {"ground", "own_ground"}
WITH_SERVERS = {*WITH_NODES, "control_plane_ground", "own_control_plane", "scheduling_ground"}
WITH_ENGINE = {*WITH_NODES, "engine_ground"}
"""The fixtures of testbeds by what a test that asks for one of them uses."""

RECORDER = "recorder of what tests ran on"
"""The plugin's name."""

_OF_DEBIAN = re.compile(r"\d[\w.+~-]*-amd64")
_UNREACHABLE = (OSError, ApiError, DockerException, requests.RequestException)
_CONTROL_GROUPS_2 = Path("/sys/fs/cgroup/cgroup.controllers")


@pytest.fixture(scope="session")
def tested_on(request: pytest.FixtureRequest) -> Say:
    """Give `Recorder.say`."""
    recorder = request.config.pluginmanager.get_plugin(RECORDER)
    assert isinstance(recorder, Recorder)
    return recorder.say


class Recorder:
    """Writes down what the tests of this process ran on."""

    def __init__(self) -> None:
        self._said: list[Found] = []

    def say(self, part: str, **told: str) -> None:
        """Record a part that no testbed knows, of the test that runs next: its kind, and what it told, by field."""
        self._said.append(Found.of(part, told))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add it to what is left of a test that passed."""
        report = yield
        if call.when == "call" and report.passed:
            found = [*self._said, *_kernels(), *_parts_of(getattr(item, "funcargs", {}))]
            item.user_properties += map(as_property, dict.fromkeys([*found, *(_machine() if found else ())]))
        if call.when == "call":
            self._said.clear()
            script.told.clear()
        return report


def as_property(found: Found) -> tuple[str, object]:
    """Write a part as pytest takes it for a JUnit file."""
    return PROPERTY + found.part, yaml.safe_dump(
        dict(found.told), default_flow_style=True, width=10**6, sort_keys=False
    )


def _parts_of(fixtures_of_test: Mapping[str, object]) -> Iterator[Found]:
    """Ask the parts that a test used; one that does not answer, which a test may have wanted, tells nothing."""
    for ground in fixtures.running:
        used = {name for name, value in fixtures_of_test.items() if value is ground}
        for asked, ask in ((WITH_SERVERS, _servers), (WITH_NODES, _nodes), (WITH_ENGINE, _engines)):
            if asked & used:
                try:
                    yield from list(ask(ground))
                except _UNREACHABLE:
                    continue


def _servers(ground: Testbed) -> Iterator[Found]:
    if ground.has_kubernetes:
        yield Found.of("API server", {"Kubernetes": plain(ground.api.request("/version")["gitVersion"])})


def _nodes(ground: Testbed) -> Iterator[Found]:
    names = {*(ground.guests.names() if ground.has_guests else ()), ground.host_node_name}
    for node in ground.api.request("/api/v1/nodes")["items"]:
        if node["metadata"]["name"] in names and is_node_ready(node):
            yield of_node(node["status"]["nodeInfo"])


def of_node(info: dict[str, Any]) -> Found:
    """Return what a kubelet tells of its node (``status.nodeInfo``).

    Of a kernel that is not Debian's, which is that of the machine around the tests, the version alone counts.
    """
    kernel = info["kernelVersion"]
    runtime, _, version = info["containerRuntimeVersion"].partition("://")
    return Found.of(
        "node",
        {
            "system": info["osImage"],
            "kernel": kernel if _OF_DEBIAN.fullmatch(kernel) else plain(kernel),
            "runtime": f"{runtime} {plain(version)}",
            "Kubernetes": plain(info["kubeletVersion"]),
        },
    )


def _engines(ground: Testbed) -> Iterator[Found]:
    if ground.has_engine:
        with closing(ground.engine.client()) as client:
            yield of_engine(client.version(), client.info())


def of_engine(version: dict[str, Any], info: dict[str, Any]) -> Found:
    """Return what a Docker Engine tells of itself (``GET /version``, ``GET /info``)."""
    of_containerd = any("io.containerd.snapshotter" in str(value) for _, value in info.get("DriverStatus") or ())
    return Found.of(
        "engine",
        {
            "engine": f"Docker Engine {plain(version['Version'])}",
            "API": f"{version.get('MinAPIVersion', '?')} to {version['ApiVersion']}",
            "storage": f"{info['Driver']}{' (containerd)' if of_containerd else ''}",
        },
    )


def _kernels() -> list[Found]:
    return [Found.of("kernel", {"kernel": release}) for release in script.told]


def _machine() -> Iterator[Found]:
    """Return the machine around: the system outside of the tree that tests run in."""
    yield Found.of(
        "machine",
        {
            "system": surrounding_system(),
            "kernel": plain(os.uname().release),
            "control groups": "version 2" if _CONTROL_GROUPS_2.exists() else "version 1",
        },
    )


def plain(version: str) -> str:
    """Cut a version to its numbers, as in ``20.10.24`` of ``v20.10.24+dfsg1``."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return found[1] if found else version
