"""Each check of ``doctor``: what it is given, and what it makes of that."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from driver_builder.base.check_result import CheckResult, Status, has_failed, summary
from driver_builder.checks import (
    check_builders,
    check_controller,
    check_definitions,
    check_registries,
    check_server,
    check_workers,
)
from driver_builder.checks.check_builders import Engine, JobSetup
from driver_builder.checks.check_registries import Answer
from driver_builder.checks.deployed import command_of
from driver_builder.checks.finding import Unread
from driver_builder.cli.examination import manifests
from driver_builder.model.image_state import Absent, Invalid, Unauthorized, Unreachable
from driver_builder.snapshot.inventory import Node, read_node
from kube_api.resources import DRIVER_CONTAINERS, NODE_FEATURE_RULES
from tests.support.driver_builder.factories import NAMESPACE, NOW, driver, node, node_labels
from tests.support.driver_builder.installation import pod

Json = dict[str, Any]
Change = Callable[[Json], object]

OK, WARNING, FAILED, UNKNOWN = Status.OK, Status.WARNING, Status.FAILED, Status.UNKNOWN
FORBIDDEN = Unread(message="GET /x: 403 Forbidden", is_forbidden=True)
SHIPPED = {resource: manifests.definition(resource) for resource in (DRIVER_CONTAINERS, NODE_FEATURE_RULES)}


def verdicts(*findings: CheckResult) -> list[Status]:
    """Return what findings say, and make sure that whatever is wrong has a remedy."""
    assert all(finding.remedy for finding in findings if finding.status in (WARNING, FAILED))
    return [finding.status for finding in findings]


# ---------------------------------------------------------------- the API server


@pytest.mark.parametrize(
    ("minor", "verdict", "words"),
    [
        pytest.param("20+", WARNING, "CEL", id="a provider's 1.20"),
        pytest.param("27", WARNING, "no admission policies before 1.30", id="rules, no policies"),
        pytest.param("30", OK, "Kubernetes v1.30", id="everything"),
        pytest.param("x", WARNING, "cannot be read", id="no number"),
    ],
)
def test_a_version_says_what_it_lacks(minor: str, verdict: Status, words: str) -> None:
    """Features of this program that need a newer server are named."""
    finding = check_server.check_version({"major": "1", "minor": minor, "gitVersion": f"v1.{minor}"})
    assert verdicts(finding) == [verdict]
    assert words in finding.message


@pytest.mark.parametrize(
    ("date", "verdict", "words"),
    [
        pytest.param("Tue, 14 Nov 2023 22:13:18 GMT", OK, "less than 5 s", id="two seconds"),
        pytest.param("Tue, 14 Nov 2023 22:12:20 GMT", WARNING, "60 s ahead of", id="a minute behind us"),
        pytest.param("Tue, 14 Nov 2023 22:14:20 GMT", WARNING, "60 s behind", id="a minute ahead of us"),
        pytest.param("", UNKNOWN, "does not send", id="none"),
        pytest.param("yesterday", UNKNOWN, "does not send", id="not a date"),
    ],
)
def test_clocks_are_compared(date: str, verdict: Status, words: str) -> None:
    """By the header of a response."""
    finding = check_server.check_clock(date, NOW)
    assert verdicts(finding) == [verdict]
    assert words in finding.message


@pytest.mark.parametrize(
    ("found", "verdict", "words"),
    [
        pytest.param({"metadata": {}}, OK, "a", id="there"),
        pytest.param(None, FAILED, "missing: a", id="missing"),
        pytest.param({"metadata": {"deletionTimestamp": "now"}}, FAILED, "being deleted", id="going"),
        pytest.param(
            {"metadata": {"labels": {check_server.ENFORCED: "baseline"}}}, FAILED, "refuses the pods", id="strict"
        ),
        pytest.param(FORBIDDEN, UNKNOWN, "no permission", id="not readable"),
    ],
)
def test_a_namespace_has_to_take_driver_pods(found: Any, verdict: Status, words: str) -> None:
    """It exists, stays, and allows privileged pods."""
    (finding,) = check_server.check_namespaces({"a": found})
    assert verdicts(finding) == [verdict]
    assert words in finding.message


# ---------------------------------------------------------------- definitions


def definition(change: Change = lambda _: None) -> Json:
    """Return the definition that is shipped, its version changed."""
    made = copy.deepcopy(SHIPPED[DRIVER_CONTAINERS])
    change(made["spec"]["versions"][0])
    return made


def spec_of(version: Json) -> Json:
    """Return the fields of ``spec`` in the schema of a version."""
    fields: Json = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return fields


def judged(found: Json | Unread | None, minor: int = 31) -> CheckResult:
    """Compare a definition with the one that is shipped."""
    return check_definitions.check_own(DRIVER_CONTAINERS, found, SHIPPED[DRIVER_CONTAINERS], minor)


@pytest.mark.parametrize(
    ("change", "verdict", "words"),
    [
        pytest.param(lambda _: None, OK, "is the one of this version", id="the same"),
        pytest.param(lambda it: spec_of(it).pop("registry"), FAILED, "drops spec.registry", id="older"),
        pytest.param(lambda it: spec_of(it).update(later={}), WARNING, "spec.later, which this", id="newer"),
        pytest.param(lambda it: spec_of(it)["version"].update(maxLength=9), WARNING, "limits spec.version", id="limit"),
        pytest.param(lambda it: spec_of(it)["version"].update(description="?"), OK, "is the one", id="description"),
        pytest.param(lambda it: it.update(served=False), FAILED, "does not serve v1alpha1", id="not served"),
        pytest.param(lambda it: it.update(name="v1"), FAILED, "does not serve v1alpha1, only v1", id="another version"),
    ],
)
def test_a_definition_is_compared_with_the_shipped_one(change: Change, verdict: Status, words: str) -> None:
    """Fields that the API server would drop stop drivers; what is newer or limits otherwise is a warning."""
    finding = judged(definition(change))
    assert verdicts(finding) == [verdict]
    assert words in finding.message


def test_a_definition_that_is_missing_is_installed_by_kubectl() -> None:
    """Before 1.25 without the check of kubectl, which does not know rules."""
    assert judged(None).remedy == "kubectl apply -f deploy/crds/drivercontainers.yaml"
    assert judged(None, 20).remedy == "kubectl apply --validate=false -f deploy/crds/drivercontainers.yaml"
    assert verdicts(judged(None), judged(FORBIDDEN)) == [FAILED, UNKNOWN]


@pytest.mark.parametrize(("minor", "verdict"), [(20, OK), (31, WARNING)])
def test_rules_that_an_old_server_drops_are_not_missing(minor: int, verdict: Status) -> None:
    """From 1.25 on they are."""

    def change(version: Json) -> None:
        part = next(part for part in spec_of(version).values() if "x-kubernetes-validations" in part)
        del part["x-kubernetes-validations"]

    assert verdicts(judged(definition(change), minor)) == [verdict]


def test_a_definition_that_is_not_accepted_fails() -> None:
    """Such as one whose names another one has."""
    taken = {"conditions": [{"type": "NamesAccepted", "status": "False", "message": "dc is in use"}]}
    assert "is not NamesAccepted: dc is in use" in judged({**definition(), "status": taken}).message


def test_a_definition_of_other_projects_only_has_to_be_served() -> None:
    """Node Feature Discovery's own is as good as ours."""
    shipped = SHIPPED[NODE_FEATURE_RULES]
    other = copy.deepcopy(shipped)
    other["spec"]["versions"][0]["schema"] = {}
    findings = [
        check_definitions.check_foreign(NODE_FEATURE_RULES, found, without="no rules are read", flag="--no-rules")
        for found in (shipped, other, None, FORBIDDEN)
    ]
    assert verdicts(*findings) == [OK, OK, WARNING, UNKNOWN]
    assert findings[2].message == "nodefeaturerules.nfd.k8s-sigs.io is not installed: no rules are read"
    assert findings[2].remedy == "kubectl apply -f deploy/crds/nodefeaturerules.yaml, or run --no-rules"


# ---------------------------------------------------------------- the controller


def deployment(*, replicas: int = 1, available: int = 1, **container: Any) -> Json:
    """Make the controller's Deployment."""
    containers = [{"name": "driver-builder", "image": "r.io/driver-builder:1", **container}]
    return {
        "metadata": {"namespace": NAMESPACE, "name": "driver-builder"},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": containers}}},
        "status": {"availableReplicas": available},
    }


WAITING = [{"restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]
PENDING = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]


@pytest.mark.parametrize(
    ("found", "pods", "verdict", "words"),
    [
        pytest.param(deployment(), [], OK, "1 of 1 available, image r.io/driver-builder:1", id="runs"),
        pytest.param(None, [], FAILED, "no Deployment driver-builder in driverwright", id="missing"),
        pytest.param(FORBIDDEN, [], UNKNOWN, "no permission", id="not readable"),
        pytest.param(deployment(replicas=0, available=0), [], FAILED, "no replicas", id="scaled to none"),
        pytest.param(
            deployment(available=0), [pod("driver-builder", conditions=[], containerStatuses=WAITING)], FAILED,
            "ImagePullBackOff: no such image", id="kubelet",
        ),
        pytest.param(
            deployment(available=0), [pod("driver-builder", conditions=PENDING)], FAILED, "Unschedulable: 0/3 nodes",
            id="scheduler",
        ),
        pytest.param(deployment(available=0), FORBIDDEN, FAILED, "no pod is ready", id="pods are not readable"),
    ],
)  # fmt: skip
def test_a_controller_that_does_not_run_says_why(found: Any, pods: Any, verdict: Status, words: str) -> None:
    """In the words of scheduler and kubelet."""
    (finding,) = check_controller.check_deployment(found, pods, namespaces=[NAMESPACE])
    assert verdicts(finding) == [verdict]
    assert words in finding.message


def test_a_controller_without_the_image_of_the_loader_fails() -> None:
    """It does not start."""
    assert verdicts(*check_controller.check_setup(loader_image="")) == [FAILED]
    assert list(check_controller.check_setup(loader_image="r.io/loader:1")) == []


@pytest.mark.parametrize(
    ("running", "image", "verdict"),
    [
        pytest.param(["1.0"], "r.io/x:latest", OK, id="by its metrics"),
        pytest.param(["1.0", "0.9"], "r.io/x:1.0", WARNING, id="metrics of two versions"),
        pytest.param([], "r.io:5000/x:v1.0", OK, id="by the tag"),
        pytest.param([], "r.io:5000/x", UNKNOWN, id="no tag"),
        pytest.param([], "r.io/x:latest@sha256:0", UNKNOWN, id="a tag that says nothing"),
    ],
)
def test_versions_are_compared(running: list[str], image: str, verdict: Status) -> None:
    """What a pod says itself counts before its tag."""
    assert verdicts(check_controller.check_version("controller", "1.0", running, image)) == [verdict]


@pytest.mark.parametrize(
    ("lease", "verdict", "words"),
    [
        pytest.param(
            {"spec": {"holderIdentity": "pod-1", "renewTime": "2023-11-14T22:13:17.5Z"}}, OK,
            "held by pod-1, renewed 2 s ago", id="held",
        ),
        pytest.param(
            {"spec": {"holderIdentity": "pod-1", "renewTime": "2023-11-14T22:12:20Z"}}, FAILED,
            "pod-1 has not renewed it for 60 s", id="run out",
        ),
        pytest.param({"spec": {"holderIdentity": ""}}, FAILED, "no holder", id="given back"),
        pytest.param({"spec": {"holderIdentity": "x", "renewTime": "?"}}, UNKNOWN, "cannot be read", id="odd"),
        pytest.param(None, FAILED, "no controller has run yet", id="missing"),
        pytest.param(FORBIDDEN, UNKNOWN, "no permission", id="not readable"),
    ],
)  # fmt: skip
def test_a_lease_says_whether_a_controller_acts(lease: Any, verdict: Status, words: str) -> None:
    """Who holds it, and how old its renewal is."""
    finding = check_controller.check_lease(lease, NOW, name="a/driver-builder")
    assert verdicts(finding) == [verdict]
    assert words in finding.message


def test_the_deployment_says_how_the_controller_is_set_up() -> None:
    """Arguments after ``run``, and variables with values; what comes from elsewhere is left out."""
    env = [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    command = command_of(deployment(command=["driver-builder"], args=["run", "--builder=job"], env=env))
    assert command.arguments == ("--builder=job",)
    assert command.environment == {"A": "1", "POD_NAMESPACE": NAMESPACE}


# ---------------------------------------------------------------- nfd-worker


@pytest.mark.parametrize(
    ("status", "verdict", "words"),
    [
        pytest.param({"desiredNumberScheduled": 3, "numberReady": 3}, OK, "3 nfd-worker pods ready of 3", id="all"),
        pytest.param({"desiredNumberScheduled": 3, "numberReady": 2}, WARNING, "2 of 3", id="one is missing"),
        pytest.param({}, FAILED, "selects no node", id="none"),
    ],
)
def test_workers_are_counted(status: Json, verdict: Status, words: str) -> None:
    """Those that are not ready are named with their node and why."""
    unready = pod("nfd-worker", conditions=[], containerStatuses=WAITING)
    (finding,) = check_workers.check_workers({"status": status}, [unready, pod("nfd-worker")], namespace="a")
    assert verdicts(finding) == [verdict]
    assert words in finding.message
    assert ("not on node-a: ImagePullBackOff: no such image" in finding.message) is (verdict is WARNING)


def test_workers_may_be_those_of_another_project() -> None:
    """Labels of Node Feature Discovery do as well."""
    findings = [
        *check_workers.check_workers(None, [], namespace="a"),
        *check_workers.check_workers(FORBIDDEN, [], namespace="a"),
    ]
    assert verdicts(*findings) == [WARNING, UNKNOWN]


@pytest.mark.parametrize(
    ("nodes", "verdict", "words"),
    [
        pytest.param((node(), node("node-b")), OK, "2 nodes, 1 kernel", id="labelled"),
        pytest.param((node(), node("node-b", None)), FAILED, "1 of 2 nodes", id="one that a driver selects"),
        pytest.param(
            (node("node-b", None, labels={"pool": "x"}),), WARNING, "node-b (has no label", id="any other one"
        ),
        pytest.param((node(), node("win", None, labels={"kubernetes.io/os": "windows"})), OK, "1 node", id="Windows"),
        pytest.param((), WARNING, "no Linux node", id="no nodes"),
        pytest.param(FORBIDDEN, UNKNOWN, "no permission", id="not readable"),
    ],
)
def test_nodes_without_the_labels_of_a_target_are_named(nodes: Any, verdict: Status, words: str) -> None:
    """It fails where a driver waits for them."""
    (finding,) = check_workers.check_labels(nodes, [driver()], namespace="a")
    assert verdicts(finding) == [verdict]
    assert words in finding.message


# ---------------------------------------------------------------- registries


@pytest.mark.parametrize(
    ("answer", "verdict", "words"),
    [
        pytest.param(Answer(state=Absent()), OK, "push was not tried", id="no token says it"),
        pytest.param(Answer(state=Absent(), granted=frozenset({"pull", "push"})), OK, "push is allowed", id="push"),
        pytest.param(
            Answer(state=Absent(), granted=frozenset({"pull"})), FAILED, "allow pull, not push", id="pull alone"
        ),
        pytest.param(Answer(state=Absent(), granted=frozenset()), FAILED, "allow nothing, not push", id="nothing"),
        pytest.param(Answer(state=Unauthorized(message="user 'a'")), FAILED, "user 'a'", id="wrong password"),
        pytest.param(Answer(state=Unreachable(message="refused")), FAILED, "refused", id="away"),
        pytest.param(Answer(state=Invalid(message="not a registry")), FAILED, "not a registry", id="not a registry"),
    ],
)
def test_a_registry_is_judged_by_its_answers(answer: Answer, verdict: Status, words: str) -> None:
    """The repository and its drivers are named; what was not tried is said."""
    ((place, drivers),) = check_registries.places([driver(), driver("other")]).items()
    finding = check_registries.check_registry(place, drivers, answer)
    assert verdicts(finding) == [verdict]
    assert finding.message.startswith("registry.example.com:5000/drivers/edu (driverwright/edu, driverwright/other): ")
    assert words in finding.message


def test_drivers_with_settings_of_their_own_are_asked_for_apart() -> None:
    """Another Secret may have another answer; a driver that cannot be read has no registry."""
    own = driver("own", spec_changes={"registry": {"secretRef": {"name": "s"}}})
    broken = driver("broken", spec_changes={"image": "?"})
    places = check_registries.places([driver(), own, broken])
    assert {place.settings.secret: keys for place, keys in places.items()} == {
        None: ("driverwright/edu",), "s": ("driverwright/own",)
    }  # fmt: skip


@pytest.mark.parametrize(("count", "expected"), [(0, [UNKNOWN]), (1, []), (51, [WARNING])])
def test_registries_that_are_not_checked_are_counted(count: int, expected: list[Status]) -> None:
    """None at all, and too many."""
    assert verdicts(*check_registries.check_no_places(count)) == expected


# ---------------------------------------------------------------- builders


@pytest.mark.parametrize(
    ("found", "verdict", "words"),
    [
        pytest.param(Engine(version="20.10", architecture="x86_64", free=50 << 30), OK, "50 GiB free", id="disk"),
        pytest.param(Engine(version="20.10"), OK, "free disk is not known", id="disk of another machine"),
        pytest.param(Engine(version="20.10", free=1 << 30), WARNING, "only 1 GiB free", id="almost full"),
        pytest.param(Unread(message="no such socket"), FAILED, "no such socket", id="no answer"),
    ],
)
def test_an_engine_is_judged_by_what_it_says(found: Any, verdict: Status, words: str) -> None:
    """Version, and disk where it is known."""
    finding = check_builders.check_engine("unix:///x", found)
    assert verdicts(finding) == [verdict]
    assert words in finding.message


JOBS = JobSetup(image="r.io/buildah:1", hand_over_image="r.io/driver-builder:1", accounts={"a": {}})

TAINT = {"key": "t", "effect": "NoSchedule"}


def worker(name: str = "n", **spec: Any) -> Node:
    """Read a Node of this spec."""
    return read_node({"metadata": {"name": name, "labels": node_labels()}, "spec": spec})


@pytest.mark.parametrize(
    ("setup", "nodes", "verdict", "words"),
    [
        pytest.param({}, (worker(),), OK, "1 node may build", id="a node"),
        pytest.param({"image": ""}, (worker(),), FAILED, "--job-image not set", id="no image"),
        pytest.param({"accounts": {"a": None}}, (worker(),), FAILED, "missing in a", id="no service account"),
        pytest.param({}, (worker(unschedulable=True),), FAILED, "no amd64 node may build: cordoned", id="cordoned"),
        pytest.param({"node_selector": {"p": "q"}}, (worker(),), FAILED, "without label p=q", id="selector"),
        pytest.param({}, (worker(taints=[TAINT]),), FAILED, "taint t:NoSchedule", id="taint"),
        pytest.param(
            {"tolerations": ({"operator": "Exists"},)}, (worker(taints=[TAINT]),), OK, "1 node may", id="tolerated"
        ),
        pytest.param({}, FORBIDDEN, UNKNOWN, "no permission", id="nodes are not readable"),
    ],
)  # fmt: skip
def test_jobs_need_images_an_account_and_nodes(setup: Json, nodes: Any, verdict: Status, words: str) -> None:
    """For each architecture of the cluster."""
    (finding,) = check_builders.check_jobs(dataclasses.replace(JOBS, **setup), nodes)
    assert verdicts(finding) == [verdict]
    assert words in finding.message


def test_findings_are_counted_by_their_verdicts() -> None:
    """Only what stops drivers is a failure."""
    findings = [check_builders.check_engine("x", found) for found in (Engine(version="1"), Unread(message="?"))]
    assert summary(findings) == "1 ok, 1 FAILED"
    assert has_failed(findings)
    assert not has_failed(findings[:1])
