"""What ``nvidia:`` says becomes a value, or a message that names each wrong field."""

import pytest

from device_resources.nvidia import AllocationPolicy, MigStrategy, NvidiaSettings, nvidia_schema, parse_nvidia
from device_resources.resource_parser import InvalidResource

_EVERYTHING = {
    "migStrategy": "mixed",
    "libraries": {"path": "/run/nvidia/driver"},
    "sharedDevicesAllocationPolicy": "packed",
    "health": {"holdSeconds": 60},
}


def _message(value: object) -> str:
    with pytest.raises(InvalidResource) as caught:
        parse_nvidia(value, ("nvidia",))
    return str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"migStrategy": None, "libraries": None, "health": {"holdSeconds": None}}, id="null"),
    ],
)
def test_an_empty_object_has_the_defaults(value: object) -> None:
    """Full cards without libraries, spread over the cards, ten minutes after an error."""
    expected = NvidiaSettings(
        mig_strategy=MigStrategy.NONE, libraries=None, policy=AllocationPolicy.DISTRIBUTED, hold_seconds=600
    )
    assert parse_nvidia(value) == expected


def test_every_field_is_read() -> None:
    """Each field comes to its place."""
    assert parse_nvidia(_EVERYTHING) == NvidiaSettings(
        mig_strategy=MigStrategy.MIXED,
        libraries="/run/nvidia/driver",
        policy=AllocationPolicy.PACKED,
        hold_seconds=60,
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(None, "nvidia: is empty: write {} for the defaults, or remove it", id="empty"),
        pytest.param(["gpu"], "nvidia: a list is not an object", id="a list"),
        pytest.param({"migStrategie": "none"}, "nvidia.migStrategie: there is no such field; did you mean migS",
                     id="misspelt"),
        pytest.param({"migStrategy": "Single"}, "nvidia.migStrategy: 'Single' is unknown: use one of none, single",
                     id="a word in capitals"),
        pytest.param({"libraries": {}}, "nvidia.libraries.path: is missing", id="libraries without a path"),
        pytest.param({"path": "/run/nvidia/driver"}, "nvidia.path: there is no such field here; it belongs to lib",
                     id="a field of libraries"),
        pytest.param({"health": {"holdSeconds": 0}}, "nvidia.health.holdSeconds: 0 is not a whole number from 1 to",
                     id="no time"),
        pytest.param({"sharedDevicesAllocationPolicy": "pack"}, "did you mean packed?", id="another policy"),
        pytest.param({"mig": True}, "nvidia.mig: True is not an object", id="a switch for an object"),
        pytest.param({"mig": {"enabled": "yes"}}, "nvidia.mig.enabled: 'yes' is neither true nor false", id="a word"),
        pytest.param({"mig": {"configMap": "a"}}, "it belongs to the chart and to a driver's stage: mount the",
                     id="what the agent cannot read"),
        pytest.param({"drain": True}, "nvidia.drain: there is no such field here; it belongs to mig", id="a drain"),
        pytest.param({"nodeSelector": {}}, "nvidia.nodeSelector: there is no such field; there are migStrategy,",
                     id="a field of something else"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_with_its_value_and_the_remedy(value: object, expected: str) -> None:
    """A message says which field, what it has, and what it may have."""
    assert expected in _message(value)


@pytest.mark.parametrize(
    ("mig", "expected"),
    [
        pytest.param(None, (False, False), id="nothing"),
        pytest.param({}, (False, False), id="empty"),
        pytest.param({"enabled": None, "drain": None}, (False, False), id="null is not given"),
        pytest.param({"drain": True}, (False, True), id="a drain alone switches nothing on"),
        pytest.param({"enabled": True}, (True, False), id="on, and nobody is evicted"),
        pytest.param({"enabled": True, "drain": True}, (True, True), id="with a drain"),
    ],
)
def test_mig_changes_are_off_unless_they_are_switched_on(mig: object, expected: tuple[bool, bool]) -> None:
    """Each by its own word."""
    found = parse_nvidia({"mig": mig})
    assert (found.changes_mig, found.drains_for_mig) == expected


@pytest.mark.parametrize(
    "path",
    [
        "relative/path", "/opt", "/", "/run/nvidia/", "/run//nvidia", "/run/../etc", "/../etc/x", "/run/x/*", "/*/x",
        "/run/nvidia:ro", "/run/./nvidia",
    ],
)  # fmt: skip
def test_the_path_of_libraries_is_plain_and_below_a_folder(path: str) -> None:
    """The folder above it is mounted: that is never all of the node, and nothing is matched or left upwards."""
    assert "nvidia.libraries.path: " in _message({"libraries": {"path": path}})


def test_the_schema_has_the_same_words_and_bounds() -> None:
    """An API server refuses what the parser would refuse, and knows each field."""
    properties = nvidia_schema()["properties"]
    assert properties["migStrategy"]["enum"] == [*MigStrategy]
    assert properties["sharedDevicesAllocationPolicy"]["enum"] == [*AllocationPolicy]
    assert properties["libraries"]["required"] == ["path"]
    assert properties["health"]["properties"]["holdSeconds"] == {"type": "integer", "minimum": 1, "maximum": 86400}
