"""What may be on a Node: Kubernetes' own rules, upstream's, and the admin's."""

import pytest

from feature_rules.keys.namespaces import (
    NamespaceOptions,
    add_prefixes,
    check_annotation,
    check_extended_resource,
    check_label,
    check_label_syntax,
    check_taint,
    is_whitelisted,
)
from feature_rules.model import Taint

DENYING = NamespaceOptions(
    deny_label_ns=("denied.io", "*.denied.net", "*node.kubernetes.io"),
    extra_label_ns=(
        "but.denied.net",
        "extra.kubernetes.io",
        "nvidia.com",
        "nvidia.com/mig.config",
        "vendor.io/x",
        "denied.io/x",
    ),
)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        pytest.param("feature.node.kubernetes.io/x", "true", None, id="own namespace"),
        pytest.param("sub.feature.node.kubernetes.io/x", "", None, id="sub-namespace and empty value"),
        pytest.param("profile.node.kubernetes.io/x", "1", None, id="profile namespace"),
        pytest.param("a.profile.node.kubernetes.io/x", "1", None, id="below the profile namespace"),
        pytest.param("vendor.io/x", "1", None, id="a vendor's namespace"),
        pytest.param("notkubernetes.io/x", "1", None, id="a namespace that ends like Kubernetes'"),
        pytest.param("kubernetes.io/x", "1", "ns-not-allowed", id="kubernetes.io"),
        pytest.param("node.kubernetes.io/x", "1", "ns-not-allowed", id="below kubernetes.io"),
        pytest.param("xfeature.node.kubernetes.io/x", "1", "ns-not-allowed", id="beside the own namespace"),
        pytest.param("x", "1", "unprefixed", id="no namespace"),
        pytest.param("vendor.io/x:", "1", "invalid-key", id="bad key"),
        pytest.param("vendor.io/x/y", "1", "invalid-key", id="two slashes"),
        pytest.param("vendor.io/x", "a b", "invalid-value", id="bad value"),
        pytest.param("vendor.io/x", "a" * 64, "invalid-value", id="value too long"),
        pytest.param("denied.io/x", "1", "denied-ns", id="denied"),
        pytest.param("sub.denied.io/x", "1", None, id="below a denied one"),
        pytest.param("sub.denied.net/x", "1", "denied-ns", id="denied by its end"),
        pytest.param("denied.net/x", "1", None, id="the end itself"),
        pytest.param("but.denied.net/x", "1", None, id="denied and extra"),
        pytest.param("extra.kubernetes.io/x", "1", None, id="extra below Kubernetes"),
        pytest.param("sub.extra.kubernetes.io/x", "1", "ns-not-allowed", id="below an extra one"),
        pytest.param("extra.kubernetes.io/x", "a b", "invalid-value", id="bad value in an extra namespace"),
        pytest.param("nvidia.com/gpu.count", "1", None, id="beside a guarded key"),
        pytest.param("nvidia.com/device-plugin.config", "a", "guarded", id="a guarded key in an extra namespace"),
        pytest.param("nvidia.com/device-plugin.config.x", "a", "guarded", id="one that begins so"),
        pytest.param("nvidia.com/mig.config", "a", None, id="a guarded key that is allowed"),
        pytest.param("nvidia.com/mig.config.state", "a", "guarded", id="one that begins as an allowed one"),
        pytest.param("nvidia.com/mig.config", "a b", "invalid-value", id="bad value of a guarded key"),
        pytest.param("denied.io/x", "1", "denied-ns", id="a whole key that is not guarded"),
    ],
)
def test_labels(key: str, value: str, reason: str | None) -> None:
    """The feature namespaces cannot be denied, and no namespace excuses a bad value."""
    problem = check_label(key, value, DENYING)
    assert (problem.reason if problem else None) == reason


def test_without_automatic_prefixes_a_label_needs_no_namespace() -> None:
    """As upstream publishes it; a lone star denies it, as it does there."""
    options = NamespaceOptions(auto_prefix=False)
    assert check_label("foo", "bar", options) is None
    problem = check_label("foo", "bar", options._replace(deny_label_ns=("*",)))
    assert problem is not None
    assert problem.reason == "denied-ns"


def test_a_lone_star_denies_everything_but_the_feature_namespaces() -> None:
    """``*`` denies every namespace except the feature namespaces, as upstream documents."""
    options = NamespaceOptions(deny_label_ns=("*",))
    assert check_label("feature.node.kubernetes.io/x", "", options) is None
    assert check_label("profile.node.kubernetes.io/x", "", options) is None
    problem = check_label("vendor.io/x", "", options)
    assert problem is not None
    assert problem.reason == "denied-ns"


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        pytest.param("unprefixed", "v", None, id="no namespace"),
        pytest.param("kubernetes.io/x", "v", None, id="any namespace"),
        pytest.param("x:", "v", "invalid-key", id="bad key"),
        pytest.param("x", "@a.b.c", "invalid-value", id="bad value"),
    ],
)
def test_label_syntax_is_only_about_characters(key: str, value: str, reason: str | None) -> None:
    """The syntax check does not look at the namespace."""
    problem = check_label_syntax(key, value)
    assert (problem.reason if problem else None) == reason


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        pytest.param("feature.node.kubernetes.io/x", "any text: \u00e4\n", None, id="any text"),
        pytest.param("vendor.io/x", "a" * 1024, None, id="as long as may be"),
        pytest.param("vendor.io/x", "a" * 1023 + "\u00e4", "too-long", id="bytes count"),
        pytest.param("vendor.io/x", "\ud800", "invalid-value", id="half a character"),
        pytest.param("profile.node.kubernetes.io/x", "v", "ns-not-allowed", id="profiles are for labels"),
        pytest.param("unprefixed", "v", "unprefixed", id="no namespace"),
        pytest.param("vendor.io/", "v", "invalid-key", id="no name"),
    ],
)
def test_annotations(key: str, value: str, reason: str | None) -> None:
    """Their values are free but for their length."""
    problem = check_annotation(key, value)
    assert (problem.reason if problem else None) == reason


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        pytest.param("feature.node.kubernetes.io/x", "2Gi", None, id="quantity"),
        pytest.param("feature.node.kubernetes.io/x", "1500m", None, id="fraction where the API server takes it"),
        pytest.param("vendor.io/x", "1500m", "invalid-value", id="fraction where it does not"),
        pytest.param("vendor.io/x", "0", None, id="nothing"),
        pytest.param("vendor.io/x", "-1", "invalid-value", id="less than nothing"),
        pytest.param("vendor.io/x", "many", "invalid-value", id="no quantity"),
        pytest.param("node.kubernetes.io/x", "1", "ns-not-allowed", id="Kubernetes' namespace"),
        pytest.param("profile.node.kubernetes.io/x", "1", "ns-not-allowed", id="profiles are for labels"),
        pytest.param("vendor.io/x~", "1", "invalid-key", id="bad key"),
        pytest.param("unprefixed", "1", None, id="no namespace"),
    ],
)
def test_extended_resources(key: str, value: str, reason: str | None) -> None:
    """One bad resource would make the API server refuse them all."""
    problem = check_extended_resource(key, value)
    assert (problem.reason if problem else None) == reason


@pytest.mark.parametrize(
    ("taint", "reason"),
    [
        pytest.param(Taint("vendor.io/x", "v", "NoSchedule"), None, id="good"),
        pytest.param(Taint("vendor.io/x", "", "PreferNoSchedule"), None, id="no value"),
        pytest.param(Taint("feature.node.kubernetes.io/x", "", "NoExecute"), None, id="own namespace"),
        pytest.param(Taint("node.kubernetes.io/x", "", "NoExecute"), "ns-not-allowed", id="Kubernetes' namespace"),
        pytest.param(Taint("x", "", "NoExecute"), "unprefixed", id="no namespace"),
        pytest.param(Taint("vendor.io/x", "v", ""), "invalid-effect", id="no effect"),
        pytest.param(Taint("vendor.io/x", "v", "noschedule"), "invalid-effect", id="letter case of the effect"),
        pytest.param(Taint("vendor.io/x~", "v", "NoSchedule"), "invalid-key", id="bad key"),
        pytest.param(Taint("vendor.io/x", "a b", "NoSchedule"), "invalid-value", id="bad value"),
    ],
)
def test_taints(taint: Taint, reason: str | None) -> None:
    """Key and value are those of a label."""
    problem = check_taint(taint)
    assert (problem.reason if problem else None) == reason


def test_the_whitelist_sees_the_name_without_its_namespace() -> None:
    """It is unanchored; a name without a namespace is all name."""
    assert is_whitelisted("vendor.io/pci-10de", "10de")
    assert not is_whitelisted("vendor.io/pci-10de", "vendor")
    assert is_whitelisted("pci", "^pc.$")
    assert is_whitelisted("vendor.io/pci", "")


def test_a_full_key_wins_over_the_same_key_without_its_prefix() -> None:
    """A full key wins over the same key without prefix, in either order."""
    both = {"x": 1, "feature.node.kubernetes.io/x": 2, "vendor.io/x": 3}
    assert add_prefixes(both) == {"feature.node.kubernetes.io/x": 2, "vendor.io/x": 3}
    assert add_prefixes(dict(reversed(both.items()))) == {"feature.node.kubernetes.io/x": 2, "vendor.io/x": 3}


def test_nobody_but_us_says_that_a_driver_is_ready() -> None:
    """Feature files belong to the node's administrator, and rules to the cluster's: neither has proven anything."""
    options = NamespaceOptions(extra_label_ns=("driverwright.io",))
    problem = check_label("driverwright.io/default.edu.ready", "1.0", options)
    assert problem is not None
    assert problem.reason == "ns-not-allowed"
    assert check_annotation("driverwright.io/boot-id", "x") is not None
    assert check_taint(Taint("driverwright.io/mine", "", "NoSchedule")) is not None
