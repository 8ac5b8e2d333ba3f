"""How the scenario waits: what it saw last is in the error, and is not asked for where nobody is told."""

import pytest

from demo.cluster import Cluster, ScenarioError
from kube_api.errors import Unreachable
from tests.support.driver_builder.memory_client import MemoryClient


@pytest.fixture
def cluster() -> Cluster:
    """An empty one."""
    return Cluster(MemoryClient())


def never() -> None:
    """Find nothing."""


def test_what_was_seen_last_is_in_the_error(cluster: Cluster) -> None:
    """It is looked at once, at the end: each look asks the API server."""
    seen: list[int] = []

    def look() -> str:
        seen.append(1)
        return "no pod yet"

    with pytest.raises(ScenarioError, match="a pod: timed out after 0 s; last seen: no pod yet"):
        cluster.wait("a pod", never, timeout=0.03, seen=look, every=0.01)
    assert len(seen) == 1


def test_who_shows_it_meanwhile_is_told_each_time(cluster: Cluster) -> None:
    """Until it is found."""
    told: list[str] = []
    answers = iter([None, None, 7])
    found = cluster.wait("a number", lambda: next(answers), timeout=60, seen=lambda: "?", detail=told.append, every=0)
    assert (found, told) == (7, ["?", "?"])


def test_an_api_server_that_is_away_for_a_moment_is_waited_for(cluster: Cluster) -> None:
    """It is no answer."""
    errors = [Unreachable("away")]

    def check() -> int:
        if errors:
            raise errors.pop()
        return 7

    assert cluster.wait("a number", check, timeout=60, every=0) == 7


def test_that_the_api_server_was_away_is_in_the_error(cluster: Cluster) -> None:
    """Nothing else was seen."""

    def check() -> None:
        raise Unreachable("away")

    with pytest.raises(ScenarioError, match="last seen: away"):
        cluster.wait("a number", check, timeout=0, every=0.001)
