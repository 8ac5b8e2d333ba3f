"""The command line: what it prints, and how it ends."""

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from driver_builder.base.reasons import remedy_of
from driver_builder.builds.templates import templates
from driver_builder.checks.explanation import CHECKS
from driver_builder.cli import main, output
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.registry.registry_access import Registries
from driver_builder.targets.desired_target import TemplateVersions
from kube_api import names
from kube_api.client import Client
from kube_api.errors import Unreachable
from kube_api.resources import DRIVER_CONTAINERS
from tests.support.driver_builder.factories import KERNEL, NAMESPACE, OTHER_KERNEL, driver_object
from tests.support.driver_builder.model_world import World


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Let the command line see a world of one node and one driver, with an empty registry."""
    made = World(PlanSettings(template_versions=TemplateVersions(versions=templates.template_versions())))
    made.add_node("node-a", KERNEL)
    made.add_driver()
    monkeypatch.setattr(Client, "from_environment", lambda *_words, **_more: made.client)
    monkeypatch.setattr(Registries, "inspect", lambda _self, *words, **_: made.registries.inspect(*words))
    return made


@pytest.mark.parametrize(
    ("flags", "environment", "expected"),
    [
        pytest.param([], {}, ("info", "text"), id="defaults"),
        pytest.param([], {"LEVEL": "Warning", "FORMAT": "json"}, ("warning", "json"), id="environment"),
        pytest.param(["--log-level=debug", "--log-format=text"], {"LEVEL": "error", "FORMAT": "json"},
                     ("debug", "text"), id="flags"),
    ],
)  # fmt: skip
def test_how_it_logs_is_a_flag_or_a_variable(
    flags: list[str], environment: dict[str, str], expected: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variables are what a pod can set: ``run`` comes first in the arguments of the Deployment."""
    chosen = []
    monkeypatch.setattr(main, "set_up", lambda level, form, _text: chosen.append((level, form)))
    for name, value in environment.items():
        monkeypatch.setenv(f"DRIVER_BUILDER_LOG_{name}", value)
    assert main.main([*flags, "admission-policy"]) == 0
    assert chosen == [expected]


def test_a_retired_setting_is_warned_of_once(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the log, which is standard error: what is printed can still be applied."""
    assert main.main(["admission-policy"]) == 0
    plain = capsys.readouterr().out
    assert caplog.messages == []
    monkeypatch.setenv("DRIVER_BUILDER_RETRY_MAX_SECONDS", "60")
    assert main.main(["admission-policy"]) == 0
    assert capsys.readouterr().out == plain
    (warning,) = caplog.messages
    assert warning.startswith("DRIVER_BUILDER_RETRY_MAX_SECONDS is retired since 0.2, and ignored: a failing build")


def test_a_log_format_that_does_not_exist_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its variable and what there is."""
    monkeypatch.setenv("DRIVER_BUILDER_LOG_FORMAT", "xml")
    assert main.main(["admission-policy"]) == 2
    assert "DRIVER_BUILDER_LOG_FORMAT: 'xml' is not one of text, json" in capsys.readouterr().err


def test_a_plan_is_a_table(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each target, the actions below it, and nothing is written."""
    world.add_node("node-b", KERNEL)
    writes = len(world.client.writes)
    assert main.main(["plan"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["DRIVER", "KERNEL", "OS", "NODES", "READY", "NEXT", "WHERE", "WHY"]
    words = f"driverwright/edu {KERNEL} debian:12/amd64 2 0 build 1 node-a, node-b building for {KERNEL}"
    assert lines[1].split() == words.split()
    assert any(line.startswith("  build driverwright/edu for") for line in lines)
    assert lines[-1] == "next reconcile: build 1, keep tidy 1"
    assert len(world.client.writes) == writes


def test_a_plan_can_be_read_by_programs(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """``plan -o json`` prints the plan as JSON."""
    assert world
    assert main.main(["plan", "-o", "json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert [action["action"] for action in entry["actions"]] == ["PatchObject", "StartBuild"]
    assert [(item["next"], item["nodes"]) for item in entry["targets"]] == [("build 1", ["node-a"])]


def test_an_empty_plan_says_so(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing to do is an answer."""
    world.client.objects.clear()
    assert main.main(["plan", "--detailed-exitcode"]) == 0
    assert capsys.readouterr().out == "nothing to do\n"


def test_a_plan_is_of_one_driver_when_asked(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Others are left out, a name that is not there is an error."""
    world.add_driver("other")
    assert main.main(["plan", "--driver", "other"]) == 0
    printed = capsys.readouterr().out
    assert "driverwright/other" in printed
    assert "driverwright/edu" not in printed
    assert main.main(["plan", "--driver", "nobody"]) == 2


def test_a_plan_shows_what_settings_would_block(
    world: World, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Of the cluster, and of a file, whose own settings the flags replace."""
    assert world
    assert main.main(["snapshot"]) == 0
    file = tmp_path / "snapshot.json"
    file.write_text(capsys.readouterr().out)
    for place in ([], ["--snapshot", str(file)]):
        assert main.main(["plan", *place, "--allowed-source-hosts", "none"]) == 0
        assert "building for" in capsys.readouterr().out
        assert main.main(["plan", *place, "--allowed-registries", "r.io/*"]) == 0
        printed = capsys.readouterr().out
        assert "not allowed by --allowed-registries" in printed
        assert "NotAllowed: Change the field" in printed


def test_a_snapshot_has_the_settings_of_its_plan(
    world: World, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Whoever reads it gets the same plan without the flags."""
    assert world
    assert main.main(["snapshot", "--allowed-registries", "r.io/*", "--max-build-resources", "cpu=4"]) == 0
    file = tmp_path / "snapshot.json"
    file.write_text(capsys.readouterr().out)
    for flags in ([], ["--allowed-source-hosts", "none"]):
        assert main.main(["plan", "--snapshot", str(file), *flags]) == 0
        assert "not allowed by --allowed-registries" in capsys.readouterr().out
    assert main.main(["plan", "--snapshot", str(file), "--allowed-registries", "registry.example.com:5000/*"]) == 0
    assert "not allowed" not in capsys.readouterr().out
    manifest = tmp_path / "driver.yaml"
    manifest.write_text(yaml.safe_dump(driver_object()))
    assert main.main(["lint", "--snapshot", str(file), str(manifest)]) == 1
    assert "not allowed by --allowed-registries" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("settled", "words", "code"),
    [
        pytest.param(False, [], 0, id="something to do"),
        pytest.param(False, ["--detailed-exitcode"], 2, id="something to do, in detail"),
        pytest.param(True, ["--detailed-exitcode"], 0, id="nothing to do, in detail"),
    ],
)
def test_a_plan_can_be_an_exit_code(world: World, settled: bool, words: list[str], code: int) -> None:
    """2 asks a pipeline to look."""
    if settled:
        world.settle()
    assert main.main(["plan", *words]) == code


def test_a_node_without_kernel_is_in_the_plan(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """It waits for its labels, by name."""
    del world.client.objects["/api/v1/nodes/node-a"]["metadata"]["labels"][names.KERNEL_VERSION_LABEL]
    assert main.main(["plan"]) == 0
    assert "see its nfd-worker" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("command", [["plan"], ["explain", "node-a"]], ids=["plan", "explain"])
def test_a_snapshot_answers_as_the_cluster_does(
    world: World, capsys: pytest.CaptureFixture[str], tmp_path: Path, command: list[str], form: str
) -> None:
    """Written down, taken elsewhere: the same words, without any cluster."""
    world.reconcile()
    assert main.main(["snapshot", "-o", form]) == 0
    file = tmp_path / "snapshot"
    file.write_text(capsys.readouterr().out)
    live = (main.main(command), capsys.readouterr().out)
    world.client.objects.clear()
    offline = (main.main([*command, "--snapshot", str(file)]), capsys.readouterr().out)
    assert re.sub(r"for \d+ s", "", offline[1]) == re.sub(r"for \d+ s", "", live[1])
    assert offline[0] == live[0]


def test_a_snapshot_is_read_from_a_pipe(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With - for the file."""
    assert world
    assert main.main(["snapshot"]) == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO(capsys.readouterr().out))
    assert main.main(["plan", "--snapshot", "-", "--detailed-exitcode"]) == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(None, "No such file", id="missing"),
        pytest.param(b"\xff", "utf-8", id="no text"),
        pytest.param(b"{", "", id="no YAML"),
        pytest.param(b'"\\UFFFFFFFF"', "", id="an escape of no character"),
        pytest.param(b"kind: Pod", "it is not a snapshot", id="something else"),
    ],
)
def test_a_snapshot_that_cannot_be_read_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, words: str
) -> None:
    """An unreadable snapshot is a usage error that names the file."""
    file = tmp_path / "snapshot"
    if content is not None:
        file.write_bytes(content)
    assert main.main(["plan", "--snapshot", str(file)]) == 2
    printed = capsys.readouterr().err
    assert f"--snapshot {file}: " in printed
    assert words in printed


def status_lines(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """Run the status command."""
    assert main.main(["status", *words]) == 0
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
    assert "driver-builder has not observed it yet" in line


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
    assert main.main(["status", "missing"]) == 1
    assert "no DriverContainer 'missing' in driverwright" in capsys.readouterr().err


def test_an_api_server_that_is_away_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The error is one line, without a traceback."""

    def nowhere(*_words: Any, **_more: Any) -> Client:
        raise Unreachable("no way to the API server found")

    monkeypatch.setattr(Client, "from_environment", nowhere)
    assert main.main(["status"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "driver-builder: no way to the API server found"


def test_a_wrong_setting_is_wrong_usage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, as for a wrong flag."""
    monkeypatch.setenv("DRIVER_BUILDER_MAX_BUILDS", "none")
    assert main.main(["run"]) == 2
    assert "DRIVER_BUILDER_MAX_BUILDS" in capsys.readouterr().err


def test_an_admission_policy_needs_no_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    """It is for one account; what is none is wrong usage (tests/contract/test_admission_policies.py)."""
    assert main.main(["admission-policy", "--service-account", "a/b"]) == 0
    assert "system:serviceaccount:a:b" in capsys.readouterr().out
    for wrong in ("driver-builder", "a/b/c", "a/'"):
        assert main.main(["admission-policy", "--service-account", wrong]) == 2
        assert "is not of the form NAMESPACE/NAME" in capsys.readouterr().err


def test_a_controller_without_the_image_of_the_loader_is_not_started(capsys: pytest.CaptureFixture[str]) -> None:
    """Every driver pod needs it: the message names the flag and the variable."""
    assert main.main(["run"]) == 2
    assert "set --loader-image or DRIVER_BUILDER_LOADER_IMAGE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        pytest.param(["--version"], 0, id="version"),
        pytest.param(["--help"], 0, id="help"),
        pytest.param([], 2, id="no command"),
        pytest.param(["dance"], 2, id="unknown command"),
        pytest.param(["run", "--dance"], 2, id="unknown flag"),
    ],
)
def test_the_parser_ends_with_its_codes(words: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """What the parser itself answers."""
    with pytest.raises(SystemExit) as caught:
        main.main(words)
    assert caught.value.code == code
    printed = capsys.readouterr()
    assert "driver-builder" in printed.out + printed.err


def explained(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> str:
    """Run the explain command."""
    assert main.main(["explain", *words]) == code
    return capsys.readouterr().out


def test_an_explanation_has_a_tick_for_each_check(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """The answer first, then the checks, and what to do under the first that breaks; 1 while the node is not ready."""
    assert world
    lines = explained(capsys, 1, "node-a").splitlines()
    assert lines[0].startswith("driverwright/edu on node-a: not ready: build: the image is not built yet")
    checks = dict(zip(CHECKS, [line for line in lines[1:] if "next:" not in line], strict=True))
    assert checks["selector"].split() == ["✓", "selector", "the", "node", "has", "pool=edu"]
    assert checks["build"].split()[0] == "…"
    assert checks["label"].split()[0] == "?"
    assert lines[lines.index(checks["build"]) + 1].split()[0] == "next:"


@pytest.mark.parametrize("words", [pytest.param([], id="all drivers"), pytest.param(["edu"], id="one driver")])
def test_a_ready_node_ends_with_0(world: World, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    """A node where every wanted driver works is reported, with the label that workloads select."""
    world.add_driver("other", nodeSelector={"pool": "web"})
    world.settle()
    text = explained(capsys, 0, "node-a", *words)
    assert "driverwright/edu on node-a: ready" in text
    assert ("driverwright/other on node-a: not ready: selector" in text) == (not words)
    assert text.count("✓ selector") == 1


def test_an_explanation_can_be_read_by_programs(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """One entry for each driver."""
    assert world
    (entry,) = json.loads(explained(capsys, 1, "node-a", "driverwright/edu", "-o", "json"))
    assert (entry["firstBroken"], entry["ready"]) == ("build", False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["node-z"], "there is no node 'node-z'; there are: node-a", id="node"),
        pytest.param(["node-a", "x"], "there is no DriverContainer 'x'; there are: driverwright/edu", id="driver"),
    ],
)
def test_what_is_not_there_is_wrong_usage(
    world: World, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    """Exit code 2, and the names that there are."""
    assert world
    assert main.main(["explain", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_table_says_once_what_to_do_for_a_reason() -> None:
    """However many rows have it; a reason of another version has nothing."""
    text = output.with_remedies("TABLE", ["DiskFull", "Unheard", "DiskFull", "CompileError", "AllNodesReady"])
    assert text.splitlines() == [
        "TABLE", "", f"DiskFull: {remedy_of('DiskFull')}", f"CompileError: {remedy_of('CompileError')}"
    ]  # fmt: skip
    assert output.with_remedies("TABLE", []) == "TABLE"


def test_a_driver_in_trouble_is_explained_with_what_to_do(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """What works on the node meanwhile is not known either, where its pods may not be read."""
    world.settle()
    world.client.forbidden = ("/pods",)
    lines = explained(capsys, 1, "node-a", "edu").splitlines()
    assert "not ready: driver: DriverContainer driverwright/edu is Degraded: NamespaceForbidden: " in lines[0]
    assert lines[2].split()[:4] == ["next:", "Grant", "the", "Role"]


def test_drivers_that_may_not_be_listed_are_not_success(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Which of them want the node is not known, and neither is the one that is asked for by name."""
    world.settle()
    world.client.forbidden = ("/drivercontainers",)
    assert main.main(["explain", "node-a"]) == 1
    assert "no permission to read namespace driverwright" in capsys.readouterr().err
    assert main.main(["explain", "node-a", "edu"]) == 2
    assert "no permission to read namespace driverwright" in capsys.readouterr().err


def test_without_drivers_nothing_is_ready(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """A namespace without drivers is said to be one, and is not success."""
    world.client.objects = {path: obj for path, obj in world.client.objects.items() if "/nodes/" in path}
    assert explained(capsys, 1, "node-a") == "no DriverContainer\n"


@pytest.mark.parametrize(
    ("settled", "code", "words"),
    [
        pytest.param(True, 0, ["node-a may move", "yes", "built and verified"], id="built"),
        pytest.param(False, 1, ["node-a must not move", "NO", "driver-builder preflight"], id="not built"),
    ],
)
def test_a_gate_is_an_exit_code(
    world: World, capsys: pytest.CaptureFixture[str], settled: bool, code: int, words: list[str]
) -> None:
    """0 lets a node move to a kernel that another node proves, 1 does not; both say why."""
    world.add_node("node-b", OTHER_KERNEL)
    if settled:
        world.settle()
    assert main.main(["gate", "node-a", OTHER_KERNEL]) == code
    printed = capsys.readouterr().out
    assert all(word in printed for word in words)


def test_a_gate_can_be_read_by_programs(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """``gate -o json`` prints the result as JSON."""
    assert world
    assert main.main(["gate", "node-a", KERNEL, "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["open"] is False


def test_a_gate_without_drivers_is_open(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """No table where there is nothing to list."""
    world.add_node("web", KERNEL, pool="web")
    assert main.main(["gate", "web", OTHER_KERNEL]) == 0
    assert capsys.readouterr().out == f"web may move to {OTHER_KERNEL}: no driver is wanted on it\n"


@pytest.mark.parametrize("words", [["node-z", KERNEL], ["node-a", "latest"]], ids=["node", "kernel"])
def test_a_gate_that_is_asked_wrongly_is_wrong_usage(
    world: World, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """Exit code 2 distinguishes a typing error from a no."""
    assert world
    assert main.main(["gate", *words]) == 2
    assert capsys.readouterr().err.startswith("driver-builder: ")
