"""A limit of the schema is never tightened: the API server would refuse every later write of an object beyond it.

Also of its status and finalizer, so that neither its state could be told nor the object deleted. What a driver may not
have any more is refused by the parser, which says so in the status. Rules (CEL) are not compared.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.yaml_files import read_documents, read_yaml

ROOT = Path(__file__).parents[2]
CRDS = ROOT / "deploy" / "crds"
KNOWN: dict[str, dict[str, Any]] = read_yaml((ROOT / "tests/data/crd-limits.yaml").read_text())
"""Each field with its limits when objects were first stored; a field that is new adds its line, none gets tighter."""
WORDS = ("type", "format", "pattern", "enum", "required", "maxLength", "maxItems", "maxProperties", "maximum",
         "minLength", "minItems", "minimum")  # fmt: skip


def limits(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Return each field of a schema by its path, with its limits."""
    yield path or ".", {word: schema[word] for word in WORDS if word in schema}
    for name, field in schema.get("properties", {}).items():
        yield from limits(field, f"{path}.{name}")
    for ending, key in (("[]", "items"), (".*", "additionalProperties")):
        if isinstance(schema.get(key), dict):
            yield from limits(schema[key], path + ending)


def tightened(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Name the limits that refuse what was accepted before."""
    found = []
    for word, limit in after.items():
        match word:
            case "required":
                is_wider = set(limit) <= set(before.get(word, ()))
            case "enum":
                is_wider = word in before and set(limit) >= set(before[word])
            case "maxLength" | "maxItems" | "maxProperties" | "maximum":
                is_wider = word in before and limit >= before[word]
            case "minLength" | "minItems" | "minimum":
                is_wider = word in before and limit <= before[word]
            case _:
                is_wider = before.get(word) == limit
        if not is_wider:
            found.append(word)
    return found


def test_no_limit_of_a_stored_object_is_tightened() -> None:
    """No field goes either: what it holds would be dropped."""
    definition = read_yaml((ROOT / "deploy/crds/drivercontainers.yaml").read_text())
    (version,) = definition["spec"]["versions"]
    now = dict(limits(version["schema"]["openAPIV3Schema"]))
    assert not KNOWN.keys() - now.keys()
    assert {path: words for path in KNOWN if (words := tightened(KNOWN[path], now[path]))} == {}


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        pytest.param({"maxLength": 5}, {"maxLength": 4}, ["maxLength"], id="shorter"),
        pytest.param({"maxLength": 5}, {"maxLength": 6}, [], id="longer"),
        pytest.param({"maxLength": 5}, {}, [], id="no limit any more"),
        pytest.param({}, {"maxItems": 9}, ["maxItems"], id="a limit where none was"),
        pytest.param({"minimum": 1}, {"minimum": 2}, ["minimum"], id="a greater least value"),
        pytest.param({"enum": ["a"]}, {"enum": ["a", "b"]}, [], id="one word more"),
        pytest.param({"enum": ["a", "b"]}, {"enum": ["a"]}, ["enum"], id="one word less"),
        pytest.param({"required": ["a"]}, {"required": ["a", "b"]}, ["required"], id="one more is required"),
        pytest.param({"pattern": "a"}, {"pattern": "b"}, ["pattern"], id="another pattern"),
        pytest.param({"type": "string"}, {"type": "integer"}, ["type"], id="another type"),
    ],
)
def test_what_tightens_a_limit(before: dict[str, Any], after: dict[str, Any], words: list[str]) -> None:
    """Of a pattern only its absence is known to be wider."""
    assert tightened(before, after) == words


KEYWORDS = frozenset({
    "additionalProperties", "anyOf", "default", "description", "enum", "format", "items", "maxItems", "maxLength",
    "maxProperties", "maximum", "minItems", "minLength", "minProperties", "minimum", "nullable", "oneOf", "pattern",
    "properties", "required", "type", "x-kubernetes-int-or-string", "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type", "x-kubernetes-map-type", "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
})  # fmt: skip
"""What a structural schema of a CustomResourceDefinition may consist of, as far as ours do."""


def unknown_keywords(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Name what is no keyword, such as the rest of a description with a comma that is not in quotes."""
    yield from (f"{path}: {key}" for key in schema if key not in KEYWORDS)
    for name, part in (schema.get("properties") or {}).items():
        yield from unknown_keywords(part, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from unknown_keywords(schema[name], f"{path}[]")


@pytest.mark.parametrize("path", sorted(CRDS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_schema_consists_of_its_keywords(path: Path) -> None:
    """The API server drops everything else without a word."""
    for crd in read_documents(path.read_text()):
        for version in (crd.get("spec") or {}).get("versions") or ():
            assert list(unknown_keywords(version["schema"]["openAPIV3Schema"])) == []
