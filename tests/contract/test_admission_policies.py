"""The admission policies of ``deploy/admission``, evaluated by CEL's own C++ library: each case is one request.

The testbed's API server is too old for them; a newer one's own plugin is asked the same
(``tests/api/test_admission_plugin.py``).
"""

import argparse
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.cli.main import run as agent_cli
from driver_builder import config
from driver_builder.builds.build_queue import BuildQueue
from driver_builder.cli.commands import policy_command
from driver_builder.controller.execute import Executor
from driver_builder.model import third_party_labels
from driver_builder.model.setting import Group
from driver_builder.nodes.changes import PatchNode
from driver_builder.objects import loaded
from driver_builder.prebuild.upgrade_labels import ready_for_label
from kube_api import names
from kube_api.resources import NODES
from nfd_worker.cli.main import run as worker_cli
from tests.support.admission import LONGEST_MESSAGE, CelError, Policy, Review
from tests.support.driver_builder.changes import label_node
from tests.support.driver_builder.memory_client import MemoryClient
from tests.support.examples import few
from tests.support.forbidden_acts import BUILD_MUST_NOT, BUILDER_MUST_NOT, WORKER_MUST_NOT
from tests.support.forbidden_changes import (
    AGENT_POLICY,
    ALSO_BY_RBAC,
    BUILDER_POLICY,
    FEATURE,
    GUARDED,
    NODE,
    OWN_NODE,
    WORKER_POLICY,
    Act,
    annotation,
    label,
    merged,
    resource,
    taint,
)
from tests.support.yaml_files import read_documents

Json = dict[str, Any]

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy" / "admission"
PAGE = ROOT / "docs" / "security.md"
PROGRAMS = ("nfd-worker", "driver-builder", "device-agent")
ACTS = {
    program: {**acts, **ALSO_BY_RBAC[program]}
    for program, acts in (("nfd-worker", WORKER_POLICY), ("driver-builder", BUILDER_POLICY))
} | {"device-agent": AGENT_POLICY}
READY = "driverwright.io/ns.gpu.ready"

WORKER_MAY: dict[str, Act] = {
    "label its node": Act(label(f"{FEATURE}/x"), ""),
    "label it in a namespace below": Act(label(f"vendor.{FEATURE}/x"), ""),
    "label it with a profile": Act(label("profile.node.kubernetes.io/x"), ""),
    "label it in a vendor's namespace": Act(label("nvidia.com/gpu.count", "2"), ""),
    "change a label of a source": Act(label(f"{FEATURE}/kernel-version.full", "6.2"), ""),
    "remove a label": Act(label(f"{FEATURE}/kernel-version.full", None), ""),
    "annotate its node by a rule": Act(annotation(f"{FEATURE}/x"), ""),
    "write the boot id": Act(annotation("driverwright.io/boot-id", "c"), ""),
    "write what made which label": Act(annotation("driverwright.io/origins", "{}"), ""),
    "remove what upstream annotated": Act(annotation("i.nfd.node.kubernetes.io/master.version", None), ""),
    "set an extended resource": Act(
        merged(resource("capacity", f"{FEATURE}/x", "1"), resource("allocatable", f"{FEATURE}/x", "1")), "", "status"
    ),
    "track it in the same request": Act(
        merged(resource("capacity", "vendor.io/x", "1"), annotation("driverwright.io/extended-resources")), "", "status"
    ),
    "change managedFields, to take over": Act({"metadata": {"managedFields": [{}]}}, ""),
    "change nothing": Act({}, ""),
    "remove a guarded label, set by a release before": Act(label(GUARDED, None), ""),
}
BUILDER_MAY: dict[str, Act] = {
    "say that a driver is proven": Act(merged(label(READY, "2"), annotation(READY, "boot")), "", extra=None),
    "say it on any node": Act(label(READY, "2"), "", name="node-b", extra=None),
    "take a ready label": Act(merged(label(READY, None), annotation(READY, None)), "", extra=None),
    "say that a node may boot a kernel": Act(label("driverwright.io/ready-for.6.1.0-2-amd64"), "", extra=None),
    "remember what is loaded": Act(annotation("loaded.driverwright.io/ns.gpu", '{"loads":[]}'), "", extra=None),
    "forget what was loaded": Act(annotation("loaded.driverwright.io/ns.gpu", None), "", extra=None),
    "lock a node": Act(annotation("driverwright.io/lock", "{}"), "", extra=None),
    "prepare a node": Act(
        merged(annotation("driverwright.io/draining", "{}"), taint("driverwright.io/upgrading", "NoSchedule")), "",
        extra=None,
    ),
    "answer a device agent that asks for a drain": Act(annotation("driverwright.io/drain-state", "{}"), "", extra=None),
    "remove what a device agent asked for": Act(annotation("driverwright.io/drain-request", None), "", extra=None),
    "keep pods from a node whose driver is not proven": Act(
        merged(annotation("pending.driverwright.io/ns.gpu", "b"), taint("driverwright.io/ns.gpu", "NoSchedule")), "",
        extra=None,
    ),
    "set a third party's label": Act(label("nvidia.com/gpu.present"), "", extra=None),
    "set one of NFD's namespace": Act(label(f"{FEATURE}/rack"), "", extra=None),
    "remove a guarded label, set by a release before": Act(label(GUARDED, None), "", extra=None),
    "pause an operator's DaemonSet": Act(label("nvidia.com/gpu.deploy.device-plugin", "paused"), "", extra=None),
}  # fmt: skip
MAY = {"nfd-worker": WORKER_MAY, "driver-builder": BUILDER_MAY, "device-agent": {"change nothing": Act({}, "")}}


def documents(program: str) -> tuple[Json, Json]:
    """Read policy and binding."""
    policy, binding = read_documents((DEPLOY / f"{program}.yaml").read_text())
    return policy, binding


@cache
def policy(program: str) -> Policy:
    """Compile the policy of ``deploy/``."""
    return Policy(documents(program)[0])


def review(program: str, act: Act) -> Review:
    """Make the request of an act."""
    user = f"system:serviceaccount:driverwright:{program}"
    return Review(user, act.after, act.before, act.extra, "/".join(filter(None, ("nodes", act.subresource))), act.name)


def run_command(program: str, *flags: str) -> int:
    """Run ``admission-policy`` of a program; the worker with no other settings than these."""
    if program == "nfd-worker":
        return worker_cli(["admission-policy", "--config", os.devnull, *flags], {})
    if program == "device-agent":
        return agent_cli(["admission-policy", *flags], {})
    parser = argparse.ArgumentParser()
    config.add_flags(parser, Group.CONNECTION)
    policy_command.add_flags(parser)
    parsed = parser.parse_args(flags)
    return policy_command.run(parsed, config.settings(parsed, {}))


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_manifest_is_what_the_command_prints(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the default settings; ``nfd-worker admission-policy`` makes it from the same ones as the labels."""
    assert run_command(program) == 0
    assert capsys.readouterr().out == (DEPLOY / f"{program}.yaml").read_text()


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_binding_puts_the_policy_in_force(program: str) -> None:
    """It denies; there is no parameter object, without which all writers of Nodes would be refused."""
    made, binding = documents(program)
    assert made["metadata"]["name"] == binding["spec"]["policyName"] == f"driverwright-{program}"
    assert binding["spec"]["validationActions"] == ["Deny"]
    assert "paramKind" not in made["spec"]
    assert "paramRef" not in binding["spec"]
    kinds = [(item["apiVersion"], item["kind"]) for item in (made, binding)]
    group = "admissionregistration.k8s.io/v1"
    assert kinds == [(group, "ValidatingAdmissionPolicy"), (group, "ValidatingAdmissionPolicyBinding")]


@pytest.mark.parametrize(
    ("program", "act"), [pytest.param(p, act, id=f"{p}: {name}") for p in PROGRAMS for name, act in ACTS[p].items()]
)
def test_refused(program: str, act: Act) -> None:
    """The refusal says who may not do what."""
    refusals = policy(program).review(review(program, act))
    assert [item for item in refusals if act.words in item.message and item.message.startswith(program)]
    assert {item.reason for item in refusals} == {"Forbidden"}


@pytest.mark.parametrize(
    ("program", "act"), [pytest.param(p, act, id=f"{p}: {name}") for p in PROGRAMS for name, act in MAY[p].items()]
)
def test_accepted(program: str, act: Act) -> None:
    """What the programs do."""
    assert policy(program).review(review(program, act)) == ()


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("user", ["system:node:node-a", "system:serviceaccount:elsewhere:nfd-worker", "admin"])
def test_nobody_else_is_meant(program: str, user: str) -> None:
    """Kubelets, controllers and people write Nodes as before."""
    for act in ACTS[program].values():
        assert policy(program).review(review(program, act)._replace(user=user)) == ()


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_message_that_would_be_too_long_is_a_short_one(program: str) -> None:
    """A message has at most 5 KiB; a longer one would be dropped for one that says nothing."""
    many = {f"kubernetes.io/{'x' * 50}-{number}": "1" for number in range(100)}
    assert sum(map(len, many)) > LONGEST_MESSAGE
    refusals = policy(program).review(review(program, Act({"metadata": {"labels": many}}, "")))
    assert [item.message for item in refusals] == [f"{program} may not change these labels"]


def test_a_label_of_each_kind_is_named() -> None:
    """All that is refused is listed, and nothing else."""
    keys = {"vendor.io/x": "1", "pool": "a", "kubernetes.io/x": "1", f"{FEATURE}/x": "1"}
    (refusal,) = policy("nfd-worker").review(review("nfd-worker", Act({"metadata": {"labels": keys}}, "")))
    sentence, _, listed = refusal.message.partition(": ")
    assert sentence == "nfd-worker may not change these labels"
    assert set(listed.split(", ")) == {"pool", "kubernetes.io/x"}


@pytest.mark.parametrize(
    ("flags", "act", "is_accepted"),
    [
        pytest.param(["--deny-label-ns=*"], label("nvidia.com/x"), False, id="a denied namespace"),
        pytest.param(["--deny-label-ns=*", "--extra-label-ns=nvidia.com"], label("nvidia.com/x"), True, id="extra"),
        pytest.param(["--extra-label-ns=node.kubernetes.io"], label("node.kubernetes.io/x"), True, id="of Kubernetes"),
        pytest.param(["--extra-label-ns=nvidia.com"], label("nvidia.com/mig.config"), False, id="a guarded key"),
        pytest.param(
            ["--extra-label-ns=nvidia.com/mig.config"], label("nvidia.com/mig.config"), True, id="a guarded key by name"
        ),
        pytest.param(["--label-whitelist=^gpu"], label(f"{FEATURE}/cpu"), False, id="not on the list of labels"),
        pytest.param(["--enable-taints"], taint(f"{FEATURE}/x"), True, id="taints are on"),
        pytest.param(["--enable-taints"], taint("node.kubernetes.io/x"), False, id="a taint of Kubernetes"),
        pytest.param(["--feature-gates=DisableAutoPrefix=true"], label("x"), True, id="no prefix"),
        pytest.param(["--options={restrictions: {disableLabels: true}}"], label(f"{FEATURE}/x"), False, id="no labels"),
    ],
)
def test_the_settings_of_the_worker_are_those_of_the_policy(
    flags: list[str], act: Json, is_accepted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Flags and configuration file as for ``nfd-worker run``."""
    assert run_command("nfd-worker", *flags) == 0
    made, _ = read_documents(capsys.readouterr().out)
    refusals = Policy(made).review(review("nfd-worker", Act(act, "")))
    assert (refusals == ()) is is_accepted


@pytest.mark.parametrize("program", PROGRAMS)
def test_another_account_is_named_by_a_flag(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of another namespace, or by another name."""
    assert run_command(program, "--service-account=a/b") == 0
    assert "request.userInfo.username == 'system:serviceaccount:a:b'\n" in capsys.readouterr().out


object_names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?", fullmatch=True)
kernels = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=64)


@few(10)
@given(object_names, object_names, kernels)
def test_whatever_the_controller_writes_to_nodes_the_policy_accepts(namespace: str, name: str, kernel: str) -> None:
    """By the executor's own code: labels and annotations of any driver and kernel, set and taken away again."""
    driver, ready = f"{namespace}/{name}", names.ready_label(namespace, name)
    client, queue = MemoryClient(), BuildQueue(lambda *_: "", wake=lambda: None)
    path = NODES.path(name="node-a")
    client.create(NODES.path(), NODE)
    memory = loaded.annotation(driver)
    actions = [
        action
        for value in ("1", None)
        for action in (
            label_node(
                node="node-a", driver=driver, label=ready, value=value, why="",
                annotations={ready: value, memory: value},
            ),
            label_node(node="node-a", driver=driver, label=ready_for_label(kernel), value=value, why=""),
            PatchNode(node="node-a", driver=driver, annotations={memory: value}),
        )
    ]  # fmt: skip
    for action in actions:
        before = client.get(path)
        assert Executor(client, queue).perform((action,)) == ()
        request = Review("system:serviceaccount:driverwright:driver-builder", client.get(path), before)
        assert policy("driver-builder").review(request) == ()
    queue.stop()


keys_of_nodes = st.one_of(
    st.sampled_from(third_party_labels.OF_TARGETS),
    st.builds(
        "{}{}".format,
        st.sampled_from(
            ("", f"{FEATURE}/", f"a.{FEATURE}/", "profile.node.kubernetes.io/", "kubernetes.io/", "x.kubernetes.io/",
             "driverwright.io/", "loaded.driverwright.io/", "nvidia.com/", "notkubernetes.io/", "notdriverwright.io/",
             "k8s.io/", "a.k8s.io/", "a.x-k8s.io/")
        ),
        st.sampled_from(
            ("x", "kernel-version.full", "gpu.count", "secure-boot", "X_y", "mig.config", "device-plugin.config.a")
        ),
    ),
)  # fmt: skip


@few(50)
@given(st.sets(keys_of_nodes))
def test_the_labels_of_third_parties_are_those_that_the_policy_accepts(keys: set[str]) -> None:
    """One key that only the controller accepts would refuse all labels of a node."""
    act = Act({"metadata": {"labels": dict.fromkeys(keys, "other")}}, "", extra=None)
    refusals = policy("driver-builder").review(review("driver-builder", act))
    refused = {key for item in refusals for key in item.message.partition(": ")[2].split(", ")}
    assert refused == {key for key in keys if third_party_labels.check(key, "other") is not None}


def test_a_controller_that_honours_nobody_may_set_nobodys_labels(capsys: pytest.CaptureFixture[str]) -> None:
    """The policy is narrower then."""
    assert run_command("driver-builder", "--node-feature-namespaces=none") == 0
    made, _ = read_documents(capsys.readouterr().out)
    act = review("driver-builder", Act(label("nvidia.com/gpu.present"), "", extra=None))
    (refusal,) = Policy(made).review(act)
    assert refusal.message == "driver-builder may not change these labels: nvidia.com/gpu.present"
    assert Policy(made).review(review("driver-builder", Act(label(READY, "2"), "", extra=None))) == ()


def test_an_error_in_an_expression_refuses_the_request() -> None:
    """``failurePolicy: Fail``: what the policy cannot evaluate is not let through."""
    made, _ = documents("nfd-worker")
    broken = {**made["spec"], "variables": [{"name": "x", "expression": "object.nothing.here"}], "validations": []}
    with pytest.raises(CelError):
        Policy({"spec": broken}).review(review("nfd-worker", Act({}, "", extra=OWN_NODE)))


def test_the_page_lists_every_forbidden_act() -> None:
    """At least twenty for each account by RBAC, and beside them those that only a policy refuses."""
    text = PAGE.read_text()
    for heading, acts in (
        ("### nfd-worker: refused by RBAC", WORKER_MUST_NOT),
        ("### driver-builder: refused by RBAC", BUILDER_MUST_NOT),
        ("### driver-builder-job, the account of build Jobs: refused by RBAC", BUILD_MUST_NOT),
        ("### nfd-worker: refused by the policy alone", WORKER_POLICY),
        ("### driver-builder: refused by the policy alone", BUILDER_POLICY),
    ):
        assert len(acts) >= 20
        section = text.partition(f"{heading}\n")[2].partition("\n#")[0]
        assert " ".join(section.split()).split("; ") == sorted(acts)
