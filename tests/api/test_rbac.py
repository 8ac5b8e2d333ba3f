"""What the two programs' accounts may do, asked of a real API server: all they need, and nothing besides."""

import contextlib
import dataclasses
from collections.abc import Iterator

import pytest

from driver_builder.api.driver_container import FINALIZER
from driver_builder.builds import build_logs
from driver_builder.builds.build_logs import BuildLogs
from driver_builder.builds.build_queue import BuildQueue
from driver_builder.builds.job.job_manifest import SERVICE_ACCOUNT, JobSettings, job
from driver_builder.cluster import resource_api
from driver_builder.cluster.read_claims import with_claims
from driver_builder.cluster.read_daemon_sets import read_owned_daemon_set, read_plugin_set
from driver_builder.cluster.read_node_pods import read_node_pods
from driver_builder.controller.evictions import Evictions
from driver_builder.controller.execute import Executor
from driver_builder.controller.lease import Lease
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.image_state import Absent
from driver_builder.nodes.changes import (
    ApplyObject,
    DeleteObject,
    EvictPod,
    PatchNode,
    PatchObject,
    RunTask,
    StartBuild,
    apply_daemon_set,
)
from driver_builder.objects import manifests, plugin
from driver_builder.objects.loaded import Load
from driver_builder.objects.manifests import FIELD_MANAGER
from driver_builder.plan.plan import plan
from driver_builder.retention import record
from driver_builder.retention.recorder import ImageRecorder, record_path
from driver_builder.snapshot.node_pods import EvictionRefused, NodePod, NodePods
from driver_builder.snapshot.snapshot import FailedBuild
from driver_builder.targets.resolve_all import resolve_all
from driver_builder.tasks import unload_pod, validation_pod
from driver_builder.tasks.unload_pod import UNLOAD
from driver_builder.tasks.validation_pod import VALIDATION
from feature_rules.model import Taint
from kube_api import names
from kube_api.client import STRATEGIC_MERGE_PATCH, Client
from kube_api.errors import Forbidden, Invalid, NotFound
from kube_api.resources import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DRIVER_CONTAINERS,
    EVENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    SECRETS,
    SERVICE_ACCOUNTS,
    Resource,
)
from nfd_worker.labels.node_content import NodeContent
from nfd_worker.publish.publish_child import publish, unpublish
from nfd_worker.publish.wire import PublishRequest
from testbed.testbed import Testbed
from tests.support.driver_builder import factories
from tests.support.driver_builder.changes import TAINTED, UNTAINTED, finalizer, label_node, replaced_pod
from tests.support.forbidden_acts import (
    BUILD_MUST_NOT,
    BUILDER_MUST_NOT,
    ELSEWHERE,
    NAMESPACE,
    POD,
    WORKER_MUST_NOT,
)
from tests.support.real_parts.acts import wait_for
from tests.support.real_parts.cluster_setup import (
    Json,
    admin,
    as_service_account,
    create_quietly,
    definition_in_place_of,
    documents,
    install,
    make_namespace,
    path_of,
)
from tests.unit.driver_builder.builds.job.test_job_manifest import action as job_action


@pytest.fixture(scope="module")
def root(control_plane_ground: Testbed) -> Iterator[Client]:
    """Install the accounts and something to reach for; give the administrator. Node and driver go again."""
    client = admin(control_plane_ground)
    install(client)
    make_namespace(client, ELSEWHERE)
    create_quietly(client, NODES.path(), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}})
    for namespace in (NAMESPACE, ELSEWHERE):
        for resource, extra in ((SECRETS, {"data": {}}), (CONFIG_MAPS, {"data": {"edudrv.c": "int x;"}})):
            body = {"metadata": {"name": "thing"}, **extra}
            create_quietly(client, resource.path(namespace=namespace), body)
    driver = factories.driver_object("rbac", finalizer=False)
    del driver["metadata"]["uid"]
    create_quietly(client, DRIVER_CONTAINERS.path(namespace=NAMESPACE), driver)
    yield client
    for path in (NODES.path(name="node-a"), DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="rbac")):
        with contextlib.suppress(NotFound):
            client.delete(path)


@pytest.fixture(scope="module")
def builder(control_plane_ground: Testbed, root: Client) -> Client:
    """Connect as driver-builder."""
    assert root
    return as_service_account(control_plane_ground, NAMESPACE, "driver-builder")


@pytest.fixture(scope="module")
def worker(control_plane_ground: Testbed, root: Client) -> Client:
    """Connect as nfd-worker."""
    assert root
    return as_service_account(control_plane_ground, NAMESPACE, "nfd-worker")


@pytest.fixture(scope="module")
def build(control_plane_ground: Testbed, root: Client) -> Client:
    """Connect as the pod of a build Job could, if it had a token."""
    assert root
    return as_service_account(control_plane_ground, NAMESPACE, SERVICE_ACCOUNT)


@pytest.mark.parametrize("request_name", BUILD_MUST_NOT)
def test_a_build_must_not(build: Client, request_name: str) -> None:
    """What runs a driver's source cannot do anything in the cluster."""
    with pytest.raises(Forbidden):
        BUILD_MUST_NOT[request_name](build)


def test_driver_builder_may_build_in_jobs(builder: Client, root: Client) -> None:
    """Make a Job, look at it, read a log, and take it away; the Job's pods are given no token."""
    manifest = job(job_action(), JobSettings(image="r/b:1", hand_over_image="r/d:1"))
    made = builder.create(JOBS.path(namespace=NAMESPACE), manifest)
    path = JOBS.path(namespace=NAMESPACE, name=made["metadata"]["name"])
    assert builder.get(path)["metadata"]["uid"] == made["metadata"]["uid"]
    assert made["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    with pytest.raises(NotFound):
        list(builder.follow(PODS.path(namespace=NAMESPACE, name="no-such-pod", subresource="log")))
    builder.delete(path, uid=made["metadata"]["uid"])
    account = root.get(SERVICE_ACCOUNTS.path(namespace=NAMESPACE, name=SERVICE_ACCOUNT))
    assert account["automountServiceAccountToken"] is False


@pytest.mark.parametrize("request_name", BUILDER_MUST_NOT)
def test_driver_builder_must_not(builder: Client, request_name: str) -> None:
    """What driver-builder does not need it cannot do, though somebody might take over its pod."""
    with pytest.raises(Forbidden):
        BUILDER_MUST_NOT[request_name](builder)


@pytest.mark.parametrize("request_name", WORKER_MUST_NOT)
def test_nfd_worker_must_not(worker: Client, request_name: str) -> None:
    """What nfd-worker does not need it cannot do, though it runs on every node."""
    with pytest.raises(Forbidden):
        WORKER_MUST_NOT[request_name](worker)


def test_driver_builder_may_read_what_it_observes(builder: Client) -> None:
    """Every collection that is observed or watched, the sources, and the registry's secret by name."""
    for resource, namespace in (
        (NODES, None),
        (DRIVER_CONTAINERS, NAMESPACE),
        (DAEMON_SETS, NAMESPACE),
        (PODS, NAMESPACE),
        (CONFIG_MAPS, NAMESPACE),
    ):
        path = resource.path(namespace=namespace)
        version = builder.list(path).resource_version
        builder.list(path, metadata_only=True)
        list(builder.watch(path, resource_version=version, seconds=1))
    assert builder.get(CONFIG_MAPS.path(namespace=NAMESPACE, name="thing"))["data"]
    assert builder.get(SECRETS.path(namespace=NAMESPACE, name="thing"))


def deletion(resource: Resource, name: str, uid: str) -> DeleteObject:
    """Make the deletion of an object."""
    return DeleteObject(resource=resource, namespace=NAMESPACE, name=name, uid=uid, why="it is over")


def bringing(name: str, manifest: Json, uid: str = "") -> ApplyObject:
    """Apply the DaemonSet of a plugin."""
    return ApplyObject(
        resource=DAEMON_SETS,
        namespace=NAMESPACE,
        name=name,
        manifest=manifest,
        uid=uid,
        force=bool(uid),
        why="bring it",
    )


def test_driver_builder_may_carry_out_every_action(builder: Client, root: Client) -> None:
    """The executor's own code, with the account's own token: no action is refused."""
    uid = root.get(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="rbac"))["metadata"]["uid"]
    manifest = factories.daemon_set_manifest(factories.snapshot())
    manifest["metadata"]["ownerReferences"][0] |= {"name": "rbac", "uid": uid}
    name = manifest["metadata"]["name"]
    queue = BuildQueue(lambda *_: "", wake=lambda: None)
    executor = Executor(builder, queue)
    label = "driverwright.io/driverwright.rbac.ready"
    path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="rbac")
    pod = {**POD, "metadata": {"name": "victim"}, "spec": {**POD["spec"], "automountServiceAccountToken": False}}
    victim = root.create(PODS.path(namespace=NAMESPACE), pod)["metadata"]["uid"]

    assert executor.perform((finalizer("rbac", present=True),)) == ()
    assert FINALIZER in root.get(path)["metadata"]["finalizers"]
    made = apply_daemon_set(namespace=NAMESPACE, name=name, driver="driverwright/rbac", target="t", manifest=manifest)
    assert executor.perform((made, made)) == ()
    daemon_set = root.get(DAEMON_SETS.path(namespace=NAMESPACE, name=name))
    set_label = label_node(node="node-a", driver="driverwright/rbac", label=label, value="1", why="")
    assert executor.perform((set_label,)) == ()
    assert root.get(NODES.path(name="node-a"))["metadata"]["labels"][label] == "1"
    clear = label_node(node="node-a", driver="driverwright/rbac", label=label, value=None, why="")
    delete = deletion(DAEMON_SETS, name, daemon_set["metadata"]["uid"])
    replace = replaced_pod("", name="victim", uid=victim)
    memory = "loaded.driverwright.io/driverwright.rbac"
    remember = PatchNode(node="node-a", driver="driverwright/rbac", annotations={memory: "{}"})
    load = Load(target="aaaa1111", kernel=factories.KERNEL, boot_id="b", modules=(("edudrv", "1"),), blacklist=True)
    owner = dataclasses.replace(factories.driver("rbac"), uid=uid)
    pod = unload_pod.manifest(
        DriverKey("driverwright/rbac"), load, node="node-a", boot_id="b", image="r/l:1", owner=owner
    )
    name_of_pod = pod["metadata"]["name"]
    unload = RunTask(kind=UNLOAD, driver=DriverKey("driverwright/rbac"), manifest=pod)
    assert executor.perform((remember, unload)) == ()
    assert root.get(NODES.path(name="node-a"))["metadata"]["annotations"][memory] == "{}"
    made_pod = root.get(PODS.path(namespace=NAMESPACE, name=name_of_pod))
    forget = dataclasses.replace(remember, annotations={memory: None})
    done = deletion(PODS, name_of_pod, made_pod["metadata"]["uid"])
    assert executor.perform((forget, done)) == ()
    assert builder.get(NAMESPACES.path(name=NAMESPACE))["metadata"]["name"] == NAMESPACE
    release = finalizer("rbac", present=False)
    assert executor.perform((clear, delete, replace, release)) == ()
    assert label not in root.get(NODES.path(name="node-a"))["metadata"].get("labels", {})
    queue.stop()


def test_driver_builder_may_validate(builder: Client, root: Client) -> None:
    """It creates the pod of a command on a node, records its end there, and deletes it."""
    uid = root.get(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="rbac"))["metadata"]["uid"]
    asked = factories.driver("rbac", spec_changes={"validation": {"image": "r.io/test", "command": ["/test"]}})
    asked = dataclasses.replace(asked, uid=uid)
    pod = validation_pod.manifest(asked, factories.spec_of(asked), node="node-a", subject="0" * 16)
    name, record = pod["metadata"]["name"], "validated.driverwright.io/driverwright.rbac"
    begin = RunTask(kind=VALIDATION, driver=DriverKey("driverwright/rbac"), manifest=pod)
    end = PatchNode(node="node-a", driver="driverwright/rbac", annotations={record: "{}"})
    queue = BuildQueue(lambda *_: "", wake=lambda: None)
    executor = Executor(builder, queue)
    try:
        assert executor.perform((begin, end)) == ()
        assert root.get(NODES.path(name="node-a"))["metadata"]["annotations"][record] == "{}"
        made = root.get(PODS.path(namespace=NAMESPACE, name=name))["metadata"]["uid"]
        gone = deletion(PODS, name, made)
        assert executor.perform((dataclasses.replace(end, annotations={record: None}), gone)) == ()
    finally:
        queue.stop()


def test_driver_builder_may_bring_a_plugin(builder: Client, root: Client) -> None:
    """It writes DaemonSet, ConfigMap and labels; what the API server fills in is no drift, what somebody changes is."""
    uid = root.get(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="rbac"))["metadata"]["uid"]
    resource = {"name": "example.com/edu", "groups": [{"paths": [{"path": "/dev/edu*"}]}]}
    changes = {"stages": {"devicePlugin": {"resource": resource}}, "tolerations": [{"operator": "Exists", "value": ""}]}
    asked = dataclasses.replace(factories.driver("rbac", spec_changes=changes), uid=uid)
    stages = factories.spec_of(asked).stages
    assert stages is not None
    assert stages.device_plugin is not None
    manifest = plugin.daemon_set(asked, factories.spec_of(asked), stages.device_plugin, agent_image="r.io/agent:1")
    config = plugin.config_map(asked, stages.device_plugin)
    name, label = plugin.name_of(asked), "driverwright.io/driverwright.rbac.run"
    bring = bringing(name, manifest)
    configure = ApplyObject(
        resource=CONFIG_MAPS, namespace=NAMESPACE, name=name, manifest=config, created=True, why="configure"
    )
    run = label_node(node="node-a", driver="driverwright/rbac", label=label, value="true", why="",
                    annotations={label: "1"})  # fmt: skip
    queue = BuildQueue(lambda *_: "", wake=lambda: None)
    executor = Executor(builder, queue)
    path = DAEMON_SETS.path(namespace=NAMESPACE, name=name)
    try:
        assert executor.perform((bring, configure, run)) == ()
        found = read_owned_daemon_set(root.get(path))
        assert found is not None
        assert isinstance(found.daemon_set, plugin.PluginSet)
        assert plugin.is_as_wanted(found.daemon_set, manifest)
        touched = {"spec": {"template": {"spec": {"nodeSelector": {label: None}}}}}
        changed = read_plugin_set(root.patch(path, touched))
        assert not plugin.is_as_wanted(changed, manifest)
        bring = bringing(name, manifest, found.daemon_set.uid)
        assert executor.perform((bring,)) == ()
        assert plugin.is_as_wanted(read_plugin_set(root.get(path)), manifest)
        _added_to_a_plugin(root, executor, bring)
        made = root.get(CONFIG_MAPS.path(namespace=NAMESPACE, name=name))["metadata"]["uid"]
        without = dataclasses.replace(run, labels={label: None}, annotations={label: None})
        gone = deletion(CONFIG_MAPS, name, made)
        done = deletion(DAEMON_SETS, name, found.daemon_set.uid)
        assert executor.perform((without, gone, done)) == ()
        with pytest.raises(NotFound):
            root.get(CONFIG_MAPS.path(namespace=NAMESPACE, name=name))
    finally:
        queue.stop()


@pytest.mark.parametrize("uid", ["", "11111111-2222-3333-4444-555555555555"], ids=["new", "known"])
def test_driver_builder_takes_no_daemon_set_over(builder: Client, root: Client, uid: str) -> None:
    """Neither one that was made meanwhile, nor one that has taken the place of its own."""
    name, image = f"taken-{uid[:1] or 'new'}", "r.io/theirs:1"
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": plugin.CONTAINER, "image": image}]}}
    theirs = {
        "apiVersion": DAEMON_SETS.api_version,
        "kind": DAEMON_SETS.kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": labels}, "template": pod},
    }
    path = DAEMON_SETS.path(namespace=NAMESPACE, name=name)
    made = root.create(DAEMON_SETS.path(namespace=NAMESPACE), theirs)
    # All that an apply could merge with what is there.
    ours = {**pod, "spec": {"containers": [{"name": plugin.CONTAINER, "image": "r.io/ours:1"}]}}
    manifest = {**theirs, "spec": {**theirs["spec"], "template": ours}}  # type: ignore[dict-item]
    bring = bringing(name, manifest, uid)
    queue = BuildQueue(lambda *_: "", wake=lambda: None)
    try:
        failed = Executor(builder, queue).perform((bring,))
        # Another uid is a conflict for some versions of Kubernetes, for others a wrong field.
        assert failed == () or uid
        assert root.get(path)["spec"] == made["spec"]
        assert root.get(path)["metadata"]["uid"] == made["metadata"]["uid"]
    finally:
        queue.stop()
        root.delete(path)


def _added_to_a_plugin(root: Client, executor: Executor, bring: ApplyObject) -> None:
    """Check that what others add to a plugin's DaemonSet goes; ``rollout restart`` is left alone."""
    path = DAEMON_SETS.path(namespace=bring.namespace, name=bring.name)
    clean = root.get(path)["spec"]["template"]["spec"]
    restart = {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}
    assert plugin.is_as_wanted(read_plugin_set(root.patch(path, {"spec": {"template": restart}})), bring.manifest)
    container = {"name": plugin.CONTAINER, "env": [{"name": "A", "value": "b"}]}
    pod = {"hostPID": True, "hostIPC": True, "nodeSelector": {"pool": "a"}, "containers": [container]}
    root.patch(path, {"spec": {"template": {"spec": pod}}}, content_type=STRATEGIC_MERGE_PATCH)
    # One that is the default as well: no patch can take it away, only who has written it.
    applied = {
        **{key: bring.manifest[key] for key in ("apiVersion", "kind")},
        "metadata": {"name": bring.name, "namespace": bring.namespace},
        "spec": {"template": {"spec": {"dnsPolicy": "ClusterFirst"}}},
    }
    touched = read_plugin_set(root.apply(path, applied, field_manager="somebody"))
    assert not plugin.is_as_wanted(touched, bring.manifest)
    undo = plugin.without_additions(touched, bring.manifest)
    assert executor.perform((dataclasses.replace(bring, undo=undo),)) == ()
    found = root.get(path)
    assert found["spec"]["template"]["spec"] == clean
    assert found["spec"]["template"]["metadata"]["annotations"].items() > restart["metadata"]["annotations"].items()
    assert plugin.is_as_wanted(read_plugin_set(found), bring.manifest)


def test_driver_builder_may_hold_a_node(builder: Client, root: Client) -> None:
    """Lock, record, a label of another operator and our taint are set and taken away, each in one patch."""
    path, queue = NODES.path(name="node-a"), BuildQueue(lambda *_: "", wake=lambda: None)
    other = {"key": "example.com/other", "effect": "NoSchedule"}
    set_taints(root, path, other)
    begin = PatchNode(
        node="node-a", driver="driverwright/rbac", seen={names.LOCK_ANNOTATION: None}, taints=TAINTED,
        labels={"a.b/deploy.c": "paused"},
        annotations={names.LOCK_ANNOTATION: "ours", names.DRAINING_ANNOTATION: "{}"},
    )  # fmt: skip
    end = dataclasses.replace(
        begin,
        seen={names.LOCK_ANNOTATION: "ours"},
        taints=UNTAINTED,
        labels={"a.b/deploy.c": None},
        annotations=dict.fromkeys(begin.annotations),
    )
    try:
        assert Executor(builder, queue).perform((begin,)) == ()
        made = root.get(path)
        assert made["metadata"]["annotations"].items() >= begin.annotations.items()
        assert made["metadata"]["labels"]["a.b/deploy.c"] == "paused"
        assert taints(made) == [other, {"key": names.UPGRADING_TAINT, "effect": "NoSchedule"}]
        assert Executor(builder, queue).perform((begin,)) == ()
        assert written(root.get(path)) == written(made)
        assert Executor(builder, queue).perform((end,)) == ()
        left = root.get(path)
        assert names.LOCK_ANNOTATION not in left["metadata"].get("annotations", {})
        assert taints(left) == [other]
    finally:
        queue.stop()
        set_taints(root, path)


def taints(node: Json) -> list[Json]:
    """Return the taints of a Node but those of the cluster's controllers, for which one without a kubelet is lost."""
    return [taint for taint in node["spec"].get("taints") or () if not taint["key"].startswith("node.kubernetes.io/")]


def set_taints(root: Client, path: str, *wanted: Json) -> None:
    """Give a Node taints beside those of the cluster's controllers: to take these away would make them write again."""
    node = root.get(path)
    kept = [taint for taint in node["spec"].get("taints") or () if taint not in taints(node)]
    root.patch(path, {"spec": {"taints": [*kept, *wanted]}})


def written(node: Json) -> tuple[Json, Json, list[Json]]:
    """Return what driver-builder writes of a Node, with what others write there."""
    return node["metadata"]["labels"], node["metadata"]["annotations"], taints(node)


def test_a_node_is_tainted_until_its_driver_is_proven(builder: Client, root: Client) -> None:
    """With the ready label in one patch, whatever other taints are there; twice is the same as once."""
    queue = BuildQueue(lambda *_: "", wake=lambda: None)
    path, other = NODES.path(name="node-a"), {"key": "example.com/x", "effect": "NoExecute"}
    set_taints(root, path, other)
    key, label = names.pending_taint("driverwright", "rbac"), names.ready_label("driverwright", "rbac")
    record = names.pending_record("driverwright", "rbac")
    tainted = {"key": key, "value": names.PENDING, "effect": "NoSchedule"}
    taint = PatchNode(node="node-a", driver="driverwright/rbac", taints={key: tainted}, annotations={record: "b"})
    proven = label_node(node="node-a", driver="driverwright/rbac", label=label, value="1", why="")
    try:
        assert Executor(builder, queue).perform((taint,)) == ()
        assert Executor(builder, queue).perform((taint,)) == ()
        made = root.get(path)
        assert taints(made) == [other, {"key": key, "value": "pending", "effect": "NoSchedule"}]
        assert made["metadata"]["annotations"][record] == "b"
        assert Executor(builder, queue).perform((proven, dataclasses.replace(taint, taints={key: None}))) == ()
        left = root.get(path)
        assert (taints(left), left["metadata"]["labels"][label]) == ([other], "1")
    finally:
        queue.stop()
        gone = {"annotations": {record: None}, "labels": {label: None}}
        root.patch(path, {"metadata": gone})
        set_taints(root, path)


def test_driver_builder_may_drain_only_where_an_admin_allows_it(builder: Client, root: Client) -> None:
    """Without the optional ClusterRole both requests are refused; with it a budget is asked, and names itself."""
    policy = root.get("/apis/policy")["preferredVersion"]["groupVersion"]
    spec = {**POD["spec"], "automountServiceAccountToken": False, "nodeName": "node-a"}
    metadata = {"name": "user", "labels": {"app": "user"}}
    uid = root.create(PODS.path(namespace=ELSEWHERE), {"metadata": metadata, "spec": spec})["metadata"]["uid"]
    root.patch(PODS.path(namespace=ELSEWHERE, name="user", subresource="status"), {"status": {"phase": "Running"}})
    refused: dict[str, EvictionRefused] = {}
    evict = EvictPod(namespace=ELSEWHERE, name="user", uid=uid, node="node-a", at=1.0)
    Evictions(builder, refused).evict(evict)
    assert refused[uid].is_forbidden
    assert "is forbidden" in read_node_pods(builder, ["node-a"])["node-a"].unread
    budgets = f"/apis/{policy}/namespaces/{ELSEWHERE}/poddisruptionbudgets"
    budget = {
        "apiVersion": policy, "kind": "PodDisruptionBudget", "metadata": {"name": "at-least-one"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "user"}}},
    }  # fmt: skip
    rights = tuple(documents("driver-builder/drain.yaml"))
    try:
        for obj in rights:
            root.apply(path_of(obj), obj, field_manager=FIELD_MANAGER)
        wait_for("the right to list pods", lambda: not read_node_pods(builder, ["node-a"])["node-a"].unread)
        assert "user" in [pod.name for pod in read_node_pods(builder, ["node-a"])["node-a"].pods]
        made = root.create(budgets, budget)
        evictions = Evictions(builder, refused)
        evictions.evict(evict)
        assert not refused[uid].is_forbidden
        assert "at-least-one" in refused[uid].message
        allowed = {"observedGeneration": made["metadata"]["generation"], "disruptionsAllowed": 1, "currentHealthy": 2,
                   "desiredHealthy": 1, "expectedPods": 2}  # fmt: skip

        def is_evicted() -> bool:
            # The controller of budgets writes this status as well, by what is ready.
            root.patch(f"{budgets}/at-least-one/status", {"status": allowed})
            evictions.evict(evict)
            return refused == {}

        wait_for("the budget lets it go", is_evicted)
        gone = [pod for pod in read_node_pods(builder, ["node-a"])["node-a"].pods if pod.name == "user"]
        assert all(pod.deleting for pod in gone)
    finally:
        for obj in rights:
            root.delete(path_of(obj))
        wait_for("no right to list pods", lambda: read_node_pods(builder, ["node-a"])["node-a"].unread)


def test_driver_builder_may_read_claims_only_where_it_may_drain(builder: Client, root: Client) -> None:
    """Of any namespace, by name. Without the right the drain says so; without the group there is nothing to see.

    Before 1.34 a definition stands in for the group.
    """
    user = NodePod(namespace=ELSEWHERE, name="user", uid="u", claims=frozenset({"gpu"}))

    def seen() -> NodePods:
        return with_claims(builder, {"node-a": NodePods(pods=(user,))}, {"node-a"})["node-a"]

    claims, definition = RESOURCE_CLAIMS.path(namespace=ELSEWHERE), definition_in_place_of(RESOURCE_CLAIMS)
    is_stood_in = resource_api.VERSION not in resource_api.served_versions(root)
    if is_stood_in:
        assert seen() == NodePods(pods=(user,))
        root.create(CUSTOM_RESOURCE_DEFINITIONS.path(), definition)
    results = [{"request": "gpu", "driver": "gpu.example.com", "pool": "node-a", "device": "gpu-0"}]
    allocated = {"status": {"allocation": {"devices": {"results": results}}}}
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]
    body = {
        "apiVersion": RESOURCE_CLAIMS.api_version, "kind": RESOURCE_CLAIMS.kind, "metadata": {"name": "gpu"},
        "spec": {"devices": {"requests": requests}}, **allocated,
    }  # fmt: skip
    rights = tuple(documents("driver-builder/drain.yaml"))
    try:
        wait_for("the group is served", lambda: "ResourceClaims may not be read" in seen().unseen)
        assert "is forbidden" in seen().unseen

        def is_made() -> bool:
            with contextlib.suppress(NotFound):
                root.create(claims, body)
                return True
            return False

        wait_for("the claim is stored", is_made)
        if not is_stood_in:
            root.patch(f"{claims}/gpu/status", allocated)
        for obj in rights:
            root.apply(path_of(obj), obj, field_manager=FIELD_MANAGER)
        wait_for("the right to read claims", lambda: not seen().unseen)
        assert [pod.claim_drivers for pod in seen().pods] == [{"gpu.example.com"}]
    finally:
        for obj in rights:
            with contextlib.suppress(NotFound):
                root.delete(path_of(obj))
        if is_stood_in:
            root.delete(CUSTOM_RESOURCE_DEFINITIONS.path(name=definition["metadata"]["name"]))
        else:
            root.delete(f"{claims}/gpu")


def test_driver_builder_may_widen_a_daemon_set(builder: Client, root: Client) -> None:
    """One of an earlier release, as that applied it: its selector loses one label, and an annotation has the value."""
    manifest = factories.daemon_set_manifest(factories.snapshot())
    selector = manifest["spec"]["template"]["spec"]["nodeSelector"]
    manifest["spec"]["template"]["spec"]["nodeSelector"] = {**selector, names.OS_VERSION_LABEL: "12"}
    del manifest["metadata"]["annotations"][manifests.OS_VERSION_ANNOTATION], manifest["metadata"]["ownerReferences"]
    path = DAEMON_SETS.path(namespace=NAMESPACE, name=manifest["metadata"]["name"])
    uid = builder.apply(path, manifest, field_manager=FIELD_MANAGER)["metadata"]["uid"]
    queue = BuildQueue(lambda *_: "", wake=lambda: None)
    widen = PatchObject(
        resource=DAEMON_SETS,
        namespace=NAMESPACE,
        name=path.rpartition("/")[2],
        uid=uid,
        why="keep nodes",
        body={
            "metadata": {"annotations": {manifests.OS_VERSION_ANNOTATION: "12"}},
            "spec": {"template": {"spec": {"nodeSelector": {names.OS_VERSION_LABEL: None}}}},
        },
    )
    try:
        assert Executor(builder, queue).perform((widen, widen)) == ()
        made = root.get(path)
        assert made["spec"]["template"]["spec"]["nodeSelector"] == selector
        assert made["metadata"]["annotations"][manifests.OS_VERSION_ANNOTATION] == "12"
    finally:
        queue.stop()
        root.delete(path)


def test_driver_builder_may_keep_build_logs(builder: Client, root: Client) -> None:
    """A log, the next one in its place, and neither can be changed, not even by an administrator."""
    (action,) = (
        action
        for action in plan(factories.with_images(factories.snapshot(), Absent()), factories.SETTINGS).actions
        if isinstance(action, StartBuild)
    )
    logs, selector = BuildLogs(builder), build_logs.LOG_LABEL
    for key, line in (("a" * 20, "first"), ("b" * 20, "second"), ("b" * 20, "third")):
        request = factories.keyed(action.request, key, driver=DriverKey("driverwright/rbac"))
        build = dataclasses.replace(action, request=request)
        logs.keep(build, FailedBuild(reason="DiskFull", message="", at=1.0), [line])
        (kept,) = root.list(CONFIG_MAPS.path(namespace=NAMESPACE), label_selector=selector).items
        assert kept["data"] == {build_logs.LOG_FILE: f"{line}\n"}
    assert kept["metadata"]["ownerReferences"][0]["name"] == "rbac"
    with pytest.raises(Invalid):
        root.patch(CONFIG_MAPS.path(namespace=NAMESPACE, name=kept["metadata"]["name"]), {"data": {"x": "y"}})


def test_driver_builder_may_keep_the_record_of_pushed_images(builder: Client, root: Client) -> None:
    """Create it, add to it, bring it up to date; and change no other ConfigMap."""
    seen = factories.with_images(factories.snapshot(), Absent())
    (action,) = (action for action in plan(seen, factories.SETTINGS).actions if isinstance(action, StartBuild))
    recorder = ImageRecorder(builder, namespaces=(NAMESPACE,), versions=factories.SETTINGS.template_versions)
    for digit in "ab":
        recorder.pushed(action, f"sha256:{digit * 64}")
    recorder.saw(seen, resolve_all(seen, factories.SETTINGS.template_versions))
    recorder.record()
    kept = record.parse(root.get(record_path(NAMESPACE))["data"])
    assert [image.digest[-1] for image in kept.images] == ["a", "b"]
    assert kept.observed == record.day_of(factories.NOW)
    with pytest.raises(Forbidden):
        builder.patch(CONFIG_MAPS.path(namespace=NAMESPACE, name="thing"), {"data": {"x": "y"}})


def test_driver_builder_may_report(builder: Client) -> None:
    """Status and Events: created, and counted up when they repeat."""
    path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="rbac", subresource="status")
    assert builder.patch(path, {"status": {"readyNodes": 0}})["status"] == {"readyNodes": 0}
    event = {
        "metadata": {"name": "rbac.1"},
        "involvedObject": {"namespace": NAMESPACE, "name": "rbac"},
        "count": 1,
    }
    create_quietly(builder, EVENTS.path(namespace=NAMESPACE), event)
    path = EVENTS.path(namespace=NAMESPACE, name="rbac.1")
    assert builder.get(path)["count"] == 1
    assert builder.patch(path, {"count": 2})["count"] == 2


def test_driver_builder_may_hold_its_lease(builder: Client) -> None:
    """Take, renew, give back, and take again."""
    lease = Lease(builder, namespace=NAMESPACE, name="driver-builder", identity="one")
    assert lease.try_once()
    assert lease.try_once()
    other = Lease(builder, namespace=NAMESPACE, name="driver-builder", identity="two")
    assert not other.try_once()
    lease.release()
    assert other.try_once()
    other.release()


def test_nfd_worker_may_publish_to_its_node(worker: Client, root: Client) -> None:
    """Labels, annotations, extended resources and taints come and go; test_publish_to_node.py says more."""
    key = "feature.node.kubernetes.io/x"
    content = NodeContent({key: "true"}, {key: "1"}, {key: "2"}, (Taint(key, "true", "NoSchedule"),))
    assert publish(PublishRequest("node-a", content), worker).is_published
    node = root.get(NODES.path(name="node-a"))
    assert (node["metadata"]["labels"][key], node["metadata"]["annotations"][key]) == ("true", "1")
    assert node["status"]["capacity"][key] == "2"
    assert key in {taint["key"] for taint in node["spec"]["taints"]}
    assert unpublish("node-a", worker).is_published
    assert key not in root.get(NODES.path(name="node-a"))["metadata"].get("labels", {})
