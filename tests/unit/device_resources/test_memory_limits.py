"""What ``memory:`` says becomes a value, or a message that names each wrong field."""

import re

import pytest
import yaml

from device_resources.memory_limits import (
    DefaultLimit,
    MemoryMode,
    MemorySettings,
    memory_schema,
    parse_memory,
)
from device_resources.resource_parser import InvalidResource

_SHARED = "nvidia.com/gpu.shared"


def _message(value: object) -> str:
    with pytest.raises(InvalidResource) as caught:
        parse_memory(value, ("memory",))
    return str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"mode": None, "limits": None, "default": None, "graceSeconds": None, "dryRun": None}, id="null"),
    ],
)
def test_an_empty_object_has_the_defaults(value: object) -> None:
    """Nothing is limited; where it is, each pod has its share, and ten seconds."""
    expected = MemorySettings(
        mode=MemoryMode.OFF, limits={}, default=DefaultLimit.SHARE, grace_seconds=10, dry_run=False
    )
    assert parse_memory(value) == expected


def test_every_field_is_read() -> None:
    """Each field comes to its place, and quantities are bytes."""
    text = f"""
        mode: driver
        limits: {{{_SHARED}: 10Gi, example.com/card: 1073741824, example.com/other: 1.5G}}
        default: none
        graceSeconds: 3600
        dryRun: true
    """
    assert parse_memory(yaml.safe_load(text)) == MemorySettings(
        mode=MemoryMode.DRIVER,
        limits={_SHARED: 10 * 1024**3, "example.com/card": 1024**3, "example.com/other": 1_500_000_000},
        default=DefaultLimit.NONE,
        grace_seconds=3600,
        dry_run=True,
    )


@pytest.mark.parametrize("word", ["off", "'off'", "Off", "no", "false"])
def test_a_bare_off_is_off(word: str) -> None:
    """YAML 1.1 makes false of it, before anybody can see the word."""
    assert parse_memory(yaml.safe_load(f"mode: {word}")).mode is MemoryMode.OFF


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(None, "memory: None is not an object", id="empty"),
        pytest.param({"mode": True}, "memory.mode: true is no mode (YAML reads a bare 'on' and 'yes' as true): use one "
                     "of off, watch, driver", id="a bare on"),
        pytest.param({"mode": "wach"}, "memory.mode: 'wach' is unknown: use one of off, watch, driver; did you mean w",
                     id="a misspelt mode"),
        pytest.param({"mode": 0}, "memory.mode: 0 is unknown", id="a number that equals false"),
        pytest.param({"limit": {}}, "memory.limit: there is no such field; did you mean limits?", id="misspelt"),
        pytest.param({"limits": {"gpu": "10Gi"}}, "memory.limits.gpu: 'gpu' is not valid: it must be the full name",
                     id="a resource without its domain"),
        pytest.param({"limits": {_SHARED: "ten"}}, f"memory.limits.{_SHARED}: 'ten' is not a quantity of bytes: write "
                     "one such as 10Gi", id="no quantity"),
        pytest.param({"limits": {_SHARED: 1.5}}, "1.5 is not a quantity of bytes", id="a fraction without quotes"),
        pytest.param({"limits": {_SHARED: True}}, "True is not a quantity of bytes", id="true is no number"),
        pytest.param({"limits": {_SHARED: None}}, "None is not a quantity of bytes", id="no limit at all"),
        pytest.param({"limits": {_SHARED: "10"}}, "'10' is not from 1Mi to 8Pi: write a quantity with its unit",
                     id="without a unit"),
        pytest.param({"limits": {_SHARED: "10m"}}, "'10m' is not from 1Mi to 8Pi", id="thousandths of a byte"),
        pytest.param({"limits": {_SHARED: "-1Gi"}}, "'-1Gi' is not from 1Mi to 8Pi", id="negative"),
        pytest.param({"limits": {_SHARED: "1" + "0" * 40}}, "is not a quantity of bytes", id="endless"),
        pytest.param({"limits": {_SHARED: 10**4400}}, "a very large number is not from 1Mi", id="a very large number"),
        pytest.param({"default": "half"}, "memory.default: 'half' is unknown: use one of share, none", id="default"),
        pytest.param({"graceSeconds": 0}, "memory.graceSeconds: 0 is not a whole number from 1 to 3600", id="no grace"),
        pytest.param({"dryRun": "true"}, "memory.dryRun: 'true' is neither true nor false", id="a flag in quotes"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_with_its_value_and_the_remedy(value: object, expected: str) -> None:
    """A message says which field, what it has, and what it may have."""
    assert expected in _message(value)


def test_the_schema_has_the_same_words_and_bounds() -> None:
    """An API server refuses what the parser would refuse, and takes false for off as the parser does."""
    properties = memory_schema()["properties"]
    assert properties["mode"]["enum"] == ["off", "watch", "driver", False]
    assert properties["default"]["enum"] == ["share", "none"]
    assert properties["graceSeconds"] == {"type": "integer", "minimum": 1, "maximum": 3600}
    limit = properties["limits"]["additionalProperties"]
    assert (limit["minimum"], limit["maximum"]) == (1 << 20, 1 << 53)


@pytest.mark.parametrize("text", ["10Gi", "1.5G", "10737418240", "5e9", "512Mi", "1E"])
def test_the_schema_takes_the_quantities_of_the_parser(text: str) -> None:
    """What is a quantity of bytes here is one for the API server."""
    pattern = memory_schema()["properties"]["limits"]["additionalProperties"]["pattern"]
    assert re.search(pattern, text)
