"""Results of pure functions, remembered for the very objects that they were computed from.

Between two reconciles most of what the controller knows is the same: not only equal, but the same objects, because the
cluster cache keeps equal values. Objects are compared by identity, which costs the same for a node and for a fleet.
They must not be changed afterwards, as values of this program never are.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from typing import Generic, TypeVar, TypeVarTuple

Parameters = TypeVarTuple("Parameters")
Item = TypeVar("Item")
Result = TypeVar("Result")

_TEXTS = 4096
_LONGEST = 2048
"""Characters of a text that is kept."""


def remembers_last(count: int) -> Callable[[Callable[[*Parameters], Result]], Callable[[*Parameters], Result]]:
    """Make a pure function keep its last ``count`` results, with the positional arguments that they belong to."""

    def decorate(function: Callable[[*Parameters], Result]) -> Callable[[*Parameters], Result]:
        # The arguments are kept as well: while they live, no other object has their ids.
        known: OrderedDict[tuple[int, ...], tuple[tuple[object, ...], Result]] = OrderedDict()
        lock = threading.Lock()

        @wraps(function)
        def remembering(*args: *Parameters) -> Result:
            key = tuple(map(id, args))
            with lock:
                found = known.get(key)
                if found is not None:
                    known.move_to_end(key)
                    return found[1]
            result = function(*args)
            with lock:
                known[key] = (args, result)
                while len(known) > count:
                    known.popitem(last=False)
            return result

        return remembering

    return decorate


class OfEach(Generic[Item, Result]):
    """A pure function of single items, computed again only for those that are other objects than the last time."""

    def __init__(self, function: Callable[[Item], Result]) -> None:
        self._function = function
        self._known: Mapping[str, tuple[Item, Result]] = {}

    def of(self, items: Mapping[str, Item]) -> Mapping[str, Result]:
        """Return the results for items by the same names."""
        before = self._known
        now = {
            name: known
            if (known := before.get(name)) is not None and known[0] is item
            else (item, self._function(item))
            for name, item in items.items()
        }
        # Another thread may ask for other items meanwhile.
        self._known = now
        return {name: result for name, (_, result) in now.items()}


def remembers_texts(function: Callable[[str], Result]) -> Callable[[str], Result]:
    """Make a pure function of a text keep its results for the last few thousand texts, but for long ones."""
    remembering = lru_cache(maxsize=_TEXTS)(function)

    @wraps(function)
    def bounded(text: str) -> Result:
        return remembering(text) if len(text) <= _LONGEST else function(text)

    return bounded
