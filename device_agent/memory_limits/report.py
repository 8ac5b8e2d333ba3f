"""What is said of limits: an Event of a pod, and metrics. Pure."""

from collections.abc import Collection, Iterable, Mapping
from itertools import islice

from device_agent.event import Json, warning
from device_agent.memory_limits.accounts import Account
from device_agent.memory_limits.watch import Ending
from kube_api.text import bounded_message, printable

Row = tuple[Mapping[str, str], float]
"""Labels and value of a sample."""
Kills = Mapping[tuple[str, str], int]
"""Card and pod -> how often a process was ended."""

REASON = "DeviceMemoryLimitExceeded"
MOST_KILLS = 512
"""Pods that are remembered; the one that was counted last is the last to be forgotten."""

_GIB = 1 << 30
_UID = (8, 4, 4, 4, 12)


def words(ending: Ending) -> str:
    """Say in a sentence what is over its limit, and what becomes of it."""
    account, process = ending.account, ending.process
    does = "would be ended, but memory.dryRun is set" if ending.is_dry_run else "is being ended (SIGKILL)"
    return bounded_message(
        f"the pod uses {_gib(account.used)} of the memory of {account.card}, more than its limit of "
        f"{_gib(account.limit)}: its largest process there, {process.pid} with {_gib(process.memory)}, {does}"
    )


def event(ending: Ending, node: str, *, at: str, suffix: str) -> Json:
    """Make the Event of a pod.

    Args:
        ending: what is done.
        node: the Node's name.
        at: the time, as RFC 3339 writes it.
        suffix: lower-case letters and digits, at most 20, that no other Event of this pod has.
    """
    namespace, _, pod = ending.account.pod.partition("/")
    about = {"kind": "Pod", "namespace": namespace, "name": pod, "uid": api_uid(ending.account.uid)}
    return warning(about, namespace, REASON, words(ending), node=node, at=at, suffix=suffix)


def api_uid(uid: str) -> str:
    """Write a pod's UID as the API server does. That of a static pod is a hash, which has no hyphens there either.

    Both have 32 digits; a UUID says at one place which kind it is, by 1 to 5.
    """
    if len(uid) != sum(_UID) or uid[12] not in "12345" or uid[16] not in "89ab":
        return uid
    digits = iter(uid)
    return "-".join("".join(islice(digits, length)) for length in _UID)


def counted(kills: Kills, ending: Ending) -> Kills:
    """Count that a process was ended or, in a dry run, that it would have been."""
    key = (ending.account.card, ending.account.pod)
    kept = {one: number for one, number in kills.items() if one != key} | {key: kills.get(key, 0) + 1}
    return dict(islice(kept.items(), max(0, len(kept) - MOST_KILLS), None))


def samples(
    every: Iterable[Account], kills: Kills, kept: Collection[tuple[str, str]] = frozenset()
) -> dict[str, list[Row]]:
    """Make the samples of the metrics, by their names after ``device_agent_``. What is not known is not there.

    ``kept``: card and pod of the limits that drivers keep.
    """
    rows = list(every)
    return {
        "memory_limit_bytes": [(_labels(one.card, one.pod), one.limit) for one in rows if one.limit is not None],
        "memory_limit_unknown": [(_labels(one.card, one.pod), 1) for one in rows if one.is_unknown],
        "memory_used_bytes": [(_labels(one.card, one.pod), one.used) for one in rows if one.used is not None],
        "memory_limit_kept": [(_labels(*key), 1) for one in rows if (key := (one.card, one.pod)) in kept],
        "memory_kills_total": [(_labels(*key), number) for key, number in kills.items()],
    }


def _labels(card: str, pod: str) -> Mapping[str, str]:
    namespace, _, name = pod.partition("/")
    return {"UUID": printable(card), "namespace": namespace, "pod": name}


def _gib(size: int | None) -> str:
    return f"{(size or 0) / _GIB:.2f} GiB"
