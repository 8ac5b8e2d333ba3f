"""A real kubelet and MIG layouts: agent and the container ``nvml`` are killed at moments that chance names.

Twenty changes of three cards, each with one SIGKILL: of the agent, of the container, of its child that changes the
cards, or of agent and container at once; before the card comes to a point of the change, or so much later than the
label. Meanwhile the label may ask for another layout, or for none. A pod has the fourth card all the time.

``MIG_KILLS_SEED`` repeats what was drawn; each run prints its seed.
"""

import os
import random
import signal
import time
from collections.abc import Iterator

import pytest

from kube_api.names import MIG_ANNOTATION
from testbed.testbed import Testbed
from tests.support.real_parts.device_agent import SECONDS, Json
from tests.support.real_parts.mig_cards import Layout, Life, MigCards, mig_cards
from tests.support.real_parts.nvidia_node import CARDS

pytestmark = [pytest.mark.long, pytest.mark.chain]

KILLS = range(20)
SEED = os.environ.get("MIG_KILLS_SEED") or str(random.SystemRandom().randrange(10**6))
PROFILES: dict[str, dict[str, int]] = {
    "sevens": {"1g.5gb": 7},
    "two-and-three": {"2g.10gb": 2, "1g.5gb": 3},
    "balanced": {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1},
    "off": {},
}
POINTS = 150
"""About as many as a change of three cards has: before and after each instance and compute instance, and the mode."""
LONGEST = 6.0
"""Seconds after the label: about as long as a change takes on a machine with nothing else to do."""
VICTIMS = (("agent",), ("nvml",), ("child",), ("agent", "nvml"))


class Killed:
    """The node, and the pod that has the card which no layout is for."""

    def __init__(self, cards: MigCards) -> None:
        self.cards = cards
        cards.run_pods(cards.place, "bystander", restart="Always")
        ((self.spared,),) = cards.cards("bystander")
        self._life: Life = cards.life("bystander")
        self.changed = [card for card in CARDS if card != self.spared]
        cards.write(**{key: self._entries(devices) for key, devices in PROFILES.items()})

    def _entries(self, devices: dict[str, int]) -> list[Json]:
        mig: Json = {"mig-devices": devices} if devices else {}
        return [{"devices": self.changed, "mig-enabled": bool(devices), **mig}]

    def layouts(self) -> list[Layout]:
        """Return what each of the cards has that are changed."""
        return [self.cards.layout(card) for card in self.changed]

    def key(self) -> str | None:
        """Name the layout that all of these cards have; None where it is none of the file."""
        for key, devices in PROFILES.items():
            wanted = sorted(profile for profile, count in devices.items() for _ in range(count))
            modes = {self.cards.node.machine.mig.gpu(self.cards.node.machine.uuid(card)).mode for card in self.changed}
            if all(sorted(one for one, _, _ in layout) == wanted for layout in self.layouts()) and modes == {
                int(bool(devices))
            }:
                return key
        return None

    def kill(self, victims: tuple[str, ...]) -> None:
        """SIGKILL. Who is a container's process is started again by the kubelet, or by its parent."""
        node = self.cards.node
        for name in victims:
            if name == "child":
                if child := self.cards.changing_pid():
                    os.kill(int(child.split()[0]), signal.SIGKILL)
            else:
                node.end(name, signal.SIGKILL)

    def wait_for_moment(self, chance: random.Random) -> str:
        """Wait until the cards have come to a point, or a while; returns which."""
        if chance.random() < 0.5:
            point = self.cards.node.machine.mig.points() + chance.randrange(1, POINTS)
            self.cards.place.cluster.wait(
                f"point {point}",
                lambda: self.cards.node.machine.mig.points() >= point or self.has_ended() or None,
                timeout=SECONDS,
                every=0.005,
            )
            return f"at point {point}"
        pause = chance.uniform(0.0, LONGEST)
        time.sleep(pause)
        return f"after {pause:.2f} s"

    def has_ended(self) -> bool:
        """Return whether the Node says that nothing is under way."""
        asked, state, record = self.cards.said_of()
        return (record.get("asked", ""), state, record.get("step", "")) == (asked, "success" if asked else "", "")

    def assert_ends(self, before: list[Layout], asked: list[str]) -> str:
        """Wait until all is over, and check that all cards have what is asked for last, or what they had.

        Returns which.
        """
        cards, place = self.cards, self.cards.place
        place.cluster.wait(
            f"the end of {asked}", lambda: self.has_ended() or None, timeout=SECONDS,
            seen=lambda: f"{cards.said_of()}; {cards.log.read_text()[-3000:]}",
        )  # fmt: skip
        found = self.key()
        assert found is not None, self.layouts()
        if cards.said_of()[0]:
            assert found == asked[-1]
        else:
            assert MIG_ANNOTATION not in place.cluster.node(place.node)["metadata"]["annotations"]
            assert self.layouts() == before or found in asked
        assert cards.leftovers() == {}
        devices = PROFILES[found]
        whole = len(self.changed) + 1 if not devices else 1
        counts = {"one": "1g.5gb", "two": "2g.10gb", "three": "3g.20gb"}
        cards.offers(
            whole=whole, **{name: len(self.changed) * devices.get(profile, 0) for name, profile in counts.items()}
        )
        assert cards.life("bystander") == self._life
        return found


@pytest.fixture(scope="module")
def killed(ground: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    """Have three cards in a layout of instances, and a pod with the fourth."""
    with mig_cards(ground, tmp_path_factory.mktemp("k")) as cards:
        cards.node.start("nvml")
        cards.node.start("agent")
        cards.offers(whole=4)
        cards.deploy_plugin()
        made = Killed(cards)
        cards.makes("sevens")
        print(f"\nMIG_KILLS_SEED={SEED}")
        yield made


@pytest.mark.parametrize("number", KILLS)
def test_a_change_that_is_killed_by_chance_ends_in_a_layout(killed: Killed, number: int) -> None:
    """All cards have what is asked for last, or what they had; nothing of the change is left on the Node."""
    chance = random.Random(f"{SEED} {number}")  # noqa: S311 - it keeps no secret
    cards, before = killed.cards, killed.layouts()
    victims, there = chance.choice(VICTIMS), killed.key()
    asked = [chance.choice([key for key in PROFILES if key != there])]
    cards.ask(asked[0])
    moment = killed.wait_for_moment(chance)
    killed.kill(victims)
    what_then = chance.choice(["the same", "the same", "another", "none"])
    is_soon = chance.random() < 0.5
    if what_then == "another":
        asked.append(chance.choice([key for key in PROFILES if key != asked[0]]))

    def change_mind() -> None:
        if what_then != "the same":
            cards.ask(asked[-1] if what_then == "another" else None)

    if is_soon:
        change_mind()
    began = time.monotonic()
    for name in victims:
        if name != "child":
            cards.node.start(name)
    if not is_soon:
        change_mind()
    found = killed.assert_ends(before, asked)
    print(
        f"\n{number}: {there} to {asked[0]}, SIGKILL of {' and '.join(victims)} {moment}, then {what_then} "
        f"({asked[-1]}): {found} {time.monotonic() - began:.1f} s later"
    )
