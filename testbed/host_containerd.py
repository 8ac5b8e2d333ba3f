"""A containerd of the testbed's own for this machine's kubelet, which from 1.24 on does not speak to a Docker Engine.

Its programs are those of Debian's sid, unpacked into the cache and installed nowhere; runc is the tree's. Root, state,
socket, network and registry settings lie in the testbed's folder. Images have to be in a registry: the engine's own are
not seen here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from testbed import runtime_wrapper, unpacked
from testbed.command import environment, run
from testbed.errors import CommandError, UnsupportedMachineError
from testbed.process import Processes
from testbed.progress import Step
from testbed.registry import Registry

SUITE, PACKAGES = "sid", ("containerd",)
_NAME = "host-containerd"
_READY_TIMEOUT = 240.0
_LOOPBACK = {"cniVersion": "0.3.1", "name": "lo", "plugins": [{"type": "loopback"}]}


class HostContainerd:
    """The runtime of this machine's kubelet."""

    def __init__(self, processes: Processes, registry: Registry) -> None:
        self._processes = processes
        self._registry = registry
        self._folder = processes.folder / "hostd"
        self._socket = processes.folder / "hostd.sock"

    @property
    def endpoint(self) -> str:
        """Its address, as a kubelet takes it."""
        return f"unix://{self._socket}"

    def bring_up(self, pause_image: str, step: Step) -> None:
        """Start it, and pull the image of pods' sandboxes, for which no kubelet has a password."""
        programs = ensure_containerd(step)
        self._write_files(pause_image)
        # It takes the shim that it finds first, and the tree has that of another version.
        path = f"{programs}:{environment()['PATH']}"
        command = [programs / "containerd", "--config", self._folder / "config.toml"]
        self._processes.spawn(_NAME, command, env={"PATH": path})
        ctr = [programs / "ctr", "--address", self._socket, "--namespace", "k8s.io"]
        self._processes.wait_ready(
            _NAME,
            lambda: self._socket.exists() and "Server:" in run([*ctr, "version"], check=False),
            _READY_TIMEOUT,
            step,
        )
        step.detail(f"pulling {pause_image}")
        run([*ctr, "images", "pull", "--plain-http", *self._login(), pause_image], timeout=300)
        # Without the label containerd's Kubernetes side does not see what another client has pulled.
        run([*ctr, "images", "label", pause_image, "io.cri-containerd.image=managed"])

    def _login(self) -> Sequence[str]:
        registry = self._registry
        return () if registry.username is None else ("--user", f"{registry.username}:{registry.password}")

    def _write_files(self, pause_image: str) -> None:
        folder, port = self._folder, self._registry.port
        network = folder / "net.d"
        network.mkdir(parents=True)
        (network / "99-loopback.conflist").write_text(json.dumps(_LOOPBACK))
        for host in ("127.0.0.1", "localhost"):
            certificates = folder / "certs.d" / f"{host}:{port}"
            certificates.mkdir(parents=True)
            (certificates / "hosts.toml").write_text(hosts_text(f"http://127.0.0.1:{port}"))
        launcher = folder / "oci-runtime"
        launcher.write_text(runtime_wrapper.launcher_text(sys.executable))
        launcher.chmod(0o755)
        (folder / "config.toml").write_text(configuration(folder, self._socket, pause_image))


def hosts_text(registry: str) -> str:
    """Return containerd's hosts.toml for a registry without TLS, whatever name images have of it."""
    return f'server = "{registry}"\n[host."{registry}"]\n  capabilities = ["pull", "resolve"]\n'


def configuration(folder: Path, socket: Path, pause_image: str) -> str:
    """Return containerd's configuration, in the form of its second release (``version = 3``)."""
    snapshotters = ("blockfile", "btrfs", "devmapper", "erofs", "zfs")
    unused = [f"io.containerd.snapshotter.v1.{name}" for name in snapshotters]
    return f"""version = 3
root = "{folder}/root"
state = "{folder}/state"
disabled_plugins = {json.dumps([*unused, "io.containerd.internal.v1.opt"])}
[grpc]
  address = "{socket}"
[plugins."io.containerd.nri.v1.nri"]
  # Its socket has one place for all testbeds.
  disable = true
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{pause_image}"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "{folder}/certs.d"
[plugins."io.containerd.cri.v1.runtime"]
  # Root may lack the capability to lower a score, as in the engine.
  restrict_oom_score_adj = true
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{folder}/net.d"
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = "{folder}/oci-runtime"
"""


def ensure_containerd(step: Step) -> Path:
    """Return the folder of containerd's programs: of the newest version that sid has, or that was unpacked before.

    Raises:
        UnsupportedMachineError: it does not run here: sid moves.
        ArchiveError: there is none.
    """
    folder = unpacked.packages("containerd", SUITE, PACKAGES, step) / "usr/bin"
    try:
        step.detail(run([folder / "containerd", "--version"]).strip())
    except CommandError as error:
        hint = (
            "a Kubernetes before 1.24 needs none of it, and guests have their own: python -m testbed up --no-host-node"
        )
        raise UnsupportedMachineError(f"containerd of {SUITE} does not run here:\n{error}", hint=hint) from error
    return folder
