"""A whole agent whose Node's label chooses a MIG layout: its own watch and patches, with versions that are compared.

MIG devices have no device nodes here, and so are offered as unhealthy ones.
"""

import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from device_agent.gpu_state.mig_change import MigChange
from device_agent.gpu_state.state import State
from device_agent.node.attempts import Pauses
from device_agent.node.own_node import OwnNode
from kube_api.client import Client
from kube_api.names import LOCK_ANNOTATION, MIG_ANNOTATION, MIG_CONFIG_LABEL, MIG_STATE_LABEL
from tests.unit.device_agent.mig.world import LAYOUTS, World, a100s
from tests.unit.device_agent.node.test_mig_state import VersionedServer
from tests.unit.device_agent.node.test_own_node import until
from tests.unit.device_agent.nvidia.life import Life, play, settings_of
from tests.unit.device_agent.nvidia.pods import Pods
from tests.unit.device_agent.nvidia.states import nodes, state

GPU, ONE = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"
CONFIG = "nvidia: {migStrategy: mixed, mig: {enabled: true}}\n"


class Cluster:
    """A Node behind an API server, its cards, and who has them."""

    def __init__(self, folder: Path, cards: int) -> None:
        self.server, self.world, self.pods = VersionedServer(), a100s(cards), Pods(folder)

    def ask(self, key: str | None) -> None:
        """Set the label, or take it away."""
        self.server.change({"labels": {MIG_CONFIG_LABEL: key}})

    @property
    def record(self) -> dict[str, object]:
        """What the Node says about the change."""
        assert self.server.node is not None
        found: dict[str, object] = json.loads(
            self.server.node["metadata"].get("annotations", {}).get(MIG_ANNOTATION, "{}")
        )
        return found

    async def until(self, state: str, asked: str) -> None:
        """Wait until the Node has this state."""
        await until(lambda: self.server.labels.get(MIG_STATE_LABEL) == state and self.record.get("asked") == asked)

    def state(self) -> State:
        """Return what the container ``nvml`` says."""
        cards = [card.state() for card in self.world.cards]
        made = state(*cards, nodes=nodes(*(card.index for card in self.world.cards)))
        return made._replace(mig_changes=self.world.changed)

    def change(self, change: MigChange) -> State:
        """Change a card; what it was before stands in the Node by then."""
        assert self.record["before"]
        work(self.world, change)
        return self.state()


def work(world: World, change: MigChange) -> None:
    """Have a change done."""
    world.clock = change.at
    world.queue.append(change)
    world.changes.append(change)
    world.work()


def live(folder: Path, cards: int, act: Callable[[Cluster, Life], Awaitable[None]]) -> Cluster:
    """Run an agent with layouts, act, and end it."""
    cluster = Cluster(folder, cards)
    (folder / "layouts").mkdir(exist_ok=True)
    (folder / "layouts/config.yaml").write_text(LAYOUTS)
    settings = settings_of(folder)._replace(mig_config=str(folder / "layouts"), pod_resources=cluster.pods.path)

    async def scenario(life: Life) -> None:
        await cluster.pods.start()
        life.nvml.change = cluster.change
        try:
            await life.nvml.start(cluster.state())
            await act(cluster, life)
        finally:
            cluster.server.watch.put(None)
            await cluster.pods.stop()

    play(
        folder, scenario, CONFIG, settings,
        lambda on_asked, on_mig: OwnNode(
            Client(cluster.server), "n", on_asked, partial(Pauses, 0.001, 0.002), on_mig=on_mig
        ),
    )  # fmt: skip
    return cluster


def test_a_label_makes_a_layout_and_another_label_the_next_one(folder: Path) -> None:
    """Offered as it is made; the lock is gone afterwards, and nothing was written over what others wrote."""

    async def act(cluster: Cluster, life: Life) -> None:
        await life.kubelet.until_shown({GPU: (1, 1)})
        cluster.ask("sevens")
        await cluster.until("success", "sevens")
        await life.kubelet.until_shown({ONE: (0, 7)})
        cluster.ask("first")
        await cluster.until("success", "first")
        await life.kubelet.until_shown({"nvidia.com/mig-3g.20gb": (0, 2)})

    cluster = live(folder, 1, act)
    assert cluster.server.node is not None
    assert LOCK_ANNOTATION not in cluster.server.node["metadata"]["annotations"]


def test_a_layout_that_is_not_in_the_file_is_an_event(folder: Path) -> None:
    """Nothing is changed; when the file has it, it is made at once: the file is watched."""

    async def act(cluster: Cluster, life: Life) -> None:
        await life.kubelet.until_shown({GPU: (1, 1)})
        cluster.ask("later")
        await cluster.until("failed", "later")
        await until(lambda: cluster.server.events)
        (event,) = cluster.server.events
        assert event["reason"] == "MIGChangeFailed"
        assert "there is no key later" in event["message"]
        assert cluster.world.changes == []
        file = folder / "layouts/config.yaml"
        file.write_text(LAYOUTS.replace("sevens:", "later:"))
        await cluster.until("success", "later")
        await life.kubelet.until_shown({ONE: (0, 7)})

    live(folder, 1, act)


def test_somebody_who_writes_the_node_all_the_time_holds_a_change_up_but_does_not_break_it(folder: Path) -> None:
    """Each conflict is decided anew."""

    async def act(cluster: Cluster, life: Life) -> None:
        await life.kubelet.until_shown({GPU: (1, 1)})
        cluster.ask("sevens")
        for number in range(30):
            cluster.server.change({"annotations": {"other": str(number)}})
            if cluster.server.labels.get(MIG_STATE_LABEL) == "success":
                break
            await until(lambda: True)
        await cluster.until("success", "sevens")
        await life.kubelet.until_shown({ONE: (0, 7)})

    live(folder, 1, act)
