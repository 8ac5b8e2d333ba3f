"""What a plugin's pod has besides where a node's labels choose how its GPUs are shared and partitioned. Pure.

Profiles count without a token too: then each node has the default one. A MIG layout is asked for by the Node alone, so
without a token nothing of it is in the pod, nor may the container ``nvml`` change one.
"""

from collections.abc import Mapping
from typing import Any

from driver_builder.api.stage_settings import MigSettings, ProfileSettings
from driver_builder.objects import nvidia_plugin
from driver_builder.objects.agent_token import has_token, has_volume
from driver_builder.objects.pod_parts import with_config_map, with_users

Json = dict[str, Any]

_PROFILES, _PROFILES_FOLDER = "profiles", "/etc/device-agent-profiles"
_LAYOUTS, _LAYOUTS_FOLDER = "mig-config", "/etc/device-agent-mig"
_CHANGES_MIG = "--changes-mig=true"
"""Without it ``nvml`` refuses to."""


def with_profiles(pod: Json, profiles: ProfileSettings) -> Json:
    """Return the spec of a plugin's pod, whose first container is the agent, with the profiles."""
    default = [f"--default-profile={profiles.default}"] if profiles.default is not None else []
    flags = (f"--profiles={_PROFILES_FOLDER}", *default)
    return with_users(with_config_map(pod, _PROFILES, profiles.config_map, _PROFILES_FOLDER, *flags))


def with_mig(pod: Json, mig: MigSettings) -> Json:
    """Return the spec of a plugin's pod with the file of MIG layouts, and a container ``nvml`` that makes them."""
    made = with_users(
        with_config_map(pod, _LAYOUTS, mig.config_map, _LAYOUTS_FOLDER, f"--mig-config={_LAYOUTS_FOLDER}")
    )
    return {**made, "containers": [_changing(container) for container in made["containers"]]}


def is_answering(pod: Mapping[str, Any]) -> bool:
    """Return whether by this spec of a pod, as the API server has it, the agent reports on its Node what it offers."""
    return has_token(pod) and has_volume(pod, _PROFILES)


def _changing(container: Json) -> Json:
    is_nvml = container["name"] == nvidia_plugin.CONTAINER
    return {**container, "args": [*container["args"], _CHANGES_MIG]} if is_nvml else container
