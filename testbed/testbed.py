"""The testbed as its users see it: started, composed of the parts they ask for, and ended with all traces."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from testbed import base_image, control_plane, engine, engine_kind, host_node, places, registry, small_image, warm_root
from testbed.api import Api
from testbed.control_plane import ControlPlane
from testbed.engine import Engine
from testbed.engine_kind import EngineKind
from testbed.errors import TestbedError
from testbed.guest.guest import Guest
from testbed.guest.guests import Guests
from testbed.host_node import HostNode
from testbed.kernels import KernelPackage, choose_kernels
from testbed.kube_binaries import KubeBinaries, ensure_kube_binaries
from testbed.packages import ensure_packages, installed_version, require_supported_machine
from testbed.ports import free_ports
from testbed.process import Processes
from testbed.progress import PlainLines, Progress
from testbed.registry import Registry
from testbed.state import GroundState
from testbed.warm_root import Preparation

_PORTS = (*control_plane.PORTS, *host_node.PORTS, "registry")
Part = TypeVar("Part")


class Testbed:
    """Real Kubernetes, engine, registry and nodes on this machine.

    `start` gives a testbed that ends with the `with` block, and with this process however that ends; `up` one that
    outlives it, until somebody calls `attach().down()`.
    """

    __test__ = False
    """Not for pytest, which looks for classes named Test."""

    def __init__(self, processes: Processes, state: GroundState, progress: Progress) -> None:
        self._processes = processes
        self._state = state
        self._progress = progress
        self._binaries: KubeBinaries | None = None
        self._control_plane: ControlPlane | None = None
        self._engine: Engine | None = None
        self._registry: Registry | None = None
        self._host_node: HostNode | None = None
        self._guests: Guests | None = None

    # -------------------------------------------------------------- begin and end

    @classmethod
    def start(
        cls,
        *,
        progress: Progress | None = None,
        control_plane: bool = True,
        nodes: bool = True,
        engine: bool = True,
        host_node: bool = True,
        registry_auth: tuple[str, str] | None = None,
        preparation: Preparation | None = None,
        outlive_harness: bool = False,
        admission: Sequence[str] = (),
        kind: EngineKind = engine_kind.OF_TREE,
    ) -> Testbed:
        """Bring up a testbed of the parts asked for.

        control_plane  etcd, API server and controller manager
        nodes          the scheduler too, so that pods run (guests can be added)
        engine         container engine, registry and base image
        host_node      this machine as a node; needs all of the above
        preparation    what the engine has done before; without one it has the base image alone
        admission      further admission plugins of the API server
        kind           which engine, and how it is started; a preparation is for that of the tree
        """
        require_supported_machine()
        places.remove_remains()
        progress = progress or PlainLines()
        folder = places.new_folder()
        state = GroundState(
            name=folder.name,
            by_hand=outlive_harness,
            control_plane=control_plane,
            nodes=control_plane and nodes,
            engine=engine,
            ports=dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True)),
            admin_token=secrets.token_urlsafe(24),
            admission=list(admission),
            engine_kind=kind.name,
            host_node_name=f"host-{folder.name}" if host_node and control_plane and nodes and engine else "",
            registry_user=registry_auth[0] if registry_auth else "",
            registry_password=registry_auth[1] if registry_auth else "",
        )
        ensure_packages(_packages_of(state))
        binaries = ensure_kube_binaries(progress) if state.control_plane else None
        state.binaries = str(binaries.folder) if binaries else ""
        ground = cls(Processes.start(folder, outlive_harness=outlive_harness), state, progress)
        try:
            state.save(folder)
            ground._bring_up(binaries, preparation or Preparation("", lambda _address, _step: None))
        except BaseException as error:
            ground.down(keep_logs=True)
            error.add_note(f"the logs of the testbed are kept in {ground.logs}")
            raise
        return ground

    @classmethod
    def up(cls, *, progress: Progress | None = None, host_node: bool = True) -> Testbed:
        """Bring up a whole testbed that outlives this process."""
        return cls.start(progress=progress, host_node=host_node, outlive_harness=True)

    @classmethod
    def attach(cls, name: str | None = None, *, progress: Progress | None = None) -> Testbed:
        """Return a running ground: the one called `name`, or the only one that `up` started."""
        folder = places.find_ground(name)
        state = GroundState.load(folder)
        ground = cls(Processes(folder), state, progress or PlainLines())
        ground._assemble(KubeBinaries.of(Path(state.binaries)) if state.binaries else None)
        return ground

    def down(self, *, keep_logs: bool = False) -> None:
        """End the testbed and remove every trace of it, but for its logs where these are wanted."""
        self._processes.end(keep_logs=keep_logs)

    def __enter__(self) -> Testbed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down(keep_logs=error is not None)
        if error is not None:
            error.add_note(f"the logs of the testbed are kept in {self.logs}")

    def _bring_up(self, binaries: KubeBinaries | None, preparation: Preparation) -> None:
        self._assemble(binaries)
        if self._engine and self._registry:
            self._bring_up_engine(self._engine, preparation)
            self._registry.bring_up(self._progress)
            with closing(self._engine.client()) as client:
                small_image.ensure_small_image(client, self._registry, self._progress)
        if self._control_plane:
            self._control_plane.bring_up(self._progress)
        if self._host_node:
            self._host_node.bring_up(self.small_image, self._progress)

    def _bring_up_engine(self, part: Engine, preparation: Preparation) -> None:
        archive = base_image.base_image_archive(self._progress)

        def begin() -> None:
            part.bring_up(self._progress)
            with closing(part.client()) as client:
                base_image.import_base_image(client, archive)

        if self._state.engine_kind:
            # Nothing of it is kept: a few tests use it.
            begin()
            return

        def fill() -> None:
            begin()
            preparation.prepare(part.socket, step)
            part.stop()

        with self._progress.step("Provide the container engine's images and layers") as step:
            key = f"{archive.parent.name} {installed_version(engine.PACKAGES[0])} {preparation.key}"
            is_warm = warm_root.provide(part.data, key, fill, step)
        if is_warm:
            part.bring_up(self._progress)
        else:
            part.start()

    def _assemble(self, binaries: KubeBinaries | None) -> None:
        """Make the objects that speak for the parts; nothing is started by that."""
        state, processes = self._state, self._processes
        self._binaries = binaries
        if state.engine:
            auth = (state.registry_user, state.registry_password) if state.registry_user else None
            self._engine = Engine(processes, engine_kind.KINDS[state.engine_kind])
            self._registry = Registry(processes, state.ports["registry"], auth, remember=self._remember_auth)
        if binaries:
            self._control_plane = ControlPlane(
                processes, binaries, state.ports, state.admin_token, scheduler=state.nodes, admission=state.admission
            )
        if state.nodes and state.engine:
            self._guests = Guests(
                state,
                processes=processes,
                binaries=self.binaries,
                control_plane=self.control_plane,
                registry=self.registry,
                pause_image=self.small_image,
                progress=self._progress,
            )
        if state.host_node_name:
            self._host_node = HostNode(
                processes,
                self.binaries,
                self.control_plane,
                self.engine,
                self.registry,
                name=state.host_node_name,
                port=state.ports["kubelet"],
            )

    def _remember_auth(self, username: str, password: str) -> None:
        self._state.registry_user, self._state.registry_password = username, password
        self._state.save(self.folder)

    # -------------------------------------------------------------- parts

    @property
    def name(self) -> str:
        """The testbed's name, unique on this machine."""
        return self._state.name

    @property
    def folder(self) -> Path:
        """The testbed's folder; it goes with the testbed."""
        return self._processes.folder

    @property
    def logs(self) -> Path:
        """The folder of all parts' logs."""
        return self._processes.folder / "logs"

    @property
    def processes(self) -> Processes:
        """All processes of the testbed, by name."""
        return self._processes

    @property
    def binaries(self) -> KubeBinaries:
        """The Kubernetes programs, kubectl among them."""
        return _part(self._binaries, "control plane")

    @property
    def control_plane(self) -> ControlPlane:
        """The control plane."""
        return _part(self._control_plane, "control plane")

    @property
    def engine(self) -> Engine:
        """The container engine."""
        return _part(self._engine, "container engine")

    @property
    def registry(self) -> Registry:
        """The image registry."""
        return _part(self._registry, "registry")

    @property
    def host_node(self) -> HostNode:
        """The kubelet on this machine."""
        return _part(self._host_node, "host node")

    # -------------------------------------------------------------- short ways

    @property
    def api(self) -> Api:
        """The API server, as the testbed itself asks it."""
        return self.control_plane.api

    @property
    def api_server(self) -> str:
        """The API server's address."""
        return self.control_plane.api_server

    @property
    def api_port(self) -> int:
        """The API server's port; 127.0.0.1 with this port leads to it on every node."""
        return self.control_plane.api_port

    @property
    def admin_token(self) -> str:
        """The token of a cluster administrator."""
        return self._state.admin_token

    @property
    def ca_file(self) -> Path:
        """The certificate of the authority that signed the API server's."""
        return self.control_plane.ca_file

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.control_plane.kubeconfig

    @property
    def host_node_name(self) -> str:
        """The name of this machine's node."""
        return self.host_node.name

    @property
    def base_image(self) -> str:
        """The Debian image in the engine that recipes build on."""
        return base_image.base_image_ref()

    def provide_base_image(self, codename: str) -> None:
        """Give the engine the Debian image of another release, such as `trixie`, on which recipes for it build."""
        with closing(self.engine.client()) as client:
            base_image.ensure_base_image(client, codename, self._progress)

    @property
    def small_image(self) -> str:
        """A busybox image in engine and registry, for pods that need only a shell."""
        return small_image.small_image_ref(self.registry)

    @property
    def has_kubernetes(self) -> bool:
        """Return whether the testbed has a control plane."""
        return self._control_plane is not None

    @property
    def has_engine(self) -> bool:
        """Return whether the testbed has a container engine and a registry."""
        return self._engine is not None

    @property
    def has_guests(self) -> bool:
        """Return whether the testbed can have guests."""
        return self._guests is not None

    @property
    def guests(self) -> Guests:
        """The QEMU guests."""
        return _part(self._guests, "nodes and engine")

    def kernels(self, count: int) -> list[KernelPackage]:
        """Return kernels that refuse each other's modules, oldest first; guests added later can boot each of them."""
        return self._guests.kernels(count) if self._guests else choose_kernels(count, self._progress)

    def stock_kernel(self, codename: str) -> KernelPackage:
        """Return the newest kernel of an ordinary installation of a Debian release, such as `trixie`.

        A guest that boots it has the packages of that release.
        """
        return self.guests.stock_kernel(codename)

    def preload(self, images: Sequence[str]) -> None:
        """Put images of the testbed's registry onto the disk of the guests that are added from now on."""
        self.guests.preload(images)

    def add_guest(
        self,
        name: str,
        kernel: KernelPackage,
        extra_qemu: Sequence[str] = (),
        *,
        edu: bool = True,
        memory_mib: int = 512,
        boot: bool = True,
    ) -> Guest:
        """Boot a QEMU guest as a node, with an edu PCI device; return it at once (see `Guest.wait_ready`).

        Without `boot` it is made only: `Guest.boot` comes later.
        """
        return self.guests.add(name, kernel, extra_qemu, edu=edu, memory_mib=memory_mib, boot=boot)

    def guest(self, name: str) -> Guest:
        """Return a guest that was added before."""
        return self.guests.get(name)


def _part(part: Part | None, name: str) -> Part:
    if part is None:
        raise TestbedError(f"this testbed was started without its {name}")
    return part


def _packages_of(state: GroundState) -> list[str]:
    packages: list[str] = []
    if state.control_plane:
        packages += control_plane.PACKAGES
    if state.engine:
        packages += [*engine.PACKAGES, *registry.PACKAGES, *base_image.PACKAGES, *small_image.PACKAGES]
    return packages
