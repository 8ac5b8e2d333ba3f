"""mig-parted's file: what a key asks for, and each mistake by file, key, field, value and remedy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import ConfigurationError
from device_agent.mig.model import parse_device_name
from device_agent.mig.parse import LONGEST_FILE, Entry, parse_layouts

FILE = """\
version: v1
mig-configs:
  all-disabled:
  - devices: all
    mig-enabled: false
  all-enabled:
  - devices: all
    mig-enabled: true
    mig-devices: {}
  mixed:
  - device-filter: "0x20B010DE"
    devices: [1, 0]
    mig-enabled: true
    mig-devices: {"1g.5gb": 2, "1c.3g.20gb": 3, "1g.5gb+me": 1, "2g.10gb": 0}
  - device-filter: ["0x233010DE", "0x20b710de"]
    devices: all
    mig-enabled: true
    mig-devices: {"3g.20gb": 1, "3c.3g.20gb": 1}
  broken: [{devices: 7}]
"""


def entry(text: str) -> str:
    """Make a file of one entry of the key ``a``."""
    return f"version: v1\nmig-configs: {{a: [{{{text}}}]}}"


def parsed(key: str) -> tuple[Entry, ...]:
    """Read a key of the file."""
    return parse_layouts(FILE, "f", key)


def test_a_key_is_read() -> None:
    """Filters in small letters, devices by their parts; a count of 0 is none, and two words of one device are added."""
    first, second = parsed("mixed")
    assert first.pci_ids == frozenset({"0x20b010de"})
    assert first.indexes == frozenset({0, 1})
    assert {str(name): count for name, count in first.layout.devices.items()} == {
        "1g.5gb": 2, "1c.3g.20gb": 3, "1g.5gb+me": 1
    }  # fmt: skip
    assert second.pci_ids == frozenset({"0x233010de", "0x20b710de"})
    assert second.indexes is None
    assert {str(name): count for name, count in second.layout.devices.items()} == {"3g.20gb": 2}


def test_a_key_of_digits_is_found() -> None:
    """A label's value is always a text."""
    text = "version: v1\nmig-configs: {7: [{devices: all, mig-enabled: false}]}"
    assert len(parse_layouts(text, "f", "7")) == 1


def test_mig_mode_may_be_off_or_without_devices() -> None:
    """Both say so of all cards."""
    (off,), (empty,) = parsed("all-disabled"), parsed("all-enabled")
    assert (off.layout.enabled, off.layout.devices, off.pci_ids, off.indexes) == (False, {}, None, None)
    assert (empty.layout.enabled, empty.layout.devices) == (True, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "f: None is not an object", id="empty"),
        pytest.param("version: v1\n---\n", "f must be one document", id="two documents"),
        pytest.param("version: v2\nmig-configs: {}", "f: version: 'v2' is unknown: use one of v1", id="version"),
        pytest.param("version: v1", "f: mig-configs: is missing", id="no keys"),
        pytest.param(
            "version: v1\nmig-configs: []", "f: mig-configs: a list is not a mapping: write KEY:", id="a list"
        ),
        pytest.param(
            "version: v1\nmig-config: {}",
            "mig-config: there is no such field; did you mean mig-configs?",
            id="field of the file",
        ),
        pytest.param(
            "version: v1\nmig-configs: {b: []}", "f: mig-configs: there is no key a; there are b", id="no key"
        ),
        pytest.param(
            "version: v1\nmig-configs: {}", "f: mig-configs: there is no key a; there are none", id="no key at all"
        ),
        pytest.param("version: v1\nmig-configs: {a: [], a: []}", "mig-configs.a: is given twice", id="a key twice"),
        pytest.param("version: v1\nmig-configs: {a: null}", "f: mig-configs.a: None is not a list", id="no entries"),
        pytest.param(
            "version: v1\nmig-configs: {a: []}", "f: mig-configs.a: it has 0 entries: write 1 to 64", id="0 entries"
        ),
        pytest.param(entry("mig-enabled: false"), "mig-configs.a[0].devices: is missing", id="no devices"),
        pytest.param(entry("devices: all"), "mig-configs.a[0].mig-enabled: is missing", id="no mode"),
        pytest.param(
            entry("devices: any, mig-enabled: false"),
            "mig-configs.a[0].devices: 'any' is not valid: write all, or a list of indexes such as [0, 1]",
            id="devices that are a word",
        ),
        pytest.param(
            entry("devices: [64], mig-enabled: false"),
            "mig-configs.a[0].devices[0]: 64 is not a whole number from 0 to 63",
            id="an index that is too large",
        ),
        pytest.param(
            entry("devices: [true], mig-enabled: false"), "devices[0]: True is not a whole number", id="no index"
        ),
        pytest.param(
            entry("devices: all, mig-enabled: 'yes'"), "mig-enabled: 'yes' is neither true nor false", id="mode"
        ),
        pytest.param(
            entry("devices: all, mig-enabled: true"),
            "mig-configs.a[0].mig-devices: is missing: write {} for MIG mode without instances",
            id="no instances",
        ),
        pytest.param(
            entry("devices: all, mig-enabled: false, mig-devices: {1g.5gb: 1}"),
            "mig-devices: has devices although mig-enabled is false: remove one of both",
            id="without mode",
        ),
        pytest.param(
            entry("devices: all, mig-enabled: true, mig-devices: {1g.5gb: 57}"),
            "mig-configs.a[0].mig-devices.1g.5gb: 57 is not a whole number from 0 to 56",
            id="too many devices",
        ),
        pytest.param(
            entry("devices: all, mig-enabled: true, mig-devices: {1g5gb: 1}"),
            "mig-configs.a[0].mig-devices: '1g5gb' is not a MIG profile: write one such as",
            id="no profile",
        ),
        pytest.param(
            entry("devices: all, mig-enabled: true, mig-devices: {4c.3g.20gb: 1}"),
            "'4c.3g.20gb' is not a MIG profile",
            id="more compute slices than the instance has",
        ),
        pytest.param(
            entry("devices: all, mig-enabled: true, mig-devices: {'1g.5gb\\u202e': 1}"),
            "is not valid: it must be a MIG profile, such as '1g.5gb'",
            id="an unprintable profile",
        ),
        pytest.param(
            entry("device-filter: 0x20B010DE, devices: all, mig-enabled: false"),
            "mig-configs.a[0].device-filter: 548409566 is not a string: put it in quotes",
            id="a number",
        ),
        pytest.param(
            entry("device-filter: A100, devices: all, mig-enabled: false"),
            "device-filter: 'A100' is not valid: it must be device and vendor of a PCI device, such as",
            id="filter",
        ),
        pytest.param(
            entry("device-filter: ['0x1'], devices: all, mig-enabled: false"),
            "mig-configs.a[0].device-filter[0]: '0x1' is not valid",
            id="one of several filters",
        ),
        pytest.param(
            entry("devicefilter: '0x20B010DE', devices: all, mig-enabled: false"),
            "devicefilter: there is no such field; did you mean device-filter?",
            id="field of an entry",
        ),
        pytest.param("#" * (LONGEST_FILE + 1), "f is longer than 131072 characters: remove keys", id="too long"),
    ],
)
def test_a_mistake_is_named(text: str, message: str) -> None:
    """With its file, its path and the remedy."""
    with pytest.raises(ConfigurationError) as caught:
        parse_layouts(text, "f", "a")
    assert str(caught.value).startswith("f")
    assert message in str(caught.value)


def test_a_key_that_is_nearly_right_is_named() -> None:
    """Beside those that there are."""
    with pytest.raises(ConfigurationError, match=r"no key all-disable; did you mean all-disabled\?; there are all-dis"):
        parsed("all-disable")


@pytest.mark.parametrize(
    ("name", "written"),
    [
        pytest.param("1g.5gb", "1g.5gb", id="whole"),
        pytest.param("1g.10gb+me", "1g.10gb+me", id="with media extensions"),
        pytest.param("1g.24gb-me", "1g.24gb-me", id="without any media"),
        pytest.param("1g.24gb+me.all", "1g.24gb+me.all", id="with all media"),
        pytest.param("1c.3g.20gb", "1c.3g.20gb", id="a part"),
        pytest.param("3c.3g.20gb", "3g.20gb", id="all parts"),
        pytest.param("3c.4g.20gb", None, id="a part that no instance has"),
        pytest.param("0g.5gb", None, id="no slices"),
        pytest.param("1g.5gb+", None, id="half an attribute"),
        pytest.param("1g.5gb\n", None, id="a line break"),
        pytest.param("mig-1g.5gb", None, id="a resource"),
    ],
)
def test_names_of_devices_are_read(name: str, written: str | None) -> None:
    """As NVML and mig-parted write them."""
    device = parse_device_name(name)
    assert (device and str(device)) == written


@given(
    st.text()
    | st.recursive(st.none() | st.integers() | st.text(max_size=3), st.lists).map(
        lambda value: entry(f"devices: {value}")
    )
)
def test_any_text_is_read_or_refused(text: str) -> None:
    """No other error comes out."""
    try:
        parse_layouts(text, "f", "a")
    except ConfigurationError:
        return


def test_a_key_that_is_a_number_of_thousands_of_digits_is_one_that_nobody_asks_for() -> None:
    """Python refuses to write it."""
    text = f"version: v1\nmig-configs:\n  ? 0x{'f' * 5000}\n  : []\n  a: [{{devices: all, mig-enabled: false}}]\n"
    assert len(parse_layouts(text, "f", "a")) == 1
    with pytest.raises(ConfigurationError, match="there is no key b"):
        parse_layouts(text, "f", "b")


@pytest.mark.parametrize("field", ["devices", "mig-enabled", "device-filter", "mig-devices"])
def test_a_value_that_is_a_number_of_thousands_of_digits_is_refused(field: str) -> None:
    """By its place, as any other wrong one."""
    entry = {"devices": "all", "mig-enabled": "false", field: f"0x{'f' * 5000}"}
    text = ", ".join(f"{name}: {value}" for name, value in entry.items())
    with pytest.raises(ConfigurationError, match=field):
        parse_layouts(f"version: v1\nmig-configs: {{a: [{{{text}}}]}}", "f", "a")
