"""Signals and waiting."""

import os
import signal
import time

from nfd_worker.watch.wakeups import Signals, wait


def test_signals_wake_and_are_named() -> None:
    """SIGTERM does not end the process: the loop does."""
    signals = Signals()
    seen: list[frozenset[int]] = []
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGHUP)
    wait({signals.fileno(): lambda _now: seen.append(signals.drain())}, 5.0)
    signals.close()
    assert seen == [{signal.SIGTERM, signal.SIGHUP}]


def test_handlers_are_put_back() -> None:
    """The earlier signal handlers are restored."""
    before = signal.getsignal(signal.SIGTERM)
    signals = Signals()
    assert signal.getsignal(signal.SIGTERM) is not before
    signals.close()
    assert signal.getsignal(signal.SIGTERM) is before


def test_waiting_ends_with_the_time() -> None:
    """And serves nobody then; a time that has passed does not wait at all."""
    reader, writer = os.pipe()
    served: list[float] = []
    for seconds in (-1.0, 0.02):
        start = time.monotonic()
        wait({reader: served.append}, seconds)
        assert time.monotonic() - start >= seconds
    assert not served
    os.close(reader)
    os.close(writer)
