"""ValidatingAdmissionPolicies as the API server (1.30 and later) evaluates them: by CEL's C++ library, for one request.

As there, a variable has the type of its expression, an unknown name is an error when the policy is made, and an error
while it is evaluated refuses the request. Beyond that: all variables are evaluated, also where nothing needs them.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from cel_expr_python import cel
from cel_expr_python.ext import ext_optional, ext_strings

Json = dict[str, Any]

LONGEST_MESSAGE = 5 << 10
"""Bytes of a messageExpression's value; a longer one is dropped."""


class Review(NamedTuple):
    """What is asked of the policy: who wants to make which Node of which."""

    user: str
    new: Json
    old: Json | None
    extra: Mapping[str, list[str]] | None = None
    resource: str = "nodes"
    name: str = "node-a"

    def data(self) -> Json:
        """Give what expressions see."""
        user: Json = {"username": self.user}
        request = {
            "name": self.name,
            "operation": "CREATE" if self.old is None else "UPDATE",
            "userInfo": user if self.extra is None else {**user, "extra": dict(self.extra)},
        }
        return {"object": self.new, "oldObject": self.old, "request": request}


class Refusal(NamedTuple):
    """One validation that failed."""

    message: str
    reason: str = ""


class Policy:
    """A policy, compiled once.

    Raises:
        RuntimeError: when an expression is none, or names what is not there.
    """

    def __init__(self, manifest: Json) -> None:
        spec = manifest["spec"]
        assert spec["failurePolicy"] == "Fail"
        (self._rule,) = spec["matchConstraints"]["resourceRules"]
        known = dict.fromkeys(("object", "oldObject", "request"), cel.Type.DYN)
        self._conditions = [_compiled(item["expression"], known) for item in spec["matchConditions"]]
        self._variables: dict[str, cel.Expression] = {}
        for item in spec["variables"]:
            name = f"variables.{item['name']}"
            self._variables[name] = _compiled(item["expression"], known)
            known[name] = self._variables[name].return_type()
        self._validations = [
            (
                _compiled(item["expression"], known),
                _compiled(item["messageExpression"], known) if "messageExpression" in item else None,
                item,
            )
            for item in spec["validations"]
        ]

    def review(self, request: Review) -> tuple[Refusal, ...]:
        """Say why a request is refused; nothing when it is not, or when the policy is not about it."""
        data = request.data()
        is_meant = (
            request.resource in self._rule["resources"] and data["request"]["operation"] in self._rule["operations"]
        )
        if not (is_meant and all(_value(condition, data) is True for condition in self._conditions)):
            return ()
        data |= self.variables(request)
        return tuple(
            Refusal(_message(said, item, data), item["reason"])
            for expression, said, item in self._validations
            if _value(expression, data) is not True
        )

    def variables(self, request: Review) -> Json:
        """Evaluate all variables; names begin with ``variables.``."""
        data, made = request.data(), dict[str, Any]()
        for name, expression in self._variables.items():
            made[name] = _value(expression, data | made)
        return made


class CelError(Exception):
    """An expression that cannot be evaluated on what it is given: the API server refuses the request."""


def _message(expression: cel.Expression | None, item: Json, data: Json) -> str:
    text = item["message"] if expression is None else str(_value(expression, data))
    is_usable = text.strip() and "\n" not in text and len(text.encode()) <= LONGEST_MESSAGE
    return text if is_usable else str(item["message"])


def _value(expression: cel.Expression, data: Json) -> Any:
    result = expression.eval(data=data)
    if result.type() == cel.Type.ERROR:
        raise CelError(result.plain_value())
    return result.plain_value()


_Names = tuple[tuple[str, str], ...]
_TYPES: dict[str, cel.Type] = {}


def _compiled(expression: str, known: Mapping[str, cel.Type]) -> cel.Expression:
    for kind in known.values():
        _TYPES.setdefault(repr(kind), kind)
    return _compile(expression, tuple((name, repr(kind)) for name, kind in known.items()))


@lru_cache(maxsize=1024)
def _compile(expression: str, known: _Names) -> cel.Expression:
    """Compile; most expressions of two policies are the same."""
    return _environment(known).compile(expression)


@lru_cache(maxsize=1024)
def _environment(known: _Names) -> cel.Env:
    extensions = [ext_strings.ExtStrings(), ext_optional.ExtOptional()]
    return cel.NewEnv(variables={name: _TYPES[kind] for name, kind in known}, extensions=extensions)
