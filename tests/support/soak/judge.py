"""What is not as wanted in a soak's world, and what must not have happened, read past the proxies.

Place in the flow: a ``Watcher`` and a :class:`Ledger` know what happened, ``invariants`` say what that means; a
checkpoint asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from driver_builder.api import rebuild_status
from driver_builder.snapshot import rebuild
from tests.support.real_parts.controller_life import Json
from tests.support.soak import invariants
from tests.support.soak.controllers import Controller
from tests.support.soak.fault_proxy import Passed
from tests.support.soak.faults import Exchange
from tests.support.soak.invariants import Pushed
from tests.support.soak.watcher import RegistryCheck, Watcher, is_proven
from tests.support.soak.world import World


@dataclass(slots=True)
class Ledger:
    """What reached the API server and the registry through the proxies."""

    writes: list[Passed] = field(default_factory=list)
    pushed: list[Pushed] = field(default_factory=list)

    def to_api(self, passed: Passed) -> None:
        """Note an exchange with the API server."""
        if passed.exchange is Exchange.WRITE:
            self.writes.append(passed)

    def to_registry(self, passed: Passed) -> None:
        """Note an exchange with the registry."""
        if passed.exchange is not Exchange.WRITE or passed.status >= 300:
            return
        self.writes.append(passed)
        tag = passed.target.rpartition("/")[2]
        if passed.method == "PUT" and "/manifests/" in passed.target and not tag.startswith("sha256"):
            self.pushed.append(Pushed(at=passed.at, tag=tag, digest=passed.digest))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Judges what controllers made of a world."""

    world: World
    watcher: Watcher
    check: RegistryCheck
    ledger: Ledger
    controllers: tuple[Controller, ...]

    def missing(self) -> Iterator[str]:
        """Say what is not as wanted, and why."""
        status: Json = self.world.driver().get("status") or {}
        conditions = {item["type"]: (item["status"], item["reason"]) for item in status.get("conditions") or ()}
        if conditions.get("Ready") != ("True", "AllNodesReady"):
            yield f"the status says {conditions}"
        asked = rebuild_status.from_status({"requests": {rebuild_status.DRIVER: self.world.rebuild}})
        heard = rebuild_status.from_status(status.get("rebuild"))
        if self.world.rebuild and heard.requests.get(rebuild_status.DRIVER) != asked.requests[rebuild_status.DRIVER]:
            yield "the requested rebuild is not acknowledged"
        yield from (f"the rebuild that {name} requested is not acknowledged" for name in self.unheard())
        for name in self.world.fleet.requests:
            if not self.watcher.has_served(name):
                yield f"the driver pod on {name} is older than the rebuild that the node requested"
        yield from (f"{pull} is there, and no wave goes on" for pull in self.watcher.pulls.now())
        wanted = dict(self._wanted_sets(status))
        for name, kernel in self.world.fleet.kernels.items():
            node = self.watcher.node(name)
            if node is None or node.ready != self.world.version or not is_proven(self.world.fleet, name, node):
                yield f"{name} on {self.world.fleet.place(name)!r} is {node}"
            if node is not None and node.wave:
                yield f"{name} has the label of a wave: {node.wave}"
            if node is not None and node.is_tainted:
                yield f"{name} has the taint of a node where the driver is not proven"
            pods = self.watcher.pods_on(name)
            if len(pods) != 1 or pods[0].fingerprint not in wanted.get(kernel, ()) or pods[0].refuted_on:
                yield f"{name} has {pods}, and {wanted.get(kernel)} is wanted"

    def _wanted_sets(self, status: Json) -> Iterator[tuple[str, frozenset[str]]]:
        """Give the fingerprints of each kernel whose DaemonSet has the image that status and registry name."""
        targets = {item["kernel"]: item for item in status.get("targets") or ()}
        for found in self.watcher.sets.now():
            target = targets.get(found.kernel)
            if target is None or found.version != self.world.version:
                continue
            tags = {item.tag for item in list(self.ledger.pushed) if item.key == target.get("buildKey")}
            if {found.digest} == {target.get("imageDigest"), *map(self.check.digest, tags)}:
                yield found.kernel, found.kept | {found.fingerprint}

    def violations(self) -> Iterator[str]:
        """Find all that must not have happened until now."""
        watched = self.watcher
        nodes, pods, sets = dict(watched.nodes.history), dict(watched.pods.history), dict(watched.sets.history)
        pulls = dict(watched.pulls.history)
        pushed, controllers = list(self.ledger.pushed), self.controllers
        said = [line for controller in controllers for line in list(controller.said)]
        ended = [item for controller in controllers for item in controller.ended]
        builds = invariants.builds_of(said, ended)
        yield from watched.troubles()
        yield from invariants.unproven_labels(nodes, self.world.fleet.proofs)
        yield from invariants.lost_labels(nodes, pods, self.world.absences)
        yield from invariants.wrong_taints(nodes, self.world.absences)
        yield from invariants.harmed_pods(pods, nodes, sets)
        yield from invariants.unpulled_images(pods, nodes, sets, pulls)
        yield from invariants.needless_changes(sets, self.world.rebuilds, self.world.fleet.requested)
        yield from invariants.unknown_images(sets, {item.digest for item in pushed})
        yield from invariants.built_again(builds, pushed)
        yield from invariants.built_twice_at_once(builds, ended)
        yield from invariants.unverified_pushes(builds, pushed)
        yield from invariants.moved_tags(pushed)
        yield from self.check.violations(pushed)
        yield from invariants.wrong_modules(sets, self.check.modules)
        yield from invariants.hurried_rebuilds(dict(watched.drivers.history), rebuild.NODES_HEARD_SECONDS)
        for controller in controllers:
            yield from controller.internal_errors()

    def unheard(self) -> list[str]:
        """Name the nodes that requested a rebuild which is not acknowledged."""
        status: Json = self.world.driver().get("status") or {}
        heard = rebuild_status.from_status(status.get("rebuild"))
        return [name for name, (value, _) in self.world.fleet.requests.items() if not heard.has_heard(name, value)]

    def believed(self) -> Iterator[str]:
        """Find ready labels of nodes that say the driver does not work, or nothing since they booted."""
        for name in sorted(self.world.fleet.late):
            node = self.watcher.node(name)
            if node is None or node.ready is not None:
                yield f"{name} does not say that the driver works on {self.world.fleet.place(name)!r}, and is {node}"

    def left(self) -> Iterator[str]:
        """Find what is left of a driver that is gone."""
        yield from (f"a ready label on {node}" for node in self.watcher.nodes.now() if node.ready is not None)
        yield from (f"a taint on {node}" for node in self.watcher.nodes.now() if node.is_tainted)
        yield from (f"{pod}" for pod in (*self.watcher.pods.now(), *self.watcher.pulls.now()))
        yield from (f"{found}" for found in self.watcher.sets.now())
