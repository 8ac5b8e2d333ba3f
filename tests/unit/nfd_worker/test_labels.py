"""Labels: names, what Kubernetes refuses, and the operator's allow-list."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube_api.names import is_label_value, is_qualified_name
from nfd_worker.labels import LabelWarning, label_key, make_labels, refusal

ALL = re.compile("")


def test_names_get_the_prefix_of_their_source_unless_they_have_a_namespace() -> None:
    """A name with a slash is a full key already."""
    assert label_key("pci", "0300_10de.present") == "feature.node.kubernetes.io/pci-0300_10de.present"
    assert label_key("local", "vendor.io/x") == "vendor.io/x"


def test_labels_come_sorted_and_later_sources_win() -> None:
    """The order of sources decides, not the order of names."""
    made = make_labels({"b": {"vendor.io/x": "1", "z": "1"}, "a": {"vendor.io/x": "2"}}, ALL)
    assert list(made.labels.items()) == [("feature.node.kubernetes.io/b-z", "1"), ("vendor.io/x", "2")]
    assert made.warnings == ()


def test_a_label_that_kubernetes_refuses_is_left_out_with_its_reason() -> None:
    """The warning names source, key, value and reason; the other labels stay."""
    made = make_labels({"cpu": {"cpuid.POWER5+": "true", "cpuid.VSX": "true"}}, ALL)
    assert made.labels == {"feature.node.kubernetes.io/cpu-cpuid.VSX": "true"}
    (warning,) = made.warnings
    assert warning[:3] == ("cpu", "feature.node.kubernetes.io/cpu-cpuid.POWER5+", "true")
    assert "qualified name" in warning.reason


def test_a_warning_reads_as_one_sentence() -> None:
    """It is a log line."""
    assert str(LabelWarning("cpu", "a/b", "c", "why")) == "cpu: label a/b=c left out: why"


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        pytest.param("feature.node.kubernetes.io/x", "true", None, id="own namespace"),
        pytest.param("sub.feature.node.kubernetes.io/x", "", None, id="sub-namespace and empty value"),
        pytest.param("profile.node.kubernetes.io/x", "1", None, id="profile namespace"),
        pytest.param("vendor.io/x", "1", None, id="a vendor's namespace"),
        pytest.param("kubernetes.io/x", "1", "belongs to Kubernetes", id="kubernetes.io"),
        pytest.param("node.kubernetes.io/x", "1", "belongs to Kubernetes", id="below kubernetes.io"),
        pytest.param("x", "1", "no namespace", id="no namespace"),
        pytest.param("vendor.io/x:", "1", "not a qualified name", id="bad key"),
        pytest.param("vendor.io/x", "a b", "not a label value", id="bad value"),
        pytest.param("vendor.io/x", "a" * 64, "not a label value", id="value too long"),
    ],
)
def test_refusal(key: str, value: str, reason: str | None) -> None:
    """The rules are those of the API server and of upstream's master."""
    told = refusal(key, value)
    assert told is None if reason is None else told is not None and reason in told


def test_the_allow_list_is_searched_in_the_name_without_namespace_and_makes_no_warnings() -> None:
    """It is unanchored, and sees the source's prefix."""
    wanted = {"pci": {"0300_10de.present": "true"}, "cpu": {"cpuid.AVX": "true"}}
    made = make_labels(wanted, re.compile("^pci-.*10de"))
    assert made.labels == {"feature.node.kubernetes.io/pci-0300_10de.present": "true"}
    assert made.warnings == ()
    assert make_labels(wanted, re.compile("kubernetes")).labels == {}


@given(st.dictionaries(st.text(), st.text()))
def test_whatever_a_source_says_what_comes_out_is_valid(wanted: dict[str, str]) -> None:
    """No label reaches the API server that it would refuse."""
    made = make_labels({"s": wanted}, ALL)
    assert all(is_qualified_name(key) and is_label_value(value) for key, value in made.labels.items())
    assert len(made.labels) + len(made.warnings) >= len({label_key("s", name) for name in wanted}) - len(made.warnings)
