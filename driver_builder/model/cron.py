"""Cron expressions as Kubernetes' CronJobs read them, in the time zones of the IANA. Pure.

Place in the flow: ``spec_rules`` refuses an expression or a zone that cannot be used, and ``rollout.windows`` asks when
one began. The package cronsim evaluates them; what a CronJob reads otherwise is written out for it first.

When the clocks change, cronsim does as Debian's cron: of the times that are skipped, the first one after them is taken,
and of those that come twice the first. Expressions with ``*`` as minute or hour follow the real time instead.
"""

import re
from datetime import datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

_VALUE = r"(?:[0-9]{1,2}|[A-Za-z]{3})"
_STEP = r"(?:/[0-9]{1,3})?"
_FIELD = rf"(?:\*|{_VALUE}(?:-{_VALUE})?){_STEP}"
_WEEKDAY = rf"(?:\*{_STEP}|{_VALUE}(?:-{_VALUE}{_STEP})?)"
PATTERN = re.compile(rf"(?:{_FIELD}(?:,{_FIELD})* +){{4}}{_WEEKDAY}(?:,{_WEEKDAY})*")
"""Five fields. CronJobs do not know cronsim's seconds, ``L`` and ``#``; they read ``4/2`` as a weekday otherwise."""

_STEPS_OF_ONE = re.compile(r"\b0?(\w+)-0?\1/[0-9]+", re.IGNORECASE)

ZONE_PATTERN = re.compile(r"[A-Z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+){0,2}")
"""Names of the IANA begin with a capital; other files in the same folder, such as ``localtime``, do not."""
MAX_ZONE_LENGTH = 64
"""Characters."""

_MINUTE = 60
_KEPT = 4096
"""Answers that are kept: of 16 windows of 256 drivers. Every plan asks, and they stay the same for a minute."""
_ANY_DAY = datetime(2024, 1, 1)


def problem(expression: str) -> str:
    """Return what is wrong with an expression that PATTERN matches; empty if nothing is."""
    try:
        CronSim(_as_cronsim_reads(expression), _ANY_DAY)
    except CronSimError as error:
        return f"names no time that ever comes ({error}): write five fields such as '0 22 * * 6', as for a CronJob"
    return ""


def zone_problem(name: str) -> str:
    """Return what is wrong with a name that ZONE_PATTERN matches; empty if nothing is."""
    try:
        _zone(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return "is not a known time zone: write a name of the IANA such as UTC or Europe/Berlin"
    return ""


@lru_cache(maxsize=_KEPT)
def last_start(expression: str, zone_name: str, minute: int) -> float:
    """Return the last time that an expression names at or before this minute since the epoch, in seconds."""
    zone, cron = _zone(zone_name), _as_cronsim_reads(expression)
    now = minute * _MINUTE
    start = next(CronSim(cron, datetime.fromtimestamp(now + 1, zone), reverse=True))
    # Backwards, cronsim overlooks times within an hour that comes twice.
    for later in CronSim(cron, start):
        if later.timestamp() > now:
            break
        start = later
    return start.timestamp()


@lru_cache(maxsize=_KEPT)
def next_start(expression: str, zone_name: str, minute: int) -> float:
    """Return the first time that an expression names after this minute since the epoch, in seconds."""
    now = minute * _MINUTE
    starts = CronSim(_as_cronsim_reads(expression), datetime.fromtimestamp(now, _zone(zone_name)))
    # Within the second of two equal hours it begins with times of the first one.
    return next(at for start in starts if (at := start.timestamp()) > now)


def _as_cronsim_reads(expression: str) -> str:
    """Write the days out: for CronJobs ``*/2`` restricts them, for Debian's cron it does not. ``5-5/2`` is 5."""
    minute, hour, day, month, weekday = _STEPS_OF_ONE.sub(r"\1", expression).split()
    return " ".join((minute, hour, _days(day, "1-31"), month, _days(weekday, "0-6")))


def _days(field: str, every: str) -> str:
    terms = field.split(",")
    return "*" if {"*", "*/1"}.intersection(terms) else ",".join(term.replace("*", every) for term in terms)


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
