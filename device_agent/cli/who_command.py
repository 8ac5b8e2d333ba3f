"""``device-agent who``: which container has which device, since when, and how much it uses, as the agent says it."""

import json
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from device_agent.cli.get_command import fetch_page
from device_agent.cli.streams import write_json, write_table
from kube_api.text import printable

_OFF = "the exporter is off: set exporter.enabled to true in the configuration file"
_HEADER = ("DEVICE", "RESOURCE", "NAMESPACE", "POD", "CONTAINER", "AGE", "MEMORY", "BUSY")
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_MIB = 1 << 20


class _Answer(NamedTuple):
    """What the agent said. ``is_known``: it knows who has devices."""

    said: Mapping[str, Any]
    rows: list[tuple[str, ...]]
    problems: list[str]
    is_known: bool


def print_who(output: str, environment: Mapping[str, str]) -> int:
    """Print who has which device, as a table or JSON; 1 if that is not known, or no agent answers that knows it."""
    answer = fetch_page("/who", environment)
    if answer is None:
        return 1
    status, body = answer
    try:
        known = _read(json.loads(body)) if status == b"200" else _Answer({}, [], [_OFF], is_known=False)
    except (ValueError, TypeError, LookupError) as error:
        known = _Answer({}, [], [f"the agent's answer cannot be read: {error}"], is_known=False)
    if known.is_known and output == "json":
        write_json(known.said)
    elif known.is_known:
        _write(known.rows)
    sys.stderr.writelines(f"device-agent: {printable(problem)}\n" for problem in known.problems)
    return 0 if known.is_known else 1


def _read(said: Any) -> _Answer:
    rows = [_row(one, float(said["now"])) for one in said["devices"]]
    return _Answer(said, rows, [str(one) for one in said["problems"]], said["isKnown"] is True)


def _row(one: Mapping[str, Any], now: float) -> tuple[str, ...]:
    names = (printable(str(one[name])) for name in ("device", "resource", "namespace", "pod", "container"))
    since, memory, busy = one["since"], one["memoryBytes"], one["busyPercent"]
    return (
        *names,
        "-" if since is None else age(now - since),
        "-" if memory is None else f"{int(memory) // _MIB}Mi",
        "-" if busy is None else f"{round(busy)}%",
    )


def age(seconds: float) -> str:
    """Write how long ago something was, as kubectl does: ``4d2h``, ``3h5m``, ``12s``."""
    words: list[str] = []
    rest = max(0, int(seconds))
    for length, unit in _UNITS:
        count, rest = divmod(rest, length)
        if count or words or unit == "s":
            words.append(f"{count}{unit}" if count or not words else "")
    return "".join(words[:2])


def _write(rows: list[tuple[str, ...]]) -> None:
    if not rows:
        sys.stderr.write("device-agent: no container has a device of the agent's\n")
        return
    write_table([_HEADER, *rows], gap="   ")
