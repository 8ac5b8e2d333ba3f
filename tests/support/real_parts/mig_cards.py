"""This machine as a node whose agent changes MIG layouts of four cards, as the Node's label asks."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import yaml

from kube_api.names import (
    DRAIN_REQUEST_ANNOTATION,
    DRAIN_STATE_ANNOTATION,
    GPU_DEPLOY_PREFIX,
    LOCK_ANNOTATION,
    MIG_ANNOTATION,
    MIG_CONFIG_LABEL,
    MIG_STATE_LABEL,
    REBOOT_REQUIRED_LABEL,
)
from kube_api.resources import NODES
from testbed.testbed import Testbed
from tests.support.real_parts.agent_account import install_account
from tests.support.real_parts.cards_with_pods import CardsWithPods, kubelet_with_cgroups
from tests.support.real_parts.cluster_setup import connect_as_agent, pods_environment
from tests.support.real_parts.device_agent import SECONDS, Json
from tests.support.real_parts.nvidia_node import CAPABILITIES, CARDS, COMMON, Node, node_with_cards

WHOLE = "nvidia.com/gpu"
ONE, TWO, THREE = (f"nvidia.com/mig-{profile}" for profile in ("1g.5gb", "2g.10gb", "3g.20gb"))
PLUGIN = f"{GPU_DEPLOY_PREFIX}device-plugin"
"""A label by which NVIDIA's operator runs its pods."""
MIXED, SINGLE = "mixed", "single"
_ACCOUNT = "gpu-mig/mig"
_NOTHING: Json = {
    "labels": dict.fromkeys((MIG_CONFIG_LABEL, MIG_STATE_LABEL, REBOOT_REQUIRED_LABEL, PLUGIN)),
    "annotations": dict.fromkeys((MIG_ANNOTATION, LOCK_ANNOTATION, DRAIN_REQUEST_ANNOTATION, DRAIN_STATE_ANNOTATION)),
}

Layout = tuple[tuple[str, int, tuple[int, ...]], ...]


def layouts(**more: list[Json]) -> Json:
    """Make mig-parted's file: layouts of all cards, and more of them by key."""

    def of_all(**devices: int) -> list[Json]:
        return [{"devices": "all", "mig-enabled": True, "mig-devices": devices}]

    configs = {
        "2x2g.10gb-3x1g.5gb": of_all(**{"2g.10gb": 2, "1g.5gb": 3}),
        "7x1g.5gb": of_all(**{"1g.5gb": 7}),
        "balanced": of_all(**{"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}),
        "too-much": of_all(**{"3g.20gb": 2, "1g.5gb": 1}),
        "all-disabled": [{"devices": "all", "mig-enabled": False}],
        **more,
    }
    return {"version": "v1", "mig-configs": configs}


class Life(NamedTuple):
    """A pod that runs: ``container``, ``restarts`` and ``started_at`` are those of its only container."""

    pod: str
    uid: str
    container: str
    restarts: int
    started_at: str


class MigCards(CardsWithPods):
    """The node. ``one``, ``two``, ``three``: with instances as resources."""

    def __init__(self, node: Node, account: Path) -> None:
        super().__init__(node)
        self.one, self.two, self.three = map(self.resource, (ONE, TWO, THREE))
        self._layouts = node.folder / "layouts"
        self._layouts.mkdir()
        node.account, node.environment = account, pods_environment(self.place.ground)
        node.flags |= {"mig-config": self._layouts, "node-name": self.place.node}
        self.write()
        self.use(MIXED)

    # ------------------------------------------------------------ what is asked for

    def use(self, strategy: str, *, drain: bool = False) -> None:
        """Have another strategy of MIG devices, and users of what goes drained or not."""
        mig = {"enabled": True, "drain": drain}
        self.node.configure(yaml.safe_dump({"nvidia": {"migStrategy": strategy, "mig": mig}}))

    def write(self, **more: list[Json]) -> None:
        """Change the file of layouts."""
        fresh = self.node.folder / "fresh"
        fresh.write_text(yaml.safe_dump(layouts(**more)))
        fresh.replace(self._layouts / "config.yaml")

    def ask(self, key: str | None) -> None:
        """Set the Node's label, or remove it."""
        self._patch({"labels": {MIG_CONFIG_LABEL: key}})

    def deploy_plugin(self) -> None:
        """Have NVIDIA's operator run its plugin here, by its label."""
        self._patch({"labels": {PLUGIN: "true"}})

    def forget(self) -> None:
        """Take away all that is said of MIG on the Node."""
        self._patch(_NOTHING)

    def _patch(self, metadata: Json) -> None:
        self.place.client.patch(NODES.path(name=self.place.node), {"metadata": metadata})

    # ------------------------------------------------------------ what is there

    def said_of(self) -> tuple[str, str, Json]:
        """Return the label that is asked for, the state, and the record; the lock is in it where there is one."""
        metadata = self.place.cluster.node(self.place.node)["metadata"]
        labels, annotations = metadata.get("labels", {}), metadata.get("annotations", {})
        record: Json = json.loads(annotations.get(MIG_ANNOTATION, "{}"))
        if LOCK_ANNOTATION in annotations:
            record["lock"] = annotations[LOCK_ANNOTATION]
        return labels.get(MIG_CONFIG_LABEL, ""), labels.get(MIG_STATE_LABEL, ""), record

    def reaches(self, state: str, *words: str) -> str:
        """Wait until the Node has a state for what is asked, and a message with words; returns the message."""

        def message() -> str | None:
            asked, found, record = self.said_of()
            if (record.get("asked"), found) != (asked, state):
                return None
            text: str = record["message"]
            return text if all(word in text for word in words) else None

        return self.place.cluster.wait(
            f"{state} with {words}", lambda: _wrapped(message()), timeout=SECONDS,
            seen=lambda: f"{self.said_of()}; {self.log.read_text()[-3000:]}",
        )[0]  # fmt: skip

    def makes(self, key: str) -> float:
        """Ask for a layout and wait until it is there, and the lock is gone; returns the seconds that took."""
        began = time.monotonic()
        self.ask(key)
        self.reaches("success")
        assert "lock" not in self.said_of()[2]
        return time.monotonic() - began

    def offers(self, **counts: int) -> None:
        """Wait until so many ``whole``, ``one``, ``two`` and ``three`` are allocatable; 0 of those not named."""
        resources = {"whole": WHOLE, "one": ONE, "two": TWO, "three": THREE}
        wanted = {name: str(counts.get(name, 0)) for name in resources}

        def seen() -> dict[str, str]:
            found = self.place.cluster.node(self.place.node)["status"]["allocatable"]
            return {name: found.get(resource, "0") for name, resource in resources.items()}

        self.place.cluster.wait(
            str(wanted), lambda: seen() == wanted or None, timeout=SECONDS,
            seen=lambda: f"{seen()}; {self.log.read_text()[-3000:]}", every=0.2,
        )  # fmt: skip

    def layout(self, card: int) -> Layout:
        """Return what a card has."""
        return self.node.machine.mig.gpu(self.node.machine.uuid(card)).layout

    def profiles(self) -> list[list[str]]:
        """Return the sorted profiles of each card."""
        return [sorted(name for name, _, _ in self.layout(card)) for card in CARDS]

    def changes(self) -> list[str]:
        """Return what was changed until now."""
        return self.node.machine.mig.changes()

    def changing_pid(self) -> str:
        """Return the process that changes cards: the child of the container's; empty while there is none."""
        nvml = self.node.pid("nvml")
        return Path(f"/proc/{nvml}/task/{nvml}/children").read_text().strip()

    def wait_for_point(self, point: int) -> None:
        """Wait until so many points of changes were passed."""
        mig = self.node.machine.mig
        self.place.cluster.wait(
            f"point {point}", lambda: mig.points() >= point or None, timeout=SECONDS, every=0.005,
            seen=lambda: f"{mig.points()}; {self.said_of()}",
        )  # fmt: skip

    def instances_of(self, pod: str) -> list[tuple[int, str]]:
        """Return card and profile of each instance of a pod. It has the nodes of these and of no others."""
        nodes, uuids = self.node.seen_by(pod)
        machine = self.node.machine
        found = [
            (card, one)
            for card in CARDS
            for one in machine.mig.gpu(machine.uuid(card)).instances
            if not set(one.uuids).isdisjoint(uuids)
        ]
        assert len(found) == len(uuids)
        minors = {card: self.minor(card) for card, _ in found}
        opening = (_opening(minors[card], one.id) for card, one in found)
        assert nodes == {*COMMON, *(f"nvidia{minor}" for minor in minors.values())}.union(*opening)
        return [(card, one.profile) for card, one in found]

    def minor(self, card: int) -> int:
        """Return the minor number of a card; in MIG mode it may have another one."""
        facts = self.node.machine.gpus[card].facts
        mode = self.node.machine.mig.gpu(self.node.machine.uuid(card)).mode
        return int(facts.get("newminor", facts["minor"]) if mode else facts["minor"])

    def life(self, pod: str) -> Life:
        """Return what says that a running pod is still the same one."""
        found = self.place.pod(pod)
        (status,) = found["status"]["containerStatuses"]
        return Life(
            pod=pod,
            uid=found["metadata"]["uid"],
            container=status["containerID"],
            restarts=status["restartCount"],
            started_at=status["state"]["running"]["startedAt"],
        )

    def answers(self, state: str, *words: str) -> str:
        """Wait until driver-builder has answered with a state, and a message with words; returns the message."""

        def message() -> str | None:
            found = self.place.cluster.node(self.place.node)["metadata"]["annotations"].get(
                DRAIN_STATE_ANNOTATION, "{}"
            )
            answer = json.loads(found)
            text: str = answer.get("message", "")
            return text if answer.get("state") == state and all(word in text for word in words) else None

        return self.place.cluster.wait(
            f"{state} with {words}", message, timeout=SECONDS, seen=lambda: str(self.leftovers())
        )

    def leftovers(self) -> dict[str, str]:
        """Return what a change takes of the Node while it is under way, and has to give back."""
        metadata = self.place.cluster.node(self.place.node)["metadata"]
        there = {**metadata.get("labels", {}), **metadata.get("annotations", {})}
        keys = (LOCK_ANNOTATION, DRAIN_REQUEST_ANNOTATION, DRAIN_STATE_ANNOTATION, REBOOT_REQUIRED_LABEL)
        left = {key: there[key] for key in keys if key in there}
        return left if there.get(PLUGIN, "true") == "true" else {**left, PLUGIN: there[PLUGIN]}


def _wrapped(message: str | None) -> tuple[str] | None:
    return None if message is None else (message,)


def _opening(minor: int, gi: int) -> set[str]:
    """Name the nodes that open an instance of a card with this minor number, which has one compute instance."""
    first = 3 + (minor * 15 + gi) * 9  # as the driver's nv-caps.c counts them
    return {f"{CAPABILITIES}{first}", f"{CAPABILITIES}{first + 1}"}


@contextmanager
def mig_cards(ground: Testbed, folder: Path) -> Iterator[MigCards]:
    """Have the node with the agent's account, on which nothing runs yet but a pod without devices."""
    with kubelet_with_cgroups(ground), node_with_cards(ground, folder, changes_mig=True) as node:
        account = folder / "account"
        account.mkdir()
        install_account(node.place.client, _ACCOUNT, "--mig")
        connect_as_agent(ground, _ACCOUNT, account)
        made = MigCards(node, account)
        made.stand_for_agent()
        try:
            yield made
        finally:
            made.forget()
            made.clear()
