"""The keys of Nodes: each that driver-builder writes, and those of admins and our other programs that it reads.

Whose a key is, who writes it, what it may hold, and what its loss means. The policy of ``driver-builder
admission-policy`` and the table of docs/drivercontainer.md are made from these rows. Third parties' labels
(:mod:`driver_builder.model.third_party_labels`) and those of ``rollout.drain.pauseLabels`` are not among them.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from driver_builder.model.driver_key import DriverKey
from driver_builder.model.kernels import MAX_LENGTH
from driver_builder.objects import loaded, validated, yielding
from driver_builder.objects.driver_keys import driver_keys
from driver_builder.objects.stage_labels import Stage
from kube_api import names
from kube_api.drain_contract import MAX_REQUEST
from kube_api.node_policy import literal

MAX_ANNOTATION = 16384
"""Characters of an annotation of ours on a Node; a longer one is ignored, where its row says no other limit."""

_DRIVER = ("<namespace>", "<name>")
"""How a row names a driver, as the documentation does."""
_OF_DRIVER = ".".join(_DRIVER)
_STAGE = "<stage>"


class Writer(StrEnum):
    """Who writes Nodes."""

    BUILDER = "driver-builder"
    WORKER = "nfd-worker"
    AGENT = "device-agent"
    ADMIN = "admin"


class Kind(StrEnum):
    """What of a Node has the key."""

    LABEL = "label"
    ANNOTATION = "annotation"
    TAINT = "taint"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKey:
    """One key: ``owner`` decides what it says, ``others`` may write it as well, ``removers`` only take it away.

    ``form`` is what a value looks like, of at most ``longest`` characters. ``loss`` is what it means where the key
    goes by itself, ``admin`` what a person may do with it. Where it ends in a stage, ``stages`` are those that it has.
    """

    key: str
    kind: Kind
    owner: Writer
    others: tuple[Writer, ...] = ()
    removers: tuple[Writer, ...] = ()
    form: str
    longest: int
    meaning: str
    loss: str
    admin: str
    stages: tuple[Stage, ...] = ()

    @property
    def writers(self) -> tuple[Writer, ...]:
        """Who may set it."""
        return self.owner, *self.others

    @property
    def pattern(self) -> str:
        """The keys of all drivers, kernels and stages, as an expression of RE2 without its beginning.

        Of a taint nothing but namespace and name shows that it is ours: both have to be there.
        """
        any_driver = "[^/.]+[.][^/]+" if self.kind is Kind.TAINT else "[^/]+"
        text = literal(self.key).replace("[.]".join(_DRIVER), any_driver).replace("<kernel>", "[^/]+")
        return text.replace(_STAGE, f"({'|'.join(self.stages)})") + "$"


_KEYS = driver_keys(DriverKey("/".join(_DRIVER)))
_EVERY_STAGE = f"{names.GROUP}/{_OF_DRIVER}.{_STAGE}"
_AGAIN = "is written again by the next reconcile"

_OF_BUILDER: Any = {"owner": Writer.BUILDER, "admin": "leave it"}
"""What rows say that say nothing else."""
_label = partial(NodeKey, kind=Kind.LABEL, longest=names.MAX_LABEL_VALUE, **_OF_BUILDER)
_annotation = partial(NodeKey, kind=Kind.ANNOTATION, longest=MAX_ANNOTATION, **_OF_BUILDER)
_taint = partial(NodeKey, kind=Kind.TAINT, longest=0, **_OF_BUILDER)

NODE_KEYS = (
    _label(
        key=_KEYS.ready,
        form="version of the driver",
        meaning="the driver is proven to work on this node, this boot",
        loss="no new pod that selects it comes; a driver pod that works there brings it back",
        admin="select workloads by it; one that is set by hand is removed",
    ),
    _label(
        key=_KEYS.wave,
        form="DaemonSet",
        meaning="in a wave: the DaemonSet that the node gets the driver from ([upgrades](upgrades.md#two-daemonsets))",
        loss="the node's next driver pod could have the image of before: the status has it, and it is put back",
    ),
    _label(
        key=_KEYS.yields,
        form=f"name of the driver that is replaced, or `{yielding.OUTSIDE}`",
        meaning="keeps the pods of the driver away: of a dependent one while the other one is replaced, and where the"
        " node [was outside `nodeSelector` or without the labels of its kernel](#when-a-driver-goes)"
        f" (`{yielding.OUTSIDE}`)",
        loss="driver pods may come before it is their turn; it is written again while it is needed",
    ),
    _label(
        key=_EVERY_STAGE,
        form="`true`",
        meaning="how far the [stages](stages.md#labels) of the driver are",
        loss=f"pods of the stages that select it leave; it {_AGAIN}",
        admin="select DaemonSets by it",
        stages=tuple(Stage),
    ),
    _label(
        key=f"{names.READY_FOR_PREFIX}<kernel>",
        form="`true`",
        meaning="every driver of this node is built and verified for that newer kernel: the node may boot it",
        loss=f"tools that select it do not reboot the node; it {_AGAIN}",
        admin="select nodes by it; one that is not true is removed",
    ),
    _annotation(
        key=_KEYS.ready,
        form="boot id and kernel of the load report",
        meaning="for which boot the label of the same name was set",
        loss="without a driver pod that has reported, the label goes; with one, it is written again",
    ),
    _annotation(
        key=_EVERY_STAGE,
        form="seconds since the epoch; of `.plgok` JSON",
        meaning="`.run`: since when nothing of the stages may run; `.plug`: since when the kubelet has none of the"
        " resource; `.plgok`: how the validation of the plugin ended",
        loss="the time counts from now; the plugin is validated again",
        stages=(Stage.RUN, Stage.PLUG, Stage.PLGOK),
    ),
    _annotation(
        key=_KEYS.loaded,
        form="JSON",
        longest=loaded.MAX_BYTES,
        meaning="what the driver has loaded there, for its removal",
        loss="is written again from the driver pod; where none is there, modules stay until the next boot, and"
        " files for good",
        admin="leave it, until the driver is gone",
    ),
    _annotation(
        key=_KEYS.validated,
        form="JSON",
        longest=validated.MAX_BYTES,
        meaning="how `validation.command` ended there, and for what",
        loss="the command runs again",
        admin="remove it, to validate again",
    ),
    _annotation(
        key=names.LOCK_ANNOTATION,
        others=(Writer.AGENT,),
        form="JSON ([contract](upgrades.md#the-lock-of-a-node))",
        meaning="who works on the node's devices now: driver-builder, or another program",
        loss="somebody else may begin to work there; its holder takes it again if it is free",
        admin="remove one whose holder is gone; write one as a program that keeps to the contract",
    ),
    _annotation(
        key=names.DRAINING_ANNOTATION,
        form="JSON",
        meaning="how far the node's [drain](upgrades.md#draining) is, and what is restored afterwards",
        loss="is written again with what the status of the driver records",
        admin="remove it after a drain that failed, to try at once",
    ),
    _annotation(
        key=names.DRAIN_STATE_ANNOTATION,
        form="JSON",
        meaning="what became of the request of a device agent",
        loss=f"the agent waits; it {_AGAIN}",
    ),
    _annotation(
        key=names.YIELDING_ANNOTATION,
        form="JSON",
        longest=yielding.MAX_BYTES,
        meaning="which driver is replaced there, and which drivers that depend on it"
        " [yield](upgrades.md#drivers-that-depend-on-each-other)",
        loss="the drivers that yield are let in, and the node is begun anew",
    ),
    _annotation(
        key=_KEYS.tainted,
        form="boot id",
        meaning="for which boot the taint of the driver was added",
        loss="a taint that was removed by hand may come again in this boot",
    ),
    _annotation(
        key=names.DRAIN_REQUEST_ANNOTATION,
        owner=Writer.AGENT,
        removers=(Writer.BUILDER,),
        form="JSON",
        longest=MAX_REQUEST,
        meaning="which pods have to leave before it [partitions GPUs](upgrades.md#drains-that-a-device-agent-asks-for)",
        loss="the drain ends, and the node is given back",
    ),
    _taint(
        key=names.UPGRADING_TAINT,
        form="`NoSchedule`",
        meaning="the node is drained, or its driver is being replaced",
        loss="new pods may come and use the driver",
    ),
    _taint(
        key=_KEYS.taint,
        form=f"`{names.PENDING}:NoSchedule`",
        meaning="with `validation.taint`: the driver is"
        " [not proven](#the-taint-of-a-node-that-is-not-proven) on this boot",
        loss="new pods may come before the driver; it stays away until the next boot",
        admin="remove it; let kubelets register with it",
    ),
    _label(
        key=_KEYS.wants,
        owner=Writer.ADMIN,
        form="version of the driver",
        meaning="with `rollout.order: nodeLabel`: the version of the driver that the node may get",
        loss="the node waits with the driver that it has",
        admin="set it",
    ),
    _label(
        key=names.SECURE_BOOT_LABEL,
        owner=Writer.ADMIN,
        form="`true`",
        meaning="the node boots with Secure Boot: `lint --snapshot` warns of drivers whose modules are not signed for"
        " it",
        loss="`lint` does not warn",
        admin="set it",
    ),
    _annotation(
        key=names.REBUILD_ANNOTATION,
        owner=Writer.ADMIN,
        form="any new value",
        longest=1 << 20,
        meaning="rebuild that node's target; only the pod of that node is replaced. Requests of one target's nodes are"
        " read once in ten minutes",
        loss="a request that was not read yet is none",
        admin="set it",
    ),
    _annotation(
        key=names.SKIP_ROLLOUT_ANNOTATION,
        owner=Writer.ADMIN,
        form="`true`",
        meaning="waves leave the node alone and do not wait for it ([upgrades](upgrades.md))",
        loss="waves come to the node",
        admin="set it",
    ),
    _annotation(
        key=names.BOOT_ID_ANNOTATION,
        owner=Writer.WORKER,
        form="boot id",
        longest=64,
        meaning="which boot the labels describe",
        loss="what was proven before counts as of this boot, until nfd-worker publishes again",
    ),
    _annotation(
        key=names.KERNEL_VERSION_ANNOTATION,
        owner=Writer.WORKER,
        form="all of `uname -r`",
        longest=MAX_LENGTH,
        meaning="the exact kernel, where a label cannot hold it",
        loss="the kernel is the label's value, until nfd-worker publishes again",
    ),
    _annotation(
        key=names.GPU_PROFILE_ANNOTATION,
        owner=Writer.AGENT,
        form="JSON",
        longest=1 << 16,
        meaning="which [profile](gpu-sharing.md) the node's GPUs have, and which resources they offer",
        loss="it is not known which resources the device plugin offers, until the agent says it again",
        admin="read it",
    ),
    _label(
        key=names.MIG_STATE_LABEL,
        owner=Writer.AGENT,
        form=" or ".join(f"`{state}`" for state in names.MIG_STATES),
        meaning="how far a change of the [MIG layout](gpu-mig.md#changing-layouts) is",
        loss="a plugin without devices is not waited for, until the agent says it again",
        admin="read it",
    ),
)

LONGEST = {row.key: row.longest for row in NODE_KEYS if row.kind is Kind.ANNOTATION}
"""The limits of annotations that have one name."""
