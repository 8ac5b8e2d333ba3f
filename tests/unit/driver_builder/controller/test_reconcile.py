"""Whole reconciles: what was reported is forgotten, refusals are reported, temporary failures are retried."""

from contextlib import nullcontext

import pytest

from driver_builder.cluster.cluster_cache import ClusterCache
from driver_builder.cluster.kept_writes import KeptWrites
from driver_builder.cluster.observe import Observer
from driver_builder.controller.execute import Executor, FailedChange
from driver_builder.controller.read_images import ImageReader
from driver_builder.controller.reconcile import Reconciler, refusals
from driver_builder.controller.report import Reporter
from driver_builder.objects import manifests
from kube_api.client import MERGE_PATCH, JsonPatch, Object
from kube_api.errors import Forbidden, Invalid, KubeApiError, ServerUnavailable, TooManyRequests, Unreachable
from kube_api.names import PAUSE_ANNOTATION
from kube_api.resources import DRIVER_CONTAINERS
from tests.support.driver_builder.changes import label_node
from tests.support.driver_builder.factories import KERNEL, NAMESPACE, SETTINGS
from tests.support.driver_builder.memory_client import MemoryClient
from tests.support.driver_builder.model_parts import ModelBuilds
from tests.support.driver_builder.model_world import World
from tests.support.driver_builder.passes import reconciler
from tests.support.driver_builder.worlds import DRIVER_PATH, small_world, told


@pytest.fixture
def world() -> World:
    """Make a world of one node and one driver."""
    return small_world()


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
    """When the status cannot be written the failure stays in memory for the next reconcile."""
    world.fail_builds = 1
    reconciler(world, world.builds).reconcile()
    world.finish_builds()
    reads = 5 + 1  # nodes, drivers, source, DaemonSets, pods; then the first write

    class Failing(MemoryClient):
        def _maybe_fail(self, reading: str = "") -> None:
            assert isinstance(reading, str)
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
    """Return the status and reason of a driver's condition Degraded."""
    (condition,) = [item for item in world.status(name)["conditions"] if item["type"] == "Degraded"]
    return condition["status"], condition["reason"]


def test_a_refusal_is_reported_and_harms_nobody_else(refused: World) -> None:
    """What the API server said is in the driver's status and one Event; the pass ends well, the other driver works."""
    for _ in range(3):
        reconciler(refused, refused.builds).reconcile()
        refused.turn()
    assert degraded(refused) == ("True", "ActionRefused")
    message = refused.status()["conditions"][2]["message"]
    assert message.startswith("roll out driverwright/edu to nodes on ")
    assert "422 Invalid: tolerations[0].operator: no. Correct what its answer names: " in message
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


def test_an_action_without_an_answer_harms_nobody_else(refused: World) -> None:
    """The other driver is rolled out and reported; the pass ends with the error, so that the next one comes soon."""
    assert isinstance(refused.client, Refusing)
    refused.client.error = Unreachable("PATCH daemonsets: no answer: a webhook timed out")
    before = refused.status()
    for _ in range(3):
        with pytest.raises(Unreachable):
            reconciler(refused, refused.builds).reconcile()
        refused.turn()
    assert refused.status("other")["targets"][0]["state"] == "Ready"
    assert refused.status() == before, "its status would wait as long"


def test_of_many_refusals_the_first_is_reported_and_the_others_counted() -> None:
    """A status has no room for the answers of a whole fleet."""
    labels = tuple(label_node(node=name, driver="d", label="l", value="1", why="") for name in ("a", "b", "c"))
    error = Forbidden("403", status=403)
    failed = [FailedChange(change=change, owner="driverwright/edu", error=error) for change in labels]
    gone = FailedChange(change=labels[0], owner="driverwright/edu", error=ServerUnavailable("500", status=500))
    assert refusals(failed) == {"driverwright/edu": "label node a: l=1: 403 (and 2 more)"}
    assert refusals(failed[:1]) == {"driverwright/edu": "label node a: l=1: 403"}
    assert refusals([gone]) == {}


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


def test_a_pass_stops_between_two_drivers(world: World) -> None:
    """When the controller is to stop after the first status, the second driver has none, and that is no error."""
    world.add_driver("other")

    def has_first() -> bool:
        return "targets" in (world.client.objects[DRIVER_PATH].get("status") or {})

    assert reconciler(world, world.builds, has_first).reconcile() is None
    assert "targets" in world.status()
    assert "targets" not in world.status("other")


def test_a_stopped_reconcile_starts_no_build_and_reports_nothing(world: World) -> None:
    """A build that was asked for before that is left to the next controller, which may act already."""
    dispatched: list[str] = []

    class Counting(ModelBuilds):
        def dispatch(self) -> None:
            dispatched.extend(self.running)

    builds = Counting()
    assert reconciler(world, builds, lambda: bool(builds.running)).reconcile() is None
    assert (len(builds.running), dispatched) == (1, [])
    assert "targets" not in (world.client.get(DRIVER_PATH).get("status") or {})


@pytest.mark.parametrize("is_failing", [False, True], ids=["all is well", "another driver's status fails"])
def test_after_our_own_changes_comes_another_pass_at_once(is_failing: bool) -> None:
    """No watch brings them as news, and a back-off because of another driver is up to half a minute."""

    class Failing(MemoryClient):
        def patch(self, path: str, body: Object | JsonPatch, *, content_type: str = MERGE_PATCH) -> Object:
            if is_failing and path.endswith("/other/status"):
                raise ServerUnavailable("500", status=500)
            return super().patch(path, body, content_type=content_type)

    world = World()
    world.client = failing = Failing()
    world.add_node("node-a", KERNEL)
    world.add_driver()
    world.add_driver("other")
    cache = ClusterCache(failing, namespaces=(NAMESPACE,))
    writes, passes = KeptWrites(failing, cache), 0

    def again() -> None:
        nonlocal passes
        passes += 1

    made = Reconciler(
        observer=Observer(failing, cache=cache, builds=world.builds, clock=lambda: world.now),
        images=ImageReader(world.registries, SETTINGS.template_versions),
        executor=Executor(writes, world.builds),
        reporter=Reporter(writes),
        builds=world.builds,
        settings=SETTINGS,
        changes=lambda: writes.changes,
        again=again,
    )
    for expected in (1, 1):
        with nullcontext() if not is_failing else pytest.raises(ServerUnavailable):
            made.reconcile()
        assert passes == expected, "finalizers; then only the build is waited for"
