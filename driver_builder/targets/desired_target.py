"""What a target of a driver should run, or why it runs nothing. Values only.

:mod:`driver_builder.targets.resolve` makes them; the registries are asked for their images, and ``plan`` acts on
them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.api.mapping_settings import VendorSettings
from driver_builder.base.reasons import Reason, TargetState
from driver_builder.model import defaults
from driver_builder.model.build import BuildRequest
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.images import ImageRef
from driver_builder.model.kernels import KernelTarget
from driver_builder.model.permissions import Permissions


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateVersions:
    """``versions`` of every known template, by name, as build keys contain them.

    ``deadline_seconds`` is a build's deadline, for specs that have none; ``max_deadline_seconds`` is the longest that a
    spec may ask for. ``permissions`` say what a driver may use.
    """

    versions: Mapping[str, str]
    deadline_seconds: float = defaults.BUILD_DEADLINE_SECONDS
    max_deadline_seconds: float = defaults.MAX_BUILD_DEADLINE_SECONDS
    permissions: Permissions = field(default_factory=Permissions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """A driver image whose modules export symbols to those of another driver.

    ``key`` is its build key, empty for a prebuilt image; ``digest`` is that of the image once the registry has it.
    """

    driver: DriverKey
    image: ImageRef
    key: str
    registry: RegistrySettings
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _WithImage:
    """A target and the image that its nodes should run.

    ``rebuild`` is the token of a rebuild that the DriverContainer requests, and so for all its nodes.
    ``selects_os_version`` says that the DaemonSet also selects nodes by their OS version.
    """

    target: KernelTarget
    nodes: tuple[str, ...]
    image: ImageRef
    rebuild: str = ""
    selects_os_version: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetToBuild(_WithImage):
    """A target whose image ``request`` builds.

    ``basis`` is its key without the rebuilds that single nodes request.
    """

    request: BuildRequest
    basis: str = ""
    exporters: tuple[Exporter, ...] = ()
    """Images that have to exist before the build."""

    @property
    def key(self) -> str:
        """The build key of the image."""
        return self.request.key


@dataclass(frozen=True, slots=True, kw_only=True)
class PrebuiltTarget(_WithImage):
    """A target whose image a kernel mapping names: nothing is built. ``vendor`` says how its modules are loaded."""

    vendor: VendorSettings = field(default_factory=VendorSettings)

    @property
    def request(self) -> None:
        """None: nothing is built."""

    @property
    def key(self) -> str:
        """Empty: a prebuilt image has no build key."""
        return ""

    @property
    def basis(self) -> str:
        """Empty, as the key."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedTarget:
    """A target whose nodes get no driver, because the admin says so."""

    target: KernelTarget
    nodes: tuple[str, ...]
    reason: Reason
    message: str

    @property
    def state(self) -> TargetState:
        """The state in status."""
        return TargetState.SKIPPED


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedTarget:
    """A target whose nodes should have a driver, and for which nothing can be built now: they keep what they have."""

    target: KernelTarget
    nodes: tuple[str, ...]
    state: TargetState
    reason: Reason
    message: str


ImageTarget = TargetToBuild | PrebuiltTarget
"""A target that has an image."""

DesiredTarget = TargetToBuild | PrebuiltTarget | SkippedTarget | BlockedTarget
