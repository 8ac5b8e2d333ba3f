"""The DaemonSet of a target."""

import re
from typing import Any

import pytest

from driver_builder import manifests
from driver_builder.driver_container import DriverContainer
from driver_builder.images import ImageRef
from kube_api import names
from tests.unit.driver_builder.factories import DIGEST, IDENTITY, KERNEL, OTHER_KERNEL, driver, spec_of, target

IMAGE = ImageRef("r.io", "edu", DIGEST)


def made(container: DriverContainer | None = None, **changes: Any) -> dict[str, Any]:
    """Make the DaemonSet of a driver."""
    container = container or driver()
    words: dict[str, Any] = {"target": target(), "image": IMAGE, "identities": {"edudrv": IDENTITY}, **changes}
    return manifests.daemon_set(container, spec_of(container), **words)


def pod_spec(manifest: dict[str, Any]) -> dict[str, Any]:
    """Give the pod's spec."""
    found: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return found


def test_pods_run_on_exactly_the_nodes_of_the_target() -> None:
    """The driver's own selector and every label that makes the target."""
    assert pod_spec(made())["nodeSelector"] == {
        "pool": "edu",
        names.KERNEL_VERSION_LABEL: KERNEL,
        names.OS_ID_LABEL: "debian",
        names.OS_VERSION_LABEL: "12",
        names.ARCHITECTURE_LABEL: "amd64",
    }


def test_a_target_without_version_is_selected_without() -> None:
    """A rolling distribution's nodes have no such label."""
    assert names.OS_VERSION_LABEL not in pod_spec(made(target=target(os_version="")))["nodeSelector"]


def test_the_controller_replaces_pods_itself() -> None:
    """OnDelete: Kubernetes does not roll over working drivers by itself."""
    assert made()["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_labels_select_what_they_mark() -> None:
    """The selector's labels are on the pods, and the object belongs to its DriverContainer."""
    manifest = made()
    labels = manifest["spec"]["template"]["metadata"]["labels"]
    assert manifest["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert manifest["metadata"]["ownerReferences"][0]["uid"] == "uid-edu"
    for key, value in labels.items():
        assert names.is_qualified_name(key)
        assert names.is_label_value(value)


def test_defaults_fit_a_driver() -> None:
    """Nothing keeps the driver from its nodes, and no token lies in its pod."""
    pod = pod_spec(made())
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert (pod["priorityClassName"], pod["automountServiceAccountToken"]) == ("system-node-critical", False)
    assert "imagePullSecrets" not in pod


def test_the_spec_can_say_otherwise() -> None:
    """Tolerations, priority and pull secrets are the admin's."""
    changes = {"tolerations": [{"key": "a"}], "priorityClassName": "low", "imagePullSecrets": [{"name": "pull"}]}
    pod = pod_spec(made(driver(spec_changes=changes)))
    assert {field: pod[field] for field in changes} == changes


@pytest.mark.parametrize(
    ("container", "changes", "same"),
    [
        pytest.param(driver(), {}, True, id="nothing"),
        pytest.param(driver(status={"readyNodes": 1}), {}, True, id="status"),
        pytest.param(driver(spec_changes={"version": "2"}), {}, False, id="version"),
        pytest.param(driver(spec_changes={"nodeSelector": {"a": "b"}}), {}, False, id="node selector"),
        pytest.param(driver(spec_changes={"priorityClassName": "low"}), {}, False, id="priority"),
        pytest.param(driver(), {"image": IMAGE.at("sha256:" + "e" * 64)}, False, id="image"),
        pytest.param(driver(), {"identities": {"edudrv": "other"}}, False, id="identity"),
    ],
)
def test_the_fingerprint_changes_with_the_template(
    container: DriverContainer, changes: dict[str, Any], same: bool
) -> None:
    """It is what pods are compared by: equal exactly when they would be."""
    key = manifests.FINGERPRINT_ANNOTATION
    before, after = made(), made(container, **changes)
    assert (before["metadata"]["annotations"][key] == after["metadata"]["annotations"][key]) is same
    assert after["spec"]["template"]["metadata"]["annotations"][key] == after["metadata"]["annotations"][key]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("edu", id="short"),
        pytest.param("e" * 44, id="long"),
        pytest.param("a-" * 22, id="dashes"),
        pytest.param("a." * 18 + "b" * 8, id="dots"),
    ],
)
def test_names_are_valid_and_leave_room(name: str) -> None:
    """A DNS subdomain of at most 58 characters, so that a pod's name keeps it whole."""
    made_name = manifests.daemon_set_name(driver(name), target())
    assert re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", made_name)
    assert len(made_name) <= 58


def test_long_names_with_the_same_beginning_stay_apart() -> None:
    """Two drivers whose names differ at their end do not share a DaemonSet."""
    found = {manifests.daemon_set_name(driver("d" * 50 + end), target()) for end in "ab"}
    assert len(found) == 2


def test_targets_have_daemon_sets_of_their_own() -> None:
    """Kernel, system and architecture are in the name."""
    targets = [target(), target(OTHER_KERNEL), target(os_version="13"), target(architecture="arm64")]
    assert len({manifests.daemon_set_name(driver(), item) for item in targets}) == 4
