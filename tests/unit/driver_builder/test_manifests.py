"""The DaemonSet of a target."""

import re
from typing import Any

import pytest

from driver_builder.model.images import ImageRef
from driver_builder.planning import manifests
from driver_builder.spec.driver_container import DriverContainer
from kube_api import names
from tests.unit.driver_builder.factories import DIGEST, IDENTITY, KERNEL, OTHER_KERNEL, driver, spec_of, target

IMAGE = ImageRef("r.io", "edu", DIGEST)


def made(container: DriverContainer | None = None, **changes: Any) -> dict[str, Any]:
    """Make the DaemonSet of a driver."""
    container = container or driver()
    words: dict[str, Any] = {"target": target(), "image": IMAGE, "identities": {"edudrv": IDENTITY}, **changes}
    return manifests.daemon_set(container, spec_of(container), **words)


def with_module(**changes: Any) -> DriverContainer:
    """Make a driver whose module is asked for with more."""
    return driver(spec_changes={"module": {"names": ["edudrv"], **changes}})


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
        pytest.param(with_module(blacklist=["nouveau"]), {}, False, id="blacklist"),
        pytest.param(with_module(inTreeModulesToRemove=["nouveau"]), {}, False, id="modules that make room"),
        pytest.param(with_module(firmwarePath="/source/fw"), {}, False, id="firmware"),
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


def host_paths(pod: dict[str, Any]) -> dict[str, tuple[str, str, bool]]:
    """Give what the pod sees of its node: where, which path, whether it may write there."""
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}
    (container,) = pod["containers"]
    assert container["volumeMounts"] == pod["initContainers"][0]["volumeMounts"]
    return {
        mount["name"]: (mount["mountPath"], paths.pop(mount["name"]), not mount.get("readOnly", False))
        for mount in container["volumeMounts"]
    }


MODULES = {"modules": ("/host/lib/modules", "/lib/modules", False)}


@pytest.mark.parametrize(
    ("changes", "paths", "environment"),
    [
        pytest.param({}, MODULES, {}, id="nothing asked for"),
        pytest.param(
            {"inTreeModulesToRemove": ["b", "a-c"]}, MODULES, {"REMOVE_MODULES": "b a-c"}, id="modules that make room"
        ),
        pytest.param(
            {"blacklist": ["nouveau", "other"]},
            {**MODULES, "modprobe": ("/host/etc/modprobe.d", "/etc/modprobe.d", True)},
            {"BLACKLIST": "nouveau other"},
            id="blacklist",
        ),
        pytest.param(
            {"firmwarePath": "/source/fw"},
            {**MODULES, "firmware": ("/host/lib/firmware", "/lib/firmware", True)},
            {},
            id="firmware",
        ),
    ],
)
def test_a_pod_gets_no_more_of_its_node_than_it_needs(
    changes: dict[str, Any], paths: dict[str, Any], environment: dict[str, str]
) -> None:
    """The loader is told what to do by the pod, so that none of it builds an image anew."""
    pod = pod_spec(made(with_module(**changes)))
    assert host_paths(pod) == paths
    owner = {"DRIVER": f"driverwright.edu-{target().short_hash}"} if changes else {}
    for container in (*pod["containers"], *pod["initContainers"]):
        told = {item["name"]: item["value"] for item in container.get("env", [])}
        assert told == {**owner, **environment}


def test_the_blacklist_is_taken_away_by_a_hook() -> None:
    """The kubelet runs it when the pod goes; nothing of the kind is there without a blacklist."""
    (container,) = pod_spec(made(with_module(blacklist=["nouveau"])))["containers"]
    assert container["lifecycle"] == {"preStop": {"exec": {"command": ["/driver/loader", "leave"]}}}
    assert "lifecycle" not in pod_spec(made())["containers"][0]


def test_two_drivers_and_two_targets_leave_no_file_in_common() -> None:
    """A node that has just booted another kernel may have pods of both for a moment."""

    def owner(container: DriverContainer, kernel: str) -> str:
        pod = pod_spec(made(container, target=target(kernel)))
        return str(pod["containers"][0]["env"][0]["value"])

    changes = {"module": {"names": ["edudrv"], "blacklist": ["a"]}}
    drivers = [driver(name, spec_changes=changes) for name in ("edu", "edu.b")]
    assert len({owner(container, kernel) for container in drivers for kernel in (KERNEL, OTHER_KERNEL)}) == 4
