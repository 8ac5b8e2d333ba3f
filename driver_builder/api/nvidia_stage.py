"""``devicePlugin.nvidia``: what our agent reads of it, and what of it concerns its pod alone. Pure.

Which profiles of shared GPUs and which MIG layouts there are, and whose token the agent has, is none of its
configuration: that is the same on all nodes, and its digest restarts pods.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from device_resources.kinds import Fields, Text
from device_resources.nvidia_fields import MIG_KINDS, NVIDIA_FIELDS
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


class NvidiaStage(NamedTuple):
    """``nvidia`` as it was read. ``config``: the agent's configuration as it was given, None where it is not given."""

    config: Json | None = None
    profiles: ProfileSettings | None = None
    mig: MigSettings | None = None


def read_nvidia(plugin: Reader) -> NvidiaStage:
    """Read ``nvidia``.

    Problems are noted; what is wrong is left out.
    """
    given = plugin.raw("nvidia")
    if given is None:
        return NvidiaStage()
    problems = FIELDS.check(given, ())
    for problem in problems:
        plugin.wrong(problem.message, "nvidia", *problem.path)
    if problems or not isinstance(given, Mapping):
        return NvidiaStage({})
    config = {name: value for name, value in given.items() if name not in (*_OF_THE_POD, "mig")}
    profiles, mig = _profiles(plugin, given), _mig(plugin, given)
    if mig is not None:
        config["mig"] = {name: value for name, value in given["mig"].items() if name in MIG_KINDS}
    return NvidiaStage(config, profiles, mig)


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
