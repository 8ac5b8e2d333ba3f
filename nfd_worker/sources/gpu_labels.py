"""From the features of NVIDIA GPUs to the labels that GPU Feature Discovery would make of them. Pure."""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from feature_rules.features import Attributes, Features, Instances

MIG_LABELS = {
    "memory_mib": "memory",
    "multiprocessors": "multiprocessors",
    "slices_gi": "slices.gi",
    "slices_ci": "slices.ci",
    "engines_copy": "engines.copy",
    "engines_decoder": "engines.decoder",
    "engines_encoder": "engines.encoder",
    "engines_jpeg": "engines.jpeg",
    "engines_ofa": "engines.ofa",
}
"""Attribute of a ``gpu.mig`` -> end of its label's key."""

_GPU_LABELS = {
    "memory_mib": "memory",
    "family": "family",
    "compute_major": "compute.major",
    "compute_minor": "compute.minor",
}
"""Attribute of a ``gpu.device`` -> end of its label's key."""

_MODES_OF_CLASS = {"0300": "graphics", "0302": "compute"}

_LONGEST_VALUE = 63
_SHARED = "-SHARED"
_UNKNOWN: Attributes = MappingProxyType({})

_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9_. -]")


def gpu_labels(features: Features, mig_strategy: str) -> dict[str, str]:
    """Label driver, machine, GPUs, MIG devices and how they are shared; nothing for a node without GPUs.

    The keys are whole. ``mig_strategy`` is that of the settings: the one that device-agent reports wins over it.
    """
    devices = features.instances.get("gpu.device", ())
    if not devices:
        return {}
    sharing = features.attributes.get("gpu.sharing", _UNKNOWN)
    strategy = sharing.get("mig_strategy", mig_strategy)
    found = {
        **_driver_labels(features.attributes["gpu.driver"]),
        "nvidia.com/gpu.machine": label_text(features.attributes["gpu.machine"].get("name", "")) or "unknown",
        "nvidia.com/gpu.mode": _mode(devices),
        "nvidia.com/mig.capable": _truth("mig_mode" in device for device in devices),
        "nvidia.com/vgpu.present": _truth(device.get("virtualization") == "vgpu" for device in devices),
        **_whole_gpu_labels(devices),
        **_mig_labels(strategy, devices, features.instances.get("gpu.mig", ())),
    }
    return found | _sharing_labels(sharing, found)


def label_text(text: str) -> str:
    """Make a label value of a product name: dashes for spaces, other foreign characters dropped, length cut."""
    return "-".join(_NOT_IN_LABELS.sub("", text).split())[:_LONGEST_VALUE].strip("_.-")


def _driver_labels(driver: Attributes) -> dict[str, str]:
    """Label both versions under today's names and those that GPU Feature Discovery calls deprecated."""
    major, minor, revision = (driver.get(name, "") for name in ("major", "minor", "revision"))
    return {
        "nvidia.com/cuda.driver-version.full": driver["version"],
        "nvidia.com/cuda.driver-version.major": major,
        "nvidia.com/cuda.driver-version.minor": minor,
        "nvidia.com/cuda.driver-version.revision": revision,
        "nvidia.com/cuda.runtime-version.full": driver["cuda_version"],
        "nvidia.com/cuda.runtime-version.major": driver["cuda_major"],
        "nvidia.com/cuda.runtime-version.minor": driver["cuda_minor"],
        "nvidia.com/cuda.driver.major": major,
        "nvidia.com/cuda.driver.minor": minor,
        "nvidia.com/cuda.driver.rev": revision,
        "nvidia.com/cuda.runtime.major": driver["cuda_major"],
        "nvidia.com/cuda.runtime.minor": driver["cuda_minor"],
    }


def _whole_gpu_labels(devices: Instances) -> dict[str, str]:
    """Label the product that there is most of, the first of equals; GPUs in MIG mode only when there are no others."""
    whole = [device for device in devices if device.get("mig_mode") != "enabled"] or list(devices)
    names = [device["name"] for device in whole]
    chosen = max(whole, key=lambda device: names.count(device["name"]))
    count = sum(device["name"] == chosen["name"] for device in devices)
    return {
        "nvidia.com/gpu.product": label_text(chosen["name"]),
        "nvidia.com/gpu.count": str(count),
        **{f"nvidia.com/gpu.{key}": chosen[at] for at, key in _GPU_LABELS.items() if at in chosen},
    }


def _mig_labels(strategy: str, devices: Instances, migs: Instances) -> dict[str, str]:
    found = {"nvidia.com/mig.strategy": strategy}
    match strategy:
        case "single":
            return found | _single(devices, migs)
        case "mixed":
            for profile in sorted({mig["profile"] for mig in migs}):
                alike = tuple(mig for mig in migs if mig["profile"] == profile)
                found |= _resource(f"mig-{_in_keys(profile)}", alike)
            return found
    return {}


def _single(devices: Instances, migs: Instances) -> dict[str, str]:
    """Describe the MIG devices as if they were the GPUs; INVALID unless all GPUs are cut, into pieces of one size."""
    enabled = [device for device in devices if device.get("mig_mode") == "enabled"]
    if not enabled:
        return {}
    cut = {mig["gpu"] for mig in migs}
    if len({mig["profile"] for mig in migs}) == 1 and all(device["index"] in cut for device in devices):
        return _resource("gpu", migs)
    return {
        "nvidia.com/gpu.product": label_text(f"{enabled[0]['name']} MIG INVALID"),
        "nvidia.com/gpu.count": "0",
        "nvidia.com/gpu.memory": "0",
    }


def _resource(name: str, migs: Instances) -> dict[str, str]:
    """Label MIG devices that are all of one profile under the name of their extended resource."""
    first = migs[0]
    product = label_text(f"{first['gpu_name']} MIG {_in_keys(first['profile'])}")
    found = {"product": product, "count": str(len(migs)), **{key: first[at] for at, key in MIG_LABELS.items()}}
    return {f"nvidia.com/{name}.{key}": value for key, value in found.items()}


def _sharing_labels(sharing: Attributes, found: Mapping[str, str]) -> dict[str, str]:
    """Label how each resource is shared; the product of one that is, and keeps its name, says so as well."""
    made = {key: value for key, value in sharing.items() if key.endswith((".replicas", ".sharing-strategy"))}
    for key, replicas in sharing.items():
        resource, _, of = key.rpartition(".")
        product = f"{resource}.product"
        if of == "replicas" and replicas != "1" and sharing.get(f"{resource}.renamed") == "false" and product in found:
            made[product] = found[product][: _LONGEST_VALUE - len(_SHARED)].rstrip("_.-") + _SHARED
    return made


def _in_keys(profile: str) -> str:
    """Spell a profile as the device plugin does in a resource's name: ``1g.10gb+me`` -> ``1g.10gb.me``."""
    return profile.replace("+", ".")


def _mode(devices: Instances) -> str:
    """Name the mode by the GPUs' PCI class: VGA controllers are for graphics, 3D controllers for computing."""
    classes = {device.get("pci_class", "") for device in devices}
    return _MODES_OF_CLASS.get(classes.pop(), "unknown") if len(classes) == 1 else "unknown"


def _truth(answers: Iterable[bool]) -> str:
    return "true" if any(answers) else "false"
