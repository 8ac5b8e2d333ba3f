"""When the next cycle is due, and what asked for it. Pure: the caller brings the time.

An event is answered twice: at once, where what it is about is complete, and after a moment in which the rest of its
burst arrives; more events never put that off. A few bursts may follow each other; a stream of events without end gets a
cycle every few seconds.
"""

START, INTERVAL, DEVICE, FILE, CONFIG, GPU, RESYNC = "start", "interval", "device", "file", "config", "gpu", "resync"
SETTLE = "settle"
TRIGGERS = (START, INTERVAL, DEVICE, FILE, CONFIG, GPU, RESYNC, SETTLE)
"""What asks for a cycle; also the values of the metric's label."""

COALESCE_SECONDS = 0.3
"""How long a burst of events is collected: a GPU brings a dozen uevents, a ConfigMap half a dozen file events."""

BURSTS_IN_A_ROW = 20
SECONDS_PER_BURST = 3.0
"""How many bursts are answered at once, and how often after that."""

NEVER = float("inf")


class Schedule:
    """Collects what asks for a cycle. ``interval`` and ``resync`` are periods in seconds; infinite for never."""

    def __init__(self, interval: float, resync: float) -> None:
        self._interval = interval
        self._resync = resync
        self._asked: set[str] = {START}
        self._asked_due = 0.0
        self._look_due = NEVER
        self._has_looked = True
        self._settle_due = NEVER
        self._interval_due = NEVER
        self._resync_due = NEVER
        self._bursts_until = 0.0

    @property
    def due(self) -> float:
        """When :meth:`take` has something to give."""
        return min(self._look_due, self._settle_due, self._burst_ends)

    @property
    def is_in_burst(self) -> bool:
        """Whether the last cycle was a first look, and another answers the same events."""
        return self._asked_due != NEVER

    @property
    def _burst_ends(self) -> float:
        """When a cycle answers all that asked."""
        return min(self._asked_due, self._interval_due, self._resync_due)

    def change(self, interval: float, resync: float, now: float) -> None:
        """Take new periods: they count from now."""
        if (interval, resync) != (self._interval, self._resync):
            self._interval, self._resync = interval, resync
            self._interval_due, self._resync_due = now + interval, now + resync

    def ask(self, trigger: str, now: float, *, at_once: bool = False) -> None:
        """Ask for a cycle because of an event, with ``at_once`` also for one now, if its burst had none yet."""
        self._asked.add(trigger)
        if self._asked_due == NEVER:
            # Each burst answered takes its share of time from an account that holds no more than BURSTS_IN_A_ROW.
            earliest = self._bursts_until - (BURSTS_IN_A_ROW - 1) * SECONDS_PER_BURST
            self._asked_due = max(now + COALESCE_SECONDS, earliest)
            self._has_looked = now < earliest
        if at_once and not self._has_looked:
            self._look_due, self._has_looked = now, True

    def settle(self, due: float) -> None:
        """Ask for a cycle at that time, and at no other that was asked for so before."""
        self._settle_due = due

    def take(self, now: float) -> frozenset[str]:
        """Give what asked for the cycle that is due now, and plan the next one; empty while none is due."""
        if now < self.due:
            return frozenset()
        triggers = frozenset() if now < min(self._look_due, self._burst_ends) else frozenset(self._asked)
        if now >= self._settle_due:
            triggers |= {SETTLE}
        if now >= self._interval_due:
            triggers |= {INTERVAL}
        if now >= self._resync_due:
            triggers |= {RESYNC}
        if self._asked and now >= self._burst_ends:
            self._bursts_until = max(self._bursts_until, now) + SECONDS_PER_BURST
            self._asked, self._asked_due = set(), NEVER
        self._look_due = self._settle_due = NEVER
        if START in triggers or RESYNC in triggers:
            self._resync_due = now + self._resync
        self._interval_due = now + self._interval
        return triggers
