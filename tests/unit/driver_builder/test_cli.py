"""The command line: what it prints, and how it ends."""

import json
from typing import Any

import pytest

from driver_builder import cli
from driver_builder.image_state import Absent
from driver_builder.registries import Registries
from kube_api.client import Client
from kube_api.errors import Unreachable
from kube_api.resources import DRIVER_CONTAINERS
from tests.unit.driver_builder.factories import KERNEL, NAMESPACE
from tests.unit.driver_builder.model_world import World


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Let the command line see a world of one node and one driver, with an empty registry."""
    made = World()
    made.add_node("node-a", KERNEL)
    made.add_driver()
    monkeypatch.setattr(Client, "from_environment", lambda *_words, **_more: made.client)
    monkeypatch.setattr(Registries, "inspect", lambda *_words: Absent())
    return made


def test_a_plan_is_a_table(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each action, and nothing is written."""
    writes = len(world.client.writes)
    assert cli.main(["plan"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["DRIVER", "ACTION", "WHAT"]
    assert [line.split()[:2] for line in lines[1:]] == [
        ["driverwright/edu", "SetFinalizer"],
        ["driverwright/edu", "StartBuild"],
    ]
    assert len(world.client.writes) == writes


def test_a_plan_can_be_read_by_programs(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """The same as JSON."""
    assert world
    assert cli.main(["plan", "-o", "json"]) == 0
    assert [entry["action"] for entry in json.loads(capsys.readouterr().out)] == ["SetFinalizer", "StartBuild"]


def test_an_empty_plan_says_so(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing to do is an answer."""
    world.client.objects.clear()
    assert cli.main(["plan"]) == 0
    assert capsys.readouterr().out == "nothing to do\n"


def status_lines(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """Run the status command."""
    assert cli.main(["status", *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_the_status_shows_each_target(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each kernel."""
    world.reconcile()
    _, line = status_lines(capsys)
    for word in ("edu", "1.0.0", KERNEL, "debian:12/amd64", "Building", "KernelMismatch"):
        assert word in line


def test_a_driver_that_nobody_looked_at_says_so(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a status there is a line all the same."""
    assert world
    _, line = status_lines(capsys, "edu")
    assert "driver-builder has not looked at it yet" in line


def test_a_driver_without_targets_shows_its_condition(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong spec is what one needs to see."""
    world.client.patch(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu"), {"spec": {"image": "nonsense"}})
    world.reconcile()
    _, line = status_lines(capsys)
    assert "InvalidSpec" in line
    assert "spec.image" in line


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_the_status_can_be_read_by_programs(world: World, capsys: pytest.CaptureFixture[str], form: str) -> None:
    """Name and status of each driver."""
    world.reconcile()
    text = "\n".join(status_lines(capsys, "-o", form))
    assert "observedGeneration" in text


def test_no_driver_is_an_answer(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty namespace is said to be empty."""
    world.client.objects.clear()
    assert status_lines(capsys) == ["no DriverContainer"]


def test_an_unknown_driver_fails(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Asking for a driver by name means that it is there."""
    assert world
    assert cli.main(["status", "missing"]) == 1
    assert "no DriverContainer 'missing' in driverwright" in capsys.readouterr().err


def test_an_api_server_that_is_away_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The error is one line, without a traceback."""

    def nowhere(*_words: Any, **_more: Any) -> Client:
        raise Unreachable("no way to the API server found")

    monkeypatch.setattr(Client, "from_environment", nowhere)
    assert cli.main(["status"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "driver-builder: no way to the API server found"


def test_a_wrong_setting_is_wrong_usage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, as for a wrong flag."""
    monkeypatch.setenv("DRIVER_BUILDER_MAX_BUILDS", "none")
    assert cli.main(["run"]) == 2
    assert "DRIVER_BUILDER_MAX_BUILDS" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param(["--version"], 0, id="version"),
        pytest.param(["--help"], 0, id="help"),
        pytest.param([], 2, id="no command"),
        pytest.param(["dance"], 2, id="unknown command"),
        pytest.param(["run", "--max-builds", "0"], 2, id="wrong flag"),
    ],
)
def test_the_parser_ends_with_its_codes(words: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """What the parser itself answers."""
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    assert caught.value.code == code
    printed = capsys.readouterr()
    assert "driver-builder" in printed.out + printed.err
