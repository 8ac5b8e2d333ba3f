"""DriverContainer's schema as the API server applies it: types, limits, patterns (RE2), and rules (CEL's C++ library).

What the API server does beside them is done by its own description: a null is dropped, fields have escaped names in
rules, and defaults are filled in.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import re2
from cel_expr_python import cel

from tests.support.yaml_files import read_yaml

Json = dict[str, Any]

CRD = Path(__file__).parents[2] / "deploy" / "crds" / "drivercontainers.yaml"
SCHEMA = read_yaml(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
RULES = "x-kubernetes-validations"
RESERVED = {
    *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"),
    *("let", "loop", "package", "namespace", "return", "var", "void", "while"),
}
"""Words that CEL keeps for itself: Kubernetes calls such a field ``__word__`` (apiserver/pkg/cel/escaping.go)."""


def escaped(name: str) -> str:
    """Return the name that a field of the schema has in a rule."""
    return f"__{name}__" if name in RESERVED else name


def parts(part: Json = SCHEMA, path: str = "spec") -> Iterator[tuple[str, Json]]:
    """Every part of the schema with its path."""
    yield path, part
    for name, child in part.get("properties", {}).items():
        yield from parts(child, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(part.get(name), dict):
            yield from parts(part[name], f"{path}[]")


@cache
def compiled(rule: str) -> cel.Expression:
    """Compile a rule; an error names its place."""
    return cel.NewEnv(variables={"self": cel.Type.DYN}).compile(rule)


def in_cel(part: Json, value: Any) -> Any:
    """A value as rules see it: fields by their escaped names, what has a default filled in."""
    if isinstance(value, dict) and "properties" in part:
        filled = {name: child["default"] for name, child in part["properties"].items() if "default" in child} | value
        return {escaped(name): in_cel(part["properties"].get(name, {}), filled[name]) for name in filled}
    if isinstance(value, list):
        return [in_cel(part.get("items", {}), item) for item in value]
    return value


def refusals(value: Any, part: Json = SCHEMA) -> Iterator[str]:
    """The messages of all rules that a value breaks, anywhere in it."""
    if rules := part.get(RULES, ()):
        seen = {"self": in_cel(part, value)}
        yield from (rule["message"] for rule in rules if compiled(rule["rule"]).eval(data=seen).value() is not True)
    if isinstance(value, dict):
        for name, child in value.items():
            yield from refusals(child, part.get("properties", {}).get(name, {}))
    elif isinstance(value, list):
        for child in value:
            yield from refusals(child, part.get("items", {}))


def allows(spec: Any) -> bool:
    """Return whether the API server would store a spec."""
    pruned = without_nulls(spec)
    return not any(_problems(pruned, SCHEMA)) and not any(refusals(pruned))


def hides_rules(spec: Any) -> set[str]:
    """Name what keeps the API server from evaluating any rule: a wrong type, a field that lacks, what is too long.

    With one of these the user reads that, and not the messages of the rules (apiextensions: ``hasBlockingErr``).
    """
    words = ("type", "required ", "max")
    return {word for word in _problems(without_nulls(spec), SCHEMA) if word.startswith(words)}


def without_nulls(value: Any) -> Any:
    """Drop fields that are null, as the API server does before it checks; no field may be null."""
    if isinstance(value, dict):
        return {name: without_nulls(child) for name, child in value.items() if child is not None}
    return [without_nulls(child) for child in value] if isinstance(value, list) else value


def _problems(value: Any, part: Json) -> Iterator[str]:
    """Name the words of a part that refuse a value."""
    if not _is_of_type(value, part):
        yield "type"
        return
    if "enum" in part and (type(value), value) not in [(type(word), word) for word in part["enum"]]:
        yield "enum"
    if isinstance(value, str):
        yield from _size(len(value), part, "Length")
        if "pattern" in part and not _pattern(part["pattern"]).search(value):
            yield "pattern"
    elif isinstance(value, dict):
        yield from _size(len(value), part, "Properties")
        yield from (f"required {name}" for name in part.get("required", ()) if name not in value)
        for name, child in value.items():
            inner = part.get("properties", {}).get(name, part.get("additionalProperties"))
            yield from _problems(child, inner) if inner else ()
    elif isinstance(value, list):
        yield from _size(len(value), part, "Items")
        for child in value:
            yield from _problems(child, part["items"])
    elif isinstance(value, int) and not isinstance(value, bool) and "minimum" in part:
        yield from ("range",) if not part["minimum"] <= value <= part["maximum"] else ()


def _size(size: int, part: Json, what: str) -> Iterator[str]:
    if size < part.get(f"min{what}", 0):
        yield f"min{what}"
    if size > part.get(f"max{what}", size):
        yield f"max{what}"


def _is_of_type(value: Any, part: Json) -> bool:
    if part.get("x-kubernetes-int-or-string"):
        return isinstance(value, str | int) and not isinstance(value, bool)
    if "type" not in part and part.get("x-kubernetes-preserve-unknown-fields"):
        return True
    known = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    return isinstance(value, known[part["type"]]) and (part["type"] == "boolean" or not isinstance(value, bool))


@cache
def _pattern(text: str) -> Any:
    return re2.compile(text)
