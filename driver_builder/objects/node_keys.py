"""The keys of Nodes: each that driver-builder writes, and those of admins and our other programs that it reads.

Whose a key is, who writes it, what it may hold, and what its loss means. The policy of ``driver-builder
admission-policy`` and the table of docs/drivercontainer.md are made from these rows. Third parties' labels
(:mod:`driver_builder.model.third_party_labels`) and those of ``rollout.drain.pauseLabels`` are not among them.
"""

from dataclasses import dataclass
from enum import StrEnum

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

NODE_KEYS = (
    NodeKey(
        key=_KEYS.ready,
        kind=Kind.LABEL,
        owner=Writer.BUILDER,
        form="version of the driver",
        longest=names.MAX_LABEL_VALUE,
        meaning="the driver is proven to work on this node, this boot",
        loss="no new pod that selects it comes; a driver pod that works there brings it back",
        admin="select workloads by it; one that is set by hand is removed",
    ),
    NodeKey(
        key=_KEYS.wave,
        kind=Kind.LABEL,
        owner=Writer.BUILDER,
        form="DaemonSet",
        longest=names.MAX_LABEL_VALUE,
        meaning="in a wave: the DaemonSet that the node gets the driver from ([upgrades](upgrades.md#two-daemonsets))",
        loss="the node's next driver pod could have the image of before: the status has it, and it is put back",
        admin="leave it",
    ),
    NodeKey(
        key=_KEYS.yields,
        kind=Kind.LABEL,
        owner=Writer.BUILDER,
        form=f"name of the driver that is replaced, or `{yielding.OUTSIDE}`",
        longest=names.MAX_LABEL_VALUE,
        meaning="keeps the pods of the driver away: of a dependent one while the other one is replaced, and where the"
        " node [was outside `nodeSelector` or without the labels of its kernel](#when-a-driver-goes)"
        f" (`{yielding.OUTSIDE}`)",
        loss="driver pods may come before it is their turn; it is written again while it is needed",
        admin="leave it",
    ),
    NodeKey(
        key=_EVERY_STAGE,
        kind=Kind.LABEL,
        owner=Writer.BUILDER,
        form="`true`",
        longest=names.MAX_LABEL_VALUE,
        meaning="how far the [stages](stages.md#labels) of the driver are",
        loss=f"pods of the stages that select it leave; it {_AGAIN}",
        admin="select DaemonSets by it",
        stages=tuple(Stage),
    ),
    NodeKey(
        key=f"{names.READY_FOR_PREFIX}<kernel>",
        kind=Kind.LABEL,
        owner=Writer.BUILDER,
        form="`true`",
        longest=names.MAX_LABEL_VALUE,
        meaning="every driver of this node is built and verified for that newer kernel: the node may boot it",
        loss=f"tools that select it do not reboot the node; it {_AGAIN}",
        admin="select nodes by it; one that is not true is removed",
    ),
    NodeKey(
        key=_KEYS.ready,
        kind=Kind.ANNOTATION,
        owner=Writer.BUILDER,
        form="boot id and kernel of the load report",
        longest=MAX_ANNOTATION,
        meaning="for which boot the label of the same name was set",
        loss="without a driver pod that has reported, the label goes; with one, it is written again",
        admin="leave it",
    ),
    NodeKey(
        key=_EVERY_STAGE,
        kind=Kind.ANNOTATION,
        owner=Writer.BUILDER,
        form="seconds since the epoch; of `.plgok` JSON",
        longest=MAX_ANNOTATION,
        meaning="`.run`: since when nothing of the stages may run; `.plug`: since when the kubelet has none of the"
        " resource; `.plgok`: how the validation of the plugin ended",
        loss="the time counts from now; the plugin is validated again",
        admin="leave it",
        stages=(Stage.RUN, Stage.PLUG, Stage.PLGOK),
    ),
    NodeKey(
        key=_KEYS.loaded,
        kind=Kind.ANNOTATION,
        owner=Writer.BUILDER,
        form="JSON",
        longest=loaded.MAX_BYTES,
        meaning="what the driver has loaded there, for its removal",
        loss="is written again from the driver pod; where none is there, modules stay until the next boot, and"
        " files for good",
        admin="leave it, until the driver is gone",
    ),
    NodeKey(
        key=_KEYS.validated,
        kind=Kind.ANNOTATION,
        owner=Writer.BUILDER,
        form="JSON",
        longest=validated.MAX_BYTES,
        meaning="how `validation.command` ended there, and for what",
        loss="the command runs again",
        admin="remove it, to validate again",
    ),
    NodeKey(
        key=names.LOCK_ANNOTATION,
        kind=Kind.ANNOTATION,
        owner=Writer.BUILDER,
        others=(Writer.AGENT,),
        form="JSON ([contract](upgrades.md#the-lock-of-a-node))",
        longest=MAX_ANNOTATION,
        meaning="who works on the node's devices now: driver-builder, or another program",
        loss="somebody else may begin to work there; its holder takes it again if it is free",
        admin="remove one whose holder is gone; write one as a program that keeps to the contract",
    ),
    NodeKey(
        key=names.DRAINING_ANNOTATION,
        kind=Kind.ANNOTATION,
        owner=Writer.BUILDER,
        form="JSON",
        longest=MAX_ANNOTATION,
        meaning="how far the node's [drain](upgrades.md#draining) is, and what is restored afterwards",
        loss="is written again with what the status of the driver records",
        admin="remove it after a drain that failed, to try at once",
    ),
    NodeKey(
        key=names.DRAIN_STATE_ANNOTATION,
        kind=Kind.ANNOTATION,
        owner=Writer.BUILDER,
        form="JSON",
        longest=MAX_ANNOTATION,
        meaning="what became of the request of a device agent",
        loss=f"the agent waits; it {_AGAIN}",
        admin="leave it",
    ),
    NodeKey(
        key=names.YIELDING_ANNOTATION,
        kind=Kind.ANNOTATION,
        owner=Writer.BUILDER,
        form="JSON",
        longest=yielding.MAX_BYTES,
        meaning="which driver is replaced there, and which drivers that depend on it"
        " [yield](upgrades.md#drivers-that-depend-on-each-other)",
        loss="the drivers that yield are let in, and the node is begun anew",
        admin="leave it",
    ),
    NodeKey(
        key=_KEYS.tainted,
        kind=Kind.ANNOTATION,
        owner=Writer.BUILDER,
        form="boot id",
        longest=MAX_ANNOTATION,
        meaning="for which boot the taint of the driver was added",
        loss="a taint that was removed by hand may come again in this boot",
        admin="leave it",
    ),
    NodeKey(
        key=names.DRAIN_REQUEST_ANNOTATION,
        kind=Kind.ANNOTATION,
        owner=Writer.AGENT,
        removers=(Writer.BUILDER,),
        form="JSON",
        longest=MAX_REQUEST,
        meaning="which pods have to leave before it [partitions GPUs](upgrades.md#drains-that-a-device-agent-asks-for)",
        loss="the drain ends, and the node is given back",
        admin="leave it",
    ),
    NodeKey(
        key=names.UPGRADING_TAINT,
        kind=Kind.TAINT,
        owner=Writer.BUILDER,
        form="`NoSchedule`",
        longest=0,
        meaning="the node is drained, or its driver is being replaced",
        loss="new pods may come and use the driver",
        admin="leave it",
    ),
    NodeKey(
        key=_KEYS.taint,
        kind=Kind.TAINT,
        owner=Writer.BUILDER,
        form=f"`{names.PENDING}:NoSchedule`",
        longest=0,
        meaning="with `validation.taint`: the driver is"
        " [not proven](#the-taint-of-a-node-that-is-not-proven) on this boot",
        loss="new pods may come before the driver; it stays away until the next boot",
        admin="remove it; let kubelets register with it",
    ),
    NodeKey(
        key=_KEYS.wants,
        kind=Kind.LABEL,
        owner=Writer.ADMIN,
        form="version of the driver",
        longest=names.MAX_LABEL_VALUE,
        meaning="with `rollout.order: nodeLabel`: the version of the driver that the node may get",
        loss="the node waits with the driver that it has",
        admin="set it",
    ),
    NodeKey(
        key=names.SECURE_BOOT_LABEL,
        kind=Kind.LABEL,
        owner=Writer.ADMIN,
        form="`true`",
        longest=names.MAX_LABEL_VALUE,
        meaning="the node boots with Secure Boot: `lint --snapshot` warns of drivers whose modules are not signed for"
        " it",
        loss="`lint` does not warn",
        admin="set it",
    ),
    NodeKey(
        key=names.REBUILD_ANNOTATION,
        kind=Kind.ANNOTATION,
        owner=Writer.ADMIN,
        form="any new value",
        longest=1 << 20,
        meaning="rebuild that node's target; only the pod of that node is replaced. Requests of one target's nodes are"
        " read once in ten minutes",
        loss="a request that was not read yet is none",
        admin="set it",
    ),
    NodeKey(
        key=names.SKIP_ROLLOUT_ANNOTATION,
        kind=Kind.ANNOTATION,
        owner=Writer.ADMIN,
        form="`true`",
        longest=MAX_ANNOTATION,
        meaning="waves leave the node alone and do not wait for it ([upgrades](upgrades.md))",
        loss="waves come to the node",
        admin="set it",
    ),
    NodeKey(
        key=names.BOOT_ID_ANNOTATION,
        kind=Kind.ANNOTATION,
        owner=Writer.WORKER,
        form="boot id",
        longest=64,
        meaning="which boot the labels describe",
        loss="what was proven before counts as of this boot, until nfd-worker publishes again",
        admin="leave it",
    ),
    NodeKey(
        key=names.KERNEL_VERSION_ANNOTATION,
        kind=Kind.ANNOTATION,
        owner=Writer.WORKER,
        form="all of `uname -r`",
        longest=MAX_LENGTH,
        meaning="the exact kernel, where a label cannot hold it",
        loss="the kernel is the label's value, until nfd-worker publishes again",
        admin="leave it",
    ),
    NodeKey(
        key=names.GPU_PROFILE_ANNOTATION,
        kind=Kind.ANNOTATION,
        owner=Writer.AGENT,
        form="JSON",
        longest=1 << 16,
        meaning="which [profile](gpu-sharing.md) the node's GPUs have, and which resources they offer",
        loss="it is not known which resources the device plugin offers, until the agent says it again",
        admin="read it",
    ),
    NodeKey(
        key=names.MIG_STATE_LABEL,
        kind=Kind.LABEL,
        owner=Writer.AGENT,
        form=" or ".join(f"`{state}`" for state in names.MIG_STATES),
        longest=names.MAX_LABEL_VALUE,
        meaning="how far a change of the [MIG layout](gpu-mig.md#changing-layouts) is",
        loss="a plugin without devices is not waited for, until the agent says it again",
        admin="read it",
    ),
)

LONGEST = {row.key: row.longest for row in NODE_KEYS if row.kind is Kind.ANNOTATION}
"""The limits of annotations that have one name."""
