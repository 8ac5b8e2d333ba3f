"""A build's Job in the cluster: found again where it is the same, replaced where it is not, asked for with patience."""

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from driver_builder.base.errors import BuildFailed, TemporaryError
from driver_builder.base.reasons import Reason
from driver_builder.builds.build_limits import BuildLimits
from driver_builder.builds.job.job_cluster import JobCluster
from driver_builder.builds.job.job_manifest import BUILD_LABEL, FINGERPRINT_ANNOTATION
from driver_builder.builds.job.job_state import Lost, Waiting
from kube_api.client import Client, Listing
from kube_api.errors import Conflict, Forbidden, Invalid, KubeApiError, NotFound, Unreachable

Json = dict[str, Any]


class Server:
    """Keeps objects by path, as the API server does; ``faults`` are raised first, one for each request."""

    def __init__(self, *faults: KubeApiError) -> None:
        self.objects: dict[str, Json] = {}
        self.faults = list(faults)
        self.made = 0

    def _fail(self) -> None:
        if self.faults:
            raise self.faults.pop(0)

    def create(self, path: str, body: Json) -> Json:
        """Create an object."""
        self._fail()
        where = f"{path}/{body['metadata']['name']}"
        if where in self.objects:
            raise Conflict(where)
        self.made += 1
        self.objects[where] = {**body, "metadata": {**body["metadata"], "uid": f"uid-{self.made}"}}
        return self.objects[where]

    def get(self, path: str) -> Json:
        """Read an object."""
        self._fail()
        if path not in self.objects:
            raise NotFound(path)
        return self.objects[path]

    def list(self, _path: str, *, label_selector: str) -> Listing:
        """There are no pods."""
        assert label_selector == f"{BUILD_LABEL}=k"
        return Listing([], "1")

    def delete(self, path: str, *, uid: str) -> None:
        """Delete an object."""
        self._fail()
        if self.get(path)["metadata"]["uid"] != uid:
            raise Conflict(path)
        del self.objects[path]


def cluster(server: Server, pause: Callable[[float], object] = lambda _: None) -> JobCluster:
    """Connect."""
    return JobCluster(cast(Client, cast(Any, server)), "n", pause=pause)


def limits(*, cancelled: bool = False) -> BuildLimits:
    """Return all the time there is."""
    event = threading.Event()
    if cancelled:
        event.set()
    return BuildLimits(1e9, event, lambda: 0.0)


def job(fingerprint: str = "a") -> Json:
    """Make a Job's manifest."""
    annotations = {FINGERPRINT_ANNOTATION: fingerprint}
    return {"metadata": {"name": "driver-build-k", "labels": {BUILD_LABEL: "k"}, "annotations": annotations}}


def config_map(owner: str) -> Json:
    """Make a ConfigMap's manifest."""
    return {"metadata": {"name": "driver-build-k", "ownerReferences": [{"uid": owner}]}}


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        pytest.param([], 31, id="it says so"),
        pytest.param([Unreachable("no answer"), Unreachable("no answer")], 31, id="it is away for a moment"),
        pytest.param([Forbidden("no right")], None, id="it does not tell everybody"),
    ],
)
def test_the_version_of_the_server_decides_on_fields(faults: list[KubeApiError], expected: int | None) -> None:
    """An answer is waited for: a Job without what the server knows would lose its pod to a drain."""
    server = Server(*faults)
    server.objects["/version"] = {"major": "1", "minor": "31+"}
    assert cluster(server).server_minor(limits()) == expected


def test_a_server_that_never_tells_its_version_builds_nothing() -> None:
    """It would create no Job either."""
    with pytest.raises(TemporaryError, match="cannot read the version of the API server: no answer"):
        cluster(Server(*[Unreachable("no answer")] * 60)).server_minor(limits())


def test_the_same_job_is_found_again() -> None:
    """Made once, however many controllers want it."""
    server = Server()
    made, was_there = cluster(server).ensure_job(job(), limits())
    assert not was_there
    assert cluster(server).ensure_job(job(), limits()) == (made, True)


def test_another_job_of_that_name_is_replaced() -> None:
    """It would build with other secrets, resources or images."""
    server = Server()
    old, _ = cluster(server).ensure_job(job("a"), limits())
    new, was_there = cluster(server).ensure_job(job("b"), limits())
    assert (was_there, new["metadata"]["uid"] != old["metadata"]["uid"]) == (False, True)


def test_a_job_that_is_going_is_waited_for() -> None:
    """Somebody deletes it in the foreground; the next one has the same name."""
    server = Server()
    made, _ = cluster(server).ensure_job(job(), limits())
    made["metadata"]["deletionTimestamp"] = "now"
    new, was_there = cluster(server, pause=lambda _: server.objects.clear()).ensure_job(job(), limits())
    assert not was_there
    assert "deletionTimestamp" not in new["metadata"]


def test_a_job_that_never_goes_is_no_reason_to_wait_for_ever() -> None:
    """A finalizer of somebody else's may hold it."""
    server = Server()
    made, _ = cluster(server).ensure_job(job(), limits())
    made["metadata"]["deletionTimestamp"] = "now"
    with pytest.raises(TemporaryError, match="is not deleted"):
        cluster(server).ensure_job(job(), limits())


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        pytest.param(Invalid("limits"), BuildFailed, "spec.build.resources", id="a Job that cannot be"),
        pytest.param(Forbidden("no right"), TemporaryError, "no right", id="no right"),
        pytest.param(Unreachable("no answer"), TemporaryError, "no answer", id="no answer"),
    ],
)
def test_a_job_that_cannot_be_made_says_why(fault: KubeApiError, kind: type[Exception], words: str) -> None:
    """In the API server's words."""
    with pytest.raises(kind, match=words):
        cluster(Server(fault)).ensure_job(job(), limits())


def test_a_config_map_of_this_job_stays_and_one_of_another_is_replaced() -> None:
    """The garbage collector may be slower than the next try."""
    server = Server()
    for owner, made in (("job-1", 1), ("job-1", 1), ("job-2", 2)):
        cluster(server).ensure_config_map(config_map(owner), limits())
        assert server.made == made
    (left,) = server.objects.values()
    assert left["metadata"]["ownerReferences"] == [{"uid": "job-2"}]


def test_a_config_map_that_cannot_be_made_says_so() -> None:
    """Its pod would wait for it."""
    with pytest.raises(TemporaryError, match="no right"):
        cluster(Server(Forbidden("no right"))).ensure_config_map(config_map("job-1"), limits())


def test_an_api_server_that_is_away_for_a_while_costs_no_build() -> None:
    """The Job goes on meanwhile."""
    server = Server()
    made, _ = cluster(server).ensure_job(job(), limits())
    server.faults = [Unreachable("away")] * 30
    assert cluster(server).look(made, limits()) == Waiting(why="no pod was created for the Job")


def test_an_api_server_that_stays_away_ends_the_wait() -> None:
    """And so does somebody who wants the build to end; a right that is missing needs no second question."""
    made, _ = cluster(Server()).ensure_job(job(), limits())
    away = Server(*[Unreachable("away")] * 1000)
    with pytest.raises(TemporaryError, match="away"):
        cluster(away).look(made, limits())
    with pytest.raises(BuildFailed) as caught:
        cluster(away).look(made, limits(cancelled=True))
    assert caught.value.reason is Reason.CANCELLED
    with pytest.raises(TemporaryError, match="no right"):
        cluster(Server(Forbidden("no right"))).look(made, limits())


def test_a_job_that_somebody_deleted_or_made_anew_is_lost() -> None:
    """What became of ours nobody knows."""
    server = Server()
    made, _ = cluster(server).ensure_job(job(), limits())
    cluster(server).delete(made)
    assert cluster(server).look(made, limits()) == Lost(why="Job driver-build-k was deleted")
    cluster(server).ensure_job(job(), limits())
    assert cluster(server).look(made, limits()) == Lost(why="Job driver-build-k was replaced")


def test_a_job_that_cannot_be_deleted_is_left() -> None:
    """It ends by its own deadline, and is found by its name."""
    server = Server()
    made, _ = cluster(server).ensure_job(job(), limits())
    server.faults = [Unreachable("away")]
    cluster(server).delete(made)
    assert server.objects


def test_the_keys_of_a_secret_are_named() -> None:
    """Not its values; the error for a missing one has the command that creates it."""
    server = Server()
    server.objects["/api/v1/namespaces/n/secrets/token"] = {"data": {"b": "eA==", "a": "eQ=="}}
    assert cluster(server).secret_keys("token") == ("a", "b")
    with pytest.raises(BuildFailed, match="kubectl -n n create secret generic gone") as caught:
        cluster(server).secret_keys("gone")
    assert caught.value.reason is Reason.SOURCE_MISSING
    with pytest.raises(BuildFailed, match=r"cannot be read: .*no right") as caught:
        cluster(Server(Forbidden("no right"))).secret_keys("token")
    assert caught.value.reason is Reason.SOURCE_MISSING
    with pytest.raises(TemporaryError, match="away"):
        cluster(Server(Unreachable("away"))).secret_keys("token")
