"""When to run a cycle: on start, on events, at intervals. One loop, one thread, until told to stop.

Events wake it at once: PCI devices that come or go, changes of the configuration file, SIGHUP. The interval is for what
has no event. Now and then everything is applied again, which mends labels that somebody removed by hand.
"""

import logging
import select
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial

from nfd_worker.config import Settings
from nfd_worker.cycle import CycleReport, run_cycle
from nfd_worker.errors import ConfigurationError
from nfd_worker.features import Features
from nfd_worker.host import Host
from nfd_worker.labels import source_prefix
from nfd_worker.publisher import Publisher, jitter
from nfd_worker.telemetry import Endpoint, Metrics
from nfd_worker.wakeups import ConfigWatch, DeviceWatch, Signals, watch_config, watch_devices

log = logging.getLogger(__name__)

COALESCE_SECONDS = 0.3
"""How long a burst of device events is collected before the rescan: a GPU brings a dozen events."""

REPEAT_SECONDS = 3600.0
"""How often everything is applied again; each node adds up to a quarter, so that a fleet does not come at once."""

Readers = Mapping[int, Callable[[float], None]]


class Daemon:
    """The worker's loop. ``load`` reads the settings anew; ``settings`` are those it starts with."""

    def __init__(self, settings: Settings, load: Callable[[], Settings]) -> None:
        self._settings = settings
        self._load = load
        self._host = Host(settings.root)
        self._metrics = Metrics(settings.node_name)
        self._publisher = Publisher(settings.node_name, settings.kubeconfig, on_answer=self._metrics.saw_answer)
        self._last_good: Mapping[str, Features] = {}
        self._warned: frozenset[str] = frozenset()
        self._next_cycle = 0.0
        self._next_repeat = float("inf")
        self._is_stopping = False

    def run(self) -> bool:
        """Work until told to stop, or once; tells whether it went well: in oneshot mode, whether it published.

        Raises:
            ConfigurationError: when the health port cannot be had.
        """
        with ExitStack() as stack:
            stack.callback(self._publisher.stop)
            endpoint = Endpoint(self._settings.port, self._metrics) if self._serves else None
            config = watch_config(self._settings.config_file)
            signals = Signals()
            for opened in (endpoint, config, signals):
                if opened is not None:
                    stack.callback(opened.close)
            readers = partial(self._readers, signals, config, watch_devices(), endpoint)
            while not self._is_stopping:
                self._turn(readers)
        return not self._settings.oneshot or self._settings.no_publish or self._publisher.is_settled

    @property
    def _serves(self) -> bool:
        return self._settings.port != 0 and not self._settings.oneshot

    def _turn(self, readers: Callable[[], Readers]) -> None:
        """Do what is due, then wait for what comes next."""
        now = time.monotonic()
        if now >= self._next_repeat:
            self._next_repeat = now + self._repeat_seconds
            self._publisher.repeat()
        if now >= self._next_cycle:
            self._cycle(now)
        next_publish = float("inf") if self._settings.no_publish else self._publisher.step(now)
        if self._settings.oneshot and self._is_done_once:
            self._is_stopping = True
            return
        _wait(readers(), min(self._next_cycle, self._next_repeat, next_publish) - now)

    @property
    def _is_done_once(self) -> bool:
        return self._settings.no_publish or self._publisher.is_settled or self._publisher.failures > 0

    @property
    def _repeat_seconds(self) -> float:
        return REPEAT_SECONDS * (1 + jitter(self._settings.node_name) / 4)

    def _cycle(self, now: float) -> None:
        report = run_cycle(self._host, self._settings, self._last_good)
        self._last_good = report.last_good
        self._next_cycle = now + self._settings.sleep_interval
        if self._next_repeat == float("inf"):
            self._next_repeat = now + self._repeat_seconds
        self._metrics.saw_cycle(report)
        self._log(report)
        keep = tuple(source_prefix(source) for source in report.unknown)
        self._publisher.want(report.labels, report.annotations, keep)

    def _log(self, report: CycleReport) -> None:
        """Log the cycle; a trouble that goes on is told once, not every minute."""
        failures = (f"{name}: not read: {reason}" for name, reason in report.failed.items())
        troubles = frozenset((*map(str, report.warnings), *failures))
        for trouble in sorted(troubles - self._warned):
            log.warning("%s", trouble)
        self._warned = troubles
        log.debug("cycle: %d labels in %.1f ms", len(report.labels), report.seconds * 1000)

    def _readers(
        self, signals: Signals, config: ConfigWatch | None, devices: DeviceWatch | None, endpoint: Endpoint | None
    ) -> Readers:
        readers: dict[int, Callable[[float], None]] = {
            signals.fileno(): lambda _now: self._on_signals(signals.drain()),
            **self._publisher.readers(),
        }
        if devices is not None:
            readers[devices.fileno()] = lambda now: self._on_devices(now, is_changed=devices.drain())
        if config is not None:
            readers[config.fileno()] = lambda _now: self._on_config(is_changed=config.drain())
        if endpoint is not None:
            readers |= endpoint.readers()
        return readers

    def _on_signals(self, numbers: frozenset[int]) -> None:
        if numbers & {signal.SIGTERM, signal.SIGINT}:
            log.info("stopping")
            self._is_stopping = True
        elif signal.SIGHUP in numbers:
            self._reload()
            self._next_cycle = 0.0

    def _on_config(self, *, is_changed: bool) -> None:
        before = self._settings
        if is_changed and self._reload() and self._settings != before:
            log.info("config: %s changed", self._settings.config_file)
            self._next_cycle = 0.0

    def _on_devices(self, now: float, *, is_changed: bool) -> None:
        if is_changed:
            self._next_cycle = min(self._next_cycle, now + COALESCE_SECONDS)

    def _reload(self) -> bool:
        """Take new settings; a file that is wrong leaves the old ones in force."""
        try:
            self._settings = self._load()
        except ConfigurationError as error:
            log.error("config: not reloaded, the old settings stay in force: %s", error)  # noqa: TRY400 - no traceback: the message is for the operator
            return False
        return True


def _wait(readers: Readers, seconds: float) -> None:
    """Wait until something is ready, for at most so long; then serve it."""
    poll = select.poll()
    for descriptor in readers:
        poll.register(descriptor, select.POLLIN)
    milliseconds = None if seconds == float("inf") else max(0, int(seconds * 1000) + 1)
    for descriptor, _ in poll.poll(milliseconds):
        readers[descriptor](time.monotonic())
