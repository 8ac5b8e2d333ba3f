"""The admission policies in force on a real API server, which has them from 1.30 on, by tokens of pods on a real Node.

Every account here may do anything with Nodes by its role: without the policy each forbidden change is stored, with it
none. ``tests/contract`` evaluates the same changes with CEL's library, which every run has.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import pytest

from kube_api.client import Client
from kube_api.errors import Forbidden, Invalid, KubeApiError, NotFound
from kube_api.resources import NODES, PODS, SERVICE_ACCOUNTS, Resource
from testbed.testbed import Testbed
from tests.contract import test_admission_policies as of_programs
from tests.contract import test_device_agent_account as of_accounts
from tests.support.forbidden_changes import Act, merged
from tests.support.real_parts.acts import wait_for
from tests.support.real_parts.cluster_setup import (
    FIELD_MANAGER,
    Json,
    admin,
    as_service_account,
    create_quietly,
    granting,
    make_namespace,
    path_of,
)

GROUP, PLURAL = "admissionregistration.k8s.io", "validatingadmissionpolicies"
POLICIES = Resource(GROUP, "v1", PLURAL, "ValidatingAdmissionPolicy", namespaced=False)
BINDINGS = Resource(
    GROUP, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", namespaced=False
)
NODES_OF_TEST = ("node-a", "node-b")
EVERYTHING = {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["*"]}
DISK_PRESSURE = {"type": "DiskPressure", "status": "True"}
"""The node lifecycle controller takes a taint away that no condition stands for."""
INVALID = ("give its node an owner",)
"""What no server stores, with a policy or without: an owner has a kind and a uid."""


@dataclass(frozen=True)
class Case:
    """A policy as it is deployed, whom it is for (``namespace/name``), and what that account may and must not do."""

    account: str
    documents: tuple[Json, ...]
    may: Mapping[str, Act]
    must_not: Mapping[str, Act]

    def applied(self) -> list[tuple[str, Json]]:
        """Pair policy and binding with their paths."""
        resources = {one.kind: one for one in (POLICIES, BINDINGS)}
        found = [one for one in self.documents if one["kind"] in resources]
        return [(resources[one["kind"]].path(name=one["metadata"]["name"]), one) for one in found]


CASES = {
    **{
        program: Case(
            f"driverwright/{program}",
            of_programs.documents(program),
            of_programs.MAY[program],
            of_programs.ACTS[program],
        )
        for program in of_programs.PROGRAMS
    },
    **{
        f"an account for {of}": Case(
            "gpu/profiles", of_accounts.manifest(*flags), of_accounts.MAY_BY[of], of_accounts.MUST_NOT_BY[of]
        )
        for of, flags in of_accounts.FLAGS.items()
    },
}


class Site:
    """A case on an API server: its account by tokens, and the Nodes that are changed."""

    def __init__(self, ground: Testbed, case: Case) -> None:
        self.root = admin(ground)
        self.case = case
        namespace, _, name = case.account.partition("/")
        make_namespace(self.root, namespace)
        create_quietly(self.root, SERVICE_ACCOUNTS.path(namespace=namespace), {"metadata": {"name": name}})
        self._rights = granting("ClusterRole", {"name": f"nodes-of-{name}"}, EVERYTHING, case.account)
        for obj in self._rights:
            self.root.apply(path_of(obj), obj, field_manager=FIELD_MANAGER)
        self._pod = self._run_pod(namespace, name)
        self._on_node = as_service_account(ground, namespace, name, pod=self._pod)
        self._on_none = as_service_account(ground, namespace, name)

    def _run_pod(self, namespace: str, account: str) -> Json:
        spec = {
            "serviceAccountName": account,
            "nodeName": "node-a",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "none"}],
            # Some changes evict pods, and the token is worth something as long as its pod is there.
            "tolerations": [{"operator": "Exists"}],
        }
        body = {"metadata": {"name": f"of-{account}"}, "spec": spec}
        return dict(self.root.create(PODS.path(namespace=namespace), body))

    def remove(self) -> None:
        """Leave nothing to other files of tests."""
        metadata = self._pod["metadata"]
        pod = PODS.path(namespace=metadata["namespace"], name=metadata["name"])
        for path in [pod, *map(path_of, self._rights)]:
            with suppress(NotFound):
                self.root.delete(path)
        for name in NODES_OF_TEST:
            self._delete_node(name)

    def put_in_force(self) -> None:
        """Apply the policy and wait until it refuses."""
        for path, obj in self.case.applied():
            self.root.apply(path, obj, field_manager=FIELD_MANAGER)
        wait_for("the policy is in force", lambda: self._first_refusal() is not None, every=0.1)

    def lift(self) -> None:
        """Delete the policy and wait until it refuses no more: another case may be of the same account."""
        for path, _ in self.case.applied():
            self.root.delete(path)
        wait_for("the policy is lifted", lambda: self._first_refusal() is None, every=0.1)

    def _first_refusal(self) -> KubeApiError | None:
        return self.refusal(next(iter(self.case.must_not.values())))

    def refusal(self, act: Act) -> KubeApiError | None:
        """Do something to Nodes that are as the act wants them; return how it was refused."""
        for name in NODES_OF_TEST:
            self._delete_node(name)
            if not (act.is_new and name == act.name):
                self._create_node(name, act.node)
        client = self._on_node if act.extra else self._on_none
        path = NODES.path(name=act.name, subresource=act.subresource or None)
        try:
            if act.is_new:
                client.apply(path, self._body(act.name, act.after), field_manager=FIELD_MANAGER)
            else:
                client.patch(path, act.patch)
        except KubeApiError as error:
            return error
        return None

    def _create_node(self, name: str, node: Json) -> None:
        self.root.create(NODES.path(), self._body(name, node))
        # The API server adds one to each new Node, for the kubelet to be waited for.
        self.root.patch(NODES.path(name=name), {"spec": {"taints": node["spec"]["taints"]}})

    @staticmethod
    def _body(name: str, node: Json) -> Json:
        of_server = {"name": name, "uid": None, "managedFields": None}
        # One that was last heard of under the Node of that name before it would be tainted as not ready.
        heard = {"lastHeartbeatTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        conditions = [one | heard for one in (*node["status"]["conditions"], DISK_PRESSURE)]
        body = merged(node, {"metadata": of_server, "status": {"conditions": conditions}})
        return {"apiVersion": "v1", "kind": "Node", **body}

    def _delete_node(self, name: str) -> None:
        path = NODES.path(name=name)
        with suppress(NotFound):
            self.root.patch(path, {"metadata": {"finalizers": None}})
            self.root.delete(path)


@pytest.fixture(scope="module", params=CASES)
def site(request: pytest.FixtureRequest, control_plane_ground: Testbed) -> Iterator[Site]:
    """Have an account with all rights on Nodes; its policy is not in force yet."""
    client: Client = admin(control_plane_ground)
    try:
        client.list(POLICIES.path())
    except NotFound:
        pytest.skip(
            f"Kubernetes {control_plane_ground.binaries.release} has no admission policies: they came with 1.30"
        )
    made = Site(control_plane_ground, CASES[request.param])
    yield made
    made.remove()


@pytest.fixture(scope="module")
def in_force(site: Site) -> Iterator[Site]:
    """Put the policy in force."""
    site.put_in_force()
    yield site
    site.lift()


def test_without_the_policy_every_change_is_stored(site: Site) -> None:
    """So it is the policy alone that refuses them below."""
    refused = {name: str(said) for name, act in site.case.must_not.items() if (said := site.refusal(act))}
    assert set(refused) == set(INVALID) & set(site.case.must_not), refused


def test_with_the_policy_each_is_refused_with_its_words(in_force: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """As forbidden, and the message says who may not do what: of several broken rules the server names the first."""
    began, found = time.monotonic(), {}
    for name, act in in_force.case.must_not.items():
        said = in_force.refusal(act)
        wanted = Invalid if name in INVALID else Forbidden
        # Who creates a Node breaks the rules of labels first.
        words = "denied request: " if act.is_new else act.words
        if not isinstance(said, wanted) or (wanted is Forbidden and words not in str(said)):
            found[name] = str(said)
    assert found == {}
    with capsys.disabled():
        count = len(in_force.case.must_not)
        print(f"\n{in_force.case.account}: {count} changes refused in {time.monotonic() - began:.1f} s")


def test_with_the_policy_what_the_program_does_is_stored(in_force: Site) -> None:
    """On its own Node, by the token of its pod."""
    refused = {name: str(said) for name, act in in_force.case.may.items() if (said := in_force.refusal(act))}
    assert refused == {}
