"""Everything the controller knows at one moment, as frozen values: what ``plan`` decides on.

``observe`` makes one of the cluster and the registries; tests and ``driver-builder plan`` make one of anything else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from driver_builder.api.driver_container import DriverContainer
from driver_builder.model import build
from driver_builder.model.driver_key import NOBODY, DriverKey
from driver_builder.model.image_state import ImageState, NotAsked
from driver_builder.model.images import ImageRef
from driver_builder.model.repositories import Discovery, Repository
from driver_builder.objects import slots
from driver_builder.objects.load_report import LoadReport
from driver_builder.objects.plugin import PluginConfig, PluginPod, PluginSet, StraySet
from driver_builder.objects.slots import ONLY, Slot
from driver_builder.snapshot.inventory import Node
from driver_builder.snapshot.node_pods import EvictionRefused, NodePods
from driver_builder.snapshot.resource_slices import NodeSlice, SlicesUnread
from driver_builder.tasks.node_task import NodeTask
from driver_builder.tasks.proof_pod import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMissing:
    """The driver's source, or its own template, could not be read; ``message`` says what is missing and where."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningCertificate:
    """The X.509 certificate that modules are to be signed with, in DER; it is public."""

    der: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateMissing:
    """A certificate could not be read, or ``is_invalid``; ``message`` says what is missing or wrong, and where."""

    message: str
    is_invalid: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountMissing:
    """A service account does not exist, or ``is_unread``: whether it does could not be read."""

    message: str
    is_unread: bool = False


Certificate = SigningCertificate | CertificateMissing
Source = build.Source | SourceMissing
OwnTemplate = build.OwnTemplate | SourceMissing


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSet:
    """One of our DaemonSets: one target of one driver. ``image`` is by digest.

    ``fingerprint`` and ``template`` are the digests of :mod:`driver_builder.objects.manifests`. ``os_version`` is the
    recorded one, None where no version of this program recorded one; ``selects_os_version`` says whether nodes of
    other versions are kept away. ``adopted`` is the fingerprint that was wanted when its pods had one of an older form;
    ``folders`` are those of the node that its pods see, by the names of the volumes; ``hooks`` are the containers with
    lifecycle hooks, which earlier releases wrote.
    """

    namespace: str
    name: str
    uid: str
    driver: DriverKey
    target: str
    image: str
    fingerprint: str
    template: str = ""
    kernel: str = ""
    os_version: str | None = None
    selects_os_version: bool = False
    adopted: str = ""
    folders: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    kept: frozenset[str] = frozenset()
    """Fingerprints of before a rebuild that only some nodes asked for; ``basis`` is what all of them had in common."""
    basis: str = ""
    version: str = ""
    expected: Mapping[str, str] = field(default_factory=dict)
    """Version and module identities of its template."""
    needed: Mapping[str, str] = field(default_factory=dict)
    """The modules that these need of the image, with their identities."""
    slot: Slot = ONLY
    """In a wave a target has two."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: str = ""
    """As JSON; both say, besides the wave, where its pods may be."""
    first: tuple[DriverKey, ...] = ()
    """The drivers that its pods wait for, by ``namespace/name``."""
    has_program: bool = False
    """Whether the image's own program loads the modules."""
    sees_programs: bool = False
    """Whether our loader in its pods waits for such a program of another pod to end."""
    asked: str = ""
    """What its pods ask of a vendor's image (:func:`driver_builder.objects.vendor_pod.asked_of`)."""

    @property
    def builds(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Return the modules that its pods have, with their identities, named or not."""
        return self.expected, self.needed

    @property
    def target_label(self) -> str:
        """Return what the target label of its pods says."""
        return slots.name_in(self.target, self.slot.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPod:
    """One pod of such a DaemonSet.

    ``expected`` maps module name to the identity (srcversion or build id) that this pod's image carries; ``message``
    is the last thing its loader or the kubelet said about a failure. ``leaves_modules`` says that its modules stay when
    it ends, unlike those of older versions; ``firmware`` (in ``/lib``), ``var_firmware`` (in ``/var/lib``) and
    ``blacklist`` that it writes such files,
    ``nvidia`` that it may export a user space to NVIDIA's place.
    ``contrary`` is a verdict of ``hold`` that is newer than ``proof``: a module is not what it was any more.
    ``unready_since`` is when the pod was last ready, ``slot`` that of its DaemonSet. ``device_nodes`` are those
    that its loader checks.
    """

    namespace: str
    name: str
    uid: str
    node: str
    driver: DriverKey
    target: str
    version: str
    fingerprint: str
    ready: bool
    deleting: bool
    proof: LoadReport | None
    expected: Mapping[str, str]
    message: str = ""
    leaves_modules: bool = False
    firmware: bool = False
    blacklist: bool = False
    var_firmware: bool = False
    nvidia: bool = False
    image: str = ""
    contrary: LoadReport | None = None
    unready_since: float | None = None
    slot: str = ""
    device_nodes: tuple[str, ...] = ()
    program: Program | None = None
    """Where the image's own program loads the modules: then ``proof`` is the report of a proof pod."""
    asked: str = ""
    """What it asks of a vendor's image."""
    needed: Mapping[str, str] = field(default_factory=dict)
    """The modules that those of ``expected`` need of the image, with their identities."""

    @property
    def builds(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Return the modules that it has, with their identities, named or not."""
        return self.expected, self.needed


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanedPod:
    """A pod whose DaemonSet is gone: it proves nothing, and may still load for a moment."""

    driver: DriverKey
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedBuild:
    """A build that this controller saw fail since its last report.

    ``driver`` is whose build it was. ``earlier`` are the moments when builds of the same key failed before, of which no
    status could be written.
    """

    reason: str
    message: str
    at: float
    driver: DriverKey = NOBODY
    earlier: tuple[float, ...] = ()

    def count_since(self, last: float | None) -> int:
        """Count the failures that a status does not have yet; ``last`` is the last one it has, in whole seconds."""
        return sum(last is None or int(at) > last for at in (*self.earlier, self.at))


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspension:
    """``why`` builds fail alike and are not started, but for one at ``probe_at``."""

    why: str
    probe_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """``now`` in seconds since the epoch. ``sources`` and own ``templates`` are by driver key, builds by their own.

    ``running_builds`` are queued or being built; ``queued_builds`` says of those that wait how many nodes
    they were queued for. ``suspended`` says by driver, or for all under ``""``, why builds are not started.
    ``discoveries`` are those of this controller, ``running_discoveries`` the repositories that are being asked.
    """

    now: float
    nodes: Sequence[Node] = ()
    forbidden: Mapping[str, str] = field(default_factory=dict)
    """Namespaces that could not be read, with the API server's words: what is in them is unknown, not absent."""
    drivers: tuple[DriverContainer, ...] = ()
    sources: Mapping[DriverKey, Source] = field(default_factory=dict)
    templates: Mapping[DriverKey, OwnTemplate] = field(default_factory=dict)
    certificates: Mapping[str, Certificate] = field(default_factory=dict)
    """By namespace and name of the Secret, with a slash between."""
    images: Mapping[ImageRef, ImageState] = field(default_factory=dict)
    pushed: Mapping[ImageRef, str] = field(default_factory=dict)
    """The digests that this controller's own builds ended with."""
    images_of: Mapping[DriverKey, Mapping[ImageRef, ImageState]] = field(default_factory=dict)
    """By driver key, where its namespace, Secret, CA or plain HTTP lets it see another state than ``images`` has."""
    daemon_sets: tuple[DaemonSet, ...] = ()
    pods: Sequence[DriverPod] = ()
    """Those that our DaemonSets control."""
    orphaned_pods: tuple[OrphanedPod, ...] = ()
    tasks: tuple[NodeTask, ...] = ()
    """Of all kinds. The reports of proofs are in ``pods`` already."""
    plugin_sets: tuple[PluginSet, ...] = ()
    plugin_pods: tuple[PluginPod, ...] = ()
    """Also those whose DaemonSet is gone: they still use the driver."""
    plugin_configs: Mapping[DriverKey, PluginConfig] = field(default_factory=dict)
    """By driver key, where our agent is its plugin or was."""
    plugin_strays: Mapping[DriverKey, StraySet] = field(default_factory=dict)
    """By driver key, the DaemonSet that has the name of a plugin's which is not there."""
    plugin_accounts: Mapping[str, AccountMissing | None] = field(default_factory=dict)
    """By service account (``namespace/name``) that plugins are to have and may have, why it cannot be used; else None.
    """
    node_slices: Mapping[str, Sequence[NodeSlice]] = field(default_factory=dict)
    """By DRA driver that is a plugin, its ResourceSlices on nodes."""
    slices_unread: SlicesUnread | None = None
    """Why these are not known; None where they are, and where nobody needs them."""
    resource_users: Mapping[str, NodePods] = field(default_factory=dict)
    """All pods of the nodes where a plugin is validated next, or where its resources may be in use and none is left."""
    terminating_namespaces: frozenset[str] = frozenset()
    """Namespaces of deleted drivers that are being deleted themselves: no pod can be made there."""
    node_pods: Mapping[str, NodePods] = field(default_factory=dict)
    """All pods of the nodes that are drained now."""
    drained_last: Mapping[DriverKey, frozenset[str]] = field(default_factory=dict)
    """By driver key, of the nodes that its wave takes next those on which a drain would wait for pods."""
    locks_first_seen: Mapping[str, float] = field(default_factory=dict)
    """By node, since when a lock is there that was renewed after now, by the clock of whoever wrote it."""
    refused_evictions: Mapping[str, EvictionRefused] = field(default_factory=dict)
    """By the uid of the pod."""
    running_builds: frozenset[str] = frozenset()
    queued_builds: Mapping[str, int] = field(default_factory=dict)
    suspended: Mapping[str, Suspension] = field(default_factory=dict)
    failed_builds: Mapping[str, FailedBuild] = field(default_factory=dict)
    discoveries: Mapping[Repository, Discovery] = field(default_factory=dict)
    running_discoveries: frozenset[Repository] = frozenset()

    def image(self, driver: DriverKey, image: ImageRef) -> ImageState:
        """What the registry says of an image to a driver."""
        own = self.images_of.get(driver, {}).get(image)
        return own if own is not None else self.images.get(image, NotAsked())
