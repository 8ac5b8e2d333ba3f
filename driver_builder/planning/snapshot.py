"""Everything the controller knows at one moment, as frozen values: what ``plan`` decides on.

``observe`` makes one of the cluster and the registries; tests and ``driver-builder plan`` make one of anything else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from driver_builder.model import build
from driver_builder.model.image_state import ImageState
from driver_builder.model.images import ImageRef
from driver_builder.model.repositories import LookUp, Repository
from driver_builder.planning.inventory import Node
from driver_builder.planning.proof import Proof
from driver_builder.spec.driver_container import DriverContainer


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


Certificate = SigningCertificate | CertificateMissing
Source = build.Source | SourceMissing
OwnTemplate = build.OwnTemplate | SourceMissing


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSet:
    """One of our DaemonSets: one target of one driver. ``image`` is by digest, ``fingerprint`` that of its template."""

    namespace: str
    name: str
    uid: str
    driver: str
    target: str
    image: str
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPod:
    """One pod of such a DaemonSet.

    ``expected`` maps module name to the identity (srcversion or build id) that this pod's image carries; ``message``
    is the last thing its loader or the kubelet said about a failure.
    """

    namespace: str
    name: str
    uid: str
    node: str
    driver: str
    target: str
    version: str
    fingerprint: str
    ready: bool
    deleting: bool
    proof: Proof | None
    expected: Mapping[str, str]
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedBuild:
    """A build that this controller saw fail since its last report."""

    reason: str
    message: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """``now`` in seconds since the epoch. ``sources`` and own ``templates`` are by driver key, builds by their own.

    ``running_builds`` are queued or being built; ``queued_builds`` says of those that wait how many nodes were told to
    wait for them. ``builds_suspended`` says why builds fail alike and are not started, but for one at ``probe_at``.
    ``look_ups`` are those of this controller, ``running_look_ups`` the repositories that are being asked.
    """

    now: float
    nodes: tuple[Node, ...] = ()
    drivers: tuple[DriverContainer, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)
    templates: Mapping[str, OwnTemplate] = field(default_factory=dict)
    certificates: Mapping[str, Certificate] = field(default_factory=dict)
    """By namespace and name of the Secret, with a slash between."""
    images: Mapping[ImageRef, ImageState] = field(default_factory=dict)
    daemon_sets: tuple[DaemonSet, ...] = ()
    pods: tuple[DriverPod, ...] = ()
    running_builds: frozenset[str] = frozenset()
    queued_builds: Mapping[str, int] = field(default_factory=dict)
    builds_suspended: str = ""
    probe_at: float | None = None
    failed_builds: Mapping[str, FailedBuild] = field(default_factory=dict)
    look_ups: Mapping[Repository, LookUp] = field(default_factory=dict)
    running_look_ups: frozenset[Repository] = frozenset()
