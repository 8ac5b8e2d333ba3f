"""The DaemonSet of a target."""

import re
from typing import Any

import pytest

from driver_builder.api.driver_container import DriverContainer
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.images import ImageRef
from driver_builder.model.loader_privileges import LoaderPrivileges, security_context
from driver_builder.objects import manifests
from driver_builder.objects.loaded import Load
from driver_builder.objects.slots import FIRST, SECOND, Place, Slot, affinity
from driver_builder.objects.tolerations import OURS, with_ours
from driver_builder.tasks import unload_pod
from kube_api import names
from nfd_worker.sources import kernel
from tests.support.driver_builder.factories import DIGEST, IDENTITY, KERNEL, OTHER_KERNEL, driver, spec_of, target

IMAGE = ImageRef("r.io", "edu", DIGEST)
LOADER_IMAGE = "r.io/driverwright/loader:1"


def made(container: DriverContainer | None = None, **changes: Any) -> dict[str, Any]:
    """Make the DaemonSet of a driver."""
    container = container or driver()
    words: dict[str, Any] = {"target": target(), "image": IMAGE, "identities": {"edudrv": IDENTITY}}
    words |= {"loader_image": LOADER_IMAGE, **changes}
    return manifests.daemon_set(container, spec_of(container), **words)


def with_module(**changes: Any) -> DriverContainer:
    """Make a driver whose module is asked for with more."""
    return driver(spec_changes={"module": {"names": ["edudrv"], **changes}})


def pod_spec(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the pod's spec."""
    found: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return found


SELECTED = {
    "pool": "edu",
    names.KERNEL_VERSION_LABEL: KERNEL,
    names.OS_ID_LABEL: "debian",
    names.ARCHITECTURE_LABEL: "amd64",
}


def test_pods_run_on_exactly_the_nodes_of_the_target() -> None:
    """The driver's own selector and every label that makes the target: an update of the system changes none of them."""
    assert pod_spec(made())["nodeSelector"] == SELECTED


def test_two_daemon_sets_of_one_kernel_keep_apart_by_the_version_of_the_system() -> None:
    """What an older version of this program wrote stays until one of them has no nodes."""
    selector = pod_spec(made(selects_os_version=True))["nodeSelector"]
    assert selector == {**SELECTED, names.OS_VERSION_LABEL: "12"}


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (Place.ALL, []),
        (Place.MOVED, [{"key": "driverwright.io/driverwright.edu.wave", "operator": "In", "values": ["-b"]}]),
        (Place.OTHERS, [{"key": "driverwright.io/driverwright.edu.wave", "operator": "NotIn", "values": ["-b"]}]),
    ],
)
def test_pods_keep_away_from_nodes_with_the_yield_label(place: Place, expected: list[dict[str, Any]]) -> None:
    """Before, in and after a wave."""
    slot = Slot(SECOND if place is Place.MOVED else FIRST, place)
    named = f"{target().short_hash}-b"
    expressions = [{**item, "values": [named]} for item in expected]
    yields = {"key": "driverwright.io/driverwright.edu.yield", "operator": "DoesNotExist"}
    term = {"nodeSelectorTerms": [{"matchExpressions": [*expressions, yields]}]}
    wanted = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}
    assert pod_spec(made(slot=slot))["affinity"] == wanted
    assert affinity(str(names.wave_label("driverwright", "edu")), named, place, yields["key"]) == wanted


def test_a_release_of_64_characters_is_selected_by_what_the_label_holds() -> None:
    """A label has 63: the selector has the very value that the worker writes, and the annotation has the release."""
    release = "6.1.0-" + "x" * 57 + "y"
    manifest = made(target=target(release))
    selected = pod_spec(manifest)["nodeSelector"][names.KERNEL_VERSION_LABEL]
    assert (len(release), len(selected)) == (64, 63)
    assert selected == kernel.parse_version(release)["full"]
    assert names.is_label_value(selected)
    assert manifest["metadata"]["annotations"][manifests.KERNEL_ANNOTATION] == release


def test_a_target_without_version_is_selected_without() -> None:
    """A rolling distribution's nodes have no such label."""
    assert pod_spec(made(target=target(os_version=""), selects_os_version=True))["nodeSelector"] == SELECTED


def test_the_loader_is_given_what_it_waits_for() -> None:
    """Other drivers by the names that nodes record them by. The fingerprint is the same: so is what is on the node."""
    first = (("team/ofed", ("mlx-core", "ib_core")), ("team/nvidia.b", ("nvidia",)))
    before, after = made(), made(first=first)
    (load,) = (item for item in pod_spec(after)["initContainers"] if item["name"] == manifests.LOAD_CONTAINER)
    given = {item["name"]: item.get("value") for item in load["env"]}
    assert given["DEPENDS"] == "team.ofed:mlx-core,ib_core team.nvidia.b:nvidia"
    old, new = before["metadata"]["annotations"], after["metadata"]["annotations"]
    assert old[manifests.FINGERPRINT_ANNOTATION] == new[manifests.FINGERPRINT_ANNOTATION]
    assert old[manifests.TEMPLATE_ANNOTATION] != new[manifests.TEMPLATE_ANNOTATION]


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
    """Tolerations, priority and pull secrets are the admin's; our own taints are tolerated whatever it says."""
    changes = {"tolerations": [{"key": "a"}], "priorityClassName": "low", "imagePullSecrets": [{"name": "pull"}]}
    pod = pod_spec(made(driver(spec_changes=changes)))
    assert {field: pod[field] for field in changes} == {**changes, "tolerations": [{"key": "a"}, *OURS]}
    assert with_ours([*OURS, {"key": "a"}]) == [*OURS, {"key": "a"}]


@pytest.mark.parametrize(
    ("container", "changes", "same"),
    [
        pytest.param(driver(), {}, True, id="nothing"),
        pytest.param(driver(status={"readyNodes": 1}), {}, True, id="status"),
        pytest.param(driver(spec_changes={"version": "2"}), {}, False, id="version"),
        pytest.param(driver(spec_changes={"priorityClassName": "low"}), {}, False, id="priority"),
        pytest.param(driver(), {"image": IMAGE.at("sha256:" + "e" * 64)}, False, id="image"),
        pytest.param(driver(), {"loader_image": "r.io/driverwright/loader:2"}, False, id="loader"),
        pytest.param(driver(), {"selects_os_version": True}, False, id="selector"),
        pytest.param(driver(), {"adopted": "v2:0"}, False, id="adopted fingerprint"),
    ],
)
def test_the_digest_of_the_template_changes_with_any_of_it(
    container: DriverContainer, changes: dict[str, Any], same: bool
) -> None:
    """By it the DaemonSet is written again, and no pod is replaced."""
    key = manifests.TEMPLATE_ANNOTATION
    before, after = (item["metadata"]["annotations"] for item in (made(), made(container, **changes)))
    assert (before[key] == after[key]) is same
    assert before[manifests.FINGERPRINT_ANNOTATION] == after[manifests.FINGERPRINT_ANNOTATION]


def test_pods_carry_the_fingerprint_of_their_daemon_set() -> None:
    """It is what they are compared by."""
    manifest = made()
    key = manifests.FINGERPRINT_ANNOTATION
    assert manifest["spec"]["template"]["metadata"]["annotations"][key] == manifest["metadata"]["annotations"][key]


def test_the_recorded_version_of_the_system_stands_on_the_daemon_set() -> None:
    """The next plan finds the same target by it, whatever version the nodes have by then."""
    assert made()["metadata"]["annotations"][manifests.OS_VERSION_ANNOTATION] == "12"


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


def containers(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return all containers of a pod by name, in the order in which they are started."""
    return {container["name"]: container for container in (*pod["initContainers"], *pod["containers"])}


def host_paths(pod: dict[str, Any]) -> dict[str, tuple[str, str, bool]]:
    """Return what ``load`` sees of its node: where, which path, whether it may write there."""
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    mounts = [mount for mount in containers(pod)["load"]["volumeMounts"] if mount["name"] in paths]
    assert len(mounts) == len(paths)
    return {
        mount["name"]: (mount["mountPath"], paths[mount["name"]], not mount.get("readOnly", False)) for mount in mounts
    }


def environment(container: dict[str, Any]) -> dict[str, str]:
    """Return the variables that have a value."""
    return {item["name"]: item["value"] for item in container.get("env", []) if "value" in item}


def test_the_loader_is_brought_by_its_own_image() -> None:
    """The driver's image needs no program: it is run where the other one was copied to."""
    pod = pod_spec(made())
    assert list(containers(pod)) == ["loader", "load", "hold"]
    bring, load, hold = containers(pod).values()
    assert (bring["image"], load["image"], hold["image"]) == (LOADER_IMAGE, str(IMAGE), str(IMAGE))
    assert bring["command"] == ["/busybox", "cp", "-f", "/busybox", "/loader.sh", "/driverwright/"]
    loader = ["/driverwright/busybox", "sh", "/driverwright/loader.sh"]
    assert (load["command"], hold["command"]) == ([*loader, "load"], [*loader, "hold"])
    assert hold["readinessProbe"]["exec"]["command"] == [*loader, "probe"]
    assert pod["volumes"][0] == {"name": "driverwright", "emptyDir": {}}
    for container, read_only in ((bring, False), (load, True), (hold, True)):
        (mount,) = [item for item in container["volumeMounts"] if item["name"] == "driverwright"]
        assert (mount["mountPath"], mount.get("readOnly", False)) == ("/driverwright", read_only)


def test_only_what_loads_is_privileged() -> None:
    """What stays in the pod looks at /sys/module, which everybody may read."""
    found = containers(pod_spec(made(with_module(blacklist=["a"], firmwarePath="/fw"))))
    assert found["load"]["securityContext"] == {"privileged": True}
    for name in ("loader", "hold"):
        assert found[name]["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "privileged": False,
            "readOnlyRootFilesystem": True,
        }
        assert [mount["name"] for mount in found[name]["volumeMounts"]] == ["driverwright"]


def test_what_loads_may_do_no_more_than_it_needs() -> None:
    """By a setting, and nothing else of the pod changes: neither its fingerprint nor its folders."""
    whole = made(with_module(blacklist=["a"], firmwarePath="/fw"))
    least = made(with_module(blacklist=["a"], firmwarePath="/fw"), privileges=LoaderPrivileges.LEAST)
    context = containers(pod_spec(least))["load"].pop("securityContext")
    assert (context["privileged"], context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"]) == (
        False,
        False,
        True,
    )
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["SYS_MODULE", "SYSLOG"]}
    del containers(pod_spec(whole))["load"]["securityContext"]
    assert pod_spec(least) == pod_spec(whole)
    annotations = [item["metadata"]["annotations"] for item in (whole, least)]
    assert annotations[0][manifests.FINGERPRINT_ANNOTATION] == annotations[1][manifests.FINGERPRINT_ANNOTATION]
    assert annotations[0][manifests.TEMPLATE_ANNOTATION] != annotations[1][manifests.TEMPLATE_ANNOTATION]


def test_nothing_is_done_when_a_pod_ends() -> None:
    """A pod cannot tell a restart from a removal."""
    assert "lifecycle" not in containers(pod_spec(made(with_module(blacklist=["nouveau"]))))["hold"]


ALWAYS = {
    "modules": ("/host/lib/modules", "/lib/modules", False),
    "run": ("/host/run/driverwright", "/run/driverwright", True),
}
FIRMWARE = {"firmware": ("/host/lib/firmware", "/lib/firmware", True)}
VAR_FIRMWARE = {"var-firmware": ("/host/var/lib/firmware", "/var/lib/firmware", True)}
BLACKLISTS = {"modprobe": ("/host/etc/modprobe.d", "/etc/modprobe.d", True)}


@pytest.mark.parametrize(
    ("module", "changes", "paths", "told"),
    [
        pytest.param({}, {}, ALWAYS, {}, id="nothing asked for"),
        pytest.param(
            {"inTreeModulesToRemove": ["b", "a-c"]}, {}, ALWAYS, {"REMOVE_MODULES": "b a-c"}, id="modules make room"
        ),
        pytest.param(
            {"blacklist": ["nouveau", "other"]}, {}, {**ALWAYS, **BLACKLISTS}, {"BLACKLIST": "nouveau other"},
            id="blacklist",
        ),
        pytest.param({"firmwarePath": "/source/fw"}, {}, {**ALWAYS, **FIRMWARE}, {}, id="firmware"),
        pytest.param(
            {"inTreeModulesToRemove": ["b"], "inTreeModulesToLoad": ["mii", "d-e"]},
            {},
            ALWAYS,
            {"REMOVE_MODULES": "b +mii +d-e"},
            id="modules are loaded before",
        ),
        pytest.param(
            {"firmwarePath": "/source/fw", "firmwareHostPath": "/var/lib/firmware"},
            {},
            {**ALWAYS, **VAR_FIRMWARE},
            {"FIRMWARE_PATH": ":/var/lib/firmware"},
            id="firmware in another place",
        ),
        pytest.param({"parameters": {"edudrv": ["use_irq=1"]}}, {}, ALWAYS, {}, id="parameters"),
        pytest.param({}, {"rebuild": "t1"}, ALWAYS, {"REBUILD": "t1"}, id="rebuild"),
        pytest.param(
            {}, {"node_rebuilds": {"b": "t2", "a": "t1"}}, ALWAYS, {"NODE_REBUILDS": "a:t1 b:t2"},
            id="rebuild of nodes",
        ),
        pytest.param(
            {}, {"folders": ("firmware", "modprobe", "modules")}, {**ALWAYS, **FIRMWARE, **BLACKLISTS}, {},
            id="folders that were asked for before",
        ),
    ],
)  # fmt: skip
def test_a_pod_gets_no_more_of_its_node_than_it_needs(
    module: dict[str, Any], changes: dict[str, Any], paths: dict[str, Any], told: dict[str, str]
) -> None:
    """The pod configures the loader, so that no change of it rebuilds an image."""
    pod = pod_spec(made(with_module(**module), **changes))
    assert host_paths(pod) == paths
    assert environment(containers(pod)["load"]) == {"DRIVER": f"driverwright.edu-{target().short_hash}", **told}
    assert environment(containers(pod)["hold"]) == {}


USERSPACE = {"packages": [{"name": "libedu1", "version": "1.0-1"}], "sizeLimit": "100Mi"}
NVIDIA = "/run/nvidia/driver"


@pytest.mark.parametrize(
    ("changes", "userspace", "export", "paths"),
    [
        pytest.param({}, "sha256:" + "1" * 64, f"/run/driverwright/driverwright.edu {'1' * 16}", ALWAYS, id="ours"),
        pytest.param({}, "", f"/run/driverwright/driverwright.edu {DIGEST[7:23]}", ALWAYS, id="of an unknown image"),
        pytest.param(
            {"hostPath": NVIDIA},
            "sha256:" + "1" * 64,
            f"{NVIDIA} {'1' * 16}",
            {**ALWAYS, "nvidia": ("/host/run/nvidia", "/run/nvidia", True)},
            id="NVIDIA's place",
        ),
    ],
)
def test_a_user_space_is_exported_by_load(
    changes: dict[str, Any], userspace: str, export: str, paths: dict[str, Any]
) -> None:
    """Which may take the memory for it; another pod's containers stay as they are."""
    container = driver(spec_changes={"userspace": {**USERSPACE, **changes}})
    pod = pod_spec(made(container, userspace=userspace))
    found = containers(pod)
    assert host_paths(pod) == paths
    assert environment(found["load"])["USERSPACE"] == export
    assert [found[name]["resources"]["limits"] for name in ("loader", "load", "hold")] == [
        {"memory": "64Mi"},
        {"memory": "164Mi"},
        {"memory": "64Mi"},
    ]


def test_nvidias_place_stays_mounted_for_what_a_pod_has_left_there() -> None:
    """The next pod removes it."""
    assert "nvidia" in host_paths(pod_spec(made(folders=("nvidia",))))


def test_a_pod_knows_its_node_where_rebuilds_are_of_nodes() -> None:
    """The words are the same in all pods of the DaemonSet."""
    load = containers(pod_spec(made(node_rebuilds={"a": "t1"})))["load"]
    assert {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}} in load["env"]


def test_two_drivers_and_two_targets_leave_no_file_in_common() -> None:
    """A node that has just booted another kernel may have pods of both for a moment."""

    def owner(container: DriverContainer, kernel: str) -> str:
        pod = pod_spec(made(container, target=target(kernel)))
        return environment(containers(pod)["load"])["DRIVER"]

    changes = {"module": {"names": ["edudrv"], "blacklist": ["a"]}}
    drivers = [driver(name, spec_changes=changes) for name in ("edu", "edu.b")]
    assert len({owner(container, kernel) for container in drivers for kernel in (KERNEL, OTHER_KERNEL)}) == 4


def test_device_nodes_are_in_the_pod_and_change_nothing_on_the_node() -> None:
    """The DaemonSet is written anew, and no pod is replaced for it."""
    with_nodes = made(driver(spec_changes={"validation": {"deviceNodes": ["/dev/edu0", "/dev/dri/card0"]}}))
    for name in ("load", "hold"):
        container = containers(pod_spec(with_nodes))[name]
        assert environment(container)["DEVICE_NODES"] == "/dev/edu0 /dev/dri/card0"
        assert {"name": "dev", "mountPath": "/host/dev", "readOnly": True} in container["volumeMounts"]
    hold = containers(pod_spec(with_nodes))["hold"]["securityContext"]
    assert (hold["privileged"], hold["seLinuxOptions"]) == (False, {"type": "spc_t"})
    before, after = made()["metadata"]["annotations"], with_nodes["metadata"]["annotations"]
    assert before[manifests.FINGERPRINT_ANNOTATION] == after[manifests.FINGERPRINT_ANNOTATION]
    assert before[manifests.TEMPLATE_ANNOTATION] != after[manifests.TEMPLATE_ANNOTATION]


def test_a_command_changes_no_driver_pod() -> None:
    """It runs in a pod of its own."""
    assert made(driver(spec_changes={"validation": {"image": "r.io/test", "command": ["/test"]}})) == made()


@pytest.mark.parametrize("privileges", LoaderPrivileges)
def test_what_unloads_may_do_what_loads_may(privileges: LoaderPrivileges) -> None:
    """One setting for both, and nothing else of the pod depends on it."""
    load = Load(target="0a1b2c3d", kernel=KERNEL, boot_id="b", modules=(("edudrv", IDENTITY),))
    words: dict[str, Any] = {"node": "node-a", "boot_id": "b", "image": LOADER_IMAGE}
    pod = unload_pod.manifest(DriverKey("driverwright/edu"), load, **words, privileges=privileges)
    assert pod["spec"]["containers"][0].pop("securityContext") == security_context(privileges)
    default = unload_pod.manifest(DriverKey("driverwright/edu"), load, **words)
    assert default["spec"]["containers"][0].pop("securityContext") == {"privileged": True}
    assert pod == default
