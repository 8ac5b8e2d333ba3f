"""The pods of a vendor's image: our loader in it, or its own program beside our loader."""

import re
from typing import Any

import pytest

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.mapping_settings import VendorSettings
from driver_builder.model.images import ImageRef
from driver_builder.model.loader_privileges import CAPABILITIES, LoaderPrivileges
from driver_builder.objects import manifests, vendor_pod
from tests.support.driver_builder.factories import DIGEST, IDENTITY, KERNEL, driver, spec_of, target
from tests.support.real_parts.loader_world import LOADER

IMAGE = ImageRef("r.io", "edu", DIGEST)
PROGRAM = {"loader": "image"}


def with_mapping(**changes: Any) -> DriverContainer:
    """Make a driver whose kernels have a prebuilt image."""
    module = {"names": ["edudrv"], "trustImage": True}
    return driver(
        spec_changes={"kernelMappings": [{"regexp": ".*", "image": "r.io/edu:1", **changes}], "module": module}
    )


def vendor_of(container: DriverContainer) -> VendorSettings:
    """Return what the mapping says of its image."""
    return spec_of(container).kernel_mappings[0].vendor


def made(container: DriverContainer, **changes: Any) -> dict[str, Any]:
    """Make the DaemonSet of a driver from an image that does not say what it has."""
    words: dict[str, Any] = {"target": target(), "image": IMAGE, "identities": {}, "loader_image": "l"}
    return manifests.daemon_set(container, spec_of(container), **words, vendor=vendor_of(container), **changes)


def pod(container: DriverContainer, **changes: Any) -> dict[str, Any]:
    """Make the pod of a driver."""
    found: dict[str, Any] = made(container, **changes)["spec"]["template"]["spec"]
    return found


def containers(container: DriverContainer, **changes: Any) -> dict[str, dict[str, Any]]:
    """Make the containers of a pod, by their names."""
    spec = pod(container, **changes)
    return {item["name"]: item for item in (*spec["initContainers"], *spec["containers"])}


def variables(container: dict[str, Any]) -> dict[str, str]:
    """Return the environment of a container, without what is empty."""
    return {item["name"]: item["value"] for item in container["env"] if "value" in item}


def fingerprint(container: DriverContainer, **changes: Any) -> str:
    """Return what a node gets, as one word."""
    words: dict[str, Any] = {
        "target": target(),
        "image": IMAGE,
        "identities": {"edudrv": IDENTITY},
        "loader_image": "l",
    }
    words |= {"vendor": vendor_of(container), **changes}
    annotations = manifests.daemon_set(container, spec_of(container), **words)["metadata"]["annotations"]
    return str(annotations[manifests.FINGERPRINT_ANNOTATION])


def test_the_manifest_names_the_modules_that_the_image_does_not() -> None:
    """The loader makes its data files in the pod's folder, as root whatever user the image names."""
    load = containers(with_mapping())["load"]
    assert variables(load) == {"DRIVER": "driverwright.edu-2c602ba5", "MODULES": "edudrv", "KERNEL": KERNEL}
    assert load["volumeMounts"][0] == {"name": "driverwright", "mountPath": "/driverwright"}
    assert load["securityContext"] == {"privileged": True, "runAsUser": 0}


def test_the_images_own_program_runs_as_the_image_has_it() -> None:
    """Nothing is said of what the mapping leaves out; it is as privileged as the loader, and may write to its image."""
    own = containers(with_mapping(**PROGRAM))["driver"]
    assert {"command", "args", "volumeMounts"}.isdisjoint(own)
    # By it the pod after this one knows that the program still runs.
    assert own["env"] == [{"name": "DRIVERWRIGHT_DRIVER", "value": "driverwright.edu"}]
    assert own["securityContext"] == {"privileged": True}
    least = containers(with_mapping(**PROGRAM), privileges=LoaderPrivileges.LEAST)["driver"]["securityContext"]
    assert least["capabilities"]["add"] == list(CAPABILITIES)
    assert "readOnlyRootFilesystem" not in least


def test_only_the_containers_that_act_on_the_node_are_privileged() -> None:
    """`hold` reads sysfs, and what a proof pod has recorded on the node of this very pod."""
    found = containers(with_mapping(**PROGRAM))
    assert [name for name, item in found.items() if item["securityContext"].get("privileged")] == ["prepare", "driver"]
    assert [*found] == ["loader", "prepare", "hold", "driver"]
    assert found["hold"]["volumeMounts"][-1] == {
        "name": "run",
        "mountPath": "/host/run/driverwright",
        "readOnly": True,
    }
    assert [item["name"] for item in found["hold"]["env"] if len(item) > 1] == ["DRIVER", "LOADER", "POD_UID"]


@pytest.mark.parametrize("words", [{}, PROGRAM], ids=["our loader", "its own program"])
def test_the_environment_of_the_image_is_no_setting_of_the_loader(words: dict[str, str]) -> None:
    """A vendor's image may have a variable such as BLACKLIST or KERNEL for a purpose of its own."""
    for name, container in containers(with_mapping(**words)).items():
        if container["image"] == str(IMAGE) and name != "driver":
            assert {item["name"] for item in container["env"]} == set(vendor_pod.VARIABLES), name


def test_firmware_of_a_vendors_image_may_go_elsewhere() -> None:
    """Folder of the image and folder of the node are one variable; only the first is asked of the image."""
    mappings = [{"regexp": ".*", "image": "r.io/edu:1"}]
    module = {"names": ["edudrv"], "firmwarePath": "/fw", "firmwareHostPath": "/var/lib/firmware"}
    container = driver(spec_changes={"kernelMappings": mappings, "module": module})
    environment = containers(container)["load"]["env"]
    assert [item["value"] for item in environment if item["name"] == "FIRMWARE_PATH"] == ["/fw:/var/lib/firmware"]
    assert vendor_pod.asked_of(pod(container)) == "edudrv /fw"


def test_all_settings_of_the_loader_are_known() -> None:
    """But those of its own image, and of its tests."""
    read = set(re.findall(r"\$\{([A-Z_]+):?[-+]", LOADER.read_text()))
    assert set(vendor_pod.VARIABLES) - read == set()
    assert read - set(vendor_pod.VARIABLES) == {
        "DEPENDS_TIMEOUT", "DEVICE_TIMEOUT", "DRIVER_ROOT", "ENDING_SECONDS", "HOLD_SECONDS", "HOST_DEV",
        "HOST_FIRMWARE", "HOST_MODPROBE", "HOST_MODULES", "HOST_ROOT", "HOST_RUN", "KEPT_FREE", "LOCK_SECONDS",
        "POD_FOLDER", "PROC", "SETTLE_SECONDS", "SYSFS", "TERMINATION_LOG",
    }  # fmt: skip


def test_a_program_waits_for_other_drivers_as_the_loader_does() -> None:
    """They are read from its DaemonSet where its spec is not valid any more."""
    first = (("team/ofed", ("ib_core",)),)
    for words in ({}, PROGRAM):
        assert manifests.firsts_of(pod(with_mapping(**words), first=first)) == ("team/ofed",)


def test_other_modules_of_a_vendors_image_are_another_request() -> None:
    """Its digest is the same; their order and their dashes make no difference."""

    def asked(*names: str, **module: str) -> str:
        mappings = [{"regexp": ".*", "image": "r.io/edu:1"}]
        return vendor_pod.asked_of(
            pod(driver(spec_changes={"kernelMappings": mappings, "module": {"names": [*names], **module}}))
        )

    assert asked("a", "b-c") == asked("b_c", "a") == "a b_c"
    assert len({asked("a"), asked("a", "b"), asked("a", firmwarePath="/f"), asked("a", firmwarePath="/g")}) == 4


BEFORE = with_mapping(**PROGRAM, container={"args": ["a"]})


@pytest.mark.parametrize(
    ("after", "same"),
    [
        pytest.param(with_mapping(**PROGRAM, container={"args": ["a"], "timeout": "1h"}), True, id="timeout"),
        pytest.param(with_mapping(**PROGRAM, container={"args": ["b"]}), False, id="arguments"),
        pytest.param(with_mapping(**PROGRAM, container={"args": ["a"], "command": ["c"]}), False, id="command"),
        pytest.param(
            with_mapping(**PROGRAM, container={"args": ["a"], "env": [{"name": "A"}]}), False, id="environment"
        ),
        pytest.param(
            with_mapping(**PROGRAM, container={"args": ["a"], "hostPaths": [{"path": "/a"}]}), False, id="folders"
        ),
        pytest.param(with_mapping(), False, id="our loader"),
    ],
)
def test_a_pod_is_replaced_when_its_program_is_run_otherwise(after: DriverContainer, same: bool) -> None:
    """Replacing it may unload the modules: an edit that changes nothing on the node does not."""
    assert (fingerprint(BEFORE) == fingerprint(after)) is same


def test_another_image_has_another_program() -> None:
    """Also where both say that they have the same modules."""
    other = ImageRef("r.io", "edu", "sha256:" + "e" * 64)
    assert fingerprint(BEFORE) != fingerprint(BEFORE, image=other)
    assert fingerprint(with_mapping()) == fingerprint(with_mapping(), image=other)


def test_a_mapping_that_says_no_more_than_before_replaces_no_pod() -> None:
    """Prebuilt images of ours are loaded as they were."""
    assert fingerprint(with_mapping(loader="ours")) == fingerprint(with_mapping(), vendor=None)
    assert fingerprint(with_mapping(dirName="/opt")) != fingerprint(with_mapping(dirName="/a"))
