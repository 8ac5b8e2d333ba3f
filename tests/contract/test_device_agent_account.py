"""What an account of the agent may do with the manifest of ``admission-policy --account``; the policy by CEL's library.

The API server that can be had here knows no policies; in ``tests/api/test_device_agent_node.py`` its role refuses.
"""

import contextlib
import io
import re
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.cli.main import run as agent_cli
from device_agent.node.answered import answer_patch
from device_agent.node.asked import SeenNode
from device_agent.profiles.verdict import Verdict
from kube_api.names import (
    DRAIN_REQUEST_ANNOTATION,
    DRAIN_STATE_ANNOTATION,
    GPU_DEPLOY_PREFIX,
    GPU_PROFILE_ANNOTATION,
    GPU_PROFILE_LABEL,
    GPU_PROFILE_STATE_LABEL,
    LOCK_ANNOTATION,
    MIG_ANNOTATION,
    MIG_CONFIG_LABEL,
    MIG_STATE_LABEL,
    MIG_STATES,
    PAUSED_FOR_MIG_CHANGE,
    REBOOT_REQUIRED_LABEL,
)
from tests.contract.chart import rendered
from tests.support.admission import Policy, Review
from tests.support.forbidden_changes import AGENT_POLICY, NODE, Act, annotation, label, merged, taint
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


PLUGIN, VALIDATOR = f"{GPU_DEPLOY_PREFIX}device-plugin", f"{GPU_DEPLOY_PREFIX}operator-validator"
OPERATED = merged(NODE, merged(label(PLUGIN), label(VALIDATOR, "custom")))
"""A Node on which NVIDIA's GPU Operator runs its programs."""
PAUSED = merged(OPERATED, label(PLUGIN, PAUSED_FOR_MIG_CHANGE))
UPGRADED = merged(OPERATED, label(PLUGIN, "paused-for-driver-upgrade"))
WAITING = merged(NODE, label(REBOOT_REQUIRED_LABEL, "mig"))
OTHERS_BOOT = merged(NODE, label(REBOOT_REQUIRED_LABEL, "kernel"))
LOCKED = annotation(LOCK_ANNOTATION, '{"holder":"device-agent"}')
REQUEST = annotation(DRAIN_REQUEST_ANNOTATION, '{"pods":["a/b"]}')
RECORDED = merged(label(MIG_STATE_LABEL, "pending"), annotation(MIG_ANNOTATION, "{}"))
BEGINS = merged(merged(LOCKED, REQUEST), merged(RECORDED, label(PLUGIN, PAUSED_FOR_MIG_CHANGE)))
ENDS = merged(
    merged(annotation(LOCK_ANNOTATION, None), annotation(DRAIN_REQUEST_ANNOTATION, None)),
    merged(label(MIG_STATE_LABEL, "success"), label(PLUGIN)),
)
MIG_MAY: dict[str, Act] = {
    **MAY,
    "begin a change, with all that it writes": Act(BEGINS, "", node=OPERATED),
    "end a change": Act(ENDS, "", node=merged(OPERATED, BEGINS)),
    "forget a change": Act(merged(label(MIG_STATE_LABEL, None), annotation(MIG_ANNOTATION, None)), "",
                           node=merged(NODE, BEGINS)),
    "wait for a boot": Act(merged(label(MIG_STATE_LABEL, "rebooting"), label(REBOOT_REQUIRED_LABEL, "mig")), ""),
    "wait for a boot no more": Act(label(REBOOT_REQUIRED_LABEL, None), "", node=WAITING),
    "say that a change failed": Act(label(MIG_STATE_LABEL, "failed"), ""),
    "pause what is paused already": Act(label(PLUGIN, PAUSED_FOR_MIG_CHANGE), "", node=UPGRADED),
    "give back a value of somebody's own": Act(
        label(VALIDATOR, "custom"), "", node=merged(OPERATED, label(VALIDATOR, PAUSED_FOR_MIG_CHANGE))
    ),
}  # fmt: skip
MIG_MUST_NOT: dict[str, Act] = {
    **MUST_NOT,
    "choose the layout itself": Act(label(MIG_CONFIG_LABEL, "all-1g"), f"these labels: {MIG_CONFIG_LABEL}"),
    "take the choice of a layout away": Act(label(MIG_CONFIG_LABEL, None), f"these labels: {MIG_CONFIG_LABEL}"),
    "say a state that is none": Act(label(MIG_STATE_LABEL, "drained"), f"these labels: {MIG_STATE_LABEL}"),
    "ask for a boot for another reason": Act(label(REBOOT_REQUIRED_LABEL), f"these labels: {REBOOT_REQUIRED_LABEL}"),
    "take away a boot that another needs": Act(
        label(REBOOT_REQUIRED_LABEL, None), f"these labels: {REBOOT_REQUIRED_LABEL}", node=OTHERS_BOOT
    ),
    "switch a program of the operator off": Act(label(PLUGIN, "false"), f"these labels: {PLUGIN}", node=OPERATED),
    "switch a program of the operator on": Act(label(f"{GPU_DEPLOY_PREFIX}x"), f"these labels: {GPU_DEPLOY_PREFIX}x"),
    "pause a program that was never there": Act(
        label(f"{GPU_DEPLOY_PREFIX}x", PAUSED_FOR_MIG_CHANGE), f"these labels: {GPU_DEPLOY_PREFIX}x"
    ),
    "end the pause of a driver's upgrade": Act(label(PLUGIN), f"these labels: {PLUGIN}", node=UPGRADED),
    "remove a label of the operator": Act(label(PLUGIN, None), f"these labels: {PLUGIN}", node=PAUSED),
    "pause with a label like the operator's": Act(
        label("nvidia.com/gpu.deployed", PAUSED_FOR_MIG_CHANGE), "these labels: nvidia.com/gpu.deployed"
    ),
    "lock another node": Act(LOCKED, "may not change node node-b", name="node-b"),
    "have pods of another node evicted": Act(REQUEST, "may not change node node-b", name="node-b"),
    "have pods evicted with a token of no pod": Act(REQUEST, "this token names no node", extra={}),
    "answer its own request": Act(annotation(DRAIN_STATE_ANNOTATION), f"these annotations: {DRAIN_STATE_ANNOTATION}"),
    "keep pods away by itself": Act(taint("driverwright.io/upgrading", "NoSchedule"), "and nothing else"),
    "annotate with a key like ours": Act(annotation(f"{MIG_ANNOTATION}s"), f"these annotations: {MIG_ANNOTATION}s"),
}
MIG_KEYS = (MIG_CONFIG_LABEL, MIG_STATE_LABEL, REBOOT_REQUIRED_LABEL)
VALUES = ("", "true", "false", "mig", PAUSED_FOR_MIG_CHANGE, "paused-for-driver-upgrade", *MIG_STATES)
FLAGS: dict[str, tuple[str, ...]] = {"profiles": (), "MIG": ("--mig",)}
MAY_BY = {"profiles": MAY, "MIG": MIG_MAY}
MUST_NOT_BY = {"profiles": {**MIG_MUST_NOT, "lock its node": Act(LOCKED, f"these annotations: {LOCK_ANNOTATION}"),
                            "have its pods evicted": Act(REQUEST, f"these annotations: {DRAIN_REQUEST_ANNOTATION}"),
                            "say how a layout is": Act(label(MIG_STATE_LABEL, "success"), "these labels")},
               "MIG": MIG_MUST_NOT}  # fmt: skip


@cache
def manifest(*flags: str) -> tuple[Json, ...]:
    """Read what the command prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert agent_cli(["admission-policy", "--account=gpu/profiles", *flags], {}) == 0
    return tuple(read_documents(printed.getvalue()))


@cache
def policy(of: str) -> Policy:
    """Compile its policy, with profiles alone or with MIG changes."""
    return Policy(manifest(*FLAGS[of])[0])


def review(act: Act, user: str = "system:serviceaccount:gpu:profiles") -> Review:
    """Make the request of an act."""
    return Review(user, act.after, act.before, act.extra, "/".join(filter(None, ("nodes", act.subresource))), act.name)


@pytest.mark.parametrize(("of", "name"), [(of, name) for of, acts in MUST_NOT_BY.items() for name in acts])
def test_refused(of: str, name: str) -> None:
    """The refusal says who may not do what."""
    act = MUST_NOT_BY[of][name]
    refusals = policy(of).review(review(act))
    assert [item for item in refusals if act.words in item.message]
    assert {item.reason for item in refusals} == {"Forbidden"}


@pytest.mark.parametrize(("of", "name"), [(of, name) for of, acts in MAY_BY.items() for name in acts])
def test_accepted(of: str, name: str) -> None:
    """What the agent writes: a few keys of its own Node."""
    assert policy(of).review(review(MAY_BY[of][name])) == ()


def test_nobody_else_is_meant() -> None:
    """Other accounts write Nodes as before, also of the same name elsewhere."""
    for user in ("system:node:node-a", "system:serviceaccount:other:profiles", "admin"):
        assert policy("MIG").review(review(MUST_NOT["cordon its node"], user)) == ()


@given(
    st.sampled_from((*MIG_KEYS, f"{GPU_DEPLOY_PREFIX}x", "pool")),
    st.none() | st.sampled_from(VALUES),
    st.none() | st.sampled_from(VALUES),
)
def test_a_label_changes_as_the_rule_says_and_in_no_other_way(key: str, old: str | None, new: str | None) -> None:
    """Whatever it was and becomes."""
    bare = {"metadata": {"name": "node-a"}}
    node = bare if old is None else merged(bare, label(key, old))
    act = Act(label(key, new), "", node=node)
    is_allowed = old == new or {
        MIG_STATE_LABEL: new is None or new in MIG_STATES,
        REBOOT_REQUIRED_LABEL: new == "mig" or (new is None and old == "mig"),
        f"{GPU_DEPLOY_PREFIX}x": None not in (old, new) and PAUSED_FOR_MIG_CHANGE in (old, new),
    }.get(key, False)
    assert (policy("MIG").review(review(act)) == ()) is is_allowed


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


def test_mig_changes_need_no_other_role() -> None:
    """The agent evicts no pod itself: it asks for that by an annotation."""
    assert manifest("--mig")[1:] == manifest()[1:]


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
    ("flags", "of", "account"),
    [
        pytest.param((), "profiles", "device-agent-profiles", id="profiles"),
        pytest.param(("--memory-limits",), "exporter and limits", "device-agent-profiles", id="and limits of memory"),
        pytest.param(("--mig",), "MIG and profiles", "device-agent-mig", id="and MIG layouts"),
    ],
)
def test_an_account_gets_the_rights_that_the_chart_gives(flags: tuple[str, ...], of: str, account: str) -> None:
    """That of a driver's stage is made by the command: what the agent writes is the same."""
    assert granted(manifest(*flags), "profiles") == granted(rendered(of), account)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        pytest.param(["--memory-limits"], "--memory-limits: .* set --account as well", id="Events of no account"),
        pytest.param(["--mig"], "--mig: .* set --account as well", id="MIG changes of no account"),
        pytest.param(["--account=profiles"], "is not of the form NAMESPACE/NAME", id="no namespace"),
        pytest.param([f"--account=a/{'b' * 240}"], "is too long", id="too long for the names of roles"),
    ],
)
def test_an_account_that_cannot_be_is_refused(flags: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the flag and what is wrong with it."""
    assert agent_cli(["admission-policy", *flags], {}) == 2
    assert re.search(words, capsys.readouterr().err)
