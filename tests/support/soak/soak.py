"""A soak: bursts of faults, each followed by a quiet checkpoint at which all is as wanted, and stays so.

The controller is a process of its own, and a second one may take its place. API server, engine and registry are real
ones behind proxies that break exchanges; nodes are played. What is wanted, and what must hold all the while, is read
past the proxies.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from driver_builder.builds.templates.templates import templates_directory
from driver_builder.snapshot import rebuild
from kube_api.client import Client
from testbed.kubeconfig import kubeconfig_text, token_user, write_kubeconfig
from testbed.pki import CertificateAuthority
from testbed.testbed import Testbed
from tests.support.real_parts.cluster_setup import remove_namespace
from tests.support.real_parts.controller_life import TEMPLATE
from tests.support.soak.controllers import Controller
from tests.support.soak.fault_proxy import FaultProxy
from tests.support.soak.faults import Script
from tests.support.soak.judge import Judge, Ledger
from tests.support.soak.schedule import FAULTS, LIES, Act, Burst, Link, Step
from tests.support.soak.watcher import RegistryCheck, Watcher
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
HEARD_SECONDS = rebuild.NODES_HEARD_SECONDS + 60
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
        self._judge = Judge(
            world=self.world,
            watcher=self.watcher,
            check=RegistryCheck(f"http://{builds.registry.host}/v2/{name}/{DRIVER}", compiled),
            ledger=self._ledger,
            controllers=(self._main, self._other),
        )
        self._may_restart = True

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
            "--test-waits", f"{RESYNC_SECONDS},1,8",
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
        self._may_restart = burst.restarts
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
        self._speak()

    def _speak(self) -> None:
        """Let watches bring what they held back."""
        for proxy in self._apis:
            proxy.speak()

    def end(self) -> None:
        """Take everything away."""
        self._main.close()
        self._other.close()
        self.watcher.stop()
        self.world.fleet.stop()
        for proxy in (*self._apis, self._registry, self._engine):
            proxy.close()
        remove_namespace(self._client, self._name)

    def _proxies(self, link: Link) -> tuple[FaultProxy, ...]:
        return {Link.API: tuple(self._apis), Link.REGISTRY: (self._registry,), Link.ENGINE: (self._engine,)}[link]

    def _wait(self, seconds: float) -> None:
        """Let time pass, in which a controller that ended is started again."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._main.keep_running()
            time.sleep(min(TURN_SECONDS, left))

    def _until(self, what: str, reached: Callable[[], bool], *also: Controller) -> None:
        self._until_none(what, lambda: () if reached() else (what,), *also)

    def _until_none(self, what: str, find: Callable[[], Iterable[str]], *also: Controller) -> None:
        """Wait until nothing is found any more."""
        end = time.monotonic() + LIMIT_SECONDS
        while found := list(find()):
            for controller in also:
                controller.keep_running()
            assert time.monotonic() < end, f"not reached: {what}: {self._words(found)}"
            time.sleep(TURN_SECONDS)

    def _do(self, step: Step) -> None:
        if step.act is Act.DELETE:
            # The labels of late nodes go because of what these say, not with the driver.
            self._recover()
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
                self._set_clock(CLOCKS[step.draw % len(CLOCKS)])
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

    def _set_clock(self, seconds: float) -> None:
        """Let the controllers' clocks be ahead; they read the file at any moment, so it is never empty."""
        with self._clock.open("r+") as file:
            file.write(f"{seconds:<31}\n")

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
        self._recover()
        if self.world.is_deleted:
            self._come_back()
        if self._judge.unheard():
            # Nodes of one target are heard once in ten minutes.
            self._set_clock(float(self._clock.read_text()) + HEARD_SECONDS)
        self._until_quiet()
        writes = len(self._ledger.writes)
        self._let_pass()
        late = [f"{item.method} {item.target}" for item in self._ledger.writes[writes:]]
        assert not late, f"written though all was quiet: {self._words(late)}"
        assert (missing := list(self._judge.missing())) == [], f"it did not stay as wanted: {self._words(missing)}"
        # An image is looked into once: what was found of it is not found again.
        assert (found := list(self._judge.violations())) == [], self._words(found)
        self.world.settle()
        main = self._main
        self.checkpoints.append(
            Checkpoint(burst=burst, controller=main.name, life=main.life, resident_mib=main.resident_mib())
        )

    def _come_back(self) -> None:
        """Let the driver that was deleted go, with all that it had, and come back.

        Where restarts are allowed, it comes back to a controller that remembers nothing of its images, and the
        registry gives other content first.
        """
        self._until("the driver is gone", self.world.is_gone, self._main)
        self._until_none("nothing of the driver is left", self._judge.left, self._main)
        registry = self._scripts[Link.REGISTRY]
        if self._may_restart:
            self._main.kill()
            registry.arm(LIES)
        self.world.come_back()
        self._until("the registry has given other content", lambda: registry.is_done, self._main)

    def _recover(self) -> None:
        """Let late nodes report, once no ready label says that their driver works."""
        if not self.world.fleet.late:
            return

        def believed() -> list[str]:
            # A watch that was about to be silent may be so by now.
            self._speak()
            return list(self._judge.believed())

        self._until_none("no label where the driver does not work", believed, self._main)
        self._let_pass()
        assert (labels := believed()) == [], self._words(labels)
        self.world.fleet.recover()

    def _until_quiet(self) -> None:
        end = time.monotonic() + LIMIT_SECONDS
        while True:
            # As in _recover.
            self._speak()
            writes = len(self._ledger.writes)
            self._wait(TURN_SECONDS)
            missing = list(self._judge.missing())
            if not missing:
                self._let_pass()
                if writes == len(self._ledger.writes):
                    return
            assert time.monotonic() < end, f"not as wanted, or not quiet: {self._words(missing)}"

    def _let_pass(self) -> None:
        """Let the controller that acts do two reconciles, at least, in one life."""
        first: dict[int, float] = {}

        def has_passed() -> bool:
            life, count = self._main.life, self._main.passes()
            return count is not None and count >= first.setdefault(life, count) + 2

        has_passed()
        self._wait(QUIET_SECONDS)
        self._until("two reconciles", has_passed, self._main)

    def longest_life(self) -> list[float]:
        """Return the memory (MiB) at each checkpoint of the process that saw most of them."""
        lives = Counter(item.process for item in self.checkpoints)
        ((process, _),) = lives.most_common(1)
        return [item.resident_mib for item in self.checkpoints if item.process == process]

    def _words(self, found: list[str]) -> str:
        """Say what was found, what must not have happened until now, and how the logs end."""
        return "\n".join((*found, *(f"violation: {item}" for item in self._judge.violations()), self._logs()))

    def _logs(self) -> str:
        return "\n".join(f"---- {item.name}\n{item.log()[-4000:]}" for item in (self._main, self._other))


def _write_templates(folder: Path, compiled: str) -> None:
    shutil.copytree(templates_directory(None), folder)
    text = TEMPLATE.replace("FROM {{ base_image }}", BRANCH.format(compiled=compiled) + "FROM {{ base_image }}")
    (folder / f"{TEMPLATE_NAME}.Dockerfile.j2").write_text(f"{text}{{% endif %}}\n")
