"""A description becomes a value, or a message that names each wrong field."""

import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_resources.kinds import Problem
from device_resources.resource import DeviceGroup, DevicePath, Health, PathType, Resource
from device_resources.resource_parser import InvalidResource, parse_resource, resource_schema

_EDU = {"name": "driverwright.io/edu", "groups": [{"paths": [{"path": "/dev/edu*"}]}]}


def _with(**fields: object) -> dict[str, object]:
    return {**_EDU, **fields}


def _with_path(**fields: object) -> dict[str, object]:
    return _with(groups=[{"paths": [{"path": "/dev/edu*", **fields}]}])


def _message(value: object) -> str:
    with pytest.raises(InvalidResource) as caught:
        parse_resource(value, ("resources", 0))
    return str(caught.value)


def _problems(value: object) -> tuple[Problem, ...]:
    try:
        parse_resource(value)
    except InvalidResource as error:
        return error.problems
    return ()


def test_the_shortest_description_has_the_defaults_of_the_generic_device_plugin() -> None:
    """A name and a path are enough: device nodes with all permissions, not shared."""
    expected = DevicePath(path="/dev/edu*", permissions="mrw", type=PathType.DEVICE, limit=1)
    assert parse_resource(_EDU) == Resource(name="driverwright.io/edu", groups=(DeviceGroup(paths=(expected,)),))


def test_every_field_is_read() -> None:
    """Each field of a description comes to its place."""
    described = {
        "name": "vendor.example/card",
        "groups": [
            {
                "count": 4,
                "paths": [
                    {"path": "/dev/card?", "mountPath": "/dev/card0", "permissions": "rw", "type": "Device"},
                    {"path": "/opt/card", "type": "Mount", "readOnly": True, "limit": 8, "optional": True},
                ],
            }
        ],
        "health": {
            "driver": "card",
            "pci": True,
            "command": ["/check", "-q"],
            "timeoutSeconds": 3,
            "periodSeconds": 30,
        },
        "environment": {"CARD_MODE": "fast"},
    }
    node = DevicePath(path="/dev/card?", mount_path="/dev/card0", permissions="rw")
    mount = DevicePath(path="/opt/card", type=PathType.MOUNT, read_only=True, limit=8, optional=True)
    assert parse_resource(described) == Resource(
        name="vendor.example/card",
        groups=(DeviceGroup(count=4, paths=(node, mount)),),
        health=Health(driver="card", pci=True, command=("/check", "-q"), timeout_seconds=3, period_seconds=30),
        environment={"CARD_MODE": "fast"},
    )


def test_one_of_two_optional_files_may_be_at_one_place() -> None:
    """A device has the one that exists."""
    paths = [{"path": path, "mountPath": "/dev/edu0", "optional": True} for path in ("/dev/a", "/dev/b")]
    assert _problems(_with(groups=[{"paths": paths}])) == ()


def test_null_is_a_field_that_is_not_given() -> None:
    """The API server may leave null in place of a field."""
    path = {"path": "/dev/edu*", "mountPath": None, "limit": None, "optional": None, "type": None}
    group = {"count": None, "paths": [path]}
    assert parse_resource(_with(groups=[group], health=None, environment=None)) == parse_resource(_EDU)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        pytest.param([], "resources[0]: a list is not an object", id="no object"),
        pytest.param({"name": "a.b/c"}, "resources[0].groups: is missing", id="no groups"),
        pytest.param(_with(nam="x"), "resources[0].nam: there is no such field; did you mean name?", id="misspelt"),
        pytest.param(
            _with(path="/dev/x"), "resources[0].path: there is no such field here; it belongs to groups[].paths[]",
            id="misplaced",
        ),
        pytest.param(
            _with(groups=[{"usbs": [], "paths": [{"path": "/dev/x"}]}]),
            "resources[0].groups[0].usbs: there is no such field; there are count, paths", id="usbs",
        ),
        pytest.param(_with(groups=[]), "resources[0].groups: it has 0 entries: write 1 to 16", id="groups empty"),
        pytest.param(_with(name="edu"), "must be the full name of an extended resource", id="name without domain"),
        pytest.param(_with(name="kubernetes.io/edu"), "is reserved by Kubernetes", id="reserved domain"),
        pytest.param(_with(name="x.kubernetes.io/edu"), "is reserved by Kubernetes", id="below a reserved domain"),
        pytest.param(_with(name="requests.a/edu"), "is reserved by Kubernetes", id="a quota's name"),
        pytest.param(_with(name=f"{'a' * 245}/edu"), "has at most 244 characters", id="long domain"),
        pytest.param(_with(name=7), "7 is not a string: put it in quotes", id="number as name"),
        pytest.param(_with_path(path="dev/edu"), "must be an absolute path", id="relative path"),
        pytest.param(_with_path(path="/dev/../etc"), "must be an absolute path", id="path upwards"),
        pytest.param(_with_path(path="/dev//edu"), "must be an absolute path", id="empty component"),
        pytest.param(_with_path(path="/"), "must be an absolute path", id="root"),
        pytest.param(_with_path(path="/dev/**/x"), "'**' does not exist", id="two stars"),
        pytest.param(_with_path(path="/dev/["), "'[' begins a class of characters", id="a class without an end"),
        pytest.param(_with_path(path="/dev/[]/x"), "'[' begins a class of characters", id="a class of nothing"),
        pytest.param(_with_path(path="/dev/[a/b]"), "'[' begins a class of characters", id="a class over folders"),
        pytest.param(_with_path(path="/" + "x" * 255), "it has 256 characters: write at most 255", id="long path"),
        pytest.param(_with_path(mountPath="/dev/*"), "without wildcards", id="glob as mount path"),
        pytest.param(_with_path(permissions="rx"), "must be letters of 'mrw'", id="wrong permission"),
        pytest.param(_with_path(permissions="rr"), "name each of 'mrw' at most once", id="permission twice"),
        pytest.param(_with_path(readOnly=True), "readOnly: only a path of type Mount has it", id="readOnly of a node"),
        pytest.param(
            _with_path(type="Mount", permissions="r"), "permissions: only a path of type Device", id="of a mount"
        ),
        pytest.param(
            _with_path(type="Mount", path="/var/run/driverwright/team.edu"), "readOnly: set readOnly", id="by a link"
        ),
        pytest.param(_with_path(type="Mount", path="/run"), "readOnly: set readOnly", id="above"),
        pytest.param(_with_path(type="Mount", path="/var/run"), "readOnly: set readOnly", id="above by a link"),
        pytest.param(_with_path(type="Mount", path="/run/nvidia"), "readOnly: set readOnly", id="above NVIDIA's"),
        pytest.param(_with_path(type="Mount", path="/r?n/driver*/*"), "readOnly: set readOnly", id="by wildcards"),
        pytest.param(
            _with_path(type="Mount", path="/run/driverwright/team.edu"), "readOnly: set readOnly: true", id="writable"
        ),
        pytest.param(
            _with_path(type="Mount", path="/run/nvidia/driver", readOnly=False), "set readOnly: true", id="NVIDIA's"
        ),
        pytest.param(_with_path(type="device"), "did you mean Device?", id="type in lower case"),
        pytest.param(_with_path(limit=0), "0 is not a whole number from 1 to 1000", id="limit too low"),
        pytest.param(_with_path(limit=True), "True is not a whole number", id="boolean as number"),
        pytest.param(_with_path(limit=10**5000), "a very large number is not", id="a number nobody can write"),
        pytest.param(_with_path(optional="yes"), "'yes' is neither true nor false", id="optional as text"),
        pytest.param(_with(health={"drivers": "edu"}), "did you mean driver?", id="misspelt in health"),
        pytest.param(_with(health={"pci": "yes"}), "health.pci: 'yes' is neither true nor false", id="pci as text"),
        pytest.param(_with(pci=True), "there is no such field here; it belongs to health", id="pci of a resource"),
        pytest.param(_with(health={"command": "true"}), "health.command: 'true' is not a list", id="command as text"),
        pytest.param(_with(health={"timeoutSeconds": 61}), "from 1 to 60", id="long timeout"),
        pytest.param(_with(environment={"A-B": "x"}), "environment.A-B: 'A-B' is not valid", id="variable's name"),
        pytest.param(_with(environment={"A": "\ud800"}), "it has half a character", id="a value that is no text"),
        pytest.param(_with_path(path="/dev/\ud800/x"), "it has half a character", id="a path that is no text"),
        pytest.param(
            _with(groups=[{"paths": [{"path": path, "mountPath": "/dev/edu0"} for path in ("/dev/a", "/dev/b")]}]),
            "groups[0].paths[1].mountPath: '/dev/edu0' is the place of another path of this group",
            id="two files at one place",
        ),
        pytest.param(_with(environment={"A": 1}), "environment.A: 1 is not a string", id="variable's value"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_with_its_remedy(value: object, message: str) -> None:
    """A message has the path of the field, the value, and what to write instead."""
    assert message in _message(value)


def test_all_problems_are_found_at_once() -> None:
    """One run finds every mistake; a message lists the first ones."""
    paths = [{"path": "x"}] * 7
    with pytest.raises(InvalidResource) as caught:
        parse_resource(_with(groups=[{"paths": paths}]))
    assert len(caught.value.problems) == 7
    assert str(caught.value).endswith("; and 2 more problems")


def _matches(value: Any, schema: dict[str, Any]) -> bool:
    """Return whether a value is what a schema allows; of OpenAPI only what :func:`resource_schema` uses."""
    match schema["type"]:
        case "string":
            fits = isinstance(value, str) and len(value) <= schema.get("maxLength", len(value))
            return fits and bool(re.search(schema.get("pattern", ""), value)) and value in schema.get("enum", [value])
        case "integer":
            return type(value) is int and schema["minimum"] <= value <= schema["maximum"]
        case "boolean":
            return isinstance(value, bool)
        case "array":
            fits = isinstance(value, list) and schema["minItems"] <= len(value) <= schema["maxItems"]
            return fits and all(_matches(item, schema["items"]) for item in value)
    if not isinstance(value, dict) or any(name not in value for name in schema.get("required", ())):
        return False
    kinds: dict[str, Any] = schema.get("properties") or dict.fromkeys(value, schema.get("additionalProperties"))
    return all(name in kinds and _matches(item, kinds[name]) for name, item in value.items())


_PATHS = st.fixed_dictionaries(
    {"path": st.sampled_from(["/dev/edu*", "/dev/dri/card[0-9]", "/a", "a", "/a/", "/.", "/..x", "/a\\", "/a\nb"])},
    optional={
        "mountPath": st.sampled_from(["/dev/x", "/x:y", "x"]),
        "permissions": st.sampled_from(["r", "mrw", "x", ""]),
        "type": st.sampled_from(["Device", "Mount", "File"]),
        "limit": st.sampled_from([0, 1, 1000, 1001, "1"]),
        "readOnly": st.booleans(),
        "optional": st.sampled_from([True, False, "no"]),
    },
)


@given(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["a.b/c", "b/c", "c", "A/c", "a..b/c"])},
        optional={
            "groups": st.lists(
                st.fixed_dictionaries({"paths": st.lists(_PATHS, max_size=2)}, optional={"count": st.integers(-1, 2)}),
                max_size=2,
            )
        },
    )
)
def test_parser_and_schema_agree(value: dict[str, Any]) -> None:
    """What the schema refuses the parser refuses; what the parser alone refuses is what a schema cannot say."""
    only_here = ("only a path of type", "at most once", "reserved by Kubernetes", "does not exist")
    problems = [problem for problem in _problems(value) if not any(words in problem.message for words in only_here)]
    assert _matches(value, resource_schema()) is not bool(problems)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "groups", "paths", "health", "x"]), inner, max_size=4)
    ),
)


@given(_JSON)
def test_any_value_is_read_or_refused(value: object) -> None:
    """Nothing but the one error comes out, whatever is given."""
    with suppress(InvalidResource):
        parse_resource(value)
