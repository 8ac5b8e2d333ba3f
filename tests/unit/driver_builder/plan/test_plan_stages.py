"""The objects of a plugin, who may name its images, and what drivers without stages are spared."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from driver_builder.model import permissions
from driver_builder.model.driver_key import DriverKey
from driver_builder.nodes.changes import ApplyObject
from driver_builder.nodes.plan_view import DriverView
from driver_builder.nodes.validation import Progress
from driver_builder.objects import plugin
from driver_builder.objects.stage_labels import Stage, stage_label
from driver_builder.plan import leave, node_stages, plugin_validation
from driver_builder.plan.node_stages import NodeStages, Standing
from driver_builder.plan.plan import plan
from driver_builder.plan.plan_memory import PlanMemory
from driver_builder.plan.plugin_validation import start
from driver_builder.plan.stage_view import StageView
from driver_builder.snapshot.by_driver import PodsOfDriver
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.node_pods import NodePod, NodePods
from driver_builder.snapshot.snapshot import DriverPod, Snapshot
from driver_builder.tasks import validation_pod
from kube_api.names import PENDING_TAINT, UPGRADING_TAINT
from tests.support.driver_builder.changes import applied, done, patches
from tests.support.driver_builder.factories import NOW, SETTINGS, driver, node, ready_snapshot, spec_of
from tests.unit.driver_builder.world.test_world_stages import CHAIN, PLGOK, fleet, settle
from tests.unit.driver_builder.world.test_world_stages import WITH_AGENT as OF_WORLD

RESOURCE: dict[str, Any] = {"name": "example.com/edu", "groups": [{"paths": [{"path": "/dev/edu*"}]}]}
PLUGIN: dict[str, Any] = {"devicePlugin": {"resource": RESOURCE}}
VENDOR: dict[str, Any] = {"devicePlugin": {"image": "r.io/plugin:1", "resourceName": "example.com/edu"}}
VALIDATION: dict[str, Any] = {"pluginValidation": {"image": "r.io/test:1", "command": ["/test"]}}
WITH_AGENT = replace(SETTINGS, device_agent_image="r.io/agent:1")


def seen(stages: dict[str, Any] | None, **changes: Any) -> Snapshot:
    """Make a snapshot in which the driver is ready on a node."""
    return ready_snapshot(node(), driver=driver(spec_changes={"stages": stages, **changes}))


def manifest(stages: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return the DaemonSet of the plugin."""
    decided = plan(seen(stages, **changes), WITH_AGENT)
    (found,) = applied(decided.actions)
    return found.manifest


def test_the_pods_select_the_labels_before_them_and_tolerate_our_taints() -> None:
    """Also where the spec names other tolerations."""
    made = manifest(PLUGIN, tolerations=[{"key": "gpu", "operator": "Exists"}])
    pod = made["spec"]["template"]["spec"]
    key = DriverKey("driverwright/edu")
    assert pod["nodeSelector"] == {stage_label(key, Stage.RUN): "true", stage_label(key, Stage.VALID): "true"}
    assert {item["key"] for item in pod["tolerations"]} == {"gpu", PENDING_TAINT, UPGRADING_TAINT}
    assert made["spec"]["updateStrategy"]["type"] == "RollingUpdate"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "uid-edu"


def test_our_agent_is_unprivileged_and_reads_its_config_map() -> None:
    """It has the kubelet's folder of sockets, and /dev to look at."""
    pod = manifest(PLUGIN)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "r.io/agent:1"
    assert container["securityContext"]["privileged"] is False
    assert {item["mountPath"]: item.get("readOnly", False) for item in container["volumeMounts"]} == {
        "/var/lib/kubelet/device-plugins": False,
        "/host/dev": True,
        "/host/sys": True,
        "/etc/device-agent": True,
        "/run/device-agent": False,
    }
    (made,) = [
        action
        for action in plan(seen(PLUGIN), WITH_AGENT).actions
        if isinstance(action, ApplyObject) and action.created
    ]
    assert made.manifest["data"][plugin.CONFIG_KEY].startswith('{\n  "resources": [')


def test_our_agent_sees_the_folders_of_what_it_mounts() -> None:
    """Of a pattern those above it."""
    paths = [{"path": path, "type": "Mount"} for path in ("/run/edu/*/socket", "/opt/edu/lib.so", "/run/edu/x")]
    resource = {"name": "example.com/edu", "groups": [{"paths": [{"path": "/dev/edu*"}, *paths]}]}
    volumes = manifest({"devicePlugin": {"resource": resource}})["spec"]["template"]["spec"]["volumes"]
    seen = {item["hostPath"]["path"] for item in volumes if "hostPath" in item}
    assert seen == {"/var/lib/kubelet/device-plugins", "/dev", "/sys", "/run/edu", "/opt/edu"}


def test_nvidias_library_is_in_a_container_of_its_own() -> None:
    """Privileged, with the node's own /dev and no folder of the kubelet; the agent beside it is as without."""
    pod = manifest({"devicePlugin": {"nvidia": {}}})["spec"]["template"]["spec"]
    agent, nvml = pod["containers"]
    (alone,) = manifest(PLUGIN)["spec"]["template"]["spec"]["containers"]
    assert {key: agent[key] for key in ("image", "args", "env", "securityContext", "resources")} == {
        key: alone[key] for key in ("image", "args", "env", "securityContext", "resources")
    }
    assert (nvml["name"], nvml["image"], nvml["args"][0]) == ("nvml", "r.io/agent:1", "nvml")
    assert nvml["securityContext"]["privileged"] is True
    assert pod["automountServiceAccountToken"] is False
    places = [
        {item["mountPath"]: item.get("readOnly", False) for item in part["volumeMounts"]} for part in (agent, nvml)
    ]
    own = {"/run/device-agent": False, "/host/run/nvidia": True}
    assert places[0] == {
        **{item["mountPath"]: item.get("readOnly", False) for item in alone["volumeMounts"]},
        **own,
        "/var/lib/driverwright-agent": False,
        "/run/driverwright-agent": False,
    }
    assert places[1] == {**own, "/dev": False, "/host/sys": True}
    assert not nvml["terminationMessagePath"].startswith("/dev/")


def test_libraries_elsewhere_are_seen_with_the_folder_above_them() -> None:
    """An upgrade replaces them by a link: a mount of the link itself would stay with the old ones."""
    agents = [
        manifest({"devicePlugin": {"nvidia": {"libraries": {"path": path}}}})["spec"]["template"]["spec"]["containers"][
            0
        ]
        for path in ("/run/nvidia/driver", "/run/driverwright/team.gpu")
    ]
    places = [{item["mountPath"] for item in agent["volumeMounts"]} for agent in agents]
    assert places[1] - places[0] == {"/host/run/driverwright"}


def test_with_nvidia_readiness_is_asked_again_and_is_no_reason_for_a_restart() -> None:
    """Resources come and go with the cards; a restart would take all of them away."""
    both: tuple[dict[str, Any], ...] = ({"devicePlugin": {"nvidia": {}}}, PLUGIN)
    (agent, _), (other,) = (manifest(stages)["spec"]["template"]["spec"]["containers"] for stages in both)
    names = ("startupProbe", "readinessProbe", "livenessProbe")
    pages = {name: agent[name]["exec"]["command"][-1] for name in names}
    assert pages == {"startupProbe": "/healthz", "readinessProbe": "/readyz", "livenessProbe": "/healthz"}
    assert other["startupProbe"]["exec"]["command"][-1] == "/readyz"
    assert "readinessProbe" not in other


def test_a_vendors_plugin_gets_the_same_and_runs_what_is_given() -> None:
    """Its ``/dev`` is at the place where it looks for it."""
    stages = {"devicePlugin": {**VENDOR["devicePlugin"], "args": ["--x"], "privileged": True}}
    (container,) = manifest(stages)["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["args"]) == ("r.io/plugin:1", ["--x"])
    assert container["securityContext"] == {"privileged": True}
    assert [item["mountPath"] for item in container["volumeMounts"]] == ["/var/lib/kubelet/device-plugins", "/dev"]


def test_the_same_spec_makes_the_same_objects() -> None:
    """A change of the resource changes the template, so that it rolls out."""
    assert manifest(PLUGIN) == manifest(PLUGIN)
    other = {"devicePlugin": {"resource": {**RESOURCE, "environment": {"A": "b"}}}}
    assert manifest(PLUGIN)["spec"]["template"] != manifest(other)["spec"]["template"]


@pytest.mark.parametrize("stages", [VENDOR, {**PLUGIN, **VALIDATION}], ids=["plugin", "validation"])
def test_images_that_are_not_allowed_do_not_run(stages: dict[str, Any]) -> None:
    """They run on nodes, one of them perhaps privileged."""
    allowed = permissions.read({"allowed_base_images": "registry.example.com/*"})
    settings = replace(WITH_AGENT, template_versions=replace(SETTINGS.template_versions, permissions=allowed))
    decided = plan(seen(stages), settings)
    assert not [action for action in decided.actions if isinstance(action, ApplyObject)]
    assert decided.drivers[0].stages is not None
    assert decided.drivers[0].stages.reason == "NotAllowed"
    assert decided.drivers[0].targets[0].reason == "NotAllowed"


def test_a_validation_requests_the_resource_without_privileges_and_without_a_priority() -> None:
    """A critical pod would end others that have the resource."""
    container = driver(spec_changes={"stages": {**PLUGIN, **VALIDATION}})
    settings = spec_of(container).stages
    assert settings is not None
    assert settings.plugin_validation is not None
    made = validation_pod.plugin_manifest(
        container, settings.plugin_validation, node="node-a", subject="f" * 16, resource="example.com/edu"
    )
    (item,) = made["spec"]["containers"]
    assert item["resources"]["limits"] == {"example.com/edu": "1"}
    assert item["securityContext"]["privileged"] is False
    assert "priorityClassName" not in made["spec"]


def test_a_validation_waits_until_the_pods_of_its_node_are_listed() -> None:
    """It starts where they cannot be, and not where one of them has the resource."""
    container = driver(spec_changes={"stages": {**PLUGIN, **VALIDATION}})
    stages = StageView.of(Snapshot(now=NOW, drivers=(container,)), container)
    uses = NodePod(namespace="a", name="b", uid="c", resources=frozenset({"example.com/edu"}))
    kinds = {
        name: done(start(stages, node(), "f" * 16, users))
        for name, users in (
            ("not listed", {}),
            ("not allowed", {"node-a": NodePods(unread="forbidden")}),
            ("unused", {"node-a": NodePods(pods=(replace(uses, has_ended=True),))}),
            ("used", {"node-a": NodePods(pods=(uses,))}),
        )
    }
    assert kinds == {
        "not listed": [],
        "not allowed": ["run plugin-validation"],
        "unused": ["run plugin-validation"],
        "used": ["record validation"],
    }


def test_an_invalid_spec_keeps_labels_that_are_true() -> None:
    """Nothing is known of what should be there."""
    made = seen(PLUGIN)
    labels = {stage_label(DriverKey("driverwright/edu"), stage): "true" for stage in Stage}
    nodes = tuple(replace(item, labels={**item.labels, **labels}) for item in made.nodes)
    broken = driver(spec_changes={"stages": {"validation": {}}})
    decided = plan(replace(made, nodes=nodes, drivers=(broken,)), WITH_AGENT)
    assert not patches(decided.actions, "label Node")


def test_a_driver_without_stages_looks_at_no_node_because_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it costs does not grow with the fleet."""
    made = ready_snapshot(*(node(f"node-{number}") for number in range(20)), driver=driver())
    looked: list[str] = []

    def traced(_self: StageView, item: Any) -> bool:
        looked.append(item.name)
        return False

    monkeypatch.setattr(StageView, "has_traces", traced)
    decided = plan(made, SETTINGS)
    assert decided.drivers[0].targets[0].ready_nodes == 20
    assert looked == []


def _fleet_at_rest() -> Snapshot:
    """Return a fleet in which every node has all stages, and nothing is to be done."""
    world = fleet([f"node-{number:02}" for number in range(40)], stages=CHAIN)
    settle(world)
    seen = world.observe()
    assert plan(seen, OF_WORLD).actions == ()
    return seen


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note the nodes that stages are decided for."""
    looked: list[str] = []
    decide = node_stages.of_node

    def traced(stages: StageView, item: Node, standing: Standing) -> NodeStages:
        looked.append(item.name)
        return decide(stages, item, standing)

    monkeypatch.setattr(node_stages, "of_node", traced)
    return looked


def _touched(seen: Snapshot, name: str, **labels: str) -> Snapshot:
    nodes = [replace(item, labels={**item.labels, **labels}) if item.name == name else item for item in seen.nodes]
    return replace(seen, nodes=tuple(nodes))


def _plugin_fails(seen: Snapshot, name: str) -> Snapshot:
    pods = [replace(pod, ready_since=None, message="CrashLoopBackOff") if pod.node == name else pod
            for pod in seen.plugin_pods]  # fmt: skip
    return replace(seen, plugin_pods=tuple(pods))


def _driver_pod_is_silent(seen: Snapshot, name: str) -> Snapshot:
    return replace(seen, pods=tuple(replace(pod, ready=pod.ready and pod.node != name) for pod in seen.pods))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda seen: _touched(seen, "node-07", a="b"), id="node"),
        pytest.param(lambda seen: _plugin_fails(seen, "node-07"), id="plugin"),
        pytest.param(lambda seen: _driver_pod_is_silent(seen, "node-07"), id="driver"),
    ],
)
def test_a_plan_looks_at_the_nodes_that_changed(looked_at: list[str], change: Callable[[Snapshot], Snapshot]) -> None:
    """And says what one says that looks at all of them."""
    seen, memory = _fleet_at_rest(), PlanMemory()
    plan(seen, OF_WORLD, memory=memory)
    looked_at.clear()
    changed = change(seen)
    made = plan(changed, OF_WORLD, memory=memory)
    assert looked_at == ["node-07"]
    assert made == plan(changed, OF_WORLD)
    plan(seen, OF_WORLD, memory=memory)
    assert plan(seen, OF_WORLD, memory=memory) == plan(seen, OF_WORLD)


def test_of_pods_those_that_are_not_ordinary_are_asked_whether_their_modules_changed() -> None:
    """All of a fleet's pods are looked at once, and not for each plan."""

    class Unread(PodsOfDriver):
        def __iter__(self) -> Iterator[DriverPod]:
            raise AssertionError("every pod is looked at")

    seen = _fleet_at_rest()
    (container,) = seen.drivers
    view = DriverView.of(seen, container, OF_WORLD)
    pods = Unread(view.own_pods.pieces, view.own_pods.by_node)
    others = (view.nodes["node-03"],)
    assert leave.refuted(replace(view, own_pods=pods, others=others)) == {}
    lost = replace(view.own_pods.on("node-03")[0], contrary=view.own_pods.on("node-03")[0].proof)
    by_node = view.own_pods.by_node.with_changes({"node-03": lost})
    found = leave.refuted(replace(view, own_pods=Unread(pods.pieces, by_node), others=others))
    assert found == {"node-03": "its device plugin has to leave first: pod driverwright/edu-plug-node-03"}


def test_the_next_validations_are_looked_for_where_something_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose record goes is next; the others are not asked again."""
    seen, asked = _fleet_at_rest(), list[str]()
    next_nodes, decide = plugin_validation.NextNodes(), plugin_validation.of_node

    def traced(stages: StageView, item: Node) -> Progress | None:
        asked.append(item.name)
        return decide(stages, item)

    monkeypatch.setattr(plugin_validation, "of_node", traced)
    assert (next_nodes.of(seen), len(asked)) == ((), 40)
    asked.clear()
    nodes = list(seen.nodes)
    without = {key: text for key, text in nodes[7].annotations.items() if key != PLGOK}
    nodes[7] = replace(nodes[7], annotations=without)
    changed = replace(seen, nodes=tuple(nodes))
    assert (next_nodes.of(changed), next_nodes.of(changed)) == (("node-07",), ("node-07",))
    assert asked == ["node-07", "node-07"]
