"""Dynamic values: what ``@domain.feature.element`` stands for."""

import pytest

from feature_rules.dynamic import resolve
from feature_rules.features import Features

FEATURES = Features(
    flags={"cpu.cpuid": frozenset({"AVX2"})},
    attributes={"system.osrelease": {"ID": "debian", "VERSION_ID.major": "12", "empty": ""}},
)


@pytest.mark.parametrize(
    ("value", "resolved"),
    [
        pytest.param("plain", "plain", id="not dynamic"),
        pytest.param("", "", id="empty"),
        pytest.param("me@example.com", "me@example.com", id="mark in the middle"),
        pytest.param("@system.osrelease.ID", "debian", id="attribute"),
        pytest.param("@system.osrelease.VERSION_ID.major", "12", id="element with a dot"),
        pytest.param("@system.osrelease.empty", "", id="empty element"),
        pytest.param("@system.osrelease.NAME", None, id="no such element"),
        pytest.param("@System.osrelease.ID", None, id="letter case"),
        pytest.param("@cpu.cpuid.AVX2", None, id="flags have no value"),
        pytest.param("@system.osrelease", None, id="two parts"),
        pytest.param("@system", None, id="one part"),
        pytest.param("@", None, id="no part"),
    ],
)
def test_a_value_with_the_mark_is_looked_up(value: str, resolved: str | None) -> None:
    """Only a value that begins with @ is replaced by the attribute that it names."""
    assert resolve(value, FEATURES) == resolved
