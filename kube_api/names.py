"""Label and annotation keys and values: the names both programs use, and what Kubernetes accepts as one.

Standard library only: the worker's resident process imports this module.
"""

import re

GROUP = "driverwright.io"
"""API group and label prefix of our own objects, labels and annotations."""

FEATURE_LABEL_PREFIX = "feature.node.kubernetes.io"
"""Label prefix of Node Feature Discovery."""

KERNEL_VERSION_LABEL = f"{FEATURE_LABEL_PREFIX}/kernel-version.full"
OS_ID_LABEL = f"{FEATURE_LABEL_PREFIX}/system-os_release.ID"
OS_VERSION_LABEL = f"{FEATURE_LABEL_PREFIX}/system-os_release.VERSION_ID"
ARCHITECTURE_LABEL = "kubernetes.io/arch"
SECURE_BOOT_LABEL = "driverwright.io/secure-boot"
"""``true`` on nodes that boot with Secure Boot; set by an admin, or by a feature file of the worker."""

BOOT_ID_ANNOTATION = f"{GROUP}/boot-id"
"""On a Node, by nfd_worker: /proc/sys/kernel/random/boot_id of the boot that its labels describe."""

KERNEL_VERSION_ANNOTATION = f"{GROUP}/kernel-version"
"""On a Node, by nfd_worker: all of ``uname -r``. The label's value cannot hold the ``+`` of ``6.12.9+deb12-amd64``."""

REBUILD_ANNOTATION = f"{GROUP}/rebuild"
"""On a DriverContainer or a Node, by an admin: any new value forces a rebuild."""

PAUSE_ANNOTATION = f"{GROUP}/pause"
"""On a DriverContainer, by an admin: ``true`` stops everything but status and the removal of false ready labels."""

SKIP_ROLLOUT_ANNOTATION = f"{GROUP}/skip-rollout"
"""On a Node, by an admin: while it is ``true`` no wave replaces driver pods there, or waits for the node."""

LOCK_ANNOTATION = f"{GROUP}/lock"
"""On a Node: who works on its devices now, us or another program (docs/upgrades.md)."""

DRAINING_ANNOTATION = f"{GROUP}/draining"
"""On a Node: how far its preparation for another driver is, and what has to be restored there."""

YIELDING_ANNOTATION = f"{GROUP}/yielding"
"""On a Node: which driver is replaced there, and which drivers that depend on it are unloaded meanwhile."""

UPGRADING_TAINT = f"{GROUP}/upgrading"
"""On a Node, with the effect NoSchedule: its driver is being replaced, and nothing that uses it may come."""

PENDING_TAINT = f"{GROUP}/pending"
"""Tolerated by all pods of ours, and set by none: the taint of a driver that is not proven has the driver's name."""

PENDING = "pending"
"""The value of :func:`pending_taint`."""

PENDING_PREFIX = f"pending.{GROUP}/"
"""Of :func:`pending_record`."""

MAX_LABEL_VALUE = 63
"""A kernel release may have 64 characters: its label has the first 63."""

UNDO_ROLLOUT_ANNOTATION = f"{GROUP}/undo-rollout"
"""On a DriverContainer, by ``rollout undo``: the fingerprints of what a wave brings that is undone, with commas."""

ACCEPT_DIGEST_ANNOTATION = f"{GROUP}/accept-digest"
"""On a DriverContainer, by an admin: comma-separated digests of images that tags may name from now on."""

READY_FOR_PREFIX = f"{GROUP}/ready-for."
"""Of the labels that say which kernel a node may boot."""

YIELD_SUFFIX = ".yield"
"""How the labels end that keep pods away. It is no longer than ``.ready``: there is no room for more."""

GPU_PROFILE_LABEL = "nvidia.com/device-plugin.config"
"""On a Node, by an admin: the key of the profile by which its GPUs are shared; NVIDIA's plugin has the same label."""

GPU_PROFILE_STATE_LABEL = f"{GROUP}/gpu-profile.state"
"""On a Node, by device_agent: ``success`` or ``failed``."""

GPU_PROFILE_ANNOTATION = f"{GROUP}/gpu-profile"
"""On a Node, by device_agent: which profile was asked for, which is in force, why, and the names of resources."""

MIG_CONFIG_LABEL = "nvidia.com/mig.config"
"""On a Node, by an admin: the key of the MIG layout of its GPUs; NVIDIA's MIG manager has the same label."""

MIG_STATE_LABEL = "nvidia.com/mig.config.state"
"""On a Node, by device_agent: how far that is, one of :data:`MIG_STATES`; as NVIDIA's MIG manager says it."""

MIG_STATES = ("pending", "rebooting", "success", "failed")

MIG_ANNOTATION = f"{GROUP}/mig"
"""On a Node, by device_agent: which layout was asked for, which it has, and what a change has to restore."""

REBOOT_REQUIRED_LABEL = f"{GROUP}/reboot-required"
"""On a Node, by device_agent: :data:`REBOOT_FOR_MIG` while a change of the MIG mode waits for a boot."""

REBOOT_FOR_MIG = "mig"

DRAIN_REQUEST_ANNOTATION = f"{GROUP}/drain-request"
"""On a Node, by who has its lock: which pods driver_builder is asked to evict there (docs/upgrades.md)."""

DRAIN_STATE_ANNOTATION = f"{GROUP}/drain-state"
"""On a Node, by driver_builder: what became of that."""

GPU_DEPLOY_PREFIX = "nvidia.com/gpu.deploy."
"""Of labels of NVIDIA's GPU Operator: which of its programs run on a Node."""

PAUSED_FOR_MIG_CHANGE = "paused-for-mig-change"
"""The value of such a label while a MIG change goes on; NVIDIA's MIG manager writes the same."""

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
_MAX_SUBDOMAIN = 253


def is_qualified_name(key: str) -> bool:
    """Return whether ``key`` can be a label or annotation key: ``[prefix/]name``.

    Source: Kubernetes' validation of qualified names; the name has at most 63 characters, the prefix is a DNS
    subdomain of at most 253.
    """
    prefix, slash, name = key.rpartition("/")
    if slash and not (len(prefix) <= _MAX_SUBDOMAIN and _SUBDOMAIN.fullmatch(prefix)):
        return False
    return _NAME.fullmatch(name) is not None


def is_label_value(value: str) -> bool:
    """Return whether ``value`` can be a label's value: empty, or a name of at most 63 characters."""
    return not value or _NAME.fullmatch(value) is not None


def label_value(text: str) -> str:
    """Make a label value of any text: other characters become ``_``, length and ends are trimmed.

    The worker writes a kernel release with it and the controller compares and selects with it, so both must use this
    one function.
    """
    return re.sub(r"[^A-Za-z0-9_.-]", "_", text[:MAX_LABEL_VALUE]).strip("_.-")


def ready_label(namespace: str, name: str) -> str:
    """Return the node label that says: the driver of this DriverContainer is proven to work here."""
    return f"{GROUP}/{namespace}.{name}.ready"


def wave_label(namespace: str, name: str) -> str:
    """Return the node label that names the DaemonSet of a wave which a node gets its driver from."""
    return f"{GROUP}/{namespace}.{name}.wave"


def yield_label(namespace: str, name: str) -> str:
    """Return the node label that keeps a driver's pods away while one that it depends on is replaced."""
    return f"{GROUP}/{namespace}.{name}{YIELD_SUFFIX}"


def pending_taint(namespace: str, name: str) -> str:
    """Return the key of the taint of a node on whose boot the driver of this DriverContainer was never proven."""
    return f"{GROUP}/{namespace}.{name}"


def pending_record(namespace: str, name: str) -> str:
    """Return the annotation that records for which boot of a node that taint was set."""
    return f"{PENDING_PREFIX}{namespace}.{name}"


def wanted_version_label(namespace: str, name: str) -> str:
    """Return the node label by which an admin says that a node may get this version of a driver (``nodeLabel``)."""
    return f"{GROUP}/{namespace}.{name}.want"
