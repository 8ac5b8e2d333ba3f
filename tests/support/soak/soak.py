"""A soak: bursts of faults, each followed by a quiet checkpoint at which all is as wanted, and stays so.

The controller is a process of its own, and a second one may take its place. API server, engine and registry are real
ones behind proxies that break exchanges; nodes are played. What is wanted, and what must hold all the while, is read
past the proxies.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from driver_builder.observed import rebuild
from driver_builder.templates.templates import templates_directory
from kube_api.client import Client
from kube_api.resources import NAMESPACES
from testbed.kubeconfig import kubeconfig_text, token_user, write_kubeconfig
from testbed.pki import CertificateAuthority
from testbed.testbed import Testbed
from tests.support.real_parts.controller_life import TEMPLATE, Json
from tests.support.soak import invariants
from tests.support.soak.controllers import Controller
from tests.support.soak.fault_proxy import FaultProxy, Passed
from tests.support.soak.faults import Exchange, Script
from tests.support.soak.invariants import Pushed, last
from tests.support.soak.schedule import FAULTS, Act, Burst, Link, Step
from tests.support.soak.watcher import RegistryCheck, Watcher, is_proven
from tests.support.soak.world import DRIVER, TEMPLATE_NAME, World

LIMIT_SECONDS = 600.0
"""How long a checkpoint waits for everything to be as wanted: only a soak that fails takes so long."""
RESYNC_SECONDS = 2
QUIET_SECONDS = 2.0 * RESYNC_SECONDS
TURN_SECONDS = 0.5
BRANCH = """\
{{% if kernel_version == "{compiled}" %}}
{{% include "debian.Dockerfile.j2" %}}
{{% else %}}
"""
PAUSES = (2.0, 5.0, 12.0)
"""Seconds: the longest is more than the Lease's holder has for a renewal."""
CLOCKS = (3600, -3600, 86400, 0, -7 * 86400, 400 * 86400)
FULL_SECONDS = 6.0
OUTAGES = (1.0, 4.0, 9.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What was found when everything was quiet."""

    burst: int
    controller: str
    life: int
    resident_mib: float

    @property
    def process(self) -> tuple[str, int]:
        """The process that was seen."""
        return self.controller, self.life


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


class Soak:
    """One soak in a namespace of its own; ``folder`` has its logs.

    For the kernel ``compiled`` drivers are compiled by the template that we ship; for others a module is there.
    """

    def __init__(
        self, cluster: Testbed, builds: Testbed, client: Client, *, name: str, folder: Path, compiled: str = ""
    ) -> None:
        self.faults: Counter[str] = Counter()
        self.checkpoints: list[Checkpoint] = []
        self._client = client
        self._name = name
        self._clock = folder / "clock"
        self._clock.write_text("0")
        self._ledger = Ledger()
        self._scripts = {link: Script() for link in Link}
        registry = f"http://{builds.registry.host}"
        self._registry = FaultProxy(registry, script=self._scripts[Link.REGISTRY], note=self._ledger.to_registry)
        self._engine = FaultProxy(builds.engine.socket, script=self._scripts[Link.ENGINE])
        self._apis: list[FaultProxy] = []
        authority = CertificateAuthority(folder / "pki")
        _write_templates(folder / "templates", compiled)
        self._main = self._controller("controller-0", cluster, authority, folder)
        self._other = self._controller("controller-1", cluster, authority, folder)
        self.world = World(cluster, client, namespace=name, registry=self._registry.host, compiled=compiled)
        self.watcher = Watcher(client, namespace=name, label=self.world.label)
        self._check = RegistryCheck(f"http://{builds.registry.host}/v2/{name}/{DRIVER}", compiled)
        self._found: list[str] = []

    def _controller(self, name: str, cluster: Testbed, authority: CertificateAuthority, folder: Path) -> Controller:
        """Make a controller with a proxy of its own before the API server."""
        certificate = authority.issue_files(name, name, hosts=["127.0.0.1"])
        proxy = FaultProxy(
            cluster.api_server,
            ca_file=str(cluster.ca_file),
            certificate=certificate,
            script=self._scripts[Link.API],
            note=self._ledger.to_api,
        )
        self._apis.append(proxy)
        text = kubeconfig_text(f"https://{proxy.host}", authority.file.read_bytes(), token_user(cluster.admin_token))
        arguments = [
            "--kubeconfig", str(write_kubeconfig(folder / f"{name}.kubeconfig", text)),
            "--namespace", self._name, "--docker-host", f"tcp://{self._engine.host}",
            "--templates", str(folder / "templates"), "--loader-image", "r.io/l:1", "--no-feature-rules",
            "--resync-seconds", str(RESYNC_SECONDS), "--retry-min-seconds", "1", "--retry-max-seconds", "8",
        ]  # fmt: skip
        return Controller(name, folder, arguments, self._clock)

    # ------------------------------------------------------------ its course

    def begin(self, nodes: int) -> None:
        """Let the first controller install the driver."""
        self.watcher.start()
        self.world.begin(nodes)
        self.checkpoint(-1)

    def run(self, burst: Burst, linger: float) -> None:
        """Do a burst; faults of exchanges that did not come ``linger`` seconds after the last step are dropped."""
        for link, faults in burst.faults.items():
            self._scripts[link].arm(faults)
        for step in burst.steps:
            self._wait(step.after)
            self._do(step)
        end = time.monotonic() + linger
        while not all(script.is_done for script in self._scripts.values()) and time.monotonic() < end:
            self._wait(TURN_SECONDS)
        for link, script in self._scripts.items():
            script.disarm()
            self.faults.update(f"{item.fault} ({link})" for item in script.delivered)
            script.delivered.clear()

    def end(self) -> None:
        """Take everything away."""
        self._main.close()
        self._other.close()
        self.watcher.stop()
        self.world.fleet.stop()
        for proxy in (*self._apis, self._registry, self._engine):
            proxy.close()
        self._client.delete(NAMESPACES.path(name=self._name))

    def _proxies(self, link: Link) -> tuple[FaultProxy, ...]:
        return {Link.API: tuple(self._apis), Link.REGISTRY: (self._registry,), Link.ENGINE: (self._engine,)}[link]

    def _wait(self, seconds: float) -> None:
        """Let time pass, in which a controller that ended is started again."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._main.keep_running()
            time.sleep(min(TURN_SECONDS, left))

    def _until(self, what: str, reached: Callable[[], bool], *also: Controller) -> None:
        end = time.monotonic() + LIMIT_SECONDS
        while not reached():
            for controller in also:
                controller.keep_running()
            assert time.monotonic() < end, f"not reached: {what}: {self._logs()}"
            time.sleep(TURN_SECONDS)

    def _do(self, step: Step) -> None:
        if step.act not in FAULTS:
            self.world.act(step.act, step.draw)
            return
        self.faults[str(step.act)] += 1
        match step.act:
            case Act.KILL:
                self._main.kill()
            case Act.PAUSE:
                self._main.stop()
                time.sleep(PAUSES[step.draw % len(PAUSES)])
                self._main.go_on()
            case Act.CLOCK:
                self._clock.write_text(f"{CLOCKS[step.draw % len(CLOCKS)]}\n")
            case Act.FULL_DISK:
                self._main.keep_running()
                self._until("the controller acts", self._main.is_acting, self._main)
                self._main.fill_disk()
                self._wait(FULL_SECONDS)
                self._main.empty_disk()
            case Act.DROP:
                for proxy in self._proxies(step.link):
                    proxy.drop()
            case Act.OUTAGE:
                for proxy in self._proxies(step.link):
                    proxy.leave()
                self._wait(OUTAGES[step.draw % len(OUTAGES)])
                for proxy in self._proxies(step.link):
                    proxy.come_back()
            case _:
                self._take_over(is_killed=step.draw % 2 == 0)

    def _take_over(self, *, is_killed: bool) -> None:
        """Let the second controller run beside the first, and have the Lease when that is killed, or stopped."""
        first, second = self._main, self._other
        self._until("the second controller waits", lambda: second.is_waiting() or second.is_acting(), first, second)
        if is_killed:
            first.kill()
        else:
            first.stop()
        self._until("the second controller acts", second.is_acting, second)
        self._main, self._other = second, first
        # One that was stopped finds out by itself that it is not the one any more.
        first.go_on()
        self._until("the first controller has ended", lambda: not first.is_alive, second)

    # ------------------------------------------------------------ checkpoints

    def checkpoint(self, burst: int) -> None:
        """Wait until everything is as wanted and quiet; then nothing changes any more.

        Raises:
            AssertionError: it does not become so, it does not stay so, or something happened that must not.
        """
        self._until_quiet()
        writes = len(self._ledger.writes)
        self._let_pass()
        late = [f"{item.method} {item.target}" for item in self._ledger.writes[writes:]]
        assert not late, f"written though all was quiet: {self._words(late)}"
        assert (missing := list(self.missing())) == [], f"it did not stay as wanted: {self._words(missing)}"
        assert list(self.violations()) == [], self._words([])
        main = self._main
        self.checkpoints.append(
            Checkpoint(burst=burst, controller=main.name, life=main.life, resident_mib=main.resident_mib())
        )

    def _until_quiet(self) -> None:
        end = time.monotonic() + LIMIT_SECONDS
        while True:
            writes = len(self._ledger.writes)
            self._wait(TURN_SECONDS)
            missing = list(self.missing())
            if not missing:
                self._let_pass()
                if writes == len(self._ledger.writes):
                    return
            assert time.monotonic() < end, f"not as wanted, or not quiet: {self._words(missing)}"

    def _let_pass(self) -> None:
        """Let the controller that acts do two reconciles, at least, or a new life of it begin."""
        life = self._main.life
        counts: list[float] = []

        def has_passed() -> bool:
            count = self._main.passes()
            counts.extend([] if count is None else [count])
            return self._main.life != life or (bool(counts) and counts[-1] >= counts[0] + 2)

        has_passed()
        self._wait(QUIET_SECONDS)
        self._until("two reconciles", has_passed, self._main)

    def missing(self) -> Iterator[str]:
        """Say what is not as wanted, and why."""
        status: Json = self.world.driver().get("status") or {}
        conditions = {item["type"]: (item["status"], item["reason"]) for item in status.get("conditions") or ()}
        if conditions.get("Ready") != ("True", "AllNodesReady"):
            yield f"the status says {conditions}"
        asked = rebuild.from_status({"requests": {rebuild.DRIVER: self.world.rebuild}})
        heard = rebuild.from_status(status.get("rebuild"))
        if self.world.rebuild and heard.requests.get(rebuild.DRIVER) != asked.requests[rebuild.DRIVER]:
            yield "the requested rebuild is not acknowledged"
        wanted = dict(self._wanted_sets(status))
        for name, kernel in self.world.fleet.kernels.items():
            node = last(self.watcher.nodes.history.get(name, []))
            if node is None or node.ready != self.world.version or not is_proven(self.world.fleet, name, node):
                yield f"{name} on {self.world.fleet.place(name)!r} is {node}"
            pods = [pod for pod in self.watcher.pods.now() if pod.node == name]
            if [pod.fingerprint for pod in pods if not pod.is_deleted] != [wanted.get(kernel)]:
                yield f"{name} has {pods}, and {wanted.get(kernel)} is wanted"

    def _wanted_sets(self, status: Json) -> Iterator[tuple[str, str]]:
        """Give the fingerprint of each kernel whose DaemonSet has the image that status and registry name."""
        targets = {item["kernel"]: item for item in status.get("targets") or ()}
        for found in self.watcher.sets.now():
            target = targets.get(found.kernel)
            if target is None or found.version != self.world.version:
                continue
            tags = {item.tag for item in list(self._ledger.pushed) if item.key == target["buildKey"]}
            if {found.digest} == {target.get("imageDigest"), *map(self._check.digest, tags)}:
                yield found.kernel, found.fingerprint

    def violations(self) -> Iterator[str]:
        """Find all that must not have happened until now."""
        watched = self.watcher
        nodes, pods, sets = dict(watched.nodes.history), dict(watched.pods.history), dict(watched.sets.history)
        pushed, controllers = list(self._ledger.pushed), (self._main, self._other)
        said = [line for controller in controllers for line in list(controller.said)]
        ended = [item for controller in controllers for item in controller.ended]
        builds = invariants.builds_of(said, ended)
        requests = int(self.world.rebuild.rpartition("-")[2] or 0)
        yield from watched.troubles()
        yield from invariants.unproven_labels(nodes, self.world.fleet.proofs)
        yield from invariants.lost_labels(nodes)
        yield from invariants.harmed_pods(pods, nodes, sets)
        yield from invariants.needless_changes(sets, requests)
        yield from invariants.unknown_images(sets, {item.digest for item in pushed})
        yield from invariants.built_again(builds, pushed)
        yield from invariants.built_twice_at_once(builds, ended)
        yield from invariants.unverified_pushes(builds, pushed)
        yield from invariants.moved_tags(pushed)
        yield from self._check.violations(pushed)
        for controller in controllers:
            yield from controller.internal_errors()

    def longest_life(self) -> list[float]:
        """Return the memory (MiB) at each checkpoint of the process that saw most of them."""
        lives = Counter(item.process for item in self.checkpoints)
        ((process, _),) = lives.most_common(1)
        return [item.resident_mib for item in self.checkpoints if item.process == process]

    def _words(self, found: list[str]) -> str:
        """Say what was found, what must not have happened until now, and how the logs end."""
        return "\n".join((*found, *(f"violation: {item}" for item in self.violations()), self._logs()))

    def _logs(self) -> str:
        return "\n".join(f"---- {item.name}\n{item.log()[-4000:]}" for item in (self._main, self._other))


def _write_templates(folder: Path, compiled: str) -> None:
    shutil.copytree(templates_directory(None), folder)
    text = TEMPLATE.replace("FROM {{ base_image }}", BRANCH.format(compiled=compiled) + "FROM {{ base_image }}")
    (folder / f"{TEMPLATE_NAME}.Dockerfile.j2").write_text(f"{text}{{% endif %}}\n")
