"""Label and annotation keys and values, against Kubernetes' own rules."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_api import names

# Written down anew from Kubernetes' IsQualifiedName, IsDNS1123Subdomain and IsValidLabelValue.
NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def kubernetes_takes_key(key: str) -> bool:
    """Judge as IsQualifiedName does."""
    parts = key.split("/")
    match parts:
        case [name]:
            prefix = None
        case [prefix, name]:
            pass
        case _:
            return False
    if prefix is not None and (not 1 <= len(prefix) <= 253 or not SUBDOMAIN.fullmatch(prefix)):
        return False
    return 1 <= len(name) <= 63 and NAME.fullmatch(name) is not None


def kubernetes_takes_value(value: str) -> bool:
    """Judge as IsValidLabelValue does."""
    return len(value) <= 63 and (value == "" or NAME.fullmatch(value) is not None)


near_keys = st.text(alphabet="aB0-_./ä\n", max_size=8) | st.text(
    alphabet=string.ascii_lowercase, min_size=60, max_size=66
)


@given(near_keys | st.tuples(near_keys, near_keys).map("/".join) | st.text())
def test_keys_are_judged_as_kubernetes_does(key: str) -> None:
    """A key passes exactly where the API server lets it pass."""
    assert names.is_qualified_name(key) is kubernetes_takes_key(key)


@given(near_keys | st.text())
def test_values_are_judged_as_kubernetes_does(value: str) -> None:
    """A value passes exactly where the API server lets it pass."""
    assert names.is_label_value(value) is kubernetes_takes_value(value)


@given(st.text() | st.text(alphabet="a-_.", max_size=80))
def test_any_text_makes_a_valid_value(text: str) -> None:
    """Sanitising always gives a valid value, and leaves a valid one as it is."""
    made = names.label_value(text)
    assert kubernetes_takes_value(made)
    if kubernetes_takes_value(text):
        assert made == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("Intel(R) Xeon(R)", "Intel_R__Xeon_R", id="brackets and blanks"),
        pytest.param("6.1.0+", "6.1.0", id="end trimmed"),
        pytest.param("é", "", id="nothing left"),
        pytest.param("a" * 62 + "--b", "a" * 62, id="cut at a dash"),
        pytest.param("6.1.0-" + "x" * 58, "6.1.0-" + "x" * 57, id="the longest kernel release"),
        pytest.param("6.1.\ud800", "6.1", id="half a character"),
    ],
)
def test_other_characters_become_underscores(text: str, expected: str) -> None:
    """Length and ends are trimmed, what cannot stand in a value is replaced."""
    assert names.label_value(text) == expected


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(names.KERNEL_VERSION_LABEL, id="kernel"),
        pytest.param(names.OS_ID_LABEL, id="os"),
        pytest.param(names.OS_VERSION_LABEL, id="os version"),
        pytest.param(names.ARCHITECTURE_LABEL, id="architecture"),
        pytest.param(names.BOOT_ID_ANNOTATION, id="boot id"),
        pytest.param(names.REBUILD_ANNOTATION, id="rebuild"),
        pytest.param(names.PAUSE_ANNOTATION, id="pause"),
        pytest.param(names.ready_label("n" * 28, "d" * 28), id="the longest ready label"),
    ],
)
def test_our_own_keys_are_valid(key: str) -> None:
    """Every key we write is one Kubernetes takes."""
    assert kubernetes_takes_key(key)
