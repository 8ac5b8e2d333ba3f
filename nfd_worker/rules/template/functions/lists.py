"""Sprig's functions on lists. None changes its list: each gives a new one."""

from collections.abc import Callable
from typing import Any

from nfd_worker.rules.template.comparison import deep_equal
from nfd_worker.rules.template.errors import FunctionError
from nfd_worker.rules.template.functions.defaults import is_empty
from nfd_worker.rules.template.functions.registry import Registry
from nfd_worker.rules.template.limits import Meter
from nfd_worker.rules.template.numbers import cast_int64
from nfd_worker.rules.template.values import ANY_LIST, GoList, kind_of

REGISTRY = Registry()

_INTEGERS = "[]int"


def _list(value: Any, action: str) -> list[Any]:
    if isinstance(value, list):
        return value
    raise FunctionError(f"cannot {action} on type {'nil' if value is None else kind_of(value)}; a list is wanted")


@REGISTRY.function("without mustWithout(any, ...any)", metered=True, is_deep=True)
def _without(meter: Meter, items: Any, *omitted: Any) -> GoList:
    return GoList(item for item in _list(items, "find without") if not _holds(meter, omitted, item))


@REGISTRY.function("uniq mustUniq(any)", metered=True, is_deep=True)
def _unique(meter: Meter, items: Any) -> GoList:
    kept = GoList()
    for item in _list(items, "find uniq"):
        if not _holds(meter, kept, item):
            kept.append(item)
    return kept


@REGISTRY.function("has mustHas(any, any)", metered=True, is_deep=True)
def _has(meter: Meter, item: Any, items: Any) -> bool:
    return items is not None and _holds(meter, _list(items, "find has"), item)


def _holds(meter: Meter, items: Any, item: Any) -> bool:
    for other in items:
        if isinstance(item, str | int) or isinstance(other, str | int):
            meter.allocate(8)
        else:
            meter.visit(item)
        if deep_equal(item, other):
            return True
    return False


@REGISTRY.function("slice mustSlice(any, ...any)")
def _slice(items: Any, *bounds: Any) -> Any:
    items = _list(items, "slice")
    if not items:
        return None
    start = cast_int64(bounds[0]) if bounds else 0
    end = cast_int64(bounds[1]) if len(bounds) > 1 else len(items)
    if not 0 <= start <= end <= len(items):
        raise FunctionError(f"slice bounds out of range: {start} to {end} of {len(items)} elements")
    return GoList(items[start:end], items.type) if isinstance(items, GoList) else items[start:end]


@REGISTRY.function("chunk mustChunk(int, any)", metered=True)
def _chunk(meter: Meter, size: int, items: Any) -> GoList:
    items = _list(items, "chunk")
    if size <= 0:
        raise FunctionError(f"the size of a chunk is 1 or more; got {size}")
    meter.spend(len(items))
    return GoList((GoList(items[at : at + size]) for at in range(0, len(items), size)), "[][]interface {}")


@REGISTRY.function("concat(...any)", metered=True)
def _concat(meter: Meter, *lists: Any) -> GoList:
    joined = GoList()
    for items in lists:
        meter.spend(len(_list(items, "concat")))
        joined.extend(items)
    return joined


@REGISTRY.function("untilStep(int, int, int)", metered=True)
def until_step(meter: Meter, start: int, stop: int, step: int) -> GoList:
    """Count from ``start`` to before ``stop``; a step in the other direction gives nothing."""
    if step == 0 or (stop < start) != (step < 0):
        return GoList((), _INTEGERS)
    numbers = range(start, stop, step)
    meter.spend(min(len(numbers), 1 << 30) if stop - start < 1 << 62 and start - stop < 1 << 62 else 1 << 30)
    return GoList(numbers, _INTEGERS)


@REGISTRY.function("until(int)", metered=True)
def _until(meter: Meter, count: int) -> Any:
    return until_step(meter, 0, count, -1 if count < 0 else 1)


@REGISTRY.function("seq(...int)", metered=True)
def _sequence(meter: Meter, *bounds: int) -> str:
    """Write numbers from first to last, as the command seq does; other than that, down as well."""
    match bounds:
        case (last,):
            first, step = 1, -1 if last < 1 else 1
        case (first, last):
            step = -1 if last < first else 1
        case (first, step, last):
            if last < first and step > 0:
                return ""
        case _:
            return ""
    beyond = last + (-1 if last < first else 1)
    return " ".join(map(str, until_step(meter, first, beyond, step)))


def _taking(action: str, take: Callable[[list[Any]], Any]) -> Callable[[Any], Any]:
    return lambda items: take(_list(items, action))


REGISTRY.add("list tuple(...any)", lambda *values: GoList(values))
REGISTRY.add("first mustFirst(any)", _taking("find first", lambda items: items[0] if items else None))
REGISTRY.add("last mustLast(any)", _taking("find last", lambda items: items[-1] if items else None))
REGISTRY.add("rest mustRest(any)", _taking("find rest", lambda items: GoList(items[1:])))
REGISTRY.add("initial mustInitial(any)", _taking("find initial", lambda items: GoList(items[:-1])))
REGISTRY.add("reverse mustReverse(any)", _taking("find reverse", lambda items: GoList(items[::-1])))
REGISTRY.add(
    "compact mustCompact(any)", _taking("compact", lambda items: GoList(item for item in items if not is_empty(item)))
)
REGISTRY.add(
    "append push mustAppend mustPush(any, any)", lambda items, item: GoList((*_list(items, "push"), item), ANY_LIST)
)
REGISTRY.add("prepend mustPrepend(any, any)", lambda items, item: GoList((item, *_list(items, "prepend")), ANY_LIST))
