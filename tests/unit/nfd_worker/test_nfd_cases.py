"""Known answers of Node Feature Discovery, run as data (tests/data/nfd_cases.yaml)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feature_rules.features import Features
from feature_rules.keys.namespaces import NamespaceOptions
from nfd_worker.cpu.cpu_model import x86_attributes
from nfd_worker.cpu.cpuid_flags import x86_64_level_flags
from nfd_worker.labels.labels import make_content
from nfd_worker.sources import cpu, kernel, pci, system
from nfd_worker.sources.settings import CPUID_BLACKLIST, CpuSettings, KernelSettings, SourceSettings
from tests.support.nfd_worker.nfd_cases import CASES, FIXTURES, of
from tests.support.nfd_worker.trees import host

NO_COUNTERPART = frozenset({"no_publish_features", "nodefeature_node_name", "nodefeature_order", "numa_memory"})
"""Kinds of cases that mean nothing here; docs/compatibility.md says why."""


def node_labels(source: str, labels: Mapping[str, str]) -> Mapping[str, str]:
    """Give what becomes of a source's labels."""
    return make_content({source: labels}, {}, Features(), NamespaceOptions()).content.labels


def test_every_case_has_a_test() -> None:
    """Every recorded case of upstream is run by a test."""
    tests = "".join(file.read_text() for file in Path(__file__).parents[1].rglob("test_*.py"))
    kinds = {case["kind"] for case in CASES.values()}
    assert {kind for kind in kinds if f'@of("{kind}")' not in tests} == NO_COUNTERPART


@of("cpu_default_blacklist")
def test_cpu_default_blacklist(case: dict[str, Any]) -> None:
    """The flags that are no labels unless somebody asks for them."""
    assert list(CPUID_BLACKLIST) == case["expect"]["blacklist"]


@of("cpu_model")
def test_cpu_model(case: dict[str, Any]) -> None:
    """Names and numbers of an x86 CPU."""
    given = case["input"]
    assert not given["hypervisor_flag"]
    made = x86_attributes(
        vendor_signature=given["vendor_signature"], family=str(given["family"]), model=str(given["model"]),
        hypervisor="none",
    )  # fmt: skip
    assert made == case["expect"]["attributes"]


@of("cpuid_filter")
def test_cpuid_filter(case: dict[str, Any]) -> None:
    """The attribute filters select CPUID flags as in upstream."""
    settings = CpuSettings(cpuid_whitelist=tuple(case["input"]["attributeWhitelist"]))
    assert sorted(cpu.filter_cpuid(frozenset(case["input"]["flags"]), settings)) == case["expect"]["label_flags"]


@of("x86_64_level_flags")
def test_x86_64_level_flags(case: dict[str, Any]) -> None:
    """Each level includes the flags of the lower levels."""
    assert sorted(x86_64_level_flags(case["input"]["level"])) == case["expect"]["flags"]


@of("kernel_version")
def test_kernel_version(case: dict[str, Any]) -> None:
    """The parts of a version."""
    assert kernel.parse_version(case["input"]["osrelease"]) == case["expect"]


@of("kernel_config_labels")
def test_kernel_config_labels(case: dict[str, Any]) -> None:
    """Options that are set become labels."""
    options = case["input"]["config"].items()
    text = "".join(f"CONFIG_{k}={v}\n" if v is not None else f"# CONFIG_{k} is not set\n" for k, v in options)
    features = Features(attributes={
        "kernel.version": {}, "kernel.selinux": {"enabled": "false"},
        "kernel.config": kernel.KernelConfig(text.encode()),
    })  # fmt: skip
    settings = SourceSettings(kernel=KernelSettings(config_opts=tuple(case["input"]["configOpts"])))
    assert node_labels("kernel", kernel.labels(features, settings)) == case["expect"]["labels"]


def pci_tree(root: Path, devices: dict[str, dict[str, str]]) -> Features:
    """Write devices as sysfs shows them, and discover them."""
    files = {
        f"sys/bus/pci/devices/{address}/{name}": f"{value}\n"
        for address, attributes in devices.items()
        for name, value in attributes.items()
    }
    return pci.discover(host(root, files), SourceSettings())


@of("pci_features")
def test_pci_features(case: dict[str, Any], tmp_path: Path) -> None:
    """Attributes of each device; one that lacks a mandatory one is left out."""
    assert (
        list(pci_tree(tmp_path, case["input"]["sysfs_devices"]).instances["pci.device"]) == case["expect"]["instances"]
    )


@of("pci_labels")
def test_pci_labels(case: dict[str, Any], tmp_path: Path) -> None:
    """Which devices become labels by default."""
    features = pci_tree(tmp_path, FIXTURES[case["input"]["fixture"]])
    assert case["input"]["config"] == {}
    assert node_labels("pci", pci.labels(features, SourceSettings())) == case["expect"]["labels"]


@of("os_release")
def test_os_release(case: dict[str, Any]) -> None:
    """Attributes and labels of an os-release."""
    attributes = system.parse_os_release(case["input"]["text"])
    assert attributes == case["expect"]["attributes"]
    found = system.labels(Features(attributes={"system.osrelease": attributes}), SourceSettings())
    assert node_labels("system", found) == case["expect"]["labels"]


@of("version_id_split")
def test_version_id_split(case: dict[str, Any]) -> None:
    """Major and minor of VERSION_ID."""
    assert system.split_version_id(case["input"]["version_id"]) == case["expect"]["elements"]


@of("dmi_attribute")
def test_dmi_attribute(case: dict[str, Any], tmp_path: Path) -> None:
    """White space around DMI values is removed."""
    name = case["input"]["file"]
    it = host(tmp_path, {f"sys/devices/virtual/dmi/id/{name}": case["input"]["content"]})
    assert system.read_dmi(it) == {name: case["expect"]["value"]}


@of("dmi_attribute_names")
def test_dmi_attribute_names(case: dict[str, Any]) -> None:
    """The DMI attributes do not include serial numbers."""
    assert list(system.DMI_NAMES) == case["expect"]["names"]
