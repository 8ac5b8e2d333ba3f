"""``spec.stages`` as frozen values: what follows on a node once the driver is proven there.

Place in the flow: ``spec_parser`` makes :class:`StageSettings`, ``plan_stages`` decides by them.
"""

from dataclasses import dataclass, field
from typing import Any

from device_resources.resource import NVIDIA_DOMAIN
from driver_builder.api.environment import EnvironmentVariable
from driver_builder.api.spec_kinds import duration, needed, number, row, text, texts
from driver_builder.api.spec_rules import EXTENDED_RESOURCE, IMAGE, TEXT
from driver_builder.model import resource_claim

Json = dict[str, Any]

MAX_RETRIES = 10
"""Of a command that failed, here and of a driver's validation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSettings:
    """``nvidia.profiles``: by which profiles our agent shares GPUs.

    ``config_map`` has the profiles; ``default`` is the key of the one that counts where a node names none, if not
    ``default``. ``account`` is the service account by whose token the agent follows the label of its Node: without one
    the default counts everywhere.
    """

    config_map: str
    default: str | None = None
    account: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MigSettings:
    """``nvidia.mig``, switched on: ``config_map`` has the file with MIG layouts; ``account`` as profiles have it."""

    config_map: str
    account: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UseSettings:
    """``exporter`` and ``memory`` of our agent, at least one of them switched on.

    ``config``: what is switched on, as it was given, for the agent's configuration.
    ``port``: of the exporter; None without one. ``sees_processes``: the container ``nvml`` sees the node's processes.
    ``limits_memory``: the agent remembers as how many shares a container was given a device.
    ``writes_cgroups``: it also sets limits on their cgroups. ``ends_processes``: it ends one that the agent names.
    """

    config: Json
    port: int | None = None
    sees_processes: bool = False
    limits_memory: bool = False
    writes_cgroups: bool = False
    ends_processes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DraSettings:
    """``dra``: the vendor's image is a driver of dynamic resource allocation, and no device plugin.

    ``driver`` is the name by which it registers with the kubelet and publishes ResourceSlices, ``account`` the service
    account that it has. ``env`` are further variables of its container, in the order that they were given.
    """

    driver: str
    account: str
    env: tuple[EnvironmentVariable, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePluginSettings:
    """``devicePlugin``: our agent with a ``resource`` described in place or with ``nvidia``, or a vendor's ``image``.

    ``resource`` and ``nvidia`` are as they were given: empty, or None, where they are not; ``profiles`` and ``mig`` are
    what was in ``nvidia`` and is not for the agent's configuration. ``use`` is what our agent shows and limits of the
    devices' use.
    ``resource_name`` is the extended resource that the nodes get, such as ``driverwright.io/edu``; with ``nvidia`` it
    is the one of full cards, and nodes may get others of the same domain. With ``dra`` there is none.
    """

    resource_name: str
    resource: Json = field(default_factory=dict)
    nvidia: Json | None = None
    profiles: ProfileSettings | None = None
    mig: MigSettings | None = None
    use: UseSettings | None = None
    image: str | None = None
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    privileged: bool = False
    dra: DraSettings | None = None

    @property
    def is_of_agent(self) -> bool:
        """Return whether our agent is the plugin."""
        return self.image is None

    @property
    def has_nvml(self) -> bool:
        """Return whether the privileged container stands beside our agent."""
        return self.nvidia is not None or (self.use is not None and self.use.sees_processes)

    @property
    def claim(self) -> str:
        """Return what it offers on its nodes alone: one resource, with ``nvidia`` all of a domain, or a DRA driver."""
        if self.dra is not None:
            return resource_claim.of_dra_driver(self.dra.driver)
        return self.resource_name if self.nvidia is None else NVIDIA_DOMAIN

    @property
    def account(self) -> str | None:
        """Return the name of the service account that its pods are to have, None for none."""
        return next(
            (one.account for one in (self.dra, self.mig, self.profiles) if one is not None and one.account), None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginValidationSettings:
    """``pluginValidation``: ``command`` runs in ``image`` once per node and boot, in a pod that requests the resource.

    It may take ``deadline_seconds``, and is tried again ``retries`` times.
    """

    image: str = row(needed(IMAGE), "Image of the pod.")
    command: tuple[str, ...] = row(
        texts(TEXT, least=1), "Program and arguments. The plugin is validated when it ends with 0.", is_required=True
    )
    resource_name: str = row(
        text(EXTENDED_RESOURCE), "The resource that the pod requests; that of the plugin without it.", default=""
    )
    deadline_seconds: float = row(
        duration(), "How long the pod may take, with the pull of its image; 5m without it.", name="deadline",
        default=300.0,
    )  # fmt: skip
    retries: int = row(
        number(0, MAX_RETRIES),
        "How often a command that failed is run again, with growing waits; 2 without it.",
        default=2,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSettings:
    """``spec.stages``: also without any stage of ours nodes get the labels that DaemonSets of others select."""

    device_plugin: DevicePluginSettings | None = None
    plugin_validation: PluginValidationSettings | None = None

    @property
    def asks_for_users(self) -> bool:
        """Return whether it matters which pods use the plugin's resources."""
        profiles = self.device_plugin.profiles if self.device_plugin is not None else None
        return self.plugin_validation is not None or (profiles is not None and profiles.account is not None)
