"""What a process tells Prometheus, read."""

import socket
import threading

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


def test_a_process_that_is_killed_as_it_answers_has_counted_nothing() -> None:
    """Its last answer is cut off."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\na_total 7\n")

        thread = threading.Thread(target=answer)
        thread.start()
        assert read(server.getsockname()[1], "a_total") == 0.0
        thread.join()
