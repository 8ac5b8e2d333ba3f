"""``device-agent mig plan``: what it prints, and its exit status."""

import json
from pathlib import Path

import pytest

from device_agent.cli.main import run

FILE = """\
version: v1
mig-configs:
  2x2g.10gb-3x1g.5gb:
  - {devices: all, mig-enabled: true, mig-devices: {2g.10gb: 2, 1g.5gb: 3}}
  7x1g.5gb:
  - {devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}
  too-much:
  - {devices: all, mig-enabled: true, mig-devices: {3g.20gb: 2, 1g.5gb: 1}}
  all-balanced:
  - {devices: all, mig-enabled: true, mig-devices: {1g.5gb: 2, 2g.10gb: 1, 3g.20gb: 1}}
  first:
  - {devices: [0], mig-enabled: true, mig-devices: {1c.3g.20gb: 2}}
"""

CARDS = """\
version: v1
cards:
- {index: 0, uuid: GPU-0, product: NVIDIA A100-SXM4-40GB, migMode: disabled}
- index: 1
  uuid: GPU-1
  product: NVIDIA A100-SXM4-40GB
  migMode: enabled
  instances:
  - {uuid: MIG-0, profile: 4g.20gb, gi: 1, start: 0}
  - {uuid: MIG-1, profile: 3g.20gb, gi: 2, start: 4}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Make mig-parted's file, with a file of cards beside it."""
    (tmp_path / "cards.yaml").write_text(CARDS)
    (tmp_path / "config.yaml").write_text(FILE)
    return str(tmp_path / "config.yaml")


def cells(text: str) -> list[list[str]]:
    """Return the cells of a table."""
    return [line.split(maxsplit=5) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("key", "devices"),
    [
        pytest.param("2x2g.10gb-3x1g.5gb", {"1g.5gb": 12, "2g.10gb": 8}, id="two profiles"),
        pytest.param("7x1g.5gb", {"1g.5gb": 28}, id="one profile"),
        pytest.param("all-balanced", {"1g.5gb": 8, "2g.10gb": 4, "3g.20gb": 4}, id="what first fit does not find"),
        pytest.param("first", {"1c.3g.20gb": 2}, id="one card alone"),
    ],
)
def test_the_devices_of_four_cards_are_counted(
    file: str, key: str, devices: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    """As the node will offer them."""
    assert run(["mig", "plan", file, key, "--card", "A100-40:4", "-o", "json"], {}) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["devices"] == devices
    assert len(document["cards"]) == 4


def test_placements_are_a_table(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One row for each instance, and for the mode where it changes."""
    assert run(["mig", "plan", file, "all-balanced", "--card", "A100-40"], {}) == 0
    printed = capsys.readouterr()
    assert printed.out == (
        "CARD  MODEL    MIG      SLICES  PROFILE  ACTION\n"
        "0     A100-40  enabled  -       -        enable MIG mode\n"
        "0     A100-40  enabled  0-1     2g.10gb  create\n"
        "0     A100-40  enabled  2       1g.5gb   create\n"
        "0     A100-40  enabled  3       1g.5gb   create\n"
        "0     A100-40  enabled  4-7     3g.20gb  create\n"
        "\n"
        "PROFILE  DEVICES\n"
        "1g.5gb   2\n"
        "2g.10gb  1\n"
        "3g.20gb  1\n"
    )
    assert printed.err == ""


def test_what_is_there_is_kept_or_destroyed(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By a file of cards, which says what each has."""
    assert run(["mig", "plan", file, "all-balanced", "--cards", file.replace("config", "cards"), "-o", "json"], {}) == 0
    first, second = json.loads(capsys.readouterr().out)["cards"]
    assert (first["migMode"], first["migModeAsked"]) == ("disabled", "enabled")
    assert second["keep"] == [{"profile": "3g.20gb", "start": 4, "size": 4, "devices": ["3g.20gb"]}]
    assert [one["profile"] for one in second["destroy"]] == ["4g.20gb"]
    assert [(one["profile"], one["start"]) for one in second["create"]] == [
        ("2g.10gb", 0), ("1g.5gb", 2), ("1g.5gb", 3)
    ]  # fmt: skip


def test_cards_that_nothing_happens_to_have_a_row(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It says why."""
    assert run(["mig", "plan", file, "first", "--card", "A100-40:2"], {}) == 0
    assert ["1", "A100-40", "disabled", "-", "-", "no entry is for it"] in cells(capsys.readouterr().out)


def test_what_does_not_fit_is_exit_status_1(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each card is named with the profile, and nothing of it goes."""
    assert run(["mig", "plan", file, "too-much", "--cards", file.replace("config", "cards")], {}) == 1
    printed = capsys.readouterr()
    product = "NVIDIA A100-SXM4-40GB"
    assert [line.split("  ")[-1] for line in printed.out.splitlines()[1:3]] == ["refused", "refused"]
    assert printed.err == "".join(
        f"card {index} ({product}): 1g.5gb does not fit beside 2x 3g.20gb, wherever these are\n" for index in (0, 1)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["/nowhere", "a", "--card", "A30"], "cannot read /nowhere: No such file", id="no file"),
        pytest.param(
            ["/dev/null", "a", "--card", "A30"], "cannot read /dev/null: it is not a regular file", id="device"
        ),
        pytest.param(["{}", "none", "--card", "A30"], "mig-configs: there is no key none; there are 2x2g", id="no key"),
        pytest.param(["{}", "7x1g.5gb", "--card", "L4"], "--card: 'L4' is not MODEL or MODEL:COUNT", id="no model"),
        pytest.param(["{}", "7x1g.5gb", "--cards", "/nowhere"], "cannot read /nowhere: No such file", id="no cards"),
        pytest.param(["{}", "7x1g.5gb", "--cards", "{}"], "mig-configs: there is no such field", id="not cards"),
    ],
)
def test_wrong_input_is_exit_status_2(
    file: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And one line says what is wrong."""
    assert run(["mig", "plan", *(one.format(file) for one in arguments)], {}) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("device-agent: ")
    assert message in printed.err


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param([], id="no cards"),
        pytest.param(["--card", "A30", "--cards", "f"], id="cards in two ways"),
        pytest.param(["--card", "A30", "-o", "yaml"], id="a format that is none"),
    ],
)
def test_wrong_usage_is_exit_status_2(file: str, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """As with the other commands."""
    with pytest.raises(SystemExit) as caught:
        run(["mig", "plan", file, "7x1g.5gb", *arguments], {})
    assert caught.value.code == 2
    assert "usage: device-agent mig plan" in capsys.readouterr().err
