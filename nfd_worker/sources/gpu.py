"""Source ``gpu``: NVIDIA GPUs as NVML reports them, from the answer of a scan child to features and labels. Pure.

NVML is asked by a short-lived child (:mod:`nfd_worker.gpu.gpu_scan`) whose life is :mod:`nfd_worker.gpu.scan_runner`;
this module says whether the node needs one at all. Labels have the names and values of NVIDIA's GPU Feature Discovery.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from feature_rules.features import Attributes, Failed, Features
from nfd_worker.errors import HostReadError
from nfd_worker.host import Host
from nfd_worker.sources import pci
from nfd_worker.sources.gpu_labels import MIG_LABELS, gpu_labels
from nfd_worker.sources.settings import SourceSettings

_VENDOR = "10de"
_DISPLAY_CONTROLLER = "03"
"""The PCI base class of graphics cards; NVIDIA also makes switches, sound and USB controllers, and network adapters."""
_DRIVER = "proc/driver/nvidia"

SHARING_FILE = "run/driverwright-agent/gpu-sharing.json"
"""Where device-agent reports how it shares the GPUs (:mod:`device_resources.gpu_sharing`)."""

_MODE = {0: "disabled", 1: "enabled"}
_WORDS: Mapping[str, Mapping[int, str]] = {
    "ecc_mode": _MODE,
    "persistence_mode": _MODE,
    "mig_mode": _MODE,
    "virtualization": {0: "none", 1: "passthrough", 2: "vgpu", 3: "host-vgpu", 4: "host-vsga"},
}
"""What NVML's enumerations mean."""

DEVICE_FIELDS = (
    "uuid", "name", "pci_bus_id", "pci_class", "numa_node", "memory_mib", "compute_major", "compute_minor", "ecc_mode",
    "persistence_mode", "mig_mode", "virtualization", "nvlink_links",
)  # fmt: skip

_FAMILIES = {1: "tesla", 2: "fermi", 3: "kepler", 5: "maxwell", 6: "pascal", 9: "hopper"}
_BLACKWELL = (10, 11, 12)


class Cards(NamedTuple):
    """What the kernel knows of NVIDIA's graphics cards: whether there are any, and whether their driver is loaded."""

    are_there: bool
    have_driver: bool


def needs_scan(host: Host) -> bool:
    """Return whether a child has to ask NVML: this machine has a PCI device of NVIDIA's, or the driver is loaded.

    Never for a recorded tree, since NVML answers for the machine it runs on.

    Raises:
        HostReadError: when the PCI devices cannot be listed or read.
    """
    if not host.is_live:
        return False
    return host.has(_DRIVER) or any(one.vendor == _VENDOR for one in pci.identities(host).values())


def cards(host: Host) -> Cards:
    """Look for NVIDIA's graphics cards without asking NVML.

    Raises:
        HostReadError: as :func:`needs_scan`.
    """
    found = (
        one.vendor == _VENDOR and one.device_class.startswith(_DISPLAY_CONTROLLER)
        for one in pci.identities(host).values()
    )
    return Cards(are_there=any(found), have_driver=host.has(_DRIVER))


def discover(host: Host, _settings: SourceSettings) -> Features:
    """Answer for a node without NVIDIA hardware, which needs no child: nothing there.

    Raises:
        HostReadError: when :func:`needs_scan`, for then only a scan knows; or as that function does.
    """
    if needs_scan(host):
        raise HostReadError("the NVIDIA GPUs of this node have not been scanned yet")
    return Features()


def parse_answer(line: bytes) -> Features | Failed:
    """Make features of the line of JSON that a scan child prints (format: :func:`nfd_worker.gpu.gpu_scan.scan`).

    Attributes ``gpu.driver``, ``gpu.machine`` and, where it was reported, ``gpu.sharing``; instances ``gpu.device`` and
    ``gpu.mig``. A node without a driver has none of them. Anything that is not an answer is a failure with a sentence.
    """
    try:
        answer = json.loads(line)
        match answer["state"]:
            case "ok":
                return _features(answer)
            case "absent":
                return Features()
            case "failed":
                return Failed(str(answer["reason"]))
            case state:
                return Failed(f"the GPU scan returned the unknown state {state!r}")
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        return Failed(f"the GPU scan's output {line[:80]!r} cannot be read: {error!r}")


def why_no_gpus(found: Features, line: bytes) -> str:
    """Say why a scan found no GPU, by the line that its features were made of; empty when it found some.

    A driver may also list none: a container that may not use a GPU's device node does not see it.
    """
    if found.instances.get("gpu.device"):
        return ""
    reason = json.loads(line).get("reason") or "NVML lists no GPU; check that this container may use /dev/nvidia*"
    return str(reason)


def sharing_problem(line: bytes) -> str:
    """Say why the report of how GPUs are shared cannot be used, by the line of a good answer; empty where it can."""
    return str(json.loads(line).get("sharing_problem", ""))


def labels(features: Features, settings: SourceSettings) -> dict[str, str]:
    """Label driver, machine, GPUs and MIG devices; nothing for a node without GPUs. The keys are whole."""
    return gpu_labels(features, settings.gpu.mig_strategy)


def family(compute_major: int, compute_minor: int) -> str:
    """Name the architecture of a CUDA compute capability, as GPU Feature Discovery does."""
    match compute_major:
        case 7:
            return "volta" if compute_minor < 5 else "turing"
        case 8:
            return "ampere" if compute_minor < 9 else "ada-lovelace"
        case _ if compute_major in _BLACKWELL:
            return "blackwell"
    return _FAMILIES.get(compute_major, "undefined")


def mig_profile(device_name: str) -> str:
    """Take the profile from the name NVML gives a MIG device: ``NVIDIA A100-SXM4-40GB MIG 1g.5gb`` -> ``1g.5gb``.

    Raises:
        ValueError: when the name ends otherwise.
    """
    profile = device_name.partition(" MIG ")[2].strip()
    if not profile:
        raise ValueError(f"the MIG device {device_name!r} does not name its profile")
    return profile


def _features(answer: Mapping[str, Any]) -> Features:
    devices = answer["devices"]
    sharing = {str(name): str(value) for name, value in answer.get("sharing", {}).items()}
    return Features(
        attributes={
            "gpu.driver": _driver(str(answer["driver"]), int(answer["cuda"])),
            "gpu.machine": {"name": str(answer["machine"])} if answer["machine"] else {},
            **({"gpu.sharing": sharing} if sharing else {}),
        },
        instances={
            "gpu.device": tuple(_device(index, raw) for index, raw in enumerate(devices)),
            "gpu.mig": tuple(_mig(index, raw, mig) for index, raw in enumerate(devices) for mig in raw["migs"]),
        },
    )


def _driver(version: str, cuda: int) -> Attributes:
    """Split both versions; NVML gives CUDA's as 1000 * major + 10 * minor."""
    numbers = dict(zip(("major", "minor", "revision"), version.split("."), strict=False))
    cuda_major, cuda_minor = str(cuda // 1000), str(cuda % 1000 // 10)
    return {
        "version": version,
        **numbers,
        "cuda_version": f"{cuda_major}.{cuda_minor}",
        "cuda_major": cuda_major,
        "cuda_minor": cuda_minor,
    }


def _device(index: int, raw: Mapping[str, Any]) -> Attributes:
    """Make one ``gpu.device``; what this GPU or driver does not know is left out."""
    known = {name: raw[name] for name in DEVICE_FIELDS if raw[name] is not None}
    values = {"index": str(index), **{name: _word(name, value) for name, value in known.items()}}
    if "compute_major" in known:
        values["family"] = family(known["compute_major"], known["compute_minor"])
    if "nvlink_links" in known or raw["nvlink_peers"]:
        values["nvlink_peers"] = str(len(raw["nvlink_peers"]))
        values["nvlink_peer_ids"] = ",".join(raw["nvlink_peers"])
    return values


def _mig(gpu: int, raw_gpu: Mapping[str, Any], raw: Mapping[str, Any]) -> Attributes:
    numbers = {name: str(raw[name]) for name in MIG_LABELS}
    profile = mig_profile(raw["name"])
    return {"gpu": str(gpu), "gpu_name": str(raw_gpu["name"]), "uuid": str(raw["uuid"]), "profile": profile, **numbers}


def _word(name: str, value: Any) -> str:
    return _WORDS.get(name, {}).get(value, str(value))
