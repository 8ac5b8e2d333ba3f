"""What holds in every world, whoever plans: invariants over journals. Pure; nothing here knows a planner.

Each says, for every time that its premise occurs in a journal, what is wrong there, or nothing. ``examine``
also counts these times: an invariant whose premise never occurs asserts nothing.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from driver_builder.objects.manifests import KERNEL_ANNOTATION, VERSION_ANNOTATION
from kube_api import names
from kube_api.client import Object
from tests.support.driver_builder import journal as read
from tests.support.driver_builder.journal import Journal, State, Taken

Case = tuple[int, str]
"""A state after which a premise has occurred, and what is wrong there: empty where nothing is."""
Modules = frozenset[tuple[str, str]]
Cases = Callable[[Journal], Iterator[Case]]

INVARIANTS: dict[str, Cases] = {}
"""By name; their docstrings are the sentences."""

AGENT = "device-agent"
"""Who holds the lock of a node whose device agent works on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """Where an invariant does not hold, and why."""

    name: str
    index: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """How often the premise of each invariant has occurred in a journal, and where one does not hold."""

    occurred: Counter[str]
    violations: tuple[Violation, ...]


def examine(journal: Journal) -> Findings:
    """Check a journal against all invariants."""
    every = [(name, index, why) for name, cases in INVARIANTS.items() for index, why in cases(journal)]
    return Findings(
        occurred=Counter(name for name, *_ in every),
        violations=tuple(Violation(name=name, index=index, why=why) for name, index, why in every if why),
    )


def _invariant(cases: Cases) -> Cases:
    INVARIANTS[cases.__name__] = cases
    return cases


# ---------------------------------------------------------------- what a wave may take


@_invariant
def under_its_lock(journal: Journal) -> Iterator[Case]:
    """A driver is replaced on a node only while it, or one that it depends on, holds the node's lock."""
    for taken in journal.taken:
        yield taken.index, _unlocked(journal.states[taken.index], taken.driver, taken.node)
    for replaced in journal.replaced:
        yield replaced.index, _unlocked(journal.states[replaced.index - 1], replaced.driver, replaced.node)


def _unlocked(state: State, driver: str, node: str) -> str:
    holder = read.holder_of(state.nodes[node])
    is_held = holder == driver or holder in state.below(driver)
    return "" if is_held else f"{driver} is replaced on {node}, whose lock {holder or 'nobody'} holds"


@_invariant
def within_its_budget(journal: Journal) -> Iterator[Case]:
    """A driver's own waves leave no more nodes without it at once than ``maxUnavailable`` says."""
    away: dict[str, set[str]] = {}
    due = iter([*journal.taken, None])
    following = next(due)
    replaced: Counter[tuple[int, str]] = Counter()
    for index, before, after in journal.steps():
        for driver, nodes in away.items():
            nodes -= {node for node in nodes if _is_settled(before, after, driver, node)}
        while following is not None and following.index == index:
            # Where it yields it is the wave of another driver, with the budget of that one.
            if not following.yields:
                nodes = away.setdefault(following.driver, set())
                nodes.add(following.node)
                yield index, _exceeded(after, following.driver, nodes)
            following = next(due)
    for item in journal.replaced:
        replaced[item.index, item.driver] += 1
    for (index, driver), number in replaced.items():
        yield index, _exceeded(journal.states[index - 1], driver, set(map(str, range(number))))


def _exceeded(state: State, driver: str, nodes: set[str]) -> str:
    budget = int(state.rollout(driver).get("maxUnavailable", 1))
    return "" if len(nodes) <= budget else f"{driver} is away from {sorted(nodes)}, and {budget} may be without it"


def _is_settled(before: State, after: State, driver: str, node: str) -> bool:
    """Return whether a node that a wave has taken is none of its any more, or works."""
    obj, old = after.nodes.get(node), before.nodes.get(node)
    if obj is None or driver not in after.drivers or read.is_skipped(obj):
        return True
    label = names.KERNEL_VERSION_LABEL
    if old is not None and obj["metadata"]["labels"].get(label) != old["metadata"]["labels"].get(label):
        return True
    kernels = before.kernels.get(node), after.kernels.get(node)
    if None in kernels or (obj["metadata"]["uid"] != (old or obj)["metadata"]["uid"] and kernels[0] != kernels[1]):
        return True
    # The next wave does not wait for nodes where the previous image does not work (docs/upgrades.md).
    if after.kernels[node].is_broken and _inputs(before, driver) != _inputs(after, driver):
        return True
    pods = [pod for pod in after.pods_on(node) if read.is_of_driver(pod) and read.driver_of(pod) == driver]
    is_given_up = read.is_away(obj) and any(read.said(pod).get("result") == "LoadFailed" for pod in pods)
    return is_given_up or any(map(after.works, pods))


@_invariant
def not_under_its_users(journal: Journal) -> Iterator[Case]:
    """Where a driver is drained, it is replaced by other modules on no node with a pod that uses it."""
    for taken in journal.taken:
        state = journal.states[taken.index]
        if state.rollout(taken.driver).get("drain") and _is_reloaded(state, taken.pod):
            is_open = not read.is_tainted(state.nodes[taken.node])
            why = _used(state, taken.driver, taken.node)
            yield taken.index, why or ("no taint keeps users away" if is_open else "")
    for replaced in journal.replaced:
        state = journal.states[replaced.index - 1]
        if state.rollout(replaced.driver).get("drain"):
            yield replaced.index, _used(state, replaced.driver, replaced.node)


def _used(state: State, driver: str, node: str) -> str:
    found = sorted(pod["metadata"]["name"] for pod in state.pods_on(node) if _is_user(state, driver, pod))
    return f"{driver} is replaced on {node} under {found}" if found else ""


def _is_user(state: State, driver: str, pod: Object) -> bool:
    """Return whether a pod uses a driver's devices, or is deployed by a label that a drain pauses."""
    drain = state.rollout(driver)["drain"]
    is_deployed = not set(pod["spec"].get("nodeSelector") or {}).isdisjoint(drain.get("pauseLabels") or ())
    has_claim = bool(drain.get("draDrivers") and pod["spec"].get("resourceClaims"))
    return is_deployed or has_claim or not read.requests_of(pod).isdisjoint(drain.get("resources") or ())


def _is_reloaded(state: State, pod: Object) -> bool:
    """Return whether the pod that comes has other modules."""
    node = state.nodes[pod["spec"]["nodeName"]]
    templates = [obj["spec"]["template"] for obj in state.daemon_sets if read.driver_of(obj) == read.driver_of(pod)]
    coming = [item for item in templates if read.is_for(item["spec"], node)]
    return any(read.modules_of(item) != read.modules_of(pod) for item in coming)


@_invariant
def not_where_an_admin_forbids(journal: Journal) -> Iterator[Case]:
    """Waves take no driver from a node that is known to be left out, or cordoned without a request for a rebuild."""
    for taken in journal.taken:
        state = journal.states[taken.index]
        known = journal.states[state.seen].nodes.get(taken.node)
        is_forbidden = all(map(_is_forbidden, (state.nodes[taken.node], *([known] if known else ()))))
        yield taken.index, f"{taken.driver} is taken from {taken.node}" if is_forbidden else ""


def _is_forbidden(node: Object) -> bool:
    is_asked = names.REBUILD_ANNOTATION in read.annotations_of(node)
    return read.is_skipped(node) or (read.is_cordoned(node) and not is_asked)


@_invariant
def one_driver_at_a_time(journal: Journal) -> Iterator[Case]:
    """On a node no two drivers are replaced at once, unless one depends on the other."""
    loading: dict[tuple[str, str], int] = {}
    for taken in journal.taken:
        state, driver = journal.states[taken.index], taken.driver
        related = state.below(driver) | {other for other in state.drivers if driver in state.below(other)}
        for (node, other), since in list(loading.items()):
            if _has_ended(journal, since, taken.index, other, node):
                del loading[node, other]
        others = {other for node, other in loading if node == taken.node} - related - {driver}
        yield taken.index, f"{driver} and {sorted(others)} are replaced on {taken.node}" if others else ""
        loading[taken.node, driver] = taken.index


def _has_ended(journal: Journal, since: int, until: int, driver: str, node: str) -> bool:
    """Return whether a driver that was taken from a node has worked or failed there since."""

    def has(before: State, after: State) -> bool:
        pods = [pod for pod in after.pods_on(node) if read.is_of_driver(pod) and read.driver_of(pod) == driver]
        is_failed = any(read.said(pod).get("result") == "LoadFailed" for pod in pods)
        return is_failed or _is_settled(before, after, driver, node)

    return any(has(journal.states[index - 1], journal.states[index]) for index in range(since + 1, until + 1))


@_invariant
def the_next_image_is_there_first(journal: Journal) -> Iterator[Case]:
    """A wave takes a driver that is ready only from a node where the next image has been pulled."""
    for taken in journal.taken:
        state = journal.states[taken.index]
        if names.ready_label(*taken.driver.split("/")) not in read.labels_of(state.nodes[taken.node]):
            continue
        node = state.nodes[taken.node]
        templates = [obj["spec"]["template"] for obj in state.daemon_sets if read.driver_of(obj) == taken.driver]
        coming = [read.images_of(item) for item in templates if read.is_for(item["spec"], node)]
        there = [read.images_of(pod) for pod in state.pods_on(taken.node) if _has_started(pod)]
        missing = frozenset[str]().union(*coming) - frozenset[str]().union(*there)
        yield taken.index, f"{sorted(missing)} is not on {taken.node}" if missing else ""


def _has_started(pod: Object) -> bool:
    return bool(read.said(pod)) or (pod.get("status") or {}).get("phase") == "Succeeded"


# ---------------------------------------------------------------- what comes to a node


@_invariant
def no_module_over_foreign_symbols(journal: Journal) -> Iterator[Case]:
    """No module is loaded over other symbols than it was built with, nor under one that uses it."""
    for index, pod in journal.loads:
        for module, identity in read.modules_of(pod).items():
            if identity in journal.symbols and (module in journal.users or module in journal.users.values()):
                yield index, _unfit(journal, index, pod, module, identity)


def _unfit(journal: Journal, index: int, pod: Object, module: str, identity: str) -> str:
    node, report = pod["spec"]["nodeName"], read.said(pod)
    why = report.get("message", "") if report.get("result") == "LoadFailed" else ""
    if "disagrees about version of symbol" in why or "used by modules" in why:
        return f"{node}: {why}"
    live = journal.states[index].kernels[node].live
    below = {live[other] for other, user in journal.users.items() if user == module and other in live}
    is_live = live.get(module) == identity
    return f"{node}: {module} is live over {below}" if is_live and not below <= journal.symbols[identity] else ""


@_invariant
def nothing_refused_where_another_works(journal: Journal) -> Iterator[Case]:
    """What a wave has refused comes to no node where another build of the driver works."""
    for index, pod in journal.loads:
        before, driver = journal.states[index - 1], read.driver_of(pod)
        wave = before.wave(driver)
        refused = frozenset(wave["targets"][item] for item in wave.get("refused") or () if item in wave["targets"])
        if refused:
            worked = [
                item for item in journal.all_replaced if item.index == index and item.node == pod["spec"]["nodeName"]
            ]
            bad = before.identities_of(driver, refused)
            is_wrong = read.fingerprint_of(pod) in refused and any(item.new in bad for item in worked)
            yield index, f"{driver}: what was refused comes to {pod['spec']['nodeName']}" if is_wrong else ""


@_invariant
def the_last_good_image_can_be_had(journal: Journal) -> Iterator[Case]:
    """While nodes work with a driver, one of its DaemonSets for their kernel has modules that have worked."""
    worked: dict[tuple[str, str], set[Modules]] = {}
    for index, before, after in journal.steps():
        if before.write is None:
            for pod in filter(before.works, before.driver_pods()):
                worked.setdefault(_target_of(pod), set()).add(_modules(pod))
        write, known = after.write, journal.states[after.seen]
        # A rebuild that a node requests is for all its kernel's nodes that load anew, without a wave.
        is_asked = any(names.REBUILD_ANNOTATION in read.annotations_of(node) for node in after.nodes.values())
        if write is None or read.kind_of(write.path) != "daemonsets" or is_asked:
            continue
        # One that the controller has not known, and has made its own in this reconcile, is not what it had.
        name = write.path.rpartition("/")[2]
        for target in {_target_of(obj) for obj in known.daemon_sets if obj["metadata"]["name"] == name}:
            owner = after.drivers.get(target[0])
            is_wanted = owner is not None and "deletionTimestamp" not in owner["metadata"]
            kept = _kept(after, target)
            if is_wanted and kept != _kept(known, target) and journal.is_by_waves(index, target[0]):
                is_used = any(_target_of(pod) == target for pod in filter(before.works, before.driver_pods()))
                is_lost = is_used and kept and kept.isdisjoint(worked.get(target, set()))
                yield index, f"{target}: no DaemonSet has what works" if is_lost else ""


def _kept(state: State, target: tuple[str, str]) -> set[Modules]:
    """Return the modules that the DaemonSets of a driver have for a kernel."""
    return {_modules(obj["spec"]["template"]) for obj in state.daemon_sets if _target_of(obj) == target}


def _modules(template: Object) -> Modules:
    return frozenset(read.modules_of(template).items())


def _target_of(obj: Object) -> tuple[str, str]:
    """Return the driver and the kernel of a pod or a DaemonSet."""
    return read.driver_of(obj), read.annotations_of(obj).get(KERNEL_ANNOTATION, "")


@_invariant
def what_lies_below_or_beside_a_change_is_not_touched(journal: Journal) -> Iterator[Case]:
    """A change of one driver replaces that driver and those that depend on it, and no other."""
    changed: dict[str, int] = {}
    pushed: dict[str, int] = {}
    taken: dict[int, list[Taken]] = {}
    for item in journal.taken:
        taken.setdefault(item.index, []).append(item)
    for index, before, after in journal.steps():
        if after.images is not before.images:
            for identity in {item for identities in after.images.values() for item in identities}:
                pushed.setdefault(identity, index)
        if after.write is None and after.objects is not before.objects:
            for driver in after.drivers:
                if driver in before.drivers and _inputs(before, driver) != _inputs(after, driver):
                    changed[driver] = index
                    beside = (other for other in after.drivers if other != driver and driver not in after.below(other))
                    yield from ((index, "") for other in beside if _works_somewhere(after, other))
        for item in taken.get(index, ()):
            since = max((pushed.get(identity, 0) for identity in read.modules_of(item.pod).values()), default=0)
            known = {item.driver, *after.below(item.driver)}
            others = {driver for driver, at in changed.items() if at > since} - known
            is_asked = names.REBUILD_ANNOTATION in read.annotations_of(after.nodes[item.node])
            if others and not is_asked and not any(changed.get(driver, 0) > since for driver in known):
                yield index, f"{item.driver} is taken from {item.node} for a change of {sorted(others)}"


def _inputs(state: State, driver: str) -> object:
    """Return what an author has written of a driver."""
    obj = state.drivers.get(driver)
    if obj is None:
        return None
    source = ((obj["spec"].get("source") or {}).get("configMap") or {}).get("name", "")
    namespace = obj["metadata"]["namespace"]
    return (
        obj["spec"],
        read.annotations_of(obj),
        (state.objects.get(f"/api/v1/namespaces/{namespace}/configmaps/{source}") or {}).get("data"),
    )


def _works_somewhere(state: State, driver: str) -> bool:
    return any(state.works(pod) for pod in state.driver_pods() if read.driver_of(pod) == driver)


# ---------------------------------------------------------------- what is said, built and evicted


@_invariant
def ready_only_with_a_proof_of_this_boot(journal: Journal) -> Iterator[Case]:
    """A node gets a ready label only for what a pod has proven there on this boot, and rests with that and no other."""
    for index, _, after, write in journal.writes():
        if read.kind_of(write.path) == "nodes":
            for key, value in ((write.body.get("metadata") or {}).get("labels") or {}).items():
                if (driver := _of_ready_label(after, key)) is not None and value is not None:
                    node = write.path.split("/")[4]
                    known = {_proven(state, driver, node) for state in journal.states[after.seen : index + 1]}
                    yield index, "" if value in known else f"{node} gets {key}={value}, and {known} was proven"
    for index, state in enumerate(journal.states):
        for driver in state.drivers if state.is_rest else ():
            key = names.ready_label(*driver.split("/"))
            for name, obj in state.nodes.items():
                if (value := read.labels_of(obj).get(key)) is not None:
                    proven = _proven(state, driver, name)
                    yield index, "" if value == proven else f"{name} has {key}={value}, and {proven} is proven"


def _of_ready_label(state: State, key: str) -> str | None:
    return next((driver for driver in state.drivers if names.ready_label(*driver.split("/")) == key), None)


def _proven(state: State, driver: str, node: str) -> str | None:
    """Return the version of a driver that a pod proves on a node; one that leaves says nothing beside its successor."""
    pods = [pod for pod in state.pods_on(node) if read.is_of_driver(pod) and read.driver_of(pod) == driver]
    for pod in sorted(pods, key=lambda pod: "deletionTimestamp" in pod["metadata"]):
        if state.proves(pod):
            spec = state.drivers[driver]["spec"]
            is_built = any(image.startswith(f"{spec['image']}@") for image in read.images_of(pod))
            # A prebuilt image has the same modules in every version of its driver: it proves the newest one.
            return read.annotations_of(pod).get(VERSION_ANNOTATION) if is_built else spec["version"]
    return None


@_invariant
def strangers_are_left_alone(journal: Journal) -> Iterator[Case]:
    """A node that no driver has ever selected gets no pod, and our labels are removed there, whoever wrote them."""
    every = {name for state in journal.states for name in state.nodes}
    selected = {name for state in journal.states for driver in state.drivers for name in state.nodes
                if state.selects(driver, name)}  # fmt: skip
    for name in every - selected if selected else ():
        for index, _, _, write in journal.writes():
            if write.path == read.node_path(name):
                metadata = write.body.get("metadata") or {}
                written = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
                is_more = any(value is not None for value in written.values()) or "spec" in write.body
                yield index, f"{name} is written to: {written}" if is_more else ""
        for index, state in enumerate(journal.states):
            if any(map(read.is_of_driver, state.pods_on(name))):
                yield index, f"a driver runs on {name}"
            if state.is_rest and name in state.nodes:
                has_ours = any(key.startswith(f"{names.GROUP}/") for key in read.labels_of(state.nodes[name]))
                yield index, f"{name} still has a label of ours" if has_ours else ""


@_invariant
def nothing_that_is_there_is_built(journal: Journal) -> Iterator[Case]:
    """No build begins of an image that is in its registry."""
    for index, before, after in journal.steps():
        for image in after.started:
            yield index, f"{image} is built again" if image in before.images else ""


@_invariant
def only_what_was_asked_for_is_evicted(journal: Journal) -> Iterator[Case]:
    """Only pods are evicted that the holder of the node's lock has to evict, and a taint keeps them away."""
    for index, before, _, write in journal.writes():
        if write.path.endswith("/eviction"):
            pod = before.objects[write.path.removesuffix("/eviction")]
            yield index, _unasked(before, pod)


def _unasked(state: State, pod: Object) -> str:
    node, name = state.nodes[pod["spec"]["nodeName"]], pod["metadata"]["name"]
    holder = read.holder_of(node)
    if not read.is_tainted(node):
        return f"{name} is evicted, and may come back at once"
    if holder == AGENT:
        request = json.loads(read.annotations_of(node).get(names.DRAIN_REQUEST_ANNOTATION) or "{}")
        is_named = f"{pod['metadata']['namespace']}/{name}" in request.get("pods", ())
        is_asked = is_named and not read.requests_of(pod).isdisjoint(request.get("resources", ()))
    else:
        drain = state.rollout(holder).get("drain") if holder in state.drivers else None
        is_asked = bool(drain) and _is_user(state, holder, pod)
    return "" if is_asked else f"{name} is evicted, which {holder or 'nobody'} has asked for"


# ---------------------------------------------------------------- how it ends


@_invariant
def all_is_in_order_in_the_end(journal: Journal) -> Iterator[Case]:
    """Where nothing is in the way of drivers, each works on all its nodes, and nothing is left of waves and drains."""
    for index, state in enumerate(journal.states):
        if state.is_rest and state.is_healed:
            for driver in state.drivers:
                yield index, f"{driver} is still rolled out: {state.wave(driver)}" if state.wave(driver) else ""
                for name in (name for name in state.nodes if state.selects(driver, name)):
                    yield index, "" if _is_well(state, driver, name) else f"{driver} does not work on {name}"
            for name, node in state.nodes.items():
                left = _leftovers(state, node)
                yield index, f"{name} still has {left}" if left else ""


def _is_well(state: State, driver: str, node: str) -> bool:
    pods = [pod for pod in state.pods_on(node) if read.is_of_driver(pod) and read.driver_of(pod) == driver]
    ready = read.labels_of(state.nodes[node]).get(names.ready_label(*driver.split("/")))
    return len(pods) == 1 and state.works(pods[0]) and ready == state.drivers[driver]["spec"]["version"]


_LEFT = (
    names.LOCK_ANNOTATION, names.DRAINING_ANNOTATION, names.YIELDING_ANNOTATION, names.DRAIN_REQUEST_ANNOTATION,
    names.DRAIN_STATE_ANNOTATION,
)  # fmt: skip


def _leftovers(state: State, node: Object) -> list[str]:
    labels = node["metadata"]["labels"]
    paused = {key for driver in state.drivers
              for key in (state.rollout(driver).get("drain") or {}).get("pauseLabels") or ()}  # fmt: skip
    return [
        *(key for key in _LEFT if key in read.annotations_of(node)),
        *(key for key in labels if key.startswith(f"{names.GROUP}/") and key.endswith((".wave", names.YIELD_SUFFIX))),
        *(key for key in paused if labels.get(key, "true") != "true"),
        *([names.UPGRADING_TAINT] if read.is_tainted(node) else []),
    ]


@_invariant
def at_rest_nothing_is_written(journal: Journal) -> Iterator[Case]:
    """Where nothing has moved since the last reconcile, another one writes nothing."""
    for index, state in enumerate(journal.states):
        if state.is_rest:
            last = [item.write for item in journal.states[:index] if item.reconcile == state.reconcile and item.write]
            yield index, f"at rest {last[0].method} {last[0].path} is written" if last else ""
