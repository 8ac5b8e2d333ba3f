"""What a process tells Prometheus, read."""

import socket

from testbed.metrics import read, total


def test_a_metric_is_the_sum_over_its_labels() -> None:
    """And of no other whose name begins alike."""
    text = '# HELP a_total x\na_total{state="x"} 2.0\na_total{state="y"} 3\na_total_created 9\nb 7.5\n'
    assert (total(text, "a_total"), total(text, "b"), total(text, "c")) == (5.0, 7.5, 0.0)


def test_a_process_that_does_not_listen_has_counted_nothing() -> None:
    """A port that is taken, and nobody takes connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert read(taken.getsockname()[1], "a_total") == 0.0
