"""Pools of nodes that stay on one stream of kernels, and the newest kernel that is known of each. Pure.

Only nodes that a driver with ``spec.preflight.followRepository`` selects make a pool. What is known of its repository
is the result of this controller's discovery, or that in the driver's status: the later of the two.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.prebuild_status import AheadStatus, previous_ahead
from driver_builder.model.kernels import KernelTarget, KernelVersion
from driver_builder.model.repositories import Discovery, Repository
from driver_builder.prebuild import newest_kernel
from driver_builder.snapshot.snapshot import Snapshot
from driver_builder.targets import resolve_target
from driver_builder.targets.resolve import stock_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Nodes of one operating system and architecture whose kernels are of one stream, by target."""

    stream: str
    repository: Repository
    nodes: Mapping[KernelTarget, tuple[str, ...]]

    @property
    def example(self) -> KernelTarget:
        """One of its targets: all have their operating system and architecture in common."""
        return next(iter(self.nodes))

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies it among other pools of a driver."""
        return (self.example.os, self.example.architecture, self.stream)

    def target(self, kernel: KernelVersion) -> KernelTarget:
        """Return the target of a node of the pool on this kernel."""
        example = self.example
        return KernelTarget(kernel, example.os_id, example.os_version, example.architecture)

    def behind(self, kernel: KernelVersion) -> tuple[str, ...]:
        """Return the nodes whose kernel is older."""
        return tuple(
            name for target, nodes in self.nodes.items() if newest_kernel.is_newer(target, kernel) for name in nodes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """The newest kernel of a pool, None if none is known, and when and how its repository was asked."""

    newest: KernelVersion | None
    discovery: Discovery


def follows(driver: DriverContainer) -> DriverSpec | None:
    """Return the spec of a driver that follows its nodes' repositories, None for every other."""
    is_one = isinstance(driver.spec, DriverSpec) and driver.spec.preflight.follow_repository and not driver.deleting
    return driver.spec if is_one and isinstance(driver.spec, DriverSpec) else None


def pools_of(snapshot: Snapshot, driver: DriverContainer, spec: DriverSpec) -> tuple[Pool, ...]:
    """Group the selected nodes; those whose kernel or distribution has no repository to ask are in no pool."""
    groups: dict[tuple[str, str, str], dict[KernelTarget, tuple[str, ...]]] = {}
    places: dict[tuple[str, str, str], tuple[str, Repository]] = {}
    for target, nodes in stock_of(snapshot, driver, spec).targets.items():
        stream = newest_kernel.stream_of(target.os_id, target.kernel_version)
        family, base_image = newest_kernel.family_of(target.os_id), resolve_target.base_image_for(spec, target)
        if stream is None or family is None or base_image is None:
            continue
        key = (target.os, target.architecture, stream)
        groups.setdefault(key, {})[target] = nodes
        places[key] = (stream, Repository(family, base_image, target.architecture, _access(driver, spec)))
    return tuple(Pool(stream=places[key][0], repository=places[key][1], nodes=groups[key]) for key in sorted(groups))


def _access(driver: DriverContainer, spec: DriverSpec) -> str:
    """Return how builds reach repositories, where Secret and ConfigMap are those of a namespace; empty: directly."""
    proxy, ca = spec.build.proxy, spec.build.ca_config_map
    if proxy is None and ca is None:
        return ""
    return hashlib.sha256(repr((driver.namespace, proxy, ca)).encode()).hexdigest()[:16]


def known_of(snapshot: Snapshot, driver: DriverContainer, pool: Pool) -> Knowledge:
    """Return what is known of a pool's repository."""
    fresh = snapshot.discoveries.get(pool.repository, Discovery())
    before = _until(snapshot.now, previous_ahead(driver.status).get(pool.key))
    if before is not None and before.base_image != pool.repository.base_image:
        before = None
    error, error_at = _error(fresh, before)
    if before is None or (fresh.at is not None and fresh.at >= (before.looked_up or 0.0)):
        newest = newest_kernel.newest(pool.example.os_id, pool.stream, fresh.releases)
        return Knowledge(newest=newest, discovery=Discovery(at=fresh.at, error=error, error_at=error_at))
    newest = newest_kernel.newest(pool.example.os_id, pool.stream, [before.target.kernel])
    return Knowledge(newest=newest, discovery=Discovery(at=before.looked_up, error=error, error_at=error_at))


def _until(now: float, before: AheadStatus | None) -> AheadStatus | None:
    """Replace times in the future, read from a wrong clock, by now."""
    if before is None:
        return None
    looked_up = None if before.looked_up is None else min(before.looked_up, now)
    error_at = None if before.error_at is None else min(before.error_at, now)
    return replace(before, looked_up=looked_up, error_at=error_at)


def _error(fresh: Discovery, before: AheadStatus | None) -> tuple[str, float | None]:
    """Return the last failure, unless a kernel discovery succeeded since."""
    tries = [(fresh.error_at, fresh.error)]
    succeeded = [fresh.at or 0.0]
    if before is not None:
        tries.append((before.error_at, before.error))
        succeeded.append(before.looked_up or 0.0)
    at, error = max(((at, error) for at, error in tries if at is not None), default=(None, ""))
    return (error, at) if at is not None and at > max(succeeded) else ("", None)
