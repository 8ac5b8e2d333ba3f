"""Source gpu: when a scan is needed, what becomes of its answer, and the labels of GPU Feature Discovery."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_rules.features import Failed, Features
from kube_api.names import is_label_value, is_qualified_name
from nfd_worker.errors import HostReadError
from nfd_worker.host import BOOT_ID
from nfd_worker.sources import SOURCES
from nfd_worker.sources.gpu import discover, family, labels, mig_profile, needs_scan, parse_answer
from nfd_worker.sources.gpu_labels import label_text
from nfd_worker.sources.settings import GpuSettings, SourceSettings
from tests.support.nfd_worker.trees import RECORDED, host, pci_device, recorded

THIS_BOOT = {BOOT_ID: Path("/", BOOT_ID).read_text()}
NVIDIA = pci_device("0000:3b:00.0", "0x10de")
INTEL = pci_device("0000:00:02.0", "0x8086")

A100 = "NVIDIA A100-SXM4-40GB"
H100 = "NVIDIA H100 80GB HBM3"


def device(name: str = H100, *, migs: tuple[dict[str, Any], ...] = (), **values: object) -> dict[str, Any]:
    """Describe a GPU as the scan child does."""
    return {
        "uuid": "GPU-1",
        "name": name,
        "pci_bus_id": "0000:3b:00.0",
        "pci_class": "0302",
        "numa_node": "0",
        "memory_mib": 81559,
        "compute_major": 9,
        "compute_minor": 0,
        "ecc_mode": 1,
        "persistence_mode": 0,
        "mig_mode": 0,
        "virtualization": 0,
        "nvlink_links": None,
        "nvlink_peers": [],
        "migs": list(migs),
        **values,
    }


def mig(profile: str, name: str = A100) -> dict[str, Any]:
    """Describe a MIG device as the scan child does."""
    return {
        "uuid": f"MIG-{profile}",
        "name": f"{name} MIG {profile}",
        "memory_mib": 4864,
        "multiprocessors": 14,
        "slices_gi": 1,
        "slices_ci": 1,
        "engines_copy": 1,
        "engines_decoder": 0,
        "engines_encoder": 0,
        "engines_jpeg": 0,
        "engines_ofa": 0,
    }


def cut(*profiles: str, name: str = A100) -> dict[str, Any]:
    """Describe a GPU in MIG mode with MIG devices of these profiles."""
    return device(
        name, mig_mode=1, memory_mib=40960, compute_major=8, migs=tuple(mig(profile, name) for profile in profiles)
    )


def answer(
    *devices: dict[str, Any],
    driver: str = "550.54.15",
    machine: str = "PowerEdge XE9680",
    sharing: Mapping[str, str] | None = None,
) -> Features:
    """Make features of the answer of a scan that found these GPUs, and how they are shared."""
    said = {"state": "ok", "reason": "", "driver": driver, "cuda": 12040, "machine": machine, "devices": list(devices)}
    said |= {} if sharing is None else {"sharing": dict(sharing)}
    features = parse_answer(json.dumps(said).encode())
    assert isinstance(features, Features), features
    return features


def some(found: Mapping[str, str], *beginnings: str) -> dict[str, str]:
    """Pick the labels whose name begins so, without the prefix."""
    named = {key.removeprefix("nvidia.com/"): value for key, value in found.items()}
    return {key: value for key, value in named.items() if key.startswith(beginnings)}


@pytest.mark.parametrize(
    ("files", "is_needed"),
    [
        pytest.param({**THIS_BOOT, **INTEL, **NVIDIA}, True, id="an NVIDIA device"),
        pytest.param({**THIS_BOOT, **INTEL}, False, id="only others"),
        pytest.param({**THIS_BOOT, "proc/driver/nvidia/version": "NVRM"}, True, id="its driver, without PCI"),
        pytest.param(THIS_BOOT, False, id="no PCI bus"),
        pytest.param(NVIDIA, False, id="recorded elsewhere"),
    ],
)
def test_only_a_machine_with_nvidia_hardware_is_scanned(
    tmp_path: Path, files: Mapping[str, str], *, is_needed: bool
) -> None:
    """All others never start a child."""
    assert needs_scan(host(tmp_path, files)) is is_needed


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_host_has_no_gpu_features(name: str) -> None:
    """NVML would tell of the machine that the tests run on."""
    assert discover(recorded(name), SourceSettings()) == Features()


def test_without_a_scan_nothing_is_known_of_a_machine_with_nvidia_hardware(tmp_path: Path) -> None:
    """Without a scan the source fails: it does not report that there is no GPU."""
    with pytest.raises(HostReadError, match="not been scanned yet"):
        discover(host(tmp_path, {**THIS_BOOT, **NVIDIA}), SourceSettings())


def test_pci_devices_that_cannot_be_listed_are_an_error(tmp_path: Path) -> None:
    """A failed read is not an absent GPU."""
    here = host(tmp_path, {**THIS_BOOT, "sys/bus/pci/drivers/x": ""})
    (tmp_path / "sys/bus/pci/devices").symlink_to("devices")
    with pytest.raises(HostReadError, match="Too many levels of symbolic links"):
        discover(here, SourceSettings())


def test_an_answer_becomes_features_with_words_for_numbers() -> None:
    """Rules see strings, in units that their names say."""
    features = answer(device(nvlink_links=18, nvlink_peers=["0000:4c:00.0", "0000:5c:00.0"], virtualization=1))
    assert features.attributes == {
        "gpu.driver": {
            "version": "550.54.15", "major": "550", "minor": "54", "revision": "15",
            "cuda_version": "12.4", "cuda_major": "12", "cuda_minor": "4",
        },
        "gpu.machine": {"name": "PowerEdge XE9680"},
    }  # fmt: skip
    assert features.instances["gpu.device"] == (
        {
            "index": "0", "uuid": "GPU-1", "name": H100, "pci_bus_id": "0000:3b:00.0", "pci_class": "0302",
            "numa_node": "0", "memory_mib": "81559", "compute_major": "9", "compute_minor": "0", "family": "hopper",
            "ecc_mode": "enabled", "persistence_mode": "disabled", "mig_mode": "disabled",
            "virtualization": "passthrough", "nvlink_links": "18", "nvlink_peers": "2",
            "nvlink_peer_ids": "0000:4c:00.0,0000:5c:00.0",
        },
    )  # fmt: skip
    assert features.instances["gpu.mig"] == ()


def test_what_a_gpu_does_not_know_is_no_attribute() -> None:
    """An attribute that a GPU does not report is absent."""
    unknown: dict[str, Any] = dict.fromkeys(
        ("numa_node", "memory_mib", "compute_major", "compute_minor", "ecc_mode", "mig_mode")
    )
    (found,) = answer(device(**unknown)).instances["gpu.device"]
    assert not found.keys() & {*unknown, "family", "nvlink_peers", "nvlink_peer_ids"}


def test_peers_that_are_known_without_links_are_attributes() -> None:
    """A driver may say which GPUs reach each other, and nothing of the links between them."""
    (found,) = answer(device(nvlink_links=None, nvlink_peers=["0000:4c:00.0"])).instances["gpu.device"]
    assert (found["nvlink_peers"], found["nvlink_peer_ids"], "nvlink_links" in found) == ("1", "0000:4c:00.0", False)


def test_mig_devices_become_instances_that_name_their_gpu() -> None:
    """By its index and its product."""
    features = answer(device(A100), cut("1g.5gb", "3g.20gb"))
    assert [(each["gpu"], each["gpu_name"], each["profile"]) for each in features.instances["gpu.mig"]] == [
        ("1", A100, "1g.5gb"),
        ("1", A100, "3g.20gb"),
    ]


def test_an_absent_driver_is_no_feature() -> None:
    """A node without the driver has no GPU features."""
    assert parse_answer(b'{"state": "absent", "reason": "no driver"}\n') == Features()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        pytest.param(b'{"state": "failed", "reason": "GPU 1 is lost"}', "GPU 1 is lost", id="said by the child"),
        pytest.param(b"", "cannot be read", id="nothing"),
        pytest.param(b"Segmentation fault\n", "cannot be read", id="no JSON"),
        pytest.param(b"[]", "cannot be read", id="no object"),
        pytest.param(b'{"state": "ok"}', "cannot be read", id="half an answer"),
        pytest.param(b'{"state": "tired"}', "unknown state 'tired'", id="unknown state"),
    ],
)
def test_everything_else_is_a_failure_with_a_sentence(line: bytes, reason: str) -> None:
    """Any other answer is a failure with a reason, and the last good labels stay."""
    found = parse_answer(line)
    assert isinstance(found, Failed)
    assert reason in found.reason


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(
    st.binary()
    | st.fixed_dictionaries(
        {"state": st.just("ok"), "driver": JSON, "cuda": JSON, "machine": JSON, "devices": JSON}
    ).map(lambda said: json.dumps(said).encode())
)
def test_any_line_is_read(line: bytes) -> None:
    """A child that went mad does not end the worker."""
    assert isinstance(parse_answer(line), Features | Failed)


def test_a_mig_device_must_name_its_profile() -> None:
    """A MIG device without a profile fails, because the profile is part of the label's key."""
    assert mig_profile(f"{A100} MIG 1g.5gb") == "1g.5gb"
    with pytest.raises(ValueError, match="'NVIDIA B300' does not name its profile"):
        mig_profile("NVIDIA B300")


@pytest.mark.parametrize(
    ("major", "minor", "name"),
    [
        (1, 3, "tesla"), (2, 0, "fermi"), (3, 7, "kepler"), (5, 2, "maxwell"), (6, 1, "pascal"), (7, 0, "volta"),
        (7, 5, "turing"), (8, 0, "ampere"), (8, 7, "ampere"), (8, 9, "ada-lovelace"), (9, 0, "hopper"),
        (10, 0, "blackwell"), (10, 3, "blackwell"), (12, 0, "blackwell"), (4, 0, "undefined"), (99, 0, "undefined"),
    ],
)  # fmt: skip
def test_the_family_follows_from_the_compute_capability(major: int, minor: int, name: str) -> None:
    """With the names of GPU Feature Discovery."""
    assert family(major, minor) == name


def test_the_labels_of_a_node_with_equal_gpus() -> None:
    """The whole set, value for value."""
    assert labels(answer(*[device()] * 8), SourceSettings()) == {
        "nvidia.com/cuda.driver-version.full": "550.54.15",
        "nvidia.com/cuda.driver-version.major": "550",
        "nvidia.com/cuda.driver-version.minor": "54",
        "nvidia.com/cuda.driver-version.revision": "15",
        "nvidia.com/cuda.driver.major": "550",
        "nvidia.com/cuda.driver.minor": "54",
        "nvidia.com/cuda.driver.rev": "15",
        "nvidia.com/cuda.runtime-version.full": "12.4",
        "nvidia.com/cuda.runtime-version.major": "12",
        "nvidia.com/cuda.runtime-version.minor": "4",
        "nvidia.com/cuda.runtime.major": "12",
        "nvidia.com/cuda.runtime.minor": "4",
        "nvidia.com/gpu.compute.major": "9",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.family": "hopper",
        "nvidia.com/gpu.machine": "PowerEdge-XE9680",
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/mig.capable": "true",
        "nvidia.com/vgpu.present": "false",
    }


@pytest.mark.parametrize("features", [Features(), answer()], ids=["no driver", "no GPU"])
def test_a_node_without_gpus_has_no_labels(features: Features) -> None:
    """Not even those of the driver, as GPU Feature Discovery has it."""
    assert labels(features, SourceSettings(gpu=GpuSettings("mixed"))) == {}


def test_a_driver_version_of_two_parts_has_an_empty_revision() -> None:
    """As GPU Feature Discovery labels it."""
    found = labels(answer(device(), driver="390.48"), SourceSettings())
    assert found["nvidia.com/cuda.driver-version.revision"] == found["nvidia.com/cuda.driver.rev"] == ""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NVIDIA RTX 4000 Ada Generation", "NVIDIA-RTX-4000-Ada-Generation"),
        ("Standard PC (i440FX + PIIX, 1996)", "Standard-PC-i440FX-PIIX-1996"),
        ("Tesla  T4 ", "Tesla-T4"),
        ("机架", ""),
    ],
)
def test_product_names_become_label_values(text: str, value: str) -> None:
    """As GPU Feature Discovery makes them."""
    assert label_text(text) == value


@given(st.text(max_size=100))
def test_any_name_makes_a_valid_label_value(text: str) -> None:
    """Kubernetes takes at most 63 characters, with a letter or digit at both ends."""
    assert is_label_value(label_text(text))


def test_a_machine_without_dmi_is_unknown() -> None:
    """As GPU Feature Discovery calls it."""
    assert labels(answer(device(), machine=""), SourceSettings())["nvidia.com/gpu.machine"] == "unknown"


@pytest.mark.parametrize(
    ("classes", "mode"),
    [
        (["0302", "0302"], "compute"),
        (["0300"], "graphics"),
        (["0300", "0302"], "unknown"),
        (["0301"], "unknown"),
        ([None], "unknown"),
    ],
)
def test_the_mode_follows_from_the_pci_class(classes: list[str | None], mode: str) -> None:
    """A node with both kinds, or whose sysfs is not mounted, is unknown."""
    found = labels(answer(*(device(pci_class=each) for each in classes)), SourceSettings())
    assert found["nvidia.com/gpu.mode"] == mode


def test_a_guest_with_a_virtual_gpu_says_so() -> None:
    """Passed-through GPUs are whole ones."""
    found = labels(answer(device(virtualization=2, mig_mode=None)), SourceSettings())
    assert some(found, "vgpu", "mig") == {"vgpu.present": "true", "mig.capable": "false"}


def test_unknown_memory_is_no_label() -> None:
    """GPUs that share the host's memory have none of their own."""
    assert "nvidia.com/gpu.memory" not in labels(answer(device(memory_mib=None)), SourceSettings())


T4 = device("Tesla T4", memory_mib=15360, compute_major=7, compute_minor=5)


@pytest.mark.parametrize(
    ("devices", "product", "count", "memory"),
    [
        pytest.param((T4, device(), device()), "NVIDIA-H100-80GB-HBM3", "2", "81559", id="most"),
        pytest.param((T4, device()), "Tesla-T4", "1", "15360", id="the first of as many"),
        pytest.param((cut(), cut(), T4), "Tesla-T4", "1", "15360", id="whole ones before those in MIG mode"),
        pytest.param((cut(), device(A100, memory_mib=40960)), "NVIDIA-A100-SXM4-40GB", "2", "40960", id="one product"),
        pytest.param((cut(), cut()), "NVIDIA-A100-SXM4-40GB", "2", "40960", id="only in MIG mode"),
    ],
)
def test_of_several_products_one_is_labelled_and_always_the_same(
    devices: tuple[dict[str, Any], ...], product: str, count: str, memory: str
) -> None:
    """GPU Feature Discovery changes between them from run to run."""
    found = labels(answer(*devices), SourceSettings())
    assert some(found, "gpu.product", "gpu.count", "gpu.memory") == {
        "gpu.product": product,
        "gpu.count": count,
        "gpu.memory": memory,
    }


MIG_VALUES = {
    "memory": "4864", "multiprocessors": "14", "slices.gi": "1", "slices.ci": "1", "engines.copy": "1",
    "engines.decoder": "0", "engines.encoder": "0", "engines.jpeg": "0", "engines.ofa": "0",
}  # fmt: skip


def test_without_a_strategy_mig_devices_have_no_labels() -> None:
    """The GPUs are labelled as if they were whole."""
    found = labels(answer(cut("1g.5gb")), SourceSettings())
    assert some(found, "mig", "gpu.product") == {"mig.capable": "true", "gpu.product": "NVIDIA-A100-SXM4-40GB"}


def test_with_single_the_gpu_labels_describe_the_mig_devices() -> None:
    """Family and compute capability stay those of the GPU."""
    found = labels(answer(cut(*["1g.5gb"] * 7), cut(*["1g.5gb"] * 7)), SourceSettings(gpu=GpuSettings("single")))
    assert some(found, "mig", "gpu.") == {
        "mig.capable": "true", "mig.strategy": "single",
        "gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "gpu.count": "14",
        **{f"gpu.{key}": value for key, value in MIG_VALUES.items()},
        "gpu.family": "ampere", "gpu.compute.major": "8", "gpu.compute.minor": "0", "gpu.mode": "compute",
        "gpu.machine": "PowerEdge-XE9680",
    }  # fmt: skip


def test_with_single_whole_gpus_are_labelled_as_whole() -> None:
    """With strategy single and no MIG devices only the label of the strategy is added."""
    found = labels(answer(device(), device()), SourceSettings(gpu=GpuSettings("single")))
    assert found == labels(answer(device(), device()), SourceSettings()) | {"nvidia.com/mig.strategy": "single"}


@pytest.mark.parametrize(
    "devices",
    [
        pytest.param((cut(),), id="nothing made yet"),
        pytest.param((cut("1g.5gb"), cut()), id="one without"),
        pytest.param((cut("1g.5gb", "3g.20gb"),), id="two profiles"),
        pytest.param((cut("1g.5gb"), device(A100)), id="one not in MIG mode"),
    ],
)
def test_with_single_gpus_that_are_not_alike_are_invalid(devices: tuple[dict[str, Any], ...]) -> None:
    """No workload is to be scheduled by such labels."""
    found = labels(answer(*devices), SourceSettings(gpu=GpuSettings("single")))
    assert some(found, "gpu.product", "gpu.count", "gpu.memory") == {
        "gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-INVALID",
        "gpu.count": "0",
        "gpu.memory": "0",
    }


def test_with_mixed_each_profile_has_labels_beside_those_of_the_gpus() -> None:
    """Under the name of its extended resource."""
    found = labels(
        answer(device(A100), cut("1g.5gb", "1g.5gb", "1g.10gb+me")), SourceSettings(gpu=GpuSettings("mixed"))
    )
    assert some(found, "mig", "gpu.product", "gpu.count") == {
        "mig.capable": "true", "mig.strategy": "mixed", "gpu.product": "NVIDIA-A100-SXM4-40GB", "gpu.count": "2",
        "mig-1g.5gb.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "mig-1g.5gb.count": "2",
        **{f"mig-1g.5gb.{key}": value for key, value in MIG_VALUES.items()},
        "mig-1g.10gb.me.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.10gb.me", "mig-1g.10gb.me.count": "1",
        **{f"mig-1g.10gb.me.{key}": value for key, value in MIG_VALUES.items()},
    }  # fmt: skip


def shared(strategy: str, **resources: tuple[int, str, bool]) -> dict[str, str]:
    """Say how resources are shared, as the scan child does; ``_`` stands for the dash in their names."""
    said = {"mig_strategy": strategy}
    for name, (replicas, how, is_renamed) in resources.items():
        key = f"nvidia.com/{name.replace('_', '-')}"
        said |= {f"{key}.replicas": str(replicas), f"{key}.sharing-strategy": how}
        said[f"{key}.renamed"] = str(is_renamed).lower()
    return said


SLICED, RENAMED, WHOLE = (4, "time-slicing", False), (4, "time-slicing", True), (1, "none", False)
LONG = f"NVIDIA {'X' * 60}"


@pytest.mark.parametrize(
    ("devices", "sharing", "expected"),
    [
        pytest.param(
            (device(A100),), shared("none", gpu=SLICED),
            {"gpu.product": "NVIDIA-A100-SXM4-40GB-SHARED", "gpu.count": "1", "gpu.replicas": "4",
             "gpu.sharing-strategy": "time-slicing"},
            id="shared",
        ),
        pytest.param(
            (device(A100),), shared("none", gpu=RENAMED),
            {"gpu.product": "NVIDIA-A100-SXM4-40GB", "gpu.count": "1", "gpu.replicas": "4",
             "gpu.sharing-strategy": "time-slicing"},
            id="shared under another name",
        ),
        pytest.param(
            (device(A100),), shared("none", gpu=WHOLE),
            {"gpu.product": "NVIDIA-A100-SXM4-40GB", "gpu.count": "1", "gpu.replicas": "1",
             "gpu.sharing-strategy": "none"},
            id="not shared",
        ),
        pytest.param(
            (device(LONG),), shared("none", gpu=SLICED),
            {"gpu.product": f"NVIDIA-{'X' * 49}-SHARED", "gpu.count": "1", "gpu.replicas": "4",
             "gpu.sharing-strategy": "time-slicing"},
            id="a long product",
        ),
        pytest.param(
            (cut("1g.5gb"),), shared("single", gpu=SLICED),
            {"gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED", "gpu.count": "1", "gpu.replicas": "4",
             "gpu.sharing-strategy": "time-slicing", "mig.strategy": "single"},
            id="MIG devices as GPUs, by the strategy of the report",
        ),
        pytest.param(
            (device(A100), cut("1g.5gb", "1g.5gb")),
            {**shared("mixed", gpu=WHOLE), **shared("mixed", **{"mig_1g.5gb": SLICED})},
            {"gpu.product": "NVIDIA-A100-SXM4-40GB", "gpu.count": "2", "gpu.replicas": "1",
             "gpu.sharing-strategy": "none", "mig.strategy": "mixed",
             "mig-1g.5gb.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED", "mig-1g.5gb.count": "2",
             "mig-1g.5gb.replicas": "4", "mig-1g.5gb.sharing-strategy": "time-slicing"},
            id="MIG devices beside GPUs",
        ),
    ],
)  # fmt: skip
def test_labels_say_how_a_resource_is_shared(
    devices: tuple[dict[str, Any], ...], sharing: Mapping[str, str], expected: Mapping[str, str]
) -> None:
    """As device-agent reports it; its MIG strategy wins over that of the settings."""
    found = labels(answer(*devices, sharing=sharing), SourceSettings(gpu=GpuSettings("none")))
    ends = (".product", ".count", ".replicas", ".sharing-strategy", ".renamed", "mig.strategy")
    assert {key: value for key, value in some(found, "gpu.", "mig").items() if key.endswith(ends)} == expected
    assert all(is_label_value(value) for value in found.values())


def test_the_strategy_of_the_report_also_wins_where_it_is_none() -> None:
    """The device plugin decides, and the settings only stand in for it."""
    found = labels(answer(cut("1g.5gb"), sharing=shared("none")), SourceSettings(gpu=GpuSettings("mixed")))
    assert found == labels(answer(cut("1g.5gb")), SourceSettings(gpu=GpuSettings("none")))


def test_without_a_gpu_nothing_is_said_of_sharing() -> None:
    """A report that was left behind labels no node whose driver is gone."""
    assert labels(answer(sharing=shared("none", gpu=SLICED)), SourceSettings()) == {}


@pytest.mark.parametrize("sharing", [[], "x", 1], ids=["list", "text", "number"])
def test_an_answer_with_something_else_for_sharing_is_a_failure(sharing: object) -> None:
    """As everything is that a scan child does not print."""
    said = {
        "state": "ok",
        "reason": "",
        "driver": "1.2",
        "cuda": 12040,
        "machine": "",
        "devices": [],
        "sharing": sharing,
    }
    assert isinstance(parse_answer(json.dumps(said).encode()), Failed)


@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
def test_all_labels_are_valid_and_begin_with_a_prefix_of_the_source(strategy: str) -> None:
    """None of them is left out on the way to the node."""
    found = labels(answer(cut("1g.5gb+me"), cut("1c.2g.10gb")), SourceSettings(gpu=GpuSettings(strategy)))
    assert all(key.startswith(SOURCES["gpu"].prefixes) and is_qualified_name(key) for key in found)
    assert all(is_label_value(value) for value in found.values())
