"""The worker's loop: one thread that waits for events, runs cycles and drives its children, until it is stopped.

What wakes it: :mod:`nfd_worker.watch.uevents`, :mod:`file_watch.inotify`, signals, the pipes of children, the
clock, and requests to the endpoint. :mod:`nfd_worker.watch.schedule` says when to run a cycle, :mod:`nfd_worker.cycle`
runs it, and :mod:`nfd_worker.publish.publisher` sends the result if it is new; what vanished is given time to come back
(:mod:`nfd_worker.watch.held_features`, :mod:`nfd_worker.watch.settling`).
"""

import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from feature_rules.features import Features
from nfd_worker import memory
from nfd_worker.config.config import Settings
from nfd_worker.config.rule_files import CUSTOM_DIRECTORY, RuleFiles
from nfd_worker.cycle import CycleReport, run_cycle
from nfd_worker.errors import ConfigurationError
from nfd_worker.gpu.scan_runner import ScanRunner
from nfd_worker.host import Host
from nfd_worker.metrics import Metrics
from nfd_worker.publish.publisher import Publisher, jitter
from nfd_worker.publish.wire import PublishAnswer
from nfd_worker.sources import SOURCES
from nfd_worker.sources.gpu import SHARING_FILE
from nfd_worker.sources.local import FEATURE_FILES
from nfd_worker.watch.held_features import HeldFeatures
from nfd_worker.watch.schedule import CONFIG, DEVICE, FILE, GPU, NEVER, RESYNC, START, Schedule
from nfd_worker.watch.settling import Settling
from nfd_worker.watch.wakeups import Readers, Signals, wait

if TYPE_CHECKING:
    from file_watch.inotify import FileWatch, Place
    from nfd_worker.watch.uevents import DeviceWatch

log = logging.getLogger(__name__)

FIRST_SCAN_SECONDS = 5.0
"""How long the first cycle waits for the first GPU scan, so that the first labels are complete."""

OVERDUE_INTERVALS = 3
OVERDUE_SECONDS = 60.0
"""A worker whose last cycle is older than that is not healthy."""

RESYNC_SECONDS = 300.0
RESYNC_INTERVALS = 5
"""How long a Node may lack what was published, by default: so many seconds, or intervals where these are shorter."""

_FIXED = ("config_file", "root", "node_name", "kubeconfig", "port", "oneshot", "take_over")
"""Settings that a running worker keeps."""

_GPU_SUBSYSTEMS = frozenset(SOURCES["gpu"].uevents)


class Daemon:
    """The loop and what it drives. ``load`` reads the settings again; ``settings`` are those it starts with."""

    def __init__(self, settings: Settings, load: Callable[[], Settings]) -> None:
        self._settings = settings
        self._load = load
        self._host = Host(settings.root)
        self._rules = RuleFiles(self._host, settings.rules_dir)
        self._metrics = Metrics(settings.node_name)
        self._schedule = Schedule(settings.sleep_interval, _resync_seconds(settings))
        self._held = HeldFeatures()
        self._settling = Settling()
        self._has_config_file = _is_there(settings.config_file)
        self._config_file_due = NEVER
        self._publisher = Publisher(
            settings.node_name,
            settings.kubeconfig,
            on_answer=self._on_answer,
            on_check=lambda answer: self._metrics.saw_check(answer, time.time()),
            take_over=settings.take_over,
        )
        self._gpus = ScanRunner(on_change=lambda now: self._schedule.ask(GPU, now, at_once=True))
        self._files: FileWatch | None = None
        self._changed_subsystems: frozenset[str] = frozenset()
        self._last_good: Mapping[str, Features] = {}
        self._troubles: frozenset[str] = frozenset()
        self._started = self._last_cycle = time.monotonic()
        self._is_stopping = False

    def run(self) -> bool:
        """Work until stopped, or once; returns whether it succeeded: in oneshot mode, whether it published.

        Raises:
            ConfigurationError: when the health port cannot be had.
        """
        with ExitStack() as stack:
            stack.callback(self._publisher.stop)
            stack.callback(self._gpus.stop)
            readers = self._open(stack)
            while not self._is_stopping:
                self._turn(readers)
        return not self._settings.oneshot or self._settings.no_publish or self._publisher.is_settled

    # --- one turn -----------------------------------------------------------------------------------------------------

    def _turn(self, readers: Callable[[], Readers]) -> None:
        """Do what is due, then wait for what comes next."""
        now = time.monotonic()
        if now >= self._hold_until and (triggers := self._schedule.take(now)):
            self._cycle(triggers, now)
        # After the cycle, which may have asked for a scan.
        wakes = [self._gpus.step(now, self._host) if self._scans_gpus else NEVER]
        wakes.append(max(self._hold_until, self._schedule.due))
        wakes.append(NEVER if self._settings.no_publish else self._publisher.step(time.monotonic()))
        if self._settings.oneshot and self._is_done_once:
            self._is_stopping = True
            return
        wait(readers(), min(wakes) - time.monotonic())

    @property
    def _scans_gpus(self) -> bool:
        return "gpu" in self._settings.feature_sources

    @property
    def _hold_until(self) -> float:
        """Until when no cycle may run: the first one waits for the first GPU scan."""
        if not self._scans_gpus or self._gpus.outcome() is not None:
            return 0.0
        return NEVER if self._settings.oneshot else self._started + FIRST_SCAN_SECONDS

    @property
    def _is_done_once(self) -> bool:
        is_sent = self._settings.no_publish or self._publisher.is_settled or self._publisher.failures > 0
        return is_sent and self._last_cycle > self._started

    def _cycle(self, triggers: frozenset[str], now: float) -> None:
        had_file = self._has_config_file
        if CONFIG in triggers or now >= self._config_file_due:
            self._reload(now)
        if RESYNC in triggers:
            self._publisher.check()
        if not self._schedule.is_in_burst:
            # Not at the first word of a device: its driver may be on the way.
            if self._changed_subsystems & _GPU_SUBSYSTEMS:
                self._gpus.poke()
            self._changed_subsystems = frozenset()
        scanned = {"gpu": self._gpus.outcome()} if self._scans_gpus else {}
        grace = self._settings.removal_grace
        self._held.begin(now, grace, self._settings.sources.local.clock())
        rules = self._rules.read(now, grace)
        report = run_cycle(self._host, self._settings, self._last_good, rules, scanned, hold=self._held.hold)
        self._last_good = report.last_good
        self._last_cycle = time.monotonic()
        self._metrics.saw_cycle(report, triggers)
        self._log(report, triggers)
        is_over = self._held.has_let_go or self._rules.has_let_go or had_file > self._has_config_file
        content, origins = self._settling.settle(report.content, report.origins, now, grace, at_once=is_over)
        self._publisher.want(content, report.unknown, origins)
        self._schedule.settle(min(self._settling.due, self._held.due, self._rules.due, self._config_file_due))
        if START in triggers:
            memory.settle()
        elif triggers & {CONFIG, RESYNC}:
            memory.give_back()

    def _log(self, report: CycleReport, triggers: frozenset[str]) -> None:
        """Log the cycle; a problem that continues is logged once, not every minute."""
        failures = (f"{name}: not read: {reason}" for name, reason in report.failed.items())
        troubles = frozenset((*map(str, report.refusals), *map(str, report.problems), *failures))
        for trouble in sorted(troubles - self._troubles):
            log.warning("%s", trouble)
        self._troubles = troubles
        found, why = len(report.content.labels), ", ".join(sorted(triggers))
        log.debug("cycle: %d labels in %.1f ms (%s)", found, report.seconds * 1000, why)

    # --- what wakes it ------------------------------------------------------------------------------------------------

    def _open(self, stack: ExitStack) -> Callable[[], Readers]:
        """Start to listen; gives what to wait for in each turn. One who works only once listens to signals alone."""
        signals = Signals()
        stack.callback(signals.close)
        fixed: dict[int, Callable[[float], None]] = {
            signals.fileno(): lambda now: self._on_signals(signals.drain(), now)
        }
        if self._settings.oneshot:
            return lambda: {**fixed, **self._publisher.readers(), **self._gpus.readers()}
        # Here and not above: who works once would spend a tenth of its time on importing them.
        from file_watch.inotify import watch_files  # noqa: PLC0415
        from nfd_worker.watch.uevents import watch_devices  # noqa: PLC0415

        endpoint = self._open_endpoint(stack)
        self._files = files = watch_files(_places(self._settings))
        if files is not None:
            stack.callback(files.close)
            fixed[files.fileno()] = lambda now: self._on_files(files, now)
        devices = watch_devices()
        if devices is not None:
            fixed[devices.fileno()] = lambda now: self._on_devices(devices, now)
        return lambda: {**fixed, **self._publisher.readers(), **self._gpus.readers(), **endpoint()}

    def _open_endpoint(self, stack: ExitStack) -> Callable[[], Readers]:
        if self._settings.port == 0:
            return dict
        from kube_api.pages import Page, health  # noqa: PLC0415 - as in _open
        from nfd_worker.telemetry import Endpoint  # noqa: PLC0415 - as in _open

        pages = {
            "/healthz": lambda: health("" if self._is_alive() else "no discovery cycle for too long"),
            "/metrics": lambda: Page(self._metrics.render(is_published=self._publisher.is_settled)),
        }
        endpoint = Endpoint(self._settings.port, pages)
        stack.callback(endpoint.close)
        return endpoint.readers

    def _is_alive(self) -> bool:
        longest = self._settings.sleep_interval * OVERDUE_INTERVALS + OVERDUE_SECONDS
        return time.monotonic() - self._last_cycle <= longest

    def _on_signals(self, numbers: frozenset[int], now: float) -> None:
        if numbers & {signal.SIGTERM, signal.SIGINT}:
            log.info("stopping")
            self._is_stopping = True
        elif signal.SIGHUP in numbers:
            self._schedule.ask(CONFIG, now)

    def _on_files(self, files: "FileWatch", now: float) -> None:
        changes = files.drain()
        if GPU in changes.triggers:
            # The scan reads the file: it is wanted as after an event of a GPU.
            self._changed_subsystems |= _GPU_SUBSYSTEMS
        for trigger in changes.triggers:
            # A configuration is reloaded once: a mistake in it must not be logged twice.
            self._schedule.ask(trigger, now, at_once=trigger == FILE and trigger in changes.complete)

    def _on_devices(self, devices: "DeviceWatch", now: float) -> None:
        changed = devices.drain()
        if changed:
            self._changed_subsystems |= changed
            self._schedule.ask(DEVICE, now, at_once=True)

    def _on_answer(self, answer: PublishAnswer, request_bytes: int) -> None:
        self._metrics.saw_answer(answer, request_bytes, time.time())

    # --- new settings -------------------------------------------------------------------------------------------------

    def _reload(self, now: float) -> None:
        """Take new settings; a file that is wrong leaves the old ones in force."""
        before = self._settings
        if self._holds_config(now):
            return
        try:
            loaded = self._load()
        except ConfigurationError as error:
            log.error("config: not reloaded, the previous settings stay in use: %s", error)  # noqa: TRY400 - no traceback: the message is for the operator
            return
        self._settings = after = loaded._replace(**{name: getattr(before, name) for name in _FIXED})
        if fixed := [name for name in _FIXED if getattr(loaded, name) != getattr(before, name)]:
            log.warning("config: %s: takes effect only after a restart", ", ".join(fixed))
        if after == before:
            return
        log.info("config: %s changed", after.config_file)
        self._schedule.change(after.sleep_interval, _resync_seconds(after), now)
        if after.rules_dir != before.rules_dir:
            self._rules = RuleFiles(self._host, after.rules_dir)
        if self._files is not None:
            self._files.watch(_places(after))

    def _holds_config(self, now: float) -> bool:
        """Return whether a configuration file that is gone may come back: somebody replaces its ConfigMap."""
        file, grace = self._settings.config_file, self._settings.removal_grace
        if _is_there(file):
            self._has_config_file, self._config_file_due = True, NEVER
        elif self._has_config_file:
            self._config_file_due = now + grace if self._config_file_due == NEVER else self._config_file_due
            if now < self._config_file_due:
                return True
            self._has_config_file, self._config_file_due = False, NEVER
        return False


def _is_there(file: str) -> bool:
    return os.access(file, os.F_OK)


def _resync_seconds(settings: Settings) -> float:
    """Return how often the Node is checked: nodes differ by up to an eighth, so as not to ask all at once."""
    longest = settings.resync_seconds
    if longest is None:
        longest = min(RESYNC_SECONDS, RESYNC_INTERVALS * settings.sleep_interval)
    return longest * (1 - jitter(settings.node_name) / 8)


def _places(settings: Settings) -> "list[Place]":
    """Name the files whose change asks for a cycle."""
    from file_watch.inotify import Place  # noqa: PLC0415 - as in Daemon._open

    root = settings.root.rstrip("/")
    places = [
        Place(settings.config_file, CONFIG, levels=0),
        Place(f"{root}/{FEATURE_FILES}", FILE),
        Place(f"{root}/{CUSTOM_DIRECTORY}", FILE, levels=2),
    ]
    if "gpu" in settings.feature_sources:
        places.append(Place(f"{root}/{SHARING_FILE}", GPU, levels=0))
    return [*places, Place(settings.rules_dir, FILE)] if settings.rules_dir else places
