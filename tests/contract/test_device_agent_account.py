"""What an account of the agent may do with the manifest of ``admission-policy --account``; the policy by CEL's library.

The API server that can be had here knows no policies; in ``tests/api/test_device_agent_node.py`` its role refuses.
"""

import contextlib
import io
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest

from device_agent.cli.main import run as agent_cli
from device_agent.node.answered import answer_patch
from device_agent.node.asked import SeenNode
from device_agent.profiles.verdict import Verdict
from kube_api.names import GPU_PROFILE_ANNOTATION, GPU_PROFILE_LABEL, GPU_PROFILE_STATE_LABEL
from tests.contract.test_chart import rendered
from tests.support.admission import Policy, Review
from tests.support.forbidden_changes import AGENT_POLICY, Act, annotation, label, merged, taint
from tests.support.yaml_files import read_documents

Json = dict[str, Any]

ANSWER = answer_patch(Verdict(asked="a", applied="a"), SeenNode()) or {}
REMOVED = merged(label(GPU_PROFILE_STATE_LABEL, None), annotation(GPU_PROFILE_ANNOTATION, None))
MAY: dict[str, Act] = {
    "answer": Act(ANSWER, ""),
    "say that it failed": Act(label(GPU_PROFILE_STATE_LABEL, "failed"), ""),
    "take its answer away": Act(REMOVED, ""),
    "change nothing": Act({}, ""),
}
MUST_NOT: dict[str, Act] = {
    **{name: act for name, act in AGENT_POLICY.items() if "may not change a Node" not in act.words},
    "answer for another node": Act(ANSWER, "on node node-a may not change node node-b", name="node-b"),
    "answer with a token of no pod": Act(ANSWER, "this token names no node", extra={}),
    "answer with a token from before 1.30": Act(ANSWER, "this token names no node", extra=None),
    "choose the profile itself": Act(label(GPU_PROFILE_LABEL), f"these labels: {GPU_PROFILE_LABEL}"),
    "set a label beside the answer": Act(merged(ANSWER, label("pool", "db")), "these labels: pool"),
    "set a label with a similar key": Act(label(f"{GPU_PROFILE_STATE_LABEL}s"), "these labels"),
    "annotate with the key of the label": Act(annotation(GPU_PROFILE_STATE_LABEL), "these annotations"),
    "remove a label": Act(label("pool", None), "these labels: pool"),
    "say that a driver is proven": Act(label("driverwright.io/ns.gpu.ready", "2"), "these labels"),
    "taint its node": Act(taint("vendor.io/x"), "and nothing else"),
    "cordon its node": Act({"spec": {"unschedulable": True}}, "and nothing else"),
    "give its node an owner": Act({"metadata": {"ownerReferences": [{"name": "x"}]}}, "and nothing else"),
    "create a node by applying": Act(ANSWER, "and nothing else", is_new=True),
}


@cache
def manifest(*flags: str) -> tuple[Json, ...]:
    """Read what the command prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert agent_cli(["admission-policy", "--account=gpu/profiles", *flags], {}) == 0
    return tuple(read_documents(printed.getvalue()))


@cache
def policy() -> Policy:
    """Compile its policy."""
    return Policy(manifest()[0])


def review(act: Act, user: str = "system:serviceaccount:gpu:profiles") -> Review:
    """Make the request of an act."""
    return Review(user, act.after, act.before, act.extra, "/".join(filter(None, ("nodes", act.subresource))), act.name)


@pytest.mark.parametrize("name", MUST_NOT)
def test_refused(name: str) -> None:
    """The refusal says who may not do what."""
    refusals = policy().review(review(MUST_NOT[name]))
    assert [item for item in refusals if MUST_NOT[name].words in item.message]
    assert {item.reason for item in refusals} == {"Forbidden"}


@pytest.mark.parametrize("name", MAY)
def test_accepted(name: str) -> None:
    """What the agent writes: two keys of its own Node."""
    assert policy().review(review(MAY[name])) == ()


def test_nobody_else_is_meant() -> None:
    """Other accounts write Nodes as before, also of the same name elsewhere."""
    for user in ("system:node:node-a", "system:serviceaccount:other:profiles", "admin"):
        assert policy().review(review(MUST_NOT["cordon its node"], user)) == ()


def test_roles_and_policy_are_in_one_manifest() -> None:
    """No verb more than it needs, no resource but Nodes, and Events where those about Nodes are."""
    made, binding, *roles = manifest()
    assert [item["kind"] for item in roles] == ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]
    assert {item["metadata"]["name"] for item in manifest()} == {"driverwright-device-agent.gpu.profiles"}
    assert binding["spec"]["policyName"] == made["metadata"]["name"]
    assert binding["spec"]["validationActions"] == ["Deny"]
    rules = {item["kind"]: item["rules"] for item in roles if "rules" in item}
    assert rules == {
        "ClusterRole": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]}],
        "Role": [{"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}],
    }
    for item in roles:
        if "subjects" in item:
            assert item["subjects"] == [{"kind": "ServiceAccount", "name": "profiles", "namespace": "gpu"}]
            assert item["roleRef"]["kind"] == item["kind"].removesuffix("Binding")
        assert item["metadata"].get("namespace") == (None if item["kind"].startswith("Cluster") else "default")


def granted(found: Iterable[Json], account: str) -> set[tuple[str, str, str]]:
    """Return what the roles that are bound to an account allow: where, what and how."""
    every = {(item["kind"], item["metadata"]["name"]): item for item in found}
    bindings = [item for item in every.values() if account in [one["name"] for one in item.get("subjects", ())]]
    roles = [every[binding["roleRef"]["kind"], binding["roleRef"]["name"]] for binding in bindings]
    return {
        (role["metadata"].get("namespace", ""), resource, verb)
        for role in roles
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize(
    ("flags", "of"),
    [
        pytest.param((), "profiles", id="profiles"),
        pytest.param(("--memory-limits",), "exporter and limits", id="profiles, and limits of memory"),
    ],
)
def test_an_account_gets_the_rights_that_the_chart_gives(flags: tuple[str, ...], of: str) -> None:
    """That of a driver's stage is made by the command: what the agent writes is the same."""
    assert granted(manifest(*flags), "profiles") == granted(rendered(of), "device-agent-profiles")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        pytest.param(["--memory-limits"], "set --account as well", id="rights for an account without any"),
        pytest.param(["--account=profiles"], "is not of the form NAMESPACE/NAME", id="no namespace"),
        pytest.param([f"--account=a/{'b' * 240}"], "is too long", id="too long for the names of roles"),
    ],
)
def test_an_account_that_cannot_be_is_refused(flags: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the flag and what is wrong with it."""
    assert agent_cli(["admission-policy", *flags], {}) == 2
    assert words in capsys.readouterr().err
