"""Sprig's functions on lists. None changes its list: each gives a new one."""

from collections.abc import Callable, Iterable
from typing import Any

from feature_rules.errors import FunctionError
from feature_rules.go_template.data.comparison import deep_equal
from feature_rules.go_template.data.limits import Meter
from feature_rules.go_template.data.numbers import cast_int64
from feature_rules.go_template.data.values import ANY_LIST, GoList, Object, kind_of, type_of
from feature_rules.go_template.functions.builtin import is_empty
from feature_rules.go_template.functions.registry import Registry

REGISTRY = Registry()

_INTEGERS = "[]int"
_WITH_ELEMENTS = (list, dict, Object)


def _list(value: Any, action: str) -> list[Any]:
    if isinstance(value, list):
        return value
    raise FunctionError(f"cannot {action} on type {'nil' if value is None else kind_of(value)}; expected a list")


class _Known:
    """Values among which another one is looked for; those without elements are found at once."""

    def __init__(self, meter: Meter, values: Iterable[Any] = ()) -> None:
        self._meter = meter
        self._scalars: set[tuple[str, Any]] = set()
        self._others: list[Any] = []
        for value in values:
            self.add(value)

    def add(self, value: Any) -> None:
        self._meter.spend(1)
        if isinstance(value, _WITH_ELEMENTS):
            self._others.append(value)
        elif value == value:  # noqa: PLR0124 - NaN equals nothing
            self._scalars.add((type_of(value), value))

    def __contains__(self, value: Any) -> bool:
        self._meter.spend(1)
        if not isinstance(value, _WITH_ELEMENTS):
            return (type_of(value), value) in self._scalars
        return any(self._is_same(value, other) for other in self._others)

    def _is_same(self, value: Any, other: Any) -> bool:
        self._meter.visit(value)
        return deep_equal(value, other)


@REGISTRY.function("without mustWithout(any, ...any)", metered=True, is_deep=True)
def _without(meter: Meter, items: Any, *omitted: Any) -> GoList:
    known = _Known(meter, omitted)
    return GoList(item for item in _list(items, "find without") if item not in known)


@REGISTRY.function("uniq mustUniq(any)", metered=True, is_deep=True)
def _unique(meter: Meter, items: Any) -> GoList:
    known = _Known(meter)
    kept = GoList()
    for item in _list(items, "find uniq"):
        if item not in known:
            known.add(item)
            kept.append(item)
    return kept


@REGISTRY.function("has mustHas(any, any)", metered=True, is_deep=True)
def _has(meter: Meter, item: Any, items: Any) -> bool:
    return items is not None and item in _Known(meter, _list(items, "find has"))


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
