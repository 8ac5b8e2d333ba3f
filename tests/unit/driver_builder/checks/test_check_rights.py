"""The permissions that ``doctor`` asks about are those of the manifest."""

import pytest

from driver_builder.base.check_result import Status
from driver_builder.checks.check_rights import Right, Scope, check_drain, check_rights, rights
from driver_builder.checks.finding import Unread
from driver_builder.cli.examination import manifests

ROLES = manifests.roles()
SCOPE = Scope(namespaces=("a", "b"), lease_name="mine", rules_namespace="workers", node_feature_namespaces=("gfd",))


def asked(scope: Scope = SCOPE) -> set[str]:
    """Return every right with its namespace."""
    return {f"{right.namespace}: {right}" for right in rights(ROLES, scope)}


@pytest.mark.parametrize(
    "right",
    [
        pytest.param(": patch nodes", id="the cluster"),
        pytest.param("a: get secrets", id="the first namespace"),
        pytest.param("b: get secrets", id="a further namespace"),
        pytest.param("b: patch drivercontainers.driverwright.io/status", id="a subresource"),
        pytest.param("a: update leases.coordination.k8s.io/mine", id="the Lease by its name"),
        pytest.param("workers: patch configmaps/nfd-worker-rules", id="the workers' rules"),
        pytest.param("gfd: watch nodefeatures.nfd.k8s-sigs.io", id="third parties' labels"),
        pytest.param("gfd: create events", id="Events on their objects"),
        pytest.param("default: create events", id="Events of the cluster"),
    ],
)
def test_every_rule_of_the_manifest_is_asked_about(right: str) -> None:
    """In the namespaces where this controller needs it."""
    assert right in asked()


@pytest.mark.parametrize(
    ("right", "scope"),
    [
        pytest.param("b: create leases.coordination.k8s.io", SCOPE, id="a Lease in a further namespace"),
        pytest.param("a: create jobs.batch", SCOPE, id="Jobs, which do not build"),
        pytest.param("a: get pods/log", SCOPE, id="logs of Jobs"),
        pytest.param(
            "workers: patch configmaps/nfd-worker-rules",
            Scope(namespaces=("a",), lease_name="x"),
            id="rules, switched off",
        ),
        pytest.param("a: list nodefeatures.nfd.k8s-sigs.io", SCOPE, id="third parties' labels of another namespace"),
    ],
)
def test_what_is_not_needed_is_not_asked_about(right: str, scope: Scope) -> None:
    """Whoever leaves it out of the Role is not told to add it."""
    assert right not in asked(scope)


def test_builds_in_jobs_need_more() -> None:
    """The two rules that the manifest says may be removed."""
    jobs = Scope(namespaces=("a",), lease_name="x", uses_jobs=True)
    without = Scope(namespaces=("a",), lease_name="x")
    assert asked(jobs) - asked(without) == {
        "a: create jobs.batch", "a: delete jobs.batch", "a: get jobs.batch", "a: get pods/log"
    }  # fmt: skip


def test_a_right_is_what_an_access_review_asks_for() -> None:
    """Empty attributes are left out."""
    right = Right(namespace="a", group="", resource="pods", subresource="log", verb="get")
    assert right.as_attributes() == {"namespace": "a", "verb": "get", "resource": "pods", "subresource": "log"}


def test_missing_permissions_are_named_place_by_place() -> None:
    """One finding for each, with the manifest to apply."""
    needed = rights(ROLES, SCOPE)
    missing = {": patch nodes", "a: get secrets", "a: patch daemonsets.apps"}
    answers = {right: f"{right.namespace}: {right}" not in missing for right in needed}
    cluster, namespace = check_rights(answers, "service account a/b")
    assert cluster.message == "service account a/b may not, on the whole cluster: patch nodes"
    assert namespace.message == "service account a/b may not, in namespace a: patch daemonsets.apps, get secrets"
    assert {finding.status for finding in (cluster, namespace)} == {Status.FAILED}
    assert "deploy/driver-builder/rbac.yaml" in namespace.remedy


def test_a_whole_role_that_is_missing_is_not_a_page() -> None:
    """The first ones are named, the others counted."""
    (finding,) = check_rights({right: right.namespace != "b" for right in rights(ROLES, SCOPE)}, "x")
    assert ", and " in finding.message
    assert len(finding.message) < 600


def test_permissions_that_cannot_be_asked_about_are_unknown() -> None:
    """They are not missing."""
    why = Unread(message="403", is_forbidden=True)
    (finding,) = check_rights(dict.fromkeys(rights(ROLES, SCOPE), why), "x")
    assert (finding.status, "could not be asked about: 403" in finding.message) == (Status.UNKNOWN, True)


def test_all_permissions_are_one_line() -> None:
    """With their number."""
    needed = rights(ROLES, SCOPE)
    (finding,) = check_rights(dict.fromkeys(needed, True), "x")
    assert finding.message == f"x has all {len(needed)} permissions of deploy/driver-builder/rbac.yaml"


DRAIN = rights(manifests.drain_roles(), SCOPE)


def test_the_rights_to_drain_are_those_of_their_manifest() -> None:
    """In all namespaces."""
    assert {f"{right.namespace}: {right}" for right in DRAIN} == {
        ": list pods", ": create pods/eviction", ": get resourceclaims.resource.k8s.io",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "verdict", "found", "remedy"),
    [
        pytest.param(True, Status.OK, "x may drain nodes, as rollout.drain of a/edu asks", "", id="granted"),
        pytest.param(False, Status.WARNING, "x may not, in all namespaces: list pods, create pods/eviction,"
                     " get resourceclaims.resource.k8s.io; rollout.drain of a/edu drains nothing",
                     "kubectl apply -f deploy/driver-builder/drain.yaml", id="missing"),
        pytest.param(Unread(message="403"), Status.UNKNOWN, "could not be asked: 403", "administrator", id="unknown"),
    ],
)  # fmt: skip
def test_the_rights_to_drain_stop_no_driver(answer: bool | Unread, verdict: Status, found: str, remedy: str) -> None:
    """Drivers are replaced without a drain; the command that grants them is named."""
    finding = check_drain(dict.fromkeys(DRAIN, answer), "x", ["a/edu"])
    assert (finding.status, found in finding.message, remedy in finding.remedy) == (verdict, True, True)


def test_without_the_right_to_claims_the_rest_is_drained() -> None:
    """As after an upgrade whose manifest nobody has applied yet."""
    finding = check_drain({right: not right.is_for_claims for right in DRAIN}, "x", ["a/edu"])
    assert finding.message.endswith(": get resourceclaims.resource.k8s.io; draDrivers see no pods")
