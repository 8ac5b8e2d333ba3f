"""``devicePlugin.nvidia``: what our agent reads of it, and what of it concerns its pod alone. Pure.

Which profiles of shared GPUs and which MIG layouts there are, and whose token the agent has, is none of its
configuration: that is the same on all nodes, and its digest restarts pods.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from device_resources.kinds import Fields, Text
from device_resources.nvidia_fields import MIG_KINDS, NVIDIA_FIELDS
from driver_builder.api.spec_kinds import Cel, converted, described
from driver_builder.api.spec_reader import Reader
from driver_builder.api.spec_rules import OBJECT_NAME
from driver_builder.api.stage_settings import MigSettings, ProfileSettings

Json = dict[str, Any]

_LONGEST = 253

_NAME = Text(
    pattern=OBJECT_NAME.pattern.pattern,
    words="must be the name of an object: lower case letters, digits, '-' and '.'",
    longest=_LONGEST,
)
_KEY = Text(
    pattern="[A-Za-z0-9_-][A-Za-z0-9._-]*",
    words="must be a key of the ConfigMap: letters, digits, '-', '_' and '.', and no '.' in front",
    longest=_LONGEST,
)
_ELSEWHERE = {
    **NVIDIA_FIELDS.elsewhere,
    "configMap": "profiles, or mig",
    **dict.fromkeys(("exporter", "memory"), "devicePlugin, beside nvidia"),
}
_OF_THE_POD = ("profiles", "defaultProfile", "serviceAccountName")

FIELDS = Fields(
    kinds={
        **NVIDIA_FIELDS.kinds,
        "mig": Fields(kinds={**MIG_KINDS, "configMap": _NAME}, elsewhere=_ELSEWHERE),
        "profiles": Fields(kinds={"configMap": _NAME}, required=("configMap",), elsewhere=_ELSEWHERE),
        "defaultProfile": _KEY,
        "serviceAccountName": _NAME,
    },
    elsewhere=_ELSEWHERE,
)
"""Those of the agent's configuration, and what is of the pod: :data:`_OF_THE_POD`, and ``mig.configMap``."""


_WORDS = {
    "migStrategy": "How MIG devices are offered: not at all, as nvidia.com/gpu, or as nvidia.com/mig-<profile>. "
    "Default is none.",
    "libraries": "The driver's libraries and programs, mounted read-only into containers. Default is none.",
    "libraries.path": "Root of the driver's user space on the nodes, such as /run/nvidia/driver.",
    "sharedDevicesAllocationPolicy": "Which of several shared cards a container gets: those with most shares left, or "
    "with fewest. Default is distributed.",
    "health": "When a card that reported an error is healthy again.",
    "health.holdSeconds": "After the last error that asks for no reset, where the driver does not say what the card "
    "needs. Default is 600.",
    "mig": "MIG layouts: cards get the one that the label nvidia.com/mig.config of their node asks for "
    "(docs/gpu-mig.md). Default is none.",
    "mig.enabled": "Change MIG layouts. Default is false.",
    "mig.drain": "Have driver-builder evict the pods that use what goes, where it has the rights to drain. Default is "
    "false, which waits for them.",
    "mig.configMap": "ConfigMap in this namespace with the layouts, in mig-parted's words, in the key config.yaml.",
    "profiles": "Profiles of shared cards. A change of them restarts no pod (docs/gpu-sharing.md). Default is none.",
    "profiles.configMap": "ConfigMap in this namespace, with a profile in each key.",
    "defaultProfile": "Key of the profile of nodes that name none. Default is default.",
    "serviceAccountName": "Service account in this namespace by whose token the agent reads which profile and which "
    "MIG layout its node asks for, and reports that there. --device-agent-accounts of driver-builder has to name it. "
    "Without one every node has the default profile.",
}


class NvidiaStage(NamedTuple):
    """``nvidia`` as it was read. ``config``: the agent's configuration as it was given."""

    config: Json
    profiles: ProfileSettings | None = None
    mig: MigSettings | None = None


def _read(given: Json | None, plugin: Reader, name: str) -> NvidiaStage | None:
    """Divide what was given; problems are noted, and what is wrong is left out."""
    if given is None:
        return NvidiaStage({}) if plugin.has(name) else None
    config = {name: value for name, value in given.items() if name not in (*_OF_THE_POD, "mig")}
    profiles, mig = _profiles(plugin, given), _mig(plugin, given)
    if mig is not None:
        config["mig"] = {name: value for name, value in given["mig"].items() if name in MIG_KINDS}
    return NvidiaStage(config, profiles, mig)


NVIDIA = converted(
    described(
        FIELDS,
        _WORDS,
        (
            Cel("has(self.profiles) || !has(self.defaultProfile)", "defaultProfile requires profiles"),
            Cel(
                "has(self.profiles) || has(self.mig) || !has(self.serviceAccountName)",
                "serviceAccountName requires profiles or mig",
            ),
            Cel(
                "!(has(self.mig) && has(self.mig.enabled) && self.mig.enabled) || has(self.mig.configMap) && "
                "has(self.serviceAccountName)",
                "mig.enabled requires mig.configMap and serviceAccountName",
            ),
        ),
    ),
    _read,
)


def _profiles(plugin: Reader, given: Mapping[str, Any]) -> ProfileSettings | None:
    profiles, default, account = (given.get(name) for name in _OF_THE_POD)
    if profiles is not None:
        return ProfileSettings(config_map=profiles["configMap"], default=default, account=account)
    if default is not None:
        plugin.wrong("is only for profiles: write nvidia.profiles, or remove it", "nvidia", "defaultProfile")
    if account is not None and given.get("mig") is None:
        words = "is only for profiles and mig: write nvidia.profiles or nvidia.mig, or remove it"
        plugin.wrong(words, "nvidia", "serviceAccountName")
    return None


def _mig(plugin: Reader, given: Mapping[str, Any]) -> MigSettings | None:
    """Read ``mig``; None where it is not switched on: then the pods are those of a spec without it."""
    mig, account = given.get("mig") or {}, given.get("serviceAccountName")
    if mig.get("enabled") is not True:
        return None
    config_map = mig.get("configMap")
    if account is None:
        words = "is missing: without a token the agent cannot know which MIG layout its node asks for"
        plugin.wrong(words, "nvidia", "serviceAccountName")
    if config_map is None:
        plugin.wrong("is missing: write the ConfigMap with the file of MIG layouts", "nvidia", "mig", "configMap")
    return MigSettings(config_map=config_map, account=account) if config_map and account else None
