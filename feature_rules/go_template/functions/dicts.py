"""Sprig's functions on maps. ``set``, ``unset`` and the merges change their first map, as in sprig.

Where Go's order is by chance, here it is that of the keys.
"""

from collections.abc import Mapping
from typing import Any

from feature_rules.errors import FunctionError
from feature_rules.go_template.data.comparison import deep_equal
from feature_rules.go_template.data.limits import Meter
from feature_rules.go_template.data.values import (
    ANY_MAP,
    STRING_LIST,
    GoList,
    GoMap,
    element_type,
    in_byte_order,
    is_assignable,
    type_of,
)
from feature_rules.go_template.functions.builtin import is_empty
from feature_rules.go_template.functions.registry import Registry
from feature_rules.go_template.functions.text import text_of

REGISTRY = Registry()


@REGISTRY.function("dict(...any)", metered=True)
def _dict(meter: Meter, *pairs: Any) -> GoMap:
    for key in pairs[::2]:
        meter.visit(key)
    padded = pairs if len(pairs) % 2 == 0 else (*pairs, "")
    return GoMap((text_of(meter, key), value) for key, value in zip(padded[::2], padded[1::2], strict=True))


@REGISTRY.function("set(map, string, any)")
def _set(items: GoMap, key: str, value: Any) -> GoMap:
    items[key] = value
    return items


@REGISTRY.function("unset(map, string)")
def _unset(items: GoMap, key: str) -> GoMap:
    items.pop(key, None)
    return items


@REGISTRY.function("keys(...map)", metered=True)
def _keys(meter: Meter, *maps: GoMap) -> GoList:
    meter.spend(sum(map(len, maps)))
    return GoList((key for items in maps for key in sorted(items, key=in_byte_order)), STRING_LIST)


@REGISTRY.function("values(map)", metered=True)
def _values(meter: Meter, items: GoMap) -> GoList:
    meter.spend(len(items))
    return GoList(items[key] for key in sorted(items, key=in_byte_order))


@REGISTRY.function("omit(map, ...string)", metered=True)
def _omit(meter: Meter, items: GoMap, *keys: str) -> GoMap:
    meter.spend(len(items))
    return GoMap({key: value for key, value in items.items() if key not in set(keys)})


@REGISTRY.function("dig(...any)")
def _dig(*path: Any) -> Any:
    """Look deeper key by key: ``dig "a" "b" default map``."""
    if len(path) < 3:
        raise FunctionError("dig needs at least three arguments: keys, a default and a map")
    *keys, fallback, value = path
    for key in keys:
        if type_of(value) != ANY_MAP:
            raise FunctionError(f"dig looks into {ANY_MAP}; got {type_of(value)}")
        if not isinstance(key, str):
            raise FunctionError(f"a key of dig is a string; got {type_of(key)}")
        if key not in value:
            return fallback
        value = value[key]
    return value


@REGISTRY.function("merge mustMerge(map, ...map)", metered=True, is_deep=True)
def _merge(meter: Meter, target: GoMap, *sources: GoMap) -> GoMap:
    for source in sources:
        _merge_into(meter, target, source, overwrites=False)
    return target


@REGISTRY.function("mergeOverwrite mustMergeOverwrite(map, ...map)", metered=True, is_deep=True)
def _merge_overwriting(meter: Meter, target: GoMap, *sources: GoMap) -> GoMap:
    for source in sources:
        _merge_into(meter, target, source, overwrites=True)
    return target


def _merge_into(meter: Meter, target: dict[str, Any], source: Mapping[str, Any], *, overwrites: bool) -> None:
    """Fill what is empty in ``target``, or all of it; maps in both are merged, lists are not."""
    if target is source:
        return
    for key in list(source):
        meter.spend(1)
        value, before = source[key], target.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            _merge_into(meter, before, value, overwrites=overwrites)
            if before:
                continue
        is_kept = not is_empty(before) and (isinstance(value, dict) or not overwrites)
        if not is_kept and (value is not None or overwrites):
            _put(target, key, value)


def _put(target: dict[str, Any], key: str, value: Any) -> None:
    wanted = element_type(type_of(target))
    if not is_assignable(value, wanted):
        raise FunctionError(f"a {type_of(value)} cannot be merged into a {type_of(target)}")
    target[key] = value


@REGISTRY.function("deepCopy mustDeepCopy(any)", metered=True, is_deep=True)
def _deep_copy(meter: Meter, value: Any) -> Any:
    if value is None:
        raise FunctionError("nil cannot be copied")
    return _copied(meter, value)


def _copied(meter: Meter, value: Any) -> Any:
    meter.spend(1)
    match value:
        case GoMap():
            return GoMap({key: _copied(meter, item) for key, item in value.items()}, value.type)
        case GoList():
            return GoList((_copied(meter, item) for item in value), value.type)
        case _:
            return value


REGISTRY.add("get(map, string)", lambda items, key: items.get(key, ""))
REGISTRY.add("hasKey(map, string)", lambda items, key: key in items)
REGISTRY.add("pluck(string, ...map)", lambda key, *maps: GoList(items[key] for items in maps if key in items))
REGISTRY.add("pick(map, ...string)", lambda items, *keys: GoMap({key: items[key] for key in keys if key in items}))
REGISTRY.add("deepEqual(any, any)", deep_equal, is_deep=True)
