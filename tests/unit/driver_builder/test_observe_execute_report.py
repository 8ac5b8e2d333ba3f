"""The three that speak to the cluster: what they read, what they write, and how they bear what goes wrong."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder import manifests
from driver_builder.actions import (
    ApplyDaemonSet,
    DeleteDaemonSet,
    LabelNode,
    ReplacePod,
    SetFinalizer,
    StartBuild,
)
from driver_builder.build import SourceFiles, SourceImage
from driver_builder.driver_container import FINALIZER
from driver_builder.execute import Executor, FailedAction
from driver_builder.image_state import Absent
from driver_builder.observe import Observer
from driver_builder.plan import plan
from driver_builder.reconcile import Reconciler, refusals
from driver_builder.report import Reporter
from driver_builder.snapshot import Snapshot, SourceMissing
from kube_api.client import Object
from kube_api.errors import Forbidden, Invalid, KubeApiError, ServerUnavailable, TooManyRequests
from kube_api.names import PAUSE_ANNOTATION, REBUILD_ANNOTATION
from kube_api.resources import CONFIG_MAPS, DAEMON_SETS, DRIVER_CONTAINERS, EVENTS, NODES, PODS
from tests.unit.driver_builder.factories import (
    DIGEST,
    KERNEL,
    NAMESPACE,
    NOW,
    SETTINGS,
    snapshot,
    with_images,
)
from tests.unit.driver_builder.model_world import MemoryClient, ModelBuilds, World

DRIVER_PATH = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu")


def observed(world: World) -> Snapshot:
    """Observe a world."""
    return Observer(
        world.client,
        world.registries,
        namespaces=(NAMESPACE,),
        recipes=SETTINGS.recipes,
        clock=lambda: NOW,
    ).observe()


@pytest.fixture
def world() -> World:
    """Make a world of one node and one driver."""
    made = World()
    made.add_node("node-a", KERNEL)
    made.add_driver()
    return made


# ---------------------------------------------------------------- observe


def test_everything_is_read(world: World) -> None:
    """Nodes, drivers, sources, images, DaemonSets and pods, in the words of the plan."""
    world.settle()
    seen = observed(world)
    assert [item.name for item in seen.nodes] == ["node-a"]
    assert [item.key for item in seen.drivers] == ["driverwright/edu"]
    assert seen.sources == {"driverwright/edu": SourceFiles(files={"edudrv.c": b"int x;"})}
    (daemon_set,), (pod,) = seen.daemon_sets, seen.pods
    assert daemon_set.fingerprint == pod.fingerprint != ""
    assert (pod.node, pod.ready, pod.version) == ("node-a", True, "1.0.0")
    assert pod.proof is not None
    assert pod.expected == {module.name: module.identity for module in pod.proof.modules}
    assert len(seen.images) == 1
    assert (seen.running_builds, seen.failed_builds) == (frozenset(), {})


@pytest.mark.parametrize("read", ["nodes", "drivercontainers", "configmaps", "daemonsets", "pods"])
def test_a_part_that_cannot_be_read_is_an_error(world: World, monkeypatch: pytest.MonkeyPatch, read: str) -> None:
    """Half a view would look like nodes and pods that are gone; there is none."""
    error = ServerUnavailable("500", status=500)
    for verb in ("get", "list"):
        plain = getattr(world.client, verb)

        def failing(path: str, plain: Any = plain, **words: Any) -> Any:
            if f"/{read}" in path:
                raise error
            return plain(path, **words)

        monkeypatch.setattr(world.client, verb, failing)
    with pytest.raises(ServerUnavailable):
        observed(world)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param({"data": {"a.c": "x"}}, SourceFiles(files={"a.c": b"x"}), id="text"),
        pytest.param({"binaryData": {"b.bin": "AAE="}}, SourceFiles(files={"b.bin": b"\0\1"}), id="binary"),
        pytest.param(
            {"data": {"a.c": "x"}, "binaryData": {"b": "AA=="}}, SourceFiles(files={"a.c": b"x", "b": b"\0"}), id="both"
        ),
        pytest.param({"data": None}, "is empty", id="empty"),
        pytest.param(None, "kubectl -n driverwright create configmap edu-source", id="missing"),
    ],
)
def test_a_config_map_is_a_source(world: World, data: dict[str, Any] | None, expected: SourceFiles | str) -> None:
    """Its keys are files; where it is missing or empty the message says what to do."""
    path = CONFIG_MAPS.path(namespace=NAMESPACE, name="edu-source")
    del world.client.objects[path]
    if data is not None:
        world.client.create(CONFIG_MAPS.path(namespace=NAMESPACE), {"metadata": {"name": "edu-source"}, **data})
    source = observed(world).sources["driverwright/edu"]
    if isinstance(expected, str):
        assert isinstance(source, SourceMissing)
        assert expected in source.message
    else:
        assert source == expected


def test_a_source_image_is_not_fetched(world: World) -> None:
    """A pinned reference is its own content."""
    reference = "r.io/src@" + DIGEST
    spec = {"source": {"image": {"reference": reference}}}
    world.client.patch(DRIVER_PATH, {"spec": {"source": None}})
    world.client.patch(DRIVER_PATH, {"spec": spec})
    assert observed(world).sources["driverwright/edu"] == SourceImage(reference=reference, path="/")


def test_a_driver_with_a_wrong_spec_is_seen_without_source(world: World) -> None:
    """There is nothing to ask for."""
    world.client.patch(DRIVER_PATH, {"spec": {"image": "nonsense"}})
    seen = observed(world)
    assert (len(seen.drivers), seen.sources, seen.images) == (1, {}, {})


def loading(name: str = "load", **status: Any) -> dict[str, Any]:
    """Make the status of a pod with one init container."""
    return {"initContainerStatuses": [{"name": name, **status}]}


@pytest.mark.parametrize(
    ("status", "ready", "message", "result"),
    [
        pytest.param({}, False, "", None, id="no status"),
        pytest.param(
            {"containerStatuses": [{"name": "hold", "state": {"waiting": {"reason": "PodInitializing"}}}]},
            False,
            "",
            None,
            id="initialising is no trouble",
        ),
        pytest.param(
            {
                "initContainerStatuses": [
                    {"name": "load", "state": {"waiting": {"reason": "ErrImagePull", "message": "x"}}}
                ]
            },
            False,
            "ErrImagePull: x",
            None,
            id="image cannot be pulled",
        ),
        pytest.param(
            {
                "initContainerStatuses": [
                    {
                        "name": "load",
                        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        "lastState": {"terminated": {"message": '{"result": "LoadFailed", "message": "no"}'}},
                    }
                ]
            },
            False,
            "CrashLoopBackOff",
            "LoadFailed",
            id="the last verdict while it waits to try again",
        ),
        pytest.param(
            {
                "initContainerStatuses": [
                    {"name": "other", "state": {"terminated": {"message": '{"result": "Loaded"}'}}}
                ]
            },
            False,
            "",
            None,
            id="another container's words do not count",
        ),
        pytest.param({"conditions": [{"type": "Ready", "status": "True"}]}, True, "", None, id="ready"),
    ],
)
def test_a_pods_status_becomes_facts(
    world: World, status: dict[str, Any], ready: bool, message: str, result: str | None
) -> None:
    """Readiness, the loader's last verdict, and the kubelet's words where something does not run."""
    world.settle()
    pod = next(obj for path, obj in world.client.objects.items() if "/pods/" in path)
    pod["status"] = status
    (seen,) = observed(world).pods
    assert (seen.ready, seen.message, seen.proof.result if seen.proof else None) == (ready, message, result)


def test_a_pod_with_damaged_annotations_expects_nothing(world: World) -> None:
    """What cannot be read is no identity."""
    world.settle()
    pod = next(obj for path, obj in world.client.objects.items() if "/pods/" in path)
    pod["metadata"]["annotations"][manifests.MODULES_ANNOTATION] = "{"
    assert observed(world).pods[0].expected == {}


# ---------------------------------------------------------------- execute


def executor(client: MemoryClient) -> Executor:
    """Make an executor with a queue of its own."""
    return Executor(client, ModelBuilds())


UNLABEL = LabelNode(node="node-a", driver="d", label="driverwright.io/x.ready", version=None, why="because")
LABEL = LabelNode(node="node-a", driver="d", label="driverwright.io/x.ready", version="1", why="")


def test_a_label_is_set_and_taken_away(world: World) -> None:
    """Only that label changes."""
    path = NODES.path(name="node-a")
    before = world.client.get(path)["metadata"]["labels"]
    assert executor(world.client).perform((LABEL,)) == ()
    assert world.client.get(path)["metadata"]["labels"] == {**before, "driverwright.io/x.ready": "1"}
    assert executor(world.client).perform((UNLABEL,)) == ()
    assert world.client.get(path)["metadata"]["labels"] == before


def test_every_action_may_be_repeated(world: World) -> None:
    """Doing an action twice is doing it once."""
    decided = plan(with_images(snapshot()), SETTINGS)
    actions = (*decided.actions, LABEL, SetFinalizer(namespace=NAMESPACE, name="edu", present=True))
    assert executor(world.client).perform(actions) == ()
    writes = len(world.client.writes)
    assert executor(world.client).perform(actions) == ()
    assert world.client.writes[writes:] == []
    assert world.client.get(DRIVER_PATH)["metadata"]["finalizers"] == [FINALIZER]


def test_others_finalizers_stay(world: World) -> None:
    """Ours comes and goes beside them."""
    world.client.patch(DRIVER_PATH, {"metadata": {"finalizers": ["other"]}})
    for present, expected in ((True, ["other", FINALIZER]), (False, ["other"])):
        executor(world.client).perform((SetFinalizer(namespace=NAMESPACE, name="edu", present=present),))
        assert world.client.get(DRIVER_PATH)["metadata"]["finalizers"] == expected


def test_a_world_that_moved_on_is_no_error(world: World) -> None:
    """What is gone, or another object of the same name, is left to the next pass."""
    gone = LabelNode(node="gone", driver="d", label="l", version="1", why="")
    stranger = DeleteDaemonSet(namespace=NAMESPACE, name="ds", uid="older")
    world.client.create(DAEMON_SETS.path(namespace=NAMESPACE), {"metadata": {"name": "ds"}})
    assert executor(world.client).perform((gone, stranger)) == ()
    assert DAEMON_SETS.path(namespace=NAMESPACE, name="ds") in world.client.objects


def test_one_refused_action_does_not_stop_the_others(world: World) -> None:
    """Errors are gathered; the rest is done."""
    error = Forbidden("403", status=403)
    world.client.faults = [error]
    other = LabelNode(node="node-a", driver="d", label="b", version="2", why="")
    assert executor(world.client).perform((LABEL, other)) == (FailedAction(action=LABEL, error=error),)
    assert world.client.get(NODES.path(name="node-a"))["metadata"]["labels"]["b"] == "2"


def test_a_pod_is_replaced_only_if_it_is_that_pod(world: World) -> None:
    """A younger pod of the same name stays."""
    world.client.create(PODS.path(namespace=NAMESPACE), {"metadata": {"name": "p", "uid": "new"}})
    for uid, gone in (("old", False), ("new", True)):
        executor(world.client).perform((ReplacePod(namespace=NAMESPACE, name="p", uid=uid, node="n"),))
        obj = world.client.get(PODS.path(namespace=NAMESPACE, name="p"))
        assert ("deletionTimestamp" in obj["metadata"]) is gone


@pytest.mark.parametrize(
    ("action", "words"),
    [
        pytest.param(LABEL, "label node node-a: driverwright.io/x.ready=1", id="label"),
        pytest.param(UNLABEL, "unlabel node node-a: driverwright.io/x.ready (because)", id="unlabel"),
        pytest.param(SetFinalizer(namespace="n", name="d", present=True), "add finalizer to DriverContainer n/d",
                     id="finalizer"),
        pytest.param(SetFinalizer(namespace="n", name="d", present=False), "release DriverContainer n/d", id="release"),
        pytest.param(ReplacePod(namespace="n", name="p", uid="u", node="x"),
                     "replace pod n/p on x: its image is not the wanted one", id="replace"),
        pytest.param(DeleteDaemonSet(namespace="n", name="d", uid="u"),
                     "delete DaemonSet n/d: no node is to run it any more", id="delete"),
        pytest.param(ApplyDaemonSet(namespace="n", name="d", driver="n/e", target="t", manifest={}),
                     "roll out n/e to nodes on t (DaemonSet n/d)", id="apply"),
    ],
)  # fmt: skip
def test_actions_speak_for_themselves(action: object, words: str) -> None:
    """The dry run prints what would be done."""
    assert str(action) == words


def test_a_build_says_who_waits() -> None:
    """One node waits, two nodes wait."""
    (build,) = plan(with_images(snapshot(), Absent()), SETTINGS).actions
    assert isinstance(build, StartBuild)
    assert str(build).endswith("(1 node waits)")


# ---------------------------------------------------------------- report


def test_events_are_counted_when_they_repeat(world: World) -> None:
    """The same news a second time is the same Event with a higher count."""
    decided = world.decide()
    for _ in range(2):
        assert Reporter(world.client).report(decided, now=NOW) == {}
    (event,) = [obj for path, obj in world.client.objects.items() if path.startswith(EVENTS.path(namespace=NAMESPACE))]
    assert (event["reason"], event["count"], event["type"]) == ("BuildStarted", 2, "Normal")


def test_an_old_shape_of_status_is_replaced_whole(world: World) -> None:
    """Fields and rebuild entries that are no more are removed, not merged with."""
    old = {"phase": "Old", "rebuild": {"requests": {}, "tokens": {"gone": "x"}}}
    world.client.patch(DRIVER_PATH, {"status": old})
    decided = world.decide()
    decided.drivers[0].rebuilds.tokens.pop("gone")  # type: ignore[attr-defined]
    assert Reporter(world.client).report(decided, now=NOW) == {}
    status = world.client.get(DRIVER_PATH)["status"]
    assert "phase" not in status
    assert status["rebuild"]["tokens"] == {}


def test_one_status_that_cannot_be_written_does_not_keep_the_others_from_theirs(world: World) -> None:
    """Errors are gathered, a driver that is gone is none."""
    world.add_driver("other")
    decided = world.decide()
    error = Forbidden("403", status=403)
    world.client.faults = [error]
    assert Reporter(world.client).report(decided, now=NOW) == {"driverwright/edu": error}
    assert world.status("other")["targets"]
    del world.client.objects[DRIVER_PATH]
    assert Reporter(world.client).report(decided, now=NOW) == {}


def test_the_wish_of_a_node_that_is_gone_leaves_the_status(world: World) -> None:
    """The entry is removed by the patch; the token stays, and with it the image."""
    world.add_node("node-b", KERNEL)
    world.client.patch(NODES.path(name="node-b"), {"metadata": {"annotations": {REBUILD_ANNOTATION: "1"}}})
    world.settle()
    tokens, images = world.status()["rebuild"]["tokens"], dict(world.registries.images)
    assert world.status()["rebuild"]["requests"] == {"Node/node-b": "1"}
    world.remove_node("node-b")
    world.settle()
    assert world.status()["rebuild"] == {"requests": {}, "tokens": tokens}
    assert world.registries.images == images


def told(world: World, name: str = "edu") -> dict[str, int]:
    """Give the reason of each Warning on a driver, and how often it was posted."""
    where = EVENTS.path(namespace=NAMESPACE)
    return {
        obj["reason"]: obj["count"]
        for path, obj in world.client.objects.items()
        if path.startswith(where) and obj["involvedObject"]["name"] == name and obj["type"] == "Warning"
    }


def test_a_wrong_spec_is_told_once(world: World) -> None:
    """One Warning, not one for each pass."""
    world.client.patch(DRIVER_PATH, {"spec": {"image": "nonsense"}})
    for _ in range(3):
        world.reconcile()
    assert told(world) == {"InvalidSpec": 1}


# ---------------------------------------------------------------- the whole pass


def reconciler(world: World, builds: ModelBuilds) -> Reconciler:
    """Make a reconciler of a world."""
    return Reconciler(
        observer=Observer(
            world.client,
            world.registries,
            namespaces=(NAMESPACE,),
            recipes=SETTINGS.recipes,
            builds=builds,
            clock=lambda: world.now,
        ),
        executor=Executor(world.client, builds),
        reporter=Reporter(world.client),
        builds=builds,
        settings=SETTINGS,
    )


def test_a_reported_failure_is_forgotten_and_a_time_is_given(world: World) -> None:
    """After the status was written the failure lives there alone; the pass says when to come back."""
    world.fail_builds = 1
    assert reconciler(world, world.builds).reconcile() is None
    world.finish_builds()
    again = reconciler(world, world.builds).reconcile()
    assert again is not None
    assert again > world.now
    assert world.builds.failed == {}
    assert world.status()["targets"][0]["failures"] == 1


def test_a_failure_that_was_not_reported_is_kept(world: World) -> None:
    """When the status cannot be written the failure stays in memory for the next pass."""
    world.fail_builds = 1
    reconciler(world, world.builds).reconcile()
    world.finish_builds()
    reads = 5 + 1  # nodes, drivers, source, DaemonSets, pods; then the first write

    class Failing(MemoryClient):
        def _maybe_fail(self) -> None:
            nonlocal reads
            reads -= 1
            if reads <= 0:
                raise ServerUnavailable("500", status=500)

    failing = Failing()
    failing.objects = world.client.objects
    good, world.client = world.client, failing
    with pytest.raises(KubeApiError):
        reconciler(world, world.builds).reconcile()
    assert len(world.builds.failed) == 1
    world.client = good
    reconciler(world, world.builds).reconcile()
    assert world.builds.failed == {}


class Refusing(MemoryClient):
    """An API server that does not take one driver's DaemonSets."""

    error: KubeApiError | None = Invalid("PATCH daemonsets: 422 Invalid: tolerations[0].operator: no", status=422)

    def apply(self, path: str, body: Object, *, field_manager: str, force: bool = True) -> Object:
        """Refuse what belongs to the driver ``edu``."""
        if self.error is not None and body["metadata"]["labels"][manifests.DRIVER_LABEL] == "edu":
            raise self.error
        return super().apply(path, body, field_manager=field_manager, force=force)


@pytest.fixture
def refused() -> World:
    """Make a world of two drivers whose images are built, the DaemonSets of one of which are refused."""
    made = World()
    made.client = Refusing()
    made.add_node("node-a", KERNEL)
    made.add_driver()
    made.add_driver("other")
    reconciler(made, made.builds).reconcile()
    made.finish_builds()
    return made


def degraded(world: World, name: str = "edu") -> tuple[str, str]:
    """Give the status and reason of a driver's condition Degraded."""
    (condition,) = [item for item in world.status(name)["conditions"] if item["type"] == "Degraded"]
    return condition["status"], condition["reason"]


def test_a_refusal_is_told_and_harms_nobody_else(refused: World) -> None:
    """What the API server said is in the driver's status and one Event; the pass ends well, the other driver works."""
    for _ in range(3):
        reconciler(refused, refused.builds).reconcile()
        refused.turn()
    assert degraded(refused) == ("True", "ActionRefused")
    message = refused.status()["conditions"][2]["message"]
    assert message.startswith("roll out driverwright/edu to nodes on ")
    assert message.endswith("422 Invalid: tolerations[0].operator: no")
    assert told(refused) == {"ActionRefused": 1}
    assert degraded(refused, "other") == ("False", "AsExpected")
    assert refused.status("other")["targets"][0]["state"] == "Ready"
    assert told(refused, "other") == {}


def test_a_refusal_that_is_over_is_taken_back(refused: World) -> None:
    """Once the API server takes the action the driver goes on."""
    reconciler(refused, refused.builds).reconcile()
    assert isinstance(refused.client, Refusing)
    refused.client.error = None
    refused.settle()
    assert degraded(refused) == ("False", "AsExpected")
    assert refused.status()["targets"][0]["state"] == "Ready"


def test_a_refusal_does_not_keep_failures(refused: World) -> None:
    """The failed build of one driver is counted and forgotten though an action of another is refused."""
    path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="other")
    refused.client.patch(path, {"spec": {"version": "2.0.0"}})
    reconciler(refused, refused.builds).reconcile()
    refused.fail_builds = 1
    refused.finish_builds()
    reconciler(refused, refused.builds).reconcile()
    assert refused.builds.failed == {}
    assert refused.status("other")["targets"][0]["failures"] == 1


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ServerUnavailable("500", status=500), id="server away"),
        pytest.param(TooManyRequests("429", status=429, retry_after=7.0), id="too many requests"),
    ],
)
def test_what_fails_for_now_is_tried_again_soon(refused: World, error: KubeApiError) -> None:
    """Temporary errors end the pass with an error, after everybody's status was written; they are nobody's fault."""
    assert isinstance(refused.client, Refusing)
    refused.client.error = error
    with pytest.raises(type(error)):
        reconciler(refused, refused.builds).reconcile()
    assert degraded(refused) == ("False", "AsExpected")
    assert refused.status("other")["targets"][0]["state"] == "RollingOut"


def test_of_many_refusals_the_first_is_told_and_the_others_counted() -> None:
    """A status has no room for the answers of a whole fleet."""
    decided = plan(with_images(snapshot(), Absent()), SETTINGS)
    labels = tuple(LabelNode(node=name, driver="d", label="l", version="1", why="") for name in ("a", "b", "c"))
    part = replace(decided.drivers[0], actions=labels)
    error = Forbidden("403", status=403)
    failed = [FailedAction(action=action, error=error) for action in labels]
    gone = FailedAction(action=labels[0], error=ServerUnavailable("500", status=500))
    assert refusals(replace(decided, drivers=(part,)), failed) == {
        "driverwright/edu": "label node a: l=1: 403 (and 2 more)"
    }
    assert refusals(replace(decided, drivers=(part,)), failed[:1]) == {"driverwright/edu": "label node a: l=1: 403"}
    assert refusals(replace(decided, drivers=(part,)), [gone]) == {}


def test_a_failure_that_no_plan_took_in_is_kept(world: World) -> None:
    """A build that fails while its driver is paused is counted when the driver goes on."""
    world.fail_builds = 1
    reconciler(world, world.builds).reconcile()
    world.client.patch(DRIVER_PATH, {"metadata": {"annotations": {PAUSE_ANNOTATION: "true"}}})
    world.finish_builds()
    for _ in range(2):
        reconciler(world, world.builds).reconcile()
    assert len(world.builds.failed) == 1
    world.client.patch(DRIVER_PATH, {"metadata": {"annotations": {PAUSE_ANNOTATION: None}}})
    reconciler(world, world.builds).reconcile()
    assert world.builds.failed == {}
    assert world.status()["targets"][0]["failures"] == 1
