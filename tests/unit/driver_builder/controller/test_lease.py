"""One controller acts at a time: taking, renewing, losing and giving back the Lease."""

import threading
from collections.abc import Callable

import pytest

from driver_builder.controller.lease import (
    DURATION_SECONDS,
    RENEW_DEADLINE_SECONDS,
    REQUEST_SECONDS,
    RETRY_SECONDS,
    Lease,
)
from kube_api.errors import Conflict, Unreachable
from tests.support.driver_builder.factories import NAMESPACE
from tests.support.driver_builder.memory_client import MemoryClient

PATH = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/driver-builder"


class Clock:
    """A clock that the test moves."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def contender(client: MemoryClient, identity: str, clock: Clock) -> Lease:
    """Make a controller that wants the Lease."""
    return Lease(client, namespace=NAMESPACE, name="driver-builder", identity=identity, clock=clock)


class Waits(threading.Event):
    """A stop event whose waits cost no time: each one moves the clock and does what the test says."""

    def __init__(self, clock: Clock, *steps: Callable[[], object]) -> None:
        super().__init__()
        self._clock = clock
        self._steps = list(steps)

    def wait(self, timeout: float | None = None) -> bool:
        """Let the time pass."""
        self._clock.now += timeout or 0.0
        if self._steps:
            self._steps.pop(0)()
        return self.is_set()


@pytest.fixture
def client() -> MemoryClient:
    """Make an empty cluster."""
    return MemoryClient()


@pytest.fixture
def clock() -> Clock:
    """Make a clock."""
    return Clock()


def holder(client: MemoryClient) -> str:
    """Return who holds the Lease."""
    return str(client.get(PATH)["spec"]["holderIdentity"])


def test_the_first_to_come_holds_it(client: MemoryClient, clock: Clock) -> None:
    """The first controller without a Lease creates it; others wait."""
    assert contender(client, "one", clock).try_once()
    assert not contender(client, "two", clock).try_once()
    assert holder(client) == "one"


def test_a_restarted_holder_goes_on_at_once(client: MemoryClient, clock: Clock) -> None:
    """The identity outlives the container, so its next process need not wait."""
    assert contender(client, "one", clock).try_once()
    assert contender(client, "one", clock).try_once()
    assert client.get(PATH)["spec"]["leaseTransitions"] == 0


def test_renewing_is_seen_and_keeps_it(client: MemoryClient, clock: Clock) -> None:
    """As long as the holder renews, nobody else gets it, however long that is."""
    one, two = contender(client, "one", clock), contender(client, "two", clock)
    for _ in range(20):
        assert one.try_once()
        assert not two.try_once()
        clock.now += DURATION_SECONDS - 1


def test_a_lease_that_is_not_renewed_runs_out(client: MemoryClient, clock: Clock) -> None:
    """Another takes it once it has seen no renewal for the Lease's whole duration."""
    assert contender(client, "one", clock).try_once()
    two = contender(client, "two", clock)
    assert not two.try_once()
    clock.now += DURATION_SECONDS
    assert not two.try_once()
    clock.now += 0.1
    assert two.try_once()
    assert holder(client) == "two"
    assert client.get(PATH)["spec"]["leaseTransitions"] == 1


@pytest.mark.parametrize(
    "renewed",
    [
        pytest.param("1999-01-01T00:00:00.000000Z", id="holder's clock is slow"),
        pytest.param("2999-01-01T00:00:00.000000Z", id="holder's clock is fast"),
    ],
)
def test_the_holders_clock_does_not_matter(client: MemoryClient, clock: Clock, renewed: str) -> None:
    """Time is measured by our own clock from when we saw the renewal."""
    assert contender(client, "one", clock).try_once()
    client.patch(PATH, {"spec": {"renewTime": renewed}})
    two = contender(client, "two", clock)
    assert not two.try_once()
    clock.now += DURATION_SECONDS + 0.1
    assert two.try_once()


def test_a_lease_that_was_given_back_is_free(client: MemoryClient, clock: Clock) -> None:
    """After release nobody need wait."""
    one = contender(client, "one", clock)
    assert one.try_once()
    one.release()
    assert contender(client, "two", clock).try_once()


def test_anothers_lease_is_not_given_back(client: MemoryClient, clock: Clock) -> None:
    """Who lost the Lease leaves it to the one who has it."""
    assert contender(client, "two", clock).try_once()
    contender(client, "one", clock).release()
    assert holder(client) == "two"


def test_a_release_that_fails_is_only_said(client: MemoryClient, clock: Clock) -> None:
    """On the way out an API server that is away is no reason to fail."""
    client.faults = [Unreachable("GET: refused")]
    contender(client, "one", clock).release()


def test_a_lost_race_is_a_no(client: MemoryClient, clock: Clock) -> None:
    """Two that take it in the same moment: the API server lets one of them."""
    one = contender(client, "one", clock)
    client.faults = []

    class Racing(MemoryClient):
        def create(self, path: str, body: dict[str, object]) -> dict[str, object]:
            raise Conflict(f"POST {path}: {len(body)}", status=409)

        def replace(self, path: str, body: dict[str, object]) -> dict[str, object]:
            raise Conflict(f"PUT {path}: {len(body)}", status=409)

    racing = Racing()
    assert not contender(racing, "one", clock).try_once()
    assert one.try_once()
    racing.objects = client.objects
    assert not contender(racing, "one", clock).try_once()


def test_acquiring_waits_until_it_is_free(client: MemoryClient, clock: Clock) -> None:
    """A waiting controller outlasts an API server that is away and a holder that is dead."""
    assert contender(client, "one", clock).try_once()
    client.faults = [Unreachable("GET: refused")]
    assert contender(client, "two", clock).acquire(Waits(clock))
    assert holder(client) == "two"


def test_acquiring_can_be_stopped(client: MemoryClient, clock: Clock) -> None:
    """A controller that is stopped while it waits gives up."""
    assert contender(client, "one", clock).try_once()
    stop = Waits(clock)
    stop._steps = [stop.set]
    assert not contender(client, "two", clock).acquire(stop)


def test_holding_ends_when_another_has_taken_it(client: MemoryClient, clock: Clock) -> None:
    """Whoever finds another's name in the Lease acts no more."""
    one = contender(client, "one", clock)
    assert one.try_once()
    stop = Waits(clock, lambda: None, lambda: client.patch(PATH, {"spec": {"holderIdentity": "two"}}))
    one.hold(stop)
    assert not stop.is_set()
    assert holder(client) == "two"


def test_holding_ends_before_another_could_take_it(client: MemoryClient, clock: Clock) -> None:
    """With the API server away ours is given up before the Lease's duration is over."""
    one = contender(client, "one", clock)
    assert one.try_once()
    client.faults = [Unreachable("GET: refused")] * 100
    began = clock.now
    one.hold(Waits(clock))
    assert RENEW_DEADLINE_SECONDS < clock.now - began < DURATION_SECONDS


def test_holding_outlasts_a_short_absence(client: MemoryClient, clock: Clock) -> None:
    """One request that fails is no loss."""
    one = contender(client, "one", clock)
    assert one.try_once()
    stop = Waits(clock)
    stop._steps = [lambda: client.faults.append(Unreachable("x")), lambda: None, stop.set]
    one.hold(stop)
    assert holder(client) == "one"


def test_a_request_that_hangs_does_not_outlive_the_lease() -> None:
    """Deadline, pause and two requests that time out together stay below the Lease's duration."""
    assert RENEW_DEADLINE_SECONDS + RETRY_SECONDS + 2 * REQUEST_SECONDS < DURATION_SECONDS
