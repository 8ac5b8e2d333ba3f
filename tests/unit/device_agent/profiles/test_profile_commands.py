"""``device-agent profiles check`` and ``device-agent cards``: what they print, and their exit status."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from device_agent.cli.main import run
from device_agent.gpu_state.state import FAILED, State
from device_agent.gpu_state.state_json import dump_state
from tests.unit.device_agent.nvidia.nvml_stand_in import Nvml
from tests.unit.device_agent.nvidia.states import card, lost, split, state

SLICE_4 = "version: v1\nsharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 4}]}}\n"
TWO = "version: v1\nsharing: {timeSlicing: {resources: [{name: gpu, replicas: 4, devices: [0, 1], rename: part}]}}\n"
OTHER = (
    "version: v1\nflags: {gfd: {oneshot: true}}\nsharing: {timeSlicing: {resources: [{name: a.b/c, replicas: 2}]}}\n"
)
CARDS = "version: v1\ncards:\n" + "".join(f"- {{index: {n}, uuid: GPU-{n}, product: L4}}\n" for n in range(4))


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    """Make a folder of three profiles, with a file of cards beside it."""
    folder = tmp_path / "profiles"
    folder.mkdir()
    for key, text in {"slice-4": SLICE_4, "two": TWO, "other": OTHER}.items():
        (folder / key).write_text(text)
    (tmp_path / "cards.yaml").write_text(CARDS)
    return folder


def rows(text: str) -> list[list[str]]:
    """Return the cells of a table."""
    return [line.split(maxsplit=4) for line in text.splitlines()]


def test_profiles_are_checked_without_cards(profiles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Counts of devices are named where the profile itself names them."""
    assert run(["profiles", "check", str(profiles)], {}) == 0
    printed = capsys.readouterr()
    assert rows(printed.out) == [
        ["PROFILE", "RESOURCE", "UNITS", "SHARES", "TOTAL"],
        ["other", "a.b/c", "*", "2", "2 of each"],
        ["other", "nvidia.com/gpu", "*", "1", "1 of each"],
        ["slice-4", "nvidia.com/gpu.shared", "*", "4", "4 of each"],
        ["two", "nvidia.com/gpu", "*", "1", "1 of each"],
        ["two", "nvidia.com/part", "2", "4", "8"],
    ]
    assert printed.err == "profile other: flags.gfd.oneshot means nothing here, and is ignored\n"


def test_profiles_are_checked_with_cards(profiles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON, for programs."""
    cards = str(profiles.parent / "cards.yaml")
    assert run(["profiles", "check", str(profiles), "--cards", cards, "--output=json"], {}) == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)["profiles"]}
    assert found["slice-4"]["resources"] == [
        {"resource": "nvidia.com/gpu.shared", "units": 4, "shares": 4, "total": 16}
    ]
    assert {one["resource"]: one["total"] for one in found["two"]["resources"]} == {
        "nvidia.com/gpu": 2, "nvidia.com/part": 8
    }  # fmt: skip
    assert {one["resource"]: one["units"] for one in found["other"]["resources"]} == {
        "nvidia.com/gpu": 4,
        "a.b/c": None,
    }
    assert found["other"]["remarks"] == ["flags.gfd.oneshot means nothing here, and is ignored"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("version: v2", "profile bad: version: 'v2' is unknown", id="not valid"),
        pytest.param(
            TWO.replace("[0, 1]", "[0, 7]"), "profile bad: the profile does not fit this node: ", id="does not fit"
        ),
    ],
)
def test_a_refused_profile_is_exit_status_1(
    profiles: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are checked all the same."""
    (profiles / "bad").write_text(text)
    assert run(["profiles", "check", str(profiles), "--cards", str(profiles.parent / "cards.yaml")], {}) == 1
    printed = capsys.readouterr()
    assert ["bad", "-", "-", "-", "refused"] in rows(printed.out)
    assert ["slice-4", "nvidia.com/gpu.shared", "4", "4", "16"] in rows(printed.out)
    assert message in printed.err


def test_cards_that_do_not_fit_the_strategy_are_named(profiles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is offered then, and it is said why."""
    (profiles / "other").write_text("version: v1\nflags: {migStrategy: single}\n")
    mig = "  migMode: enabled\n  instances: [{uuid: MIG-0, profile: 1g.5gb}]\n"
    cards = profiles.parent / "cards.yaml"
    cards.write_text(f"{CARDS}- index: 4\n  uuid: GPU-4\n  product: A100\n{mig}")
    assert run(["profiles", "check", str(profiles), "--cards", str(cards)], {}) == 0
    printed = capsys.readouterr()
    assert ["other", "-", "-", "-", "0"] in rows(printed.out)
    assert "profile other: migStrategy single needs MIG mode on all GPUs or on none: GPU-0 is not in it" in printed.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["/nowhere"], "cannot read the profiles in /nowhere: No such file", id="no folder"),
        pytest.param([".", "--cards", "/nowhere"], "cannot read /nowhere: No such file", id="no cards"),
        pytest.param([".", "--cards", "/dev/null"], "cannot read /dev/null: it is not a regular", id="no file"),
    ],
)
def test_wrong_usage_is_exit_status_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And one line says what is wrong."""
    assert run(["profiles", "check", *arguments], {}) == 2
    assert f"device-agent: {message}" in capsys.readouterr().err


def cards_of(folder: Path, said: State, *flags: str) -> int:
    """Run ``device-agent cards`` beside a container ``nvml`` that says a state."""

    async def act() -> int:
        nvml = Nvml(folder)
        await nvml.start()
        nvml.line = dump_state(said)
        status = await asyncio.to_thread(run, ["cards", "--nvml-socket", nvml.path, *flags], {})
        await nvml.stop()
        return status

    return asyncio.run(act())


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_cards_are_written_for_profiles(profiles: Path, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With what is known of each; the file is read by ``profiles check``."""
    assert cards_of(profiles.parent, state(card(0), split(1, "1g.5gb")), f"--output={output}") == 0
    text = capsys.readouterr().out
    plain = json.loads(text) if output == "json" else yaml.safe_load(text)
    assert plain["version"] == "v1"
    assert plain["cards"][1] == {
        "index": 1, "uuid": "GPU-1", "product": "NVIDIA A100-SXM4-40GB", "memoryMiB": 40960, "minor": 1,
        "pci": "0000:3c:00.0", "migMode": "enabled",
        "instances": [{"uuid": "MIG-1-1", "profile": "1g.5gb", "gi": 1, "ci": 0, "memoryMiB": 4864}],
    }  # fmt: skip
    (profiles.parent / "cards.yaml").write_text(text)
    assert run(["profiles", "check", str(profiles), "--cards", str(profiles.parent / "cards.yaml")], {}) == 0
    assert ["slice-4", "nvidia.com/gpu.shared", "2", "4", "8"] in rows(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("said", "cards", "message"),
    [
        pytest.param(state(card(0), lost(1)), 1, "1 cards cannot be read, and are left out", id="a lost card"),
        pytest.param(State(session="s1", status=FAILED, reason="NVML hangs"), 0, "the cards are not known: NVML hangs",
                     id="no answer of NVML"),
    ],
)  # fmt: skip
def test_cards_that_are_not_known_are_exit_status_1(
    tmp_path: Path, said: State, cards: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are written."""
    assert cards_of(tmp_path, said) == 1
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out.count("index:") == cards
