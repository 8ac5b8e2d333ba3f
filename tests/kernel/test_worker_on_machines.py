"""The worker on machines of different kinds: real kernels, emulated CPUs and devices, all labels of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from kube_api.names import FEATURE_LABEL_PREFIX, label_value
from testbed.kernels import CLOUD, GENERIC, KernelPackage, newest_kernel
from testbed.progress import PlainLines
from testbed.testbed import Testbed
from tests.support.nfd_worker.machines import QUIET, Machine, WorkerDisk, scan, stock_kernel, worker_disk

CONFIG = """
sources:
  pci:
    deviceClassWhitelist: ["00ff", "0108", "02", "03", "0b40", "12"]
  usb:
    deviceClassWhitelist: ["03", "08", "ef"]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A machine, and all labels it must have but those of its kernel's version and its CPUID flags.

    ``flags``, ``no_flags``: CPUID flags that must and must not be among the labels.
    """

    machine: Machine
    labels: Mapping[str, str]
    flags: frozenset[str]
    no_flags: frozenset[str]
    flavour: str = CLOUD
    features: Mapping[str, Mapping[str, str]]


EVERYWHERE = {
    "kernel-config.NO_HZ_FULL": "true",
    "storage-nonrotationaldisk": "true",
    "system-os_release.ID": "debian",
    "system-os_release.VERSION_ID": "12",
    "system-os_release.VERSION_ID.major": "12",
    "pci-0108_1b36.present": "true",
}

CASES = {
    "an Intel server of two NUMA nodes with threads and an IOMMU": Case(
        machine=Machine(
            arguments=(
                *("-M", "q35", "-cpu", "Skylake-Server", "-m", "512", "-smp", "4,sockets=1,cores=2,threads=2"),
                *("-object", "memory-backend-ram,id=m0,size=256M", "-object", "memory-backend-ram,id=m1,size=256M"),
                *("-numa", "node,nodeid=0,cpus=0-1,memdev=m0", "-numa", "node,nodeid=1,cpus=2-3,memdev=m1"),
                *("-device", "intel-iommu", "-device", "edu"),
            ),
            parameters=f"{QUIET} intel_iommu=on",
            prepare="echo 4 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        ),
        labels={
            "cpu-hardware_multithreading": "true",
            "cpu-model.vendor_id": "Intel",
            "cpu-model.family": "6",
            "cpu-model.id": "85",
            "cpu-model.hypervisor": "qemu",
            "memory-numa": "true",
            "pci-00ff_1234.present": "true",
        },
        flags=frozenset({"ADX", "AESNI", "AVX2", "FMA3", "X86_64_V3"}),
        no_flags=frozenset({"AVX512F", "SSE4A", "X86_64_V4"}),
        features={
            "memory.numa": {"is_numa": "true", "node_count": "2", "cpu_node_count": "2"},
            "memory.hugepages": {"enabled": "true", "hugepages-1Gi": "0", "hugepages-2Mi": "4"},
            "cpu.topology": {"hardware_multithreading": "true", "socket_count": "1"},
        },
    ),
    "an AMD server with a GPU and an NVMe that makes virtual functions": Case(
        machine=Machine(
            arguments=(
                *("-M", "q35", "-cpu", "EPYC-Milan", "-m", "512", "-smp", "2,sockets=2"),
                *("-device", "virtio-gpu-pci", "-device", "pcie-root-port,id=rootport,chassis=1,slot=1"),
                *("-device", "nvme-subsys,id=subsystem"),
                *(
                    "-device",
                    "nvme,serial=sriov,subsys=subsystem,bus=rootport,sriov_max_vfs=4,sriov_vq_flexible=8,"
                    "sriov_vi_flexible=4",
                ),
            ),
            prepare="for card in /sys/bus/pci/devices/*/sriov_numvfs; do echo 2 > $card; done; sleep 1",
        ),
        labels={
            "cpu-hardware_multithreading": "false",
            "cpu-model.vendor_id": "AMD",
            "cpu-model.family": "25",
            "cpu-model.id": "1",
            "cpu-model.hypervisor": "qemu",
            "pci-0108_1b36.sriov.capable": "true",
            "pci-0380_1af4.present": "true",
        },
        flags=frozenset({"ADX", "AVX2", "SSE4A", "X86_64_V3"}),
        no_flags=frozenset({"AVX512F", "MPX", "X86_64_V4"}),
        features={"cpu.topology": {"hardware_multithreading": "false", "socket_count": "2"}},
    ),
    "an old Intel desktop with USB devices and SELinux": Case(
        machine=Machine(
            arguments=(
                *("-M", "q35", "-cpu", "Haswell", "-m", "512", "-device", "qemu-xhci", "-device", "usb-tablet"),
                *("-drive", "driver=null-co,if=none,id=stick,size=1M,read-only=on"),
                *("-device", "usb-storage,drive=stick", "-netdev", "user,id=net", "-device", "e1000e,netdev=net"),
            ),
            parameters=f"{QUIET} security=selinux selinux=1 enforcing=1",
            modules=("xhci_pci", "usb_storage", "usbhid", "e1000e"),
            prepare="for class in 03 08; do"
            " until grep -qs $class /sys/bus/usb/devices/*:*/bInterfaceClass; do sleep 0.1; done; done",
        ),
        flavour=GENERIC,
        labels={
            "cpu-hardware_multithreading": "false",
            "cpu-model.vendor_id": "Intel",
            "cpu-model.family": "6",
            "cpu-model.id": "60",
            "cpu-model.hypervisor": "qemu",
            "kernel-selinux.enabled": "true",
            "pci-0200_8086.present": "true",
            "usb-03_0627_0001.present": "true",
            "usb-08_46f4_0001.present": "true",
        },
        flags=frozenset({"AESNI", "AVX2", "X86_64_V3"}),
        no_flags=frozenset({"ADX", "AVX512F", "SHA"}),
        features={"kernel.selinux": {"enabled": "true"}},
    ),
    "a server with AVX-512 bits": Case(
        machine=Machine(
            arguments=(
                *("-M", "pc", "-m", "512", "-cpu"),
                "Icelake-Server-noTSX,x-force-features=on,-x2apic,-tsc-deadline,-pcid,-invpcid,-xsavec,-xsaves",
            ),
            # Emulation cannot execute what it is made to announce: kernel and glibc are kept from trying.
            parameters=f"{QUIET} initcall_blacklist=blake2s_mod_init GLIBC_TUNABLES=glibc.cpu.hwcaps="
            "-AVX512F,-AVX512VL,-AVX512BW,-AVX512DQ,-AVX512CD",
        ),
        labels={
            "cpu-hardware_multithreading": "false",
            "cpu-model.vendor_id": "Intel",
            "cpu-model.family": "6",
            "cpu-model.id": "134",
            "cpu-model.hypervisor": "qemu",
        },
        flags=frozenset({"AVX512F", "AVX512BW", "AVX512VNNI", "GFNI", "X86_64_V4"}),
        no_flags=frozenset({"SSE4A", "AMXTILE"}),
        features={
            "memory.swap": {"enabled": "false"},
            "memory.numa": {"is_numa": "false", "node_count": "1", "cpu_node_count": "1"},
        },
    ),
}


@pytest.fixture(scope="module")
def disk(engine_ground: Testbed, tmp_path_factory: pytest.TempPathFactory) -> WorkerDisk:
    """Take the worker's image apart."""
    return worker_disk(engine_ground, tmp_path_factory.mktemp("worker"))


@pytest.fixture(scope="module")
def kernels() -> dict[str, KernelPackage]:
    """Return a kernel of each flavour."""
    return {CLOUD: stock_kernel(), GENERIC: newest_kernel(GENERIC, PlainLines())}


IN_MAKE_TEST = "an AMD server with a GPU and an NVMe that makes virtual functions"


def _cases() -> list[object]:
    """Return the cases; `make test` has one of them."""
    return [pytest.param(name, marks=[] if name == IN_MAKE_TEST else [pytest.mark.long], id=name) for name in CASES]


@pytest.fixture(scope="module", params=_cases())
def scanned(
    request: pytest.FixtureRequest, disk: WorkerDisk, kernels: dict[str, KernelPackage]
) -> tuple[Case, KernelPackage, Any]:
    """Scan one machine."""
    case = CASES[request.param]
    kernel = kernels[case.flavour]
    return case, kernel, scan(disk.make(kernel, case.machine, CONFIG), kernel, case.machine)


def kernel_labels(kernel: KernelPackage) -> dict[str, str]:
    """Return the labels of a kernel's version."""
    numbers = kernel.release.split("-")[0].split(".")
    parts = dict(zip(("major", "minor", "revision"), numbers, strict=True))
    return {f"kernel-version.{name}": value for name, value in {"full": label_value(kernel.release), **parts}.items()}


def test_the_labels_of_a_machine(scanned: tuple[Case, KernelPackage, Any]) -> None:
    """Nothing more, nothing less; the flags of the CPU apart, of which emulators differ."""
    case, kernel, document = scanned
    assert document["failed"] == {}
    labels = {
        key.removeprefix(f"{FEATURE_LABEL_PREFIX}/"): value
        for key, value in document["labels"].items()
        if "/cpu-cpuid." not in key
    }
    assert labels == {**EVERYWHERE, **kernel_labels(kernel), **case.labels}


def test_the_flags_of_a_machine(scanned: tuple[Case, KernelPackage, Any]) -> None:
    """Flags are what this CPU model has, and not what the machine below it has."""
    case, _, document = scanned
    flags = {key.partition("cpu-cpuid.")[2] for key in document["labels"] if "/cpu-cpuid." in key}
    assert case.flags <= flags
    assert not case.no_flags & flags


def test_the_features_of_a_machine(scanned: tuple[Case, KernelPackage, Any]) -> None:
    """What rules can match is there, whether or not it is a label."""
    case, _, document = scanned
    attributes = document["features"]["attributes"]
    assert {name: attributes[name] for name in case.features} == case.features
