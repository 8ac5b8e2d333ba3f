"""When working drivers may be replaced: the maintenance windows of ``spec.rollout``. Pure.

A window begins at each time that its expression names, and ends when its duration is over: it is open from the first
second to before the last. All times are seconds since the epoch.
"""

import math
from collections.abc import Iterable

from driver_builder.api.rollout_settings import Window
from driver_builder.model import cron


def open_until(windows: Iterable[Window], now: float) -> float | None:
    """Return when the last of the windows that are open now ends; None if none is, infinity without any windows.

    A window that begins anew before it ends is always open, and its end is that of the last beginning until now.
    """
    minute = _minute(now)
    ends = [cron.last_start(each.cron, each.time_zone, minute) + each.duration_seconds for each in windows]
    return max((end for end in ends if end > now), default=None) if ends else math.inf


def next_opening(windows: Iterable[Window], now: float) -> float | None:
    """Return when a window begins next, after now; None without any windows."""
    minute = _minute(now)
    return min((cron.next_start(each.cron, each.time_zone, minute) for each in windows), default=None)


def _minute(now: float) -> int:
    """Return the minute; windows begin with one, and every answer lasts for one."""
    return math.floor(now / 60)
