"""Of which nodes the pods are read before a wave takes them, and what is remembered of that."""

from dataclasses import replace

import pytest

from driver_builder.api.rollout_settings import DrainSettings
from driver_builder.cluster.look_ahead import REMEMBERED_SECONDS, LookAhead
from driver_builder.model.driver_key import DriverKey
from driver_builder.rollout.next_drains import NextDrains
from driver_builder.snapshot.snapshot import Snapshot
from kube_api.client import Listing, Object
from kube_api.errors import KubeApiError, ServerUnavailable
from kube_api.resources import PODS
from tests.support.driver_builder.factories import NOW
from tests.support.driver_builder.memory_client import MemoryClient

SEEN = Snapshot(now=NOW)
NEXT = NextDrains(
    driver=DriverKey("ns/edu"),
    nodes=("a", "b", "c", "d"),
    number=1,
    settings=DrainSettings(resources=("example.com/fpga",)),
)


class Asked(MemoryClient):
    """An API server that notes of which nodes the pods were listed."""

    def __init__(self, *waiting: str) -> None:
        super().__init__()
        self.nodes: list[str] = []
        for node in waiting:
            requests = {"resources": {"requests": {"example.com/fpga": "1"}}}
            spec: Object = {"nodeName": node, "containers": [requests]}
            self.create(PODS.path(namespace="apps"), {"metadata": {"name": f"bare-{node}"}, "spec": spec})

    def list(
        self, path: str, *, label_selector: str = "", field_selector: str = "", metadata_only: bool = False
    ) -> Listing:
        """Note the node, and list."""
        self.nodes.append(field_selector.rpartition("=")[2])
        return super().list(
            path, label_selector=label_selector, field_selector=field_selector, metadata_only=metadata_only
        )


@pytest.mark.parametrize(
    ("waiting", "number", "asked", "expected"),
    [
        pytest.param("", 1, "a", "", id="the first one is free"),
        pytest.param("a", 1, "ab", "a", id="the next one is free"),
        pytest.param("ac", 2, "abcd", "ac", id="two are needed"),
        pytest.param("abcd", 1, "abcd", "abcd", id="none is free"),
    ],
)
def test_no_more_nodes_are_asked_than_are_needed(waiting: str, number: int, asked: str, expected: str) -> None:
    """A wave of thousands of nodes asks for the next ones alone."""
    client = Asked(*waiting)
    found = LookAhead(client).look(SEEN, (replace(NEXT, number=number),), frozenset())
    assert "".join(client.nodes) == asked
    assert found.drained_last == ({"ns/edu": frozenset(expected)} if expected else {})


def test_an_answer_counts_for_a_while() -> None:
    """A wave is planned many times before the next node goes."""
    client = Asked("a")
    look_ahead = LookAhead(client)
    first = look_ahead.look(SEEN, (NEXT,), frozenset())
    again = replace(SEEN, now=NOW + REMEMBERED_SECONDS - 1, drained_last=look_ahead.drained_last(NOW))
    assert look_ahead.look(again, (NEXT,), frozenset()) is again
    assert again.drained_last == first.drained_last
    assert "".join(client.nodes) == "ab"
    assert look_ahead.drained_last(NOW + REMEMBERED_SECONDS) == {}
    look_ahead.look(replace(SEEN, now=NOW + REMEMBERED_SECONDS), (NEXT,), frozenset())
    assert "".join(client.nodes) == "abab"


@pytest.mark.parametrize("is_forbidden", [True, False], ids=["not allowed", "no answer"])
def test_where_pods_cannot_be_read_the_order_stays(*, is_forbidden: bool) -> None:
    """The wave goes on as without."""
    client = Asked("a")
    if is_forbidden:
        client.forbidden = (PODS.path(),)
    else:
        error: KubeApiError = ServerUnavailable("GET: 503", status=503)
        client.faults = [error]
    assert LookAhead(client).look(SEEN, (NEXT,), frozenset()) is SEEN
