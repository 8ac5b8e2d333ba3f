"""Functions with their Go signatures: a table that the parser asks for names and the evaluator for calls."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from feature_rules.go_template.data.values import ANY, ANY_LIST, ANY_MAP

_SIGNATURE = re.compile(r"(?P<name>\w+)\((?P<parameters>[^)]*)\)")
_TYPES = {"any": ANY, "map": ANY_MAP, "list": ANY_LIST}


class Registered(NamedTuple):
    """One function.

    ``parameters``: Go types of the fixed arguments; ``rest``: of all that follow, empty where none may.
    ``call``: takes the arguments, after the meter where ``metered``.
    ``is_deep``: looks at the elements of its arguments, not only at their lengths; that is more work.
    """

    name: str
    parameters: tuple[str, ...]
    rest: str
    call: Callable[..., Any]
    metered: bool
    is_deep: bool


class Registry:
    """Functions by name."""

    def __init__(self) -> None:
        self.functions: dict[str, Registered] = {}

    def add(self, signature: str, call: Callable[..., Any], *, metered: bool = False, is_deep: bool = False) -> None:
        """Register ``call`` under a signature such as ``cat(...any)``; several names are separated by spaces.

        Types: ``string``, ``int``, ``float64``, ``bool``, ``any``, ``map`` (map[string]interface {}).
        """
        *aliases, last = signature.split(" ", signature.split("(", maxsplit=1)[0].count(" "))
        found = _SIGNATURE.fullmatch(last)
        assert found is not None, signature  # noqa: S101 - a slip of ours, seen by the first import
        types = [part.strip() for part in found["parameters"].split(",") if part.strip()]
        rest = types.pop().removeprefix("...") if types and types[-1].startswith("...") else ""
        parameters = tuple(_TYPES.get(name, name) for name in types)
        for name in (*aliases, found["name"]):
            self.functions[name] = Registered(name, parameters, _TYPES.get(rest, rest), call, metered, is_deep)

    def function(
        self, signature: str, *, metered: bool = False, is_deep: bool = False
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register the decorated function, as :meth:`add`."""

        def decorate(call: Callable[..., Any]) -> Callable[..., Any]:
            self.add(signature, call, metered=metered, is_deep=is_deep)
            return call

        return decorate
