"""The worker's admission policy: what the worker may set by its settings the policy accepts, and nothing else."""

from collections.abc import Callable
from copy import deepcopy
from itertools import product
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from feature_rules.features import Features
from feature_rules.keys.namespaces import (
    NamespaceOptions,
    check_annotation,
    check_extended_resource,
    check_label,
    check_taint,
    is_whitelisted,
)
from feature_rules.model import RuleOutput, RuleOutputs, Taint
from kube_api.errors import Forbidden
from kube_api.names import BOOT_ID_ANNOTATION, KERNEL_VERSION_ANNOTATION
from kube_api.node_policy import render
from nfd_worker.labels.labels import CLUSTER, make_content
from nfd_worker.labels.node_content import NodeContent, Unknown
from nfd_worker.publish.node_rights import node_rights
from nfd_worker.publish.ownership import ORIGINS_ANNOTATION
from nfd_worker.publish.publish_child import publish, unpublish
from nfd_worker.publish.tracking import EXTENDED_RESOURCES, TAINTS
from nfd_worker.publish.wire import PublishRequest
from tests.support.admission import Policy, Review
from tests.support.examples import few
from tests.support.nfd_worker.node_server import NodeServer

Json = dict[str, Any]

USER = "system:serviceaccount:driverwright:nfd-worker"
NODE = {"authentication.kubernetes.io/node-name": ["n"]}
FEATURE, NFD = "feature.node.kubernetes.io", "nfd.node.kubernetes.io"
NAMESPACES = (
    "", FEATURE, f"sub.{FEATURE}", f"x{FEATURE}", "profile.node.kubernetes.io", "a.profile.node.kubernetes.io", NFD,
    "kubernetes.io", "node.kubernetes.io", "node-role.kubernetes.io", "notkubernetes.io", "driverwright.io",
    "loaded.driverwright.io", "notdriverwright.io", "vendor.io", "sub.vendor.io", "vendor-io", "vendorxio",
)  # fmt: skip
NAMES = ("x", "cpu-model.id", "GPU", "extended-resources", "boot-id", "feature-labels")
GUARDED = ("nvidia.com/device-plugin.config", "nvidia.com/mig.config", "nvidia.com/mig.config.state")
KEYS = (
    *(f"{namespace}/{name}" if namespace else name for namespace, name in product(NAMESPACES, NAMES)),
    *GUARDED, "nvidia.com/x", "nvidia.com/mig.strategy", "sub.nvidia.com/mig.config",
)  # fmt: skip
OWN_ANNOTATIONS = {BOOT_ID_ANNOTATION, KERNEL_VERSION_ANNOTATION, ORIGINS_ANNOTATION, *EXTENDED_RESOURCES, *TAINTS}

entries = st.one_of(
    st.sampled_from(NAMESPACES),
    st.sampled_from(NAMESPACES).map(lambda name: f"*.{name}"),
    st.sampled_from((*GUARDED, "nvidia.com", "nvidia.com/x", "vendor.io/x", "nvidia.com/mig.config'", "/")),
    st.sampled_from(("*", "**", "*io", "*-io", "*.*", "a b", "vendor[.]io", ".", "*'", "\\", "VENDOR.io", "ä")),
)
lists = st.lists(entries, max_size=4).map(tuple)
patterns = st.sampled_from(
    ("", "", "", "^x$", "cpu|GPU", r"\.id$", "(?i)gpu", "'", '"', r"\d\\", "ä\u2028\n", "\U0001f600")
)
options = st.builds(
    NamespaceOptions,
    deny_label_ns=lists,
    extra_label_ns=lists,
    label_whitelist=patterns,
    enable_taints=st.booleans(),
    disable_labels=st.sampled_from((False, False, False, True)),
    disable_annotations=st.sampled_from((False, False, False, True)),
    disable_extended_resources=st.sampled_from((False, False, False, True)),
    auto_prefix=st.sampled_from((True, True, False)),
)


def policy_of(some: NamespaceOptions) -> Policy:
    """Compile the policy that goes with settings."""
    return Policy(render(node_rights(some), "driverwright", "nfd-worker")[0])


def node(keys: tuple[str, ...] = ()) -> Json:
    """Make a Node that has these keys everywhere."""
    values = dict.fromkeys(keys, "1")
    return {
        "metadata": {"name": "n", "labels": values, "annotations": values},
        "spec": {"taints": [{"key": key, "effect": "NoSchedule"} for key in keys]},
        "status": {"capacity": values, "allocatable": values},
    }


def may_set(some: NamespaceOptions) -> dict[str, Callable[[str], bool]]:
    """Say by the worker's own checks which keys it sets."""

    def label(key: str) -> bool:
        is_free = check_label(key, "1", some) is None and is_whitelisted(key, some.label_whitelist)
        return is_free and not some.disable_labels

    def annotation(key: str) -> bool:
        return key in OWN_ANNOTATIONS or (check_annotation(key, "1") is None and not some.disable_annotations)

    def taint(key: str) -> bool:
        return some.enable_taints and check_taint(Taint(key, "", "NoSchedule")) is None

    def resource(key: str) -> bool:
        has_prefix = "/" in key or not some.auto_prefix
        return has_prefix and check_extended_resource(key, "1") is None and not some.disable_extended_resources

    return {"Labels": label, "Annotations": annotation, "Taints": taint, "Resources": resource}


@pytest.mark.costly
@few(8)
@given(options)
def test_the_policy_accepts_the_keys_that_the_worker_sets_and_no_other(some: NamespaceOptions) -> None:
    """One key that only the worker accepts would refuse all labels; one that only the policy accepts is worth more.

    Removed may be what any denyLabelNs, allow-list, and switch let it set, and what is guarded since a release;
    Kubernetes' own keys and ours stay.
    """
    wider = NamespaceOptions(enable_taints=True, extra_label_ns=some.extra_label_ns, auto_prefix=some.auto_prefix)
    policy = policy_of(some)
    for new, old, may_by_field in ((node(KEYS), node(), may_set(some)), (node(), node(KEYS), may_set(wider))):
        seen = policy.variables(Review(USER, new, old, NODE, name="n"))
        for field, may in may_by_field.items():
            is_removal = bool(old["spec"]["taints"])
            of_before = {"Annotations": {f"{NFD}/feature-labels"}, "Labels": set(GUARDED)}.get(field, set())
            refused = {key for key in KEYS if not may(key)} - (of_before if is_removal else set())
            assert set(seen[f"variables.refused{field}"]) == refused, field


class GuardedServer(NodeServer):
    """A Node whose API server has the policy; ``sent`` are the requests that write, and what they send."""

    def __init__(self) -> None:
        super().__init__()
        self.policy: Policy | None = None
        self.sent: list[Json] = []

    def apply(self, path: str, body: Json, *, field_manager: str, force: bool = True) -> Json:
        """Apply, if the policy has nothing against it."""
        self.sent.append(body)
        return super().apply(path, body, field_manager=field_manager, force=force)

    def patch(self, path: str, body: Json) -> Json:
        """Patch, if the policy has nothing against it."""
        self.sent.append(body)
        return super().patch(path, body)

    def _serve(self, verb: str, path: str, change: Callable[[], None]) -> Json:
        before = deepcopy(self.node)
        served = super()._serve(verb, path, change)
        if self.policy is not None and verb != "get":
            resource = "nodes/status" if path.endswith("/status") else "nodes"
            refusals = self.policy.review(Review(USER, served, before, NODE, resource, name="n"))
            if refusals:
                raise Forbidden(str(refusals), status=403)
        return served


keys = st.sampled_from(KEYS)
wishes = st.builds(
    RuleOutput,
    rule=st.just("r"),
    origin=st.just("rule r"),
    labels=st.dictionaries(keys, st.just("1"), max_size=6),
    annotations=st.dictionaries(keys, st.just("1"), max_size=6),
    extended_resources=st.dictionaries(keys, st.sampled_from(("1", "2")), max_size=6),
    taints=st.lists(st.builds(Taint, keys, st.just("1"), st.just("NoSchedule")), max_size=4).map(tuple),
)
FOREIGN: Json = {
    "metadata": {
        "labels": {"kubernetes.io/arch": "amd64", "pool": "a"},
        "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
    },
    "spec": {"podCIDR": "10.0.0.0/24", "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]},
    "status": {"capacity": {"memory": "1Gi"}, "allocatable": {"memory": "1Gi"}, "conditions": [{"type": "Ready"}]},
}
UPSTREAM: Json = {
    "metadata": {
        "labels": {f"{FEATURE}/old": "1", "vendor.io/old": "1"},
        "annotations": {
            f"{NFD}/feature-labels": "old,vendor.io/old",
            f"{NFD}/feature-annotations": "vendor.io/note",
            f"{NFD}/extended-resources": "cards",
            f"{NFD}/taints": f"{FEATURE}/old=1:NoExecute",
            f"i.{NFD}/master.version": "v0.18.0",
            "vendor.io/note": "x",
        },
    },
    "spec": {"taints": [*FOREIGN["spec"]["taints"], {"key": f"{FEATURE}/old", "value": "1", "effect": "NoExecute"}]},
    "status": {"capacity": {f"{FEATURE}/cards": "1"}, "allocatable": {f"{FEATURE}/cards": "1"}},
}


def content_of(wish: RuleOutput, some: NamespaceOptions) -> NodeContent:
    """Give what a worker with these settings makes of a rule's wishes, with its own annotations."""
    own = {BOOT_ID_ANNOTATION: "b", KERNEL_VERSION_ANNOTATION: "6.1"}
    return make_content({}, {CLUSTER: RuleOutputs((wish,))}, Features(), some, own).content


class Life(NamedTuple):
    """Settings, those of before, what rules want under either, and what happens in between."""

    some: NamespaceOptions
    before: NamespaceOptions
    first: RuleOutput
    second: RuleOutput
    took_over: bool
    unknown: Unknown | None


UNREAD = Unknown(origins=("r",))
lives = st.builds(Life, options, options, wishes, wishes, st.booleans(), st.sampled_from((None, UNREAD)))
WISH = RuleOutput(rule="r", origin="rule r", extended_resources={"vendor.io/x": "1"})
NONE = RuleOutput(rule="r", origin="rule r")
RESTORED = Life(NamespaceOptions(disable_extended_resources=True), NamespaceOptions(), WISH, NONE, False, UNREAD)
"""Resources are off now, but what made one could not be read, and the kubelet has dropped it from allocatable."""


@given(lives)
@example(RESTORED)
def test_whatever_the_worker_publishes_the_policy_accepts(life: Life) -> None:
    """After other settings, beside others, over upstream's, with a kubelet that drops resources, and back to nothing.

    And no request has anything but what the worker has to write: never owners or finalizers.
    """
    server = GuardedServer()
    server.change("kubelet", FOREIGN)
    before = life.before._replace(extra_label_ns=life.some.extra_label_ns, auto_prefix=life.some.auto_prefix)
    server.policy = policy_of(before)
    publish(PublishRequest("n", content_of(life.first, before), origins={"r": KEYS}), server.client)
    if life.took_over:
        server.change("nfd-master", deepcopy(UPSTREAM))
    dropped = dict.fromkeys(server.status("allocatable").keys() - {"memory"})
    server.change("kubelet", {"status": {"allocatable": dropped}})
    server.policy = policy_of(life.some)
    content = content_of(life.second, life.some)
    request = PublishRequest("n", content, life.unknown, take_over=life.took_over)
    assert publish(request, server.client).is_published
    assert publish(request, server.client).is_published
    assert unpublish("n", server.client).is_published
    assert server.labels().items() >= FOREIGN["metadata"]["labels"].items()
    for body in server.sent:
        assert body.keys() <= {"apiVersion", "kind", "metadata", "spec", "status"}
        assert body["metadata"].keys() <= {"name", "labels", "annotations", "managedFields", "resourceVersion"}
        assert body.get("spec", {}).keys() <= {"taints"}
        assert body.get("status", {}).keys() <= {"capacity", "allocatable"}
