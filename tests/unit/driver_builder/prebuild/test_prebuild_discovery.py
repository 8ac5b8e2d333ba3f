"""Where people and programs read of newer kernels: plan, explain, gate, metrics, snapshots."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from driver_builder.builds.build_queue import BuildStates
from driver_builder.builds.templates.templates import template_versions
from driver_builder.cli import main
from driver_builder.controller.metrics import StateCollector, fleet_state
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.plan.plan import plan
from driver_builder.registry.registry_access import Registries
from driver_builder.targets.desired_target import TemplateVersions
from kube_api.client import Client
from tests.support.driver_builder.factories import KERNEL, OTHER_KERNEL
from tests.support.driver_builder.model_world import World
from tests.support.driver_builder.snapshot_files import through

OFFERED = "6.1.0-56-cloud-amd64"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A world whose prebuilds have failed; the commands look at it."""
    # As the commands have them: keys would differ otherwise.
    made = World(PlanSettings(template_versions=TemplateVersions(versions=template_versions())))
    made.add_node("node-a", KERNEL)
    made.add_node("node-b", OTHER_KERNEL)
    made.add_driver()
    made.settle()
    made.follow_repository()
    made.offered = (KERNEL, OFFERED)
    made.fail_builds = 1
    made.reconcile()
    made.finish_discoveries()
    made.reconcile()
    monkeypatch.setattr(Client, "from_environment", lambda *_words, **_more: made.client)
    monkeypatch.setattr(
        Registries, "inspect", lambda _self, *words, **_: made.registries.inspect(words[0], words[1], words[2], "amd64")
    )
    return made


def test_the_plan_has_a_line_for_each_prebuild(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Until some node runs it: then it is a kernel like others."""
    world.builds.running.clear()
    assert main.main(["plan"]) == 0
    told = capsys.readouterr().out
    (line,) = [line for line in told.splitlines() if f" {OFFERED} " in line and "prebuild for 2" in line]
    assert " build 1 " in line
    assert "(prebuild: no node runs it yet)" in told


def test_explain_reports_the_state_of_the_newest_kernel(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside the links of the kernel that runs."""
    world.finish_builds()
    world.reconcile()
    assert main.main(["explain", "node-a"]) == 0
    told = capsys.readouterr().out
    assert f"newest kernel: {OFFERED}: Building, " in told
    assert "(try 2; last failure: error: x)" in told, "the command's clock is of today, so the next try is due"
    world.reboot("node-a", OFFERED)
    main.main(["explain", "node-a"])
    assert "newest kernel" not in capsys.readouterr().out


def test_the_gate_repeats_why_the_prebuild_failed(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """With an exit code for tools."""
    world.finish_builds()
    world.reconcile()
    assert main.main(["gate", "node-a", OFFERED]) == 1
    assert "Failed, CompileError: error: x" in capsys.readouterr().out


def test_metrics_count_prebuilds_by_state(world: World) -> None:
    """None where every node runs the newest."""
    world.finish_builds()
    decided = plan(world.observe(), world.settings)
    assert fleet_state(decided).ahead == {("driverwright/edu", "Failed"): 1}
    collector = StateCollector(BuildStates)
    collector.saw(decided)
    registry = CollectorRegistry()
    registry.register(collector)
    line = 'driver_builder_kernels_ahead{driver="driverwright/edu",state="Failed"} 1.0'
    assert line in generate_latest(registry).decode()
    for name in ("node-a", "node-b"):
        world.reboot(name, OFFERED)
    assert fleet_state(plan(world.observe(), world.settings)).ahead == {}


def test_a_snapshot_in_a_file_plans_the_same(world: World) -> None:
    """The file has the kernel discoveries, the prebuilds and the labels."""
    world.settle()
    world.now += 2 * 86400
    seen, read, settings = through(world)
    assert seen.discoveries
    told = [[str(action) for action in plan(one, settings).actions] for one in (seen, read)]
    assert told[0] == told[1] != []
