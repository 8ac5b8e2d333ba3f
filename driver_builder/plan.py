"""``plan(snapshot, settings)``: what to do next, and what to say about it. Pure.

The controller, the ``plan`` command and the tests call this one function. It decides target by target; a target that
fails says so and is left alone until its time comes, the others go on. Nothing is removed on an incomplete view:
``observe`` either sees everything or raises.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from driver_builder import desired as desired_module
from driver_builder import images, inventory, manifests, proof, rebuild
from driver_builder.actions import (
    Action,
    ApplyDaemonSet,
    CancelBuild,
    DeleteDaemonSet,
    LabelNode,
    ReplacePod,
    SetFinalizer,
    StartBuild,
)
from driver_builder.desired import Recipes, Unwanted, Wanted
from driver_builder.driver_container import DriverContainer
from driver_builder.driver_spec import DriverSpec
from driver_builder.errors import BuildFailure, InvalidDriver
from driver_builder.image_state import Absent, ImageState, Invalid, Present, Unauthorised, Unreachable
from driver_builder.inventory import Inventory, Node
from driver_builder.kernels import KernelTarget
from driver_builder.rebuild import Rebuilds
from driver_builder.snapshot import DaemonSet, DriverPod, FailedBuild, Snapshot, SourceMissing
from driver_builder.status import Reason, TargetState, TargetStatus, previous_targets


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """What a plan depends on besides the snapshot. Seconds between tries of a failed build double from min to max."""

    recipes: Recipes
    retry_min_seconds: float = 30.0
    retry_max_seconds: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPlan:
    """One driver's part.

    ``failures`` are the failed builds that ``targets`` tell of, by key; ``needed`` are the keys whose builds are to go
    on; ``requeue_at`` (seconds since the epoch) is when to look again though nothing changes.
    """

    driver: DriverContainer
    actions: tuple[Action, ...] = ()
    targets: tuple[TargetStatus, ...] = ()
    rebuilds: Rebuilds
    unknown: Mapping[str, str]
    failures: Mapping[str, FailedBuild] = field(default_factory=dict)
    needed: frozenset[str] = frozenset()
    requeue_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All drivers' parts, in the order of their keys."""

    drivers: tuple[DriverPlan, ...] = ()
    cancels: tuple[CancelBuild, ...] = ()

    @property
    def actions(self) -> tuple[Action, ...]:
        """Everything to do, builds with many waiting nodes first."""
        every = [*self.cancels, *(action for part in self.drivers for action in part.actions)]
        return tuple(sorted(every, key=lambda action: -action.waiting if isinstance(action, StartBuild) else -1 << 30))

    @property
    def requeue_at(self) -> float | None:
        """The earliest moment any driver wants to be looked at again."""
        return min((part.requeue_at for part in self.drivers if part.requeue_at is not None), default=None)


def plan(snapshot: Snapshot, settings: PlanSettings) -> Plan:
    """Decide what to do next for every driver."""
    drivers = sorted(snapshot.drivers, key=lambda driver: driver.key)
    parts = tuple(_plan_driver(_View.of(snapshot, driver, settings)) for driver in drivers)
    unneeded = snapshot.running_builds.difference(*(part.needed for part in parts))
    return Plan(drivers=parts, cancels=tuple(CancelBuild(key=key) for key in sorted(unneeded)))


def desired_targets(
    snapshot: Snapshot, driver: DriverContainer, spec: DriverSpec, recipes: Recipes
) -> tuple[tuple[Wanted | Unwanted, ...], Inventory, Rebuilds]:
    """Say what each target of a driver should run; ``observe`` asks the registries for these images."""
    stock = inventory.take(snapshot.nodes, spec.node_selector)
    known = rebuild.from_status(driver.status.get("rebuild"))
    rebuilds = rebuild.acknowledge(known, driver=driver.rebuild, targets=stock.targets, nodes=snapshot.nodes)
    source = snapshot.sources.get(driver.key, SourceMissing(message="the source has not been read yet"))
    wanted = desired_module.desired(
        driver,
        spec,
        inventory=stock,
        source=source.message if isinstance(source, SourceMissing) else source,
        rebuilds=rebuilds,
        recipes=recipes,
    )
    return wanted, stock, rebuilds


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """One driver's share of the snapshot."""

    snapshot: Snapshot
    settings: PlanSettings
    driver: DriverContainer
    nodes: Mapping[str, Node]
    daemon_sets: Mapping[str, DaemonSet]
    pods: Mapping[str, list[DriverPod]]
    """By target."""
    before: Mapping[str, TargetStatus]

    @classmethod
    def of(cls, snapshot: Snapshot, driver: DriverContainer, settings: PlanSettings) -> "_View":
        pods: dict[str, list[DriverPod]] = {}
        for pod in sorted(snapshot.pods, key=lambda pod: (pod.node, pod.deleting, pod.name)):
            if pod.driver == driver.key:
                pods.setdefault(pod.target, []).append(pod)
        return cls(
            snapshot=snapshot,
            settings=settings,
            driver=driver,
            nodes={node.name: node for node in snapshot.nodes},
            daemon_sets={item.target: item for item in snapshot.daemon_sets if item.driver == driver.key},
            pods=pods,
            before=previous_targets(driver.status),
        )

    @property
    def nothing_new(self) -> DriverPlan:
        """A plan that leaves everything as it is and keeps what was said."""
        return DriverPlan(
            driver=self.driver,
            targets=tuple(self.before.values()),
            needed=frozenset(target.key for target in self.before.values()),
            rebuilds=rebuild.from_status(self.driver.status.get("rebuild")),
            unknown={},
        )


def _plan_driver(view: _View) -> DriverPlan:
    driver = view.driver
    if driver.deleting:
        return _plan_removal(view)
    if isinstance(driver.spec, InvalidDriver) or driver.paused:
        return replace(view.nothing_new, actions=tuple(_unlabel(view)))
    wanted, stock, rebuilds = desired_targets(view.snapshot, driver, driver.spec, view.settings.recipes)
    parts = [_plan_target(view, driver.spec, item) for item in wanted]
    # A target that is blocked has no key in its status: what is known of its builds is kept for when it is not.
    judged = {part.status.key for part in parts}
    actions: list[Action] = [] if driver.has_finalizer else [_finalizer(driver, present=True)]
    actions += [action for part in parts for action in part.actions]
    actions += _surplus(view, {item.target.short_hash for item in wanted if not _is_skipped(item)})
    actions += _relabel(view, {node: version for part in parts for node, version in part.ready.items()}, parts)
    return DriverPlan(
        driver=driver,
        actions=tuple(actions),
        targets=tuple(part.status for part in parts),
        rebuilds=rebuilds,
        unknown=stock.unknown,
        failures={key: failure for key, failure in view.snapshot.failed_builds.items() if key in judged},
        needed=frozenset(key for item in wanted if (key := _needed_key(view, item))),
        requeue_at=min((part.requeue_at for part in parts if part.requeue_at is not None), default=None),
    )


def _plan_removal(view: _View) -> DriverPlan:
    """Take back everything that the owner references do not: labels first, then the finalizer."""
    driver = view.driver
    actions: list[Action] = [
        DeleteDaemonSet(namespace=item.namespace, name=item.name, uid=item.uid) for item in view.daemon_sets.values()
    ]
    actions += _relabel(view, {}, ())
    if not actions and not view.pods and driver.has_finalizer:
        actions.append(_finalizer(driver, present=False))
    return replace(view.nothing_new, actions=tuple(actions), needed=frozenset())


def _finalizer(driver: DriverContainer, *, present: bool) -> SetFinalizer:
    return SetFinalizer(namespace=driver.namespace, name=driver.name, present=present)


def _is_skipped(item: Wanted | Unwanted) -> bool:
    """Tell whether a target is to have no driver; one that merely cannot be built now keeps what it has."""
    return isinstance(item, Unwanted) and item.state is TargetState.SKIPPED


def _needed_key(view: _View, item: Wanted | Unwanted) -> str:
    """Name the build that a target's nodes wait for; where none can be named now (no source), the one before."""
    if isinstance(item, Wanted):
        return item.request.key if item.request else ""
    before = view.before.get(item.target.id)
    return before.key if before is not None and not _is_skipped(item) else ""


def _surplus(view: _View, wanted: set[str]) -> list[Action]:
    return [
        DeleteDaemonSet(namespace=item.namespace, name=item.name, uid=item.uid)
        for target, item in sorted(view.daemon_sets.items())
        if target not in wanted
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _TargetPart:
    """What one target adds to the plan. ``ready`` maps node to proven version, ``doubts`` node to what is missing."""

    status: TargetStatus
    actions: tuple[Action, ...] = ()
    ready: Mapping[str, str]
    doubts: Mapping[str, str]
    requeue_at: float | None = None


def _plan_target(view: _View, spec: DriverSpec, item: Wanted | Unwanted) -> _TargetPart:
    ready, doubts = _ready_nodes(view, item)
    part = _TargetPart(status=_base_status(item, ready), ready=ready, doubts=doubts)
    if isinstance(item, Unwanted):
        status = replace(part.status, state=item.state, reason=item.reason, message=item.message)
        return _since(view, replace(part, status=status))
    state = view.snapshot.images.get(item.image, Unreachable(message="the registry has not been asked yet"))
    return _since(view, _by_image_state(view, spec, item, state, part))


def _by_image_state(view: _View, spec: DriverSpec, item: Wanted, state: ImageState, part: _TargetPart) -> _TargetPart:
    match state:
        case Present():
            return _roll_out(view, spec, item, state, part)
        case Absent():
            return _build(view, spec, item, part)
        case Unauthorised(message=message):
            return _blocked(part, Reason.REGISTRY_UNAUTHORIZED, message)
        case Unreachable(message=message):
            return _blocked(part, Reason.REGISTRY_UNREACHABLE, message)
        case Invalid(message=message):
            return _blocked(part, Reason.REGISTRY_INVALID, message)
        case _ as never:
            assert_never(never)


def _blocked(part: _TargetPart, reason: Reason, message: str) -> _TargetPart:
    return replace(part, status=replace(part.status, state=TargetState.BLOCKED, reason=reason, message=message))


def _build(view: _View, spec: DriverSpec, item: Wanted, part: _TargetPart) -> _TargetPart:
    """The registry proved that the image does not exist: build it, wait for it, or wait for the next try."""
    if item.request is None:
        status = replace(
            part.status,
            state=TargetState.FAILED,
            reason=Reason.IMAGE_MISSING,
            message=f"{item.image} does not exist: push it, or let driver-builder build by leaving out the image",
        )
        return replace(part, status=status)
    key, seen = item.request.key, view.snapshot
    if (refusal := _not_applicable(view, key, part.status.target)) is not None:
        status = replace(
            part.status, key=key, state=TargetState.NOT_APPLICABLE, reason=Reason.NOT_APPLICABLE, message=refusal
        )
        return replace(part, status=status)
    status, retry_at = _with_failures(view, key, part.status)
    is_known, is_queued = key in seen.running_builds, key in seen.queued_builds
    if not is_known or (is_queued and seen.queued_builds[key] != len(item.nodes)):
        if not is_known and retry_at is not None and seen.now < retry_at:
            return replace(part, status=status, requeue_at=retry_at)
        build = StartBuild(
            namespace=view.driver.namespace,
            request=item.request,
            image=item.image,
            registry=spec.registry,
            waiting=len(item.nodes),
        )
        part = replace(part, actions=(build,))
    if seen.builds_suspended and (is_queued or not is_known):
        part = _blocked(replace(part, status=status), Reason.BUILDS_SUSPENDED, seen.builds_suspended)
        # A probe that is due is started by this very pass, or the one before it still runs and tells when it ends.
        return replace(part, requeue_at=seen.probe_at if seen.probe_at and seen.probe_at > seen.now else None)
    message = _building_words(view, item, status)
    status = replace(status, state=TargetState.BUILDING, reason=Reason.KERNEL_MISMATCH, message=message)
    return replace(part, status=status)


def _not_applicable(view: _View, key: str, target: str) -> str | None:
    """Give the driver's own word, from a build of this very key, that it is not for the kernel; it is not asked again.

    Another key may be another version, so that is built.
    """
    fresh = view.snapshot.failed_builds.get(key)
    if fresh is not None:
        return fresh.message if fresh.reason == BuildFailure.NOT_APPLICABLE else None
    before = view.before.get(target)
    is_known = before is not None and before.key == key and before.state is TargetState.NOT_APPLICABLE
    return before.message if before is not None and is_known else None


def _building_words(view: _View, item: Wanted, status: TargetStatus) -> str:
    words = f"building for {item.target.kernel_version}"
    if not status.failures:
        return words
    before = view.before.get(status.target)
    if before is not None and before.state is TargetState.BUILDING and before.failures == status.failures:
        # The same try, said before: quoting it would grow the message with every pass.
        return before.message
    if before is not None and before.reason == Reason.BUILDS_SUSPENDED:
        return f"{words} (try {status.failures + 1})"
    return f"{words} (try {status.failures + 1}; before: {status.message})"


def _with_failures(view: _View, key: str, status: TargetStatus) -> tuple[TargetStatus, float | None]:
    """Carry over what is known of failed tries of this very key; gives when to try again, None when none failed."""
    before = view.before.get(status.target)
    known = before if before is not None and before.key == key else None
    failures = known.failures if known else 0
    last = known.last_failure if known else None
    reason, message = (known.reason, known.message) if known else ("", "")
    fresh: FailedBuild | None = view.snapshot.failed_builds.get(key)
    if fresh is not None and (last is None or int(fresh.at) > last):
        failures, last, reason, message = failures + 1, float(int(fresh.at)), fresh.reason, fresh.message
    if not failures or last is None:
        return replace(status, key=key), None
    status = replace(
        status, key=key, state=TargetState.FAILED, reason=reason, message=message, failures=failures, last_failure=last
    )
    return status, last + retry_delay(key, failures, view.settings)


def retry_delay(key: str, failures: int, settings: PlanSettings) -> float:
    """Seconds to wait after the n-th failure of a key: doubling, with up to a quarter more so that keys spread out."""
    delay = min(settings.retry_max_seconds, settings.retry_min_seconds * 2.0 ** min(failures - 1, 30))
    return delay * (1.0 + int(key[:4], 16) / 0xFFFF / 4)


def _roll_out(view: _View, spec: DriverSpec, item: Wanted, state: Present, part: _TargetPart) -> _TargetPart:
    """The image exists: give it to exactly the target's nodes and count where it is proven."""
    manifest = manifests.daemon_set(
        view.driver, spec, target=item.target, image=item.image.at(state.digest), identities=identities(state.labels)
    )
    fingerprint = manifest["metadata"]["annotations"][manifests.FINGERPRINT_ANNOTATION]
    actions: list[Action] = []
    existing = view.daemon_sets.get(item.target.short_hash)
    is_current = existing is not None and existing.fingerprint == fingerprint
    # Fingerprint and image can differ: somebody may have set another image by hand.
    if existing is None or not is_current or existing.image != str(item.image.at(state.digest)):
        actions.append(
            ApplyDaemonSet(
                namespace=view.driver.namespace,
                name=manifest["metadata"]["name"],
                driver=view.driver.key,
                target=item.target.id,
                manifest=manifest,
            )
        )
    nodes = frozenset(item.nodes)
    pods = [pod for pod in view.pods.get(item.target.short_hash, ()) if pod.node in nodes]
    if is_current:
        actions += _replacements(pods, fingerprint, ready=set(part.ready), nodes=item.nodes)
    current = {pod.node for pod in pods if pod.fingerprint == fingerprint and not pod.deleting}
    done = all(node in part.ready and node in current for node in item.nodes)
    status = replace(
        part.status,
        digest=state.digest,
        key=item.request.key if item.request else "",
        state=TargetState.READY if done else TargetState.ROLLING_OUT,
        reason=Reason.ALL_NODES_READY if done else Reason.WAITING_FOR_NODES,
        message=_progress_words(item, part, current),
    )
    return replace(part, status=status, actions=tuple(actions))


def _progress_words(item: Wanted, part: _TargetPart, current: set[str]) -> str:
    words = f"{len(part.ready)} of {len(item.nodes)} nodes ready"
    for node in item.nodes:
        if node not in part.ready:
            return f"{words}; {node}: {part.doubts.get(node, 'no driver pod yet')}"
        if node not in current:
            return f"{words}; {node}: runs the image before"
    return words


def _replacements(
    pods: Iterable[DriverPod], fingerprint: str, *, ready: set[str], nodes: tuple[str, ...]
) -> list[Action]:
    """Replace pods of an older template: broken ones at once, working ones one at a time."""
    pods = sorted(pods, key=lambda pod: pod.node)
    outdated = [pod for pod in pods if pod.fingerprint != fingerprint and not pod.deleting]
    unsettled = any(pod.deleting or (pod.fingerprint == fingerprint and pod.node not in ready) for pod in pods)
    # A pod that is gone and not yet made anew is away as well.
    unsettled = unsettled or not {pod.node for pod in pods}.issuperset(nodes)
    chosen = [pod for pod in outdated if pod.node not in ready]
    if not chosen and not unsettled:
        chosen = outdated[:1]
    return [ReplacePod(namespace=pod.namespace, name=pod.name, uid=pod.uid, node=pod.node) for pod in chosen]


def identities(labels: Mapping[str, str]) -> dict[str, str]:
    """Read module identities from an image's labels; empty for a prebuilt image that carries none."""
    try:
        modules = json.loads(labels.get(images.MODULES_LABEL, "[]"))
        return {module["name"]: module["identity"] for module in modules}
    except (ValueError, KeyError, TypeError):
        return {}


def _ready_nodes(view: _View, item: Wanted | Unwanted) -> tuple[dict[str, str], dict[str, str]]:
    """Sort a target's nodes into proven (with the version that is) and doubtful (with what is missing)."""
    nodes = frozenset(item.nodes)
    ready: dict[str, str] = {}
    doubts: dict[str, str] = {}
    for pod in view.pods.get(item.target.short_hash, ()):
        if pod.node not in nodes or pod.deleting:
            continue
        why = _doubt(view.nodes[pod.node], pod)
        if why is None:
            ready[pod.node] = pod.version
        else:
            doubts[pod.node] = pod.message or why if pod.proof is None else why
    return ready, doubts


def _doubt(node: Node, pod: DriverPod) -> str | None:
    """Say why a pod does not prove that its driver works on its node; None when it does."""
    why = proof.doubt(pod.proof, kernel=node.kernel_version, boot_id=node.boot_id, expected=pod.expected)
    if why is None and not pod.ready:
        return pod.message or "its readiness probe does not pass"
    return why


def _unlabel(view: _View) -> list[Action]:
    """Take away the ready labels that no pod proves any more, whatever its target: a fact needs no good spec."""
    label = view.driver.ready_label
    pods = [pod for of_target in view.pods.values() for pod in of_target if pod.node in view.nodes and not pod.deleting]
    proven = {(pod.node, pod.version) for pod in pods if _doubt(view.nodes[pod.node], pod) is None}
    why = "no driver pod is proven there"
    return [
        LabelNode(node=node.name, driver=view.driver.key, label=label, version=None, why=why)
        for node in view.snapshot.nodes
        if label in node.labels and (node.name, node.labels[label]) not in proven
    ]


def _relabel(view: _View, ready: Mapping[str, str], parts: Iterable[_TargetPart]) -> list[Action]:
    """Make every node's ready label tell the truth."""
    label = view.driver.ready_label
    doubts = {node: why for part in parts for node, why in part.doubts.items()}
    actions: list[Action] = []
    for node in view.snapshot.nodes:
        version = ready.get(node.name)
        if node.labels.get(label) != version:
            why = doubts.get(node.name, "no driver pod is proven there")
            actions.append(LabelNode(node=node.name, driver=view.driver.key, label=label, version=version, why=why))
    return actions


def _base_status(item: Wanted | Unwanted, ready: Mapping[str, str]) -> TargetStatus:
    target: KernelTarget = item.target
    return TargetStatus(
        target=target.id,
        kernel=target.kernel_version,
        os=target.os,
        architecture=target.architecture,
        nodes=len(item.nodes),
        ready_nodes=len(ready),
        state=TargetState.PENDING,
        reason="",
        message="",
        image=str(item.image) if isinstance(item, Wanted) else "",
    )


def _since(view: _View, part: _TargetPart) -> _TargetPart:
    before = view.before.get(part.status.target)
    same = before is not None and (before.state, before.reason) == (part.status.state, part.status.reason)
    since = before.since if same and before is not None else float(int(view.snapshot.now))
    return replace(part, status=replace(part.status, since=since))
