"""This machine as a node whose agent changes MIG layouts of four cards, as the Node's label asks."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from kube_api.names import LOCK_ANNOTATION, MIG_ANNOTATION, MIG_CONFIG_LABEL, MIG_STATE_LABEL
from kube_api.resources import NODES
from testbed.testbed import Testbed
from tests.support.real_parts.agent_account import install_account
from tests.support.real_parts.cards_with_pods import CardsWithPods, kubelet_with_cgroups
from tests.support.real_parts.cluster_setup import connect_as_agent, pods_environment
from tests.support.real_parts.device_agent import SECONDS, Json
from tests.support.real_parts.nvidia_node import CARDS, COMMON, Node, node_with_cards

WHOLE, ONE, TWO = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb"
MIXED, SINGLE = "mixed", "single"
_ACCOUNT = "gpu-mig/mig"
_NOTHING: Json = {
    "labels": dict.fromkeys((MIG_CONFIG_LABEL, MIG_STATE_LABEL)),
    "annotations": dict.fromkeys((MIG_ANNOTATION, LOCK_ANNOTATION)),
}

Layout = tuple[tuple[str, int, tuple[int, ...]], ...]


def layouts(**more: list[Json]) -> Json:
    """Make mig-parted's file: layouts of all cards, and more of them by key."""

    def of_all(**devices: int) -> list[Json]:
        return [{"devices": "all", "mig-enabled": True, "mig-devices": devices}]

    configs = {
        "2x2g.10gb-3x1g.5gb": of_all(**{"2g.10gb": 2, "1g.5gb": 3}),
        "7x1g.5gb": of_all(**{"1g.5gb": 7}),
        "too-much": of_all(**{"3g.20gb": 2, "1g.5gb": 1}),
        "all-disabled": [{"devices": "all", "mig-enabled": False}],
        **more,
    }
    return {"version": "v1", "mig-configs": configs}


class MigCards(CardsWithPods):
    """The node. ``one``, ``two``: with instances as resources."""

    def __init__(self, node: Node, account: Path) -> None:
        super().__init__(node)
        self.one, self.two = self.resource(ONE), self.resource(TWO)
        self._layouts = node.folder / "layouts"
        self._layouts.mkdir()
        node.account, node.environment = account, pods_environment(self.place.ground)
        node.flags |= {"mig-config": self._layouts, "node-name": self.place.node}
        self.write()
        self.use(MIXED)

    # ------------------------------------------------------------ what is asked for

    def use(self, strategy: str) -> None:
        """Have another strategy of MIG devices."""
        self.node.configure(f"nvidia: {{migStrategy: {strategy}, mig: {{enabled: true}}}}\n")

    def write(self, **more: list[Json]) -> None:
        """Change the file of layouts."""
        fresh = self.node.folder / "fresh"
        fresh.write_text(yaml.safe_dump(layouts(**more)))
        fresh.replace(self._layouts / "config.yaml")

    def ask(self, key: str) -> None:
        """Set the Node's label."""
        self._patch({"labels": {MIG_CONFIG_LABEL: key}})

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
        """Wait until so many ``whole``, ``one`` and ``two`` are allocatable, and 0 of those that are not named."""
        resources = {"whole": WHOLE, "one": ONE, "two": TWO}
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

    def instance_of(self, pod: str) -> tuple[int, str, set[str]]:
        """Return card and profile of a pod's only instance, and the nodes that it sees besides its card's."""
        nodes, (uuid,) = self.node.seen_by(pod)
        machine = self.node.machine
        ((card, profile),) = (
            (card, one.profile)
            for card in CARDS
            for one in machine.mig.gpu(machine.uuid(card)).instances
            if uuid in one.uuids
        )
        return card, profile, nodes - {*COMMON, f"nvidia{machine.gpus[card].facts['minor']}"}

    def life(self, pod: str) -> tuple[str, int]:
        """Return a running pod's container, and how often it was started again."""
        (status,) = self.place.pod(pod)["status"]["containerStatuses"]
        assert "running" in status["state"]
        return status["containerID"], status["restartCount"]


def _wrapped(message: str | None) -> tuple[str] | None:
    return None if message is None else (message,)


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
