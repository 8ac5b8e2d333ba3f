"""The texts of /proc, parsed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.device_nodes.parse import parse_fields, parse_majors, parse_number
from tests.unit.device_agent.device_nodes.driver_texts import ACCESS, DEVICES, INFORMATION

LINES = st.text(alphabet=" 0123456789:abn\n\t\x00\udc80é-", max_size=60)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", {}, id="nothing"),
        pytest.param("195 nvidia\n", {}, id="without its heading"),
        pytest.param("Character devices:\n195 nvidia\n", {195: {"nvidia"}}, id="one"),
        pytest.param(
            "Character devices:\n  4 /dev/vc/0\n  4 tty\n", {4: {"/dev/vc/0", "tty"}}, id="ranges of one major"
        ),
        pytest.param("Character devices:\n\nBlock devices:\n259 nvidia\n", {}, id="a block device"),
        pytest.param("Character devices:\n 12 a name\n", {12: {"a name"}}, id="a name with a blank"),
        pytest.param("Character devices:\n4096 far\n511 near\n", {511: {"near"}}, id="a major that cannot be"),
        pytest.param("Character devices:\n\u0661 nvidia\n", {}, id="digits of another script"),
        pytest.param("Character devices:\n195 nvid", {195: {"nvid"}}, id="cut short"),
    ],
)
def test_majors(text: str, expected: dict[int, set[str]]) -> None:
    """Only the lines between the heading of character devices and the next blank line count."""
    assert parse_majors(text) == expected


def test_majors_of_a_driver() -> None:
    """A major number has all names that ranges of its minors were registered with."""
    majors = parse_majors(DEVICES)
    assert majors[195] == {"nvidia", "nvidia-modeset", "nvidiactl"}
    assert majors[511] == {"nvidia-uvm"}
    assert 259 not in majors


@given(LINES)
def test_any_text_has_majors(text: str) -> None:
    """No text is refused, and numbers are those of the kernel."""
    majors = parse_majors(f"Character devices:\n{text}")
    assert all(0 <= major <= 4095 and names for major, names in majors.items())


@given(st.dictionaries(st.integers(0, 4095), st.from_regex(r"[a-z/][a-z0-9/ -]{0,20}", fullmatch=True), max_size=20))
def test_what_the_kernel_writes_is_read(majors: dict[int, str]) -> None:
    """Writing as the kernel does and parsing gives the same."""
    text = "".join(f"{major:3d} {name}\n" for major, name in majors.items())
    parsed = parse_majors(f"Character devices:\n{text}\nBlock devices:\n  8 sd\n")
    assert parsed == {major: {name} for major, name in majors.items()}


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        pytest.param(INFORMATION.format(minor=7), "Device Minor", "7", id="a card's minor"),
        pytest.param(ACCESS.format(minor=12, mode=256, modify=1), "DeviceFileMode", "256", id="a capability's mode"),
        pytest.param('RegistryDwords: "a: 1"\n', "RegistryDwords", '"a: 1"', id="a value with a colon"),
        pytest.param("DeviceFileUID\n", "DeviceFileUID", None, id="no value"),
        pytest.param("", "DeviceFileUID", None, id="nothing"),
    ],
)
def test_fields(text: str, name: str, expected: str | None) -> None:
    """A field's value stands behind its first colon."""
    assert parse_fields(text).get(name) == expected


@given(LINES)
def test_any_text_has_fields(text: str) -> None:
    """No text is refused."""
    assert all(value == value.strip() for value in parse_fields(text).values())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("255", 255),
        ("256", None),
        ("-1", None),
        ("0x1", None),
        ("", None),
        (" 1", None),
        ("1\n", None),
        ("²", None),
        ("9" * 5000, None),
    ],
)  # fmt: skip
def test_numbers(text: str, expected: int | None) -> None:
    """A number has decimal digits alone and is not too large."""
    assert parse_number(text, 255) == expected
