"""``devicePlugin.nvidia``: what our agent reads of it, and what of it concerns its pod alone. Pure.

Which profiles of shared GPUs there are, and whose token the agent has, is none of its configuration: that is the same
on all nodes, and its digest restarts pods.
"""

from collections.abc import Mapping
from typing import Any

from device_resources.kinds import Fields, Text
from device_resources.nvidia_fields import NVIDIA_FIELDS
from driver_builder.api.spec_reader import Reader
from driver_builder.api.spec_rules import OBJECT_NAME
from driver_builder.api.stage_settings import ProfileSettings

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
    "configMap": "profiles",
    **dict.fromkeys(("exporter", "memory"), "devicePlugin, beside nvidia"),
}
_OF_THE_POD = ("profiles", "defaultProfile", "serviceAccountName")

FIELDS = Fields(
    kinds={
        **NVIDIA_FIELDS.kinds,
        "profiles": Fields(kinds={"configMap": _NAME}, required=("configMap",), elsewhere=_ELSEWHERE),
        "defaultProfile": _KEY,
        "serviceAccountName": _NAME,
    },
    elsewhere=_ELSEWHERE,
)
"""Those of the agent's configuration, and :data:`_OF_THE_POD`."""


def read_nvidia(plugin: Reader) -> tuple[Json | None, ProfileSettings | None]:
    """Read ``nvidia``: the agent's configuration as it was given, and the profiles; None without them.

    Problems are noted; what is wrong is left out.
    """
    given = plugin.raw("nvidia")
    if given is None:
        return None, None
    problems = FIELDS.check(given, ())
    for problem in problems:
        plugin.wrong(problem.message, "nvidia", *problem.path)
    if problems or not isinstance(given, Mapping):
        return {}, None
    config = {name: value for name, value in given.items() if name not in _OF_THE_POD}
    return config, _profiles(plugin, given)


def _profiles(plugin: Reader, given: Mapping[str, Any]) -> ProfileSettings | None:
    profiles, default, account = (given.get(name) for name in _OF_THE_POD)
    if profiles is None:
        for name in _OF_THE_POD[1:]:
            if given.get(name) is not None:
                plugin.wrong("is only for profiles: write nvidia.profiles, or remove it", "nvidia", name)
        return None
    return ProfileSettings(config_map=profiles["configMap"], default=default, account=account)
