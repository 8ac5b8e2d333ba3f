"""A whole agent whose Node's label chooses the profile; ``tests/api`` has a real API server."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from device_agent.node.asked import Asked
from device_agent.node.attempts import Pauses
from device_agent.node.follow import own_node
from device_agent.node.own_node import OwnNode
from kube_api.client import Client
from kube_api.names import GPU_PROFILE_ANNOTATION, GPU_PROFILE_LABEL
from tests.unit.device_agent.node.test_own_node import AWAY, Server
from tests.unit.device_agent.nvidia.states import state, xid
from tests.unit.device_agent.nvidia.test_profiles_in_use import BROKEN, GPU, RENAMED, WHOLE, Node, live, mount

FAR_AWAY = [AWAY] * 100_000
"""Longer than a test."""


class Cluster:
    """An API server with the agent's Node."""

    def __init__(self, key: str | None = None) -> None:
        self.server = Server()
        self.ask(key)

    def ask(self, key: str | None) -> None:
        """Set the label, or take it away."""
        assert self.server.node is not None
        labels = self.server.node["metadata"]["labels"]
        labels.pop(GPU_PROFILE_LABEL, None)
        labels |= {} if key is None else {GPU_PROFILE_LABEL: key}
        self.server.changed()

    def follow(self, on_asked: Callable[[Asked], None] | None, on_mig: Callable[[], None] | None) -> OwnNode:
        """Follow the Node."""
        return OwnNode(Client(self.server), "n", on_asked, partial(Pauses, 0.001, 0.002), on_mig=on_mig)

    def answer(self) -> dict[str, Any]:
        """Return what the Node says, with its state."""
        assert self.server.node is not None
        text = self.server.node["metadata"].get("annotations", {}).get(GPU_PROFILE_ANNOTATION)
        return {"state": self.server.state, **json.loads(text)} if text else {}

    async def answers(self, **fields: object) -> None:
        """Wait until the Node says this."""
        while {name: value for name, value in self.answer().items() if name in fields} != fields:
            await asyncio.sleep(0.01)


def labelled(folder: Path, cluster: Cluster, act: Callable[[Node], Awaitable[None]]) -> None:
    """Run an agent, act, and end it while its thread waits for the Node to change."""
    live(folder, act, own_node=cluster.follow)
    cluster.server.watch.put(None)


def test_the_label_chooses_the_profile(folder: Path) -> None:
    """What is free follows; without the label it is ``default``; what is in use is named until it has ended."""
    cluster = Cluster("slice-4")
    mount(folder / "profiles", WHOLE, **{"slice-4": RENAMED})

    async def act(node: Node) -> None:
        await node.shows(shared=(16, 16))
        await cluster.answers(state="success", asked="slice-4", applied="slice-4", message="",
                              resources=["nvidia.com/gpu.shared"])  # fmt: skip
        cluster.ask(None)
        await node.shows(gpu=(4, 4))
        await cluster.answers(state="success", asked="default", applied="default", message="", resources=[GPU])
        await node.start_pods(GPU, "GPU-0")
        cluster.ask("slice-4")
        await node.shows(gpu=(1, 1), shared=(12, 16))
        await cluster.answers(state="success", asked="slice-4", applied="slice-4",
                              message="GPU-0 is still held as nvidia.com/gpu (1 device)",
                              resources=[GPU, "nvidia.com/gpu.shared"])  # fmt: skip
        await node.knows_pods()
        node.pods.end(GPU, "GPU-0")
        await node.shows(shared=(16, 16))
        await cluster.answers(message="", resources=["nvidia.com/gpu.shared"])

    labelled(folder, cluster, act)
    assert cluster.server.events == []


@pytest.mark.parametrize(
    ("key", "texts", "message"),
    [
        pytest.param("slice-9", {"default": WHOLE, "slice-4": RENAMED},
                     "there is no profile slice-9, which is asked for by the label nvidia.com/device-plugin.config: "
                     "there are default, slice-4", id="unknown"),
        pytest.param(".x.", {"slice-4": RENAMED}, "there is no profile .x., ", id="no key at all"),
        pytest.param("slice-4", {"default": WHOLE, "slice-4": BROKEN},
                     "profile slice-4: sharing.timeSlicing.resources[0].replicas: is missing; ", id="broken"),
        pytest.param("slice-4", {}, "there is no profile slice-4, which is asked for by the label "
                     "nvidia.com/device-plugin.config: there are none", id="the ConfigMap is deleted"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_a_failure(folder: Path, key: str, texts: dict[str, str], message: str) -> None:
    """The last good one stays; the answer names the profiles that there are, and an Event says it once."""
    cluster = Cluster("slice-4")
    mount(folder / "profiles", **{"slice-4": RENAMED})

    async def act(node: Node) -> None:
        await node.shows(shared=(16, 16))
        await cluster.answers(state="success")
        node.write(**texts)
        cluster.ask(key)
        await cluster.answers(state="failed", asked=key, applied="slice-4", resources=["nvidia.com/gpu.shared"])
        while message not in cluster.answer()["message"]:
            await asyncio.sleep(0.01)
        assert "there are" in cluster.answer()["message"]
        while not any(message in event["message"] for event in cluster.server.events):
            await asyncio.sleep(0.01)
        node.nvml.show(state(at=110.0, xids=(xid(1, 79, of=2),)))
        await node.shows(shared=(12, 16))

    labelled(folder, cluster, act)


def test_an_agent_that_starts_without_the_api_server_rearranges_nothing(folder: Path) -> None:
    """What was in force counts, and health goes on, until the Node can be read; then its label does."""
    cluster = Cluster("slice-4")
    mount(folder / "profiles", WHOLE, **{"slice-4": RENAMED})

    async def before(node: Node) -> None:
        await node.shows(shared=(16, 16))

    async def after(node: Node) -> None:
        await node.shows(shared=(16, 16))
        node.nvml.show(state(at=110.0, xids=(xid(1, 79, of=2),)))
        await node.shows(shared=(12, 16))
        assert GPU not in node.kubelet.plugins
        assert cluster.answer() == {}
        cluster.server.fails.clear()
        await node.shows(gpu=(3, 4))
        await cluster.answers(state="success", asked="whole", applied="whole")

    labelled(folder, cluster, before)
    cluster = Cluster("whole")
    cluster.server.fails["GET"] = list(FAR_AWAY)
    mount(folder / "profiles", WHOLE, **{"slice-4": RENAMED, "whole": WHOLE})
    labelled(folder, cluster, after)


def test_an_agent_that_starts_with_a_wrong_label_rearranges_nothing(folder: Path) -> None:
    """The last good profile stays, as it does while the agent runs."""
    mount(folder / "profiles", WHOLE, **{"slice-4": RENAMED})

    async def before(node: Node) -> None:
        await node.shows(shared=(16, 16))

    cluster = Cluster("slice-9")

    async def after(node: Node) -> None:
        await cluster.answers(state="failed", asked="slice-9", applied="slice-4")
        await node.shows(shared=(16, 16))
        assert GPU not in node.kubelet.plugins

    labelled(folder, Cluster("slice-4"), before)
    labelled(folder, cluster, after)


@pytest.mark.parametrize(
    ("name", "why"), [("", "NODE_NAME is not set"), ("n", "there is no token of a service account")]
)
def test_without_token_or_name_the_default_profile_counts(
    folder: Path, name: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Devices work, and one line of the log says so."""
    caplog.set_level("INFO")

    async def act(node: Node) -> None:
        await node.shows(shared=(16, 16))

    mount(folder / "profiles", RENAMED, **{"slice-4": WHOLE})
    live(folder, act, own_node=lambda on_asked, on_mig: own_node(name, {}, on_asked, on_mig))
    (line,) = [record.getMessage() for record in caplog.records if "is not followed" in record.getMessage()]
    assert why in line
