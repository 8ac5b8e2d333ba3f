"""The source changes MIG layouts over the socket of the container nvml; the kubelet is asked, the Node is in memory."""

from pathlib import Path

from device_agent.config.config_file import Description
from device_resources.nvidia import MigStrategy, NvidiaSettings
from tests.unit.device_agent.mig.world import a100s
from tests.unit.device_agent.nvidia.mig_life import Life, play

GPU, ONE, TWO = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb"


def test_a_layout_is_made_and_offered(folder: Path) -> None:
    """Two 2g and three 1g on four cards: 8 and 12 devices; the cards are held from before the first change on."""

    async def act(life: Life) -> None:
        await life.until(lambda: life.count(GPU) == 4)
        life.world.ask("two-and-three")
        await life.until(lambda: life.world.state == "success" and life.source.mig_waits is False)
        assert (life.count(GPU), life.count(TWO), life.count(ONE)) == (0, 8, 12)
        assert {"GPU-0", "GPU-1", "GPU-2", "GPU-3"} in life.held
        assert life.held[-1] == set()
        assert life.world.leftovers == []

    play(folder, a100s(4), act)


def test_a_pod_is_waited_for_by_its_name(folder: Path) -> None:
    """The kubelet says who has the card; when the pod has ended the change goes on."""

    async def act(life: Life) -> None:
        life.pods.run(GPU, "GPU-0")
        life.world.ask("first")
        await life.until(
            lambda: "pods use what goes on card 0" in life.world.annotations.get("driverwright.io/mig", "")
        )
        assert life.world.state == "pending"
        assert life.source.mig_waits
        assert (life.count(GPU), life.world.changes, life.held[-1]) == (4, [], set())
        life.pods.end(GPU, "GPU-0")
        await life.until(lambda: life.world.state == "success")
        assert life.count("nvidia.com/mig-3g.20gb") == 2

    play(folder, a100s(4), act)


def test_a_card_that_was_just_given_is_in_use(folder: Path) -> None:
    """The kubelet does not show the pod yet."""

    async def act(life: Life) -> None:
        await life.until(lambda: life.count(GPU) == 2)
        life.given.begin(GPU, {"GPU-0": 1})
        life.given.remember(GPU, {"GPU-0": ("/dev/nvidia0 195:0",)})
        life.given.end(GPU, {"GPU-0": 1})
        life.world.ask("first")
        await life.until(
            lambda: life.world.state == "pending" and "message" in life.world.annotations["driverwright.io/mig"]
        )
        assert "has not named yet" in str(life.world.record["message"])
        assert life.world.changes == []

    play(folder, a100s(2), act)


def test_podresources_that_are_away(folder: Path) -> None:
    """No change, which is said; it goes on when they are back."""

    async def act(life: Life) -> None:
        await life.pods.stop()
        life.world.ask("first")
        await life.until(lambda: life.world.state == "pending")
        assert "it is not known who has devices" in str(life.world.record["message"])
        assert life.world.changes == []
        await life.pods.start()
        await life.until(lambda: life.world.state == "success")

    play(folder, a100s(1), act)


def test_after_a_boot_nothing_is_registered_before_the_layout(folder: Path) -> None:
    """An agent that starts again finds no instances: what it offers first is what the layout makes."""

    async def act(life: Life) -> None:
        life.world.ask("sevens")
        await life.until(lambda: life.world.state == "success" and life.count(ONE) == 14)
        await life.source.close()
        for card in life.world.cards:
            card.boot()
        life.nvml.show(life.state())
        life.begin()
        life.offered.clear()
        await life.until(lambda: life.count(ONE) == 14)
        first = next(offered for offered in life.offered if offered)
        assert first == {GPU, ONE}
        assert life.offered[0] == set()

    play(folder, a100s(2), act)


def test_an_api_server_that_is_away_begins_nothing(folder: Path) -> None:
    """Nothing is registered for a while, and nothing is changed."""

    async def act(life: Life) -> None:
        life.port.is_away = True
        life.world.ask("sevens")
        await life.until(lambda: life.source.mig_waits is True)
        assert (life.offered[-1], life.world.changes) == (set(), [])
        life.port.is_away = False
        await life.until(lambda: life.count(ONE) == 7)

    play(folder, a100s(1), act)


def test_without_the_switch_nothing_is_changed(folder: Path) -> None:
    """The label alone does nothing."""

    async def act(life: Life) -> None:
        life.source.configure(Description(nvidia=NvidiaSettings(mig_strategy=MigStrategy.MIXED)))
        life.world.ask("sevens")
        await life.until(lambda: life.count(GPU) == 1)
        assert (life.source.mig_waits, life.world.changes, life.world.state) == (None, [], None)

    play(folder, a100s(1), act)


def test_what_was_given_cannot_be_read(folder: Path) -> None:
    """No layout is changed, and GPUs are offered all the same."""
    (folder / "state/allocations.json").mkdir(parents=True)

    async def act(life: Life) -> None:
        life.world.ask("sevens")
        await life.until(lambda: life.count(GPU) == 2)
        assert life.source.mig_waits
        assert life.world.changes == []

    play(folder, a100s(2), act)
