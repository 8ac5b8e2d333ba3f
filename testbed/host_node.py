"""This machine as a node: a real kubelet on the testbed's container engine, from 1.24 on on a containerd of its own.

Kubelet's folders (/var/lib/kubelet, /var/log/pods, ...) are the testbed's own: the supervisor has put private ones in
their place, visible to this testbed's processes only, so that several testbeds do not take each other's pods for
leftovers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from testbed import kube_release
from testbed.api import is_node_ready
from testbed.command import run
from testbed.control_plane import ControlPlane
from testbed.engine import Engine
from testbed.host_containerd import HostContainerd
from testbed.kube_binaries import KubeBinaries
from testbed.kubeconfig import node_kubeconfig, write_kubeconfig
from testbed.pki import CertificateAuthority
from testbed.process import Processes
from testbed.progress import Progress
from testbed.registry import Registry
from testbed.supervisor import private_folder

BUILDER_LABEL = "node-role.driverwright.test/builder"
PORTS = ("kubelet",)
_NAME = "kubelet"
_CONFIGURATION = "host-kubelet.json"
_READY_TIMEOUT = 240.0


class HostNode:
    """The kubelet on this machine."""

    def __init__(
        self,
        processes: Processes,
        binaries: KubeBinaries,
        control_plane: ControlPlane,
        engine: Engine,
        registry: Registry,
        *,
        name: str,
        port: int,
    ) -> None:
        self._processes = processes
        self._binaries = binaries
        self._control_plane = control_plane
        self._engine = engine
        self._folder = processes.folder
        has_dockershim = binaries.minor < kube_release.DOCKERSHIM_UNTIL
        self._containerd = None if has_dockershim else HostContainerd(processes, registry)
        self.name = name
        self._port = port

    def bring_up(self, pause_image: str, progress: Progress) -> None:
        """Start the kubelet and wait until the node is Ready."""
        with progress.step(f"Start this machine as node {self.name}") as step:
            self._write_files()
            make_cgroups(Path("/sys/fs/cgroup"), self._folder.name)
            if self._containerd:
                self._containerd.bring_up(pause_image, step)
            self._processes.spawn(_NAME, self._command(pause_image))
            self._processes.wait_ready(_NAME, self.is_ready, _READY_TIMEOUT, step)

    @property
    def pod_logs(self) -> Path:
        """The folder with what pods write, ``NAMESPACE_POD_UID/CONTAINER/NUMBER.log``."""
        return private_folder(self._folder, "/var/log/pods")

    def is_ready(self) -> bool:
        """Return whether the node is Ready."""
        return is_node_ready(self._control_plane.api.get(f"/api/v1/nodes/{self.name}"))

    def configure(self, **settings: Any) -> None:
        """Change settings of the kubelet; they count from its next start on."""
        self._write_configuration({**json.loads((self._folder / _CONFIGURATION).read_text()), **settings})

    def stop(self) -> None:
        """End the kubelet; its pods go on running."""
        self._processes.stop(_NAME)

    def kill(self) -> None:
        """End the kubelet at once (SIGKILL)."""
        self._processes.kill(_NAME)

    def start(self) -> None:
        """Start the kubelet again."""
        self._processes.start_again(_NAME)
        self._processes.wait_ready(_NAME, self.is_ready, _READY_TIMEOUT)

    def _write_files(self) -> None:
        authority = self._control_plane.authority
        addresses = run(["hostname", "-I"]).split()
        authority.issue_files("host-kubelet", f"system:node:{self.name}", hosts=["127.0.0.1", *addresses])
        text = node_kubeconfig(self._control_plane.api_server, authority, self.name)
        write_kubeconfig(self._folder / "host-kubelet.kubeconfig", text)
        self._write_configuration(self._configuration(authority))

    def _write_configuration(self, configuration: dict[str, Any]) -> None:
        (self._folder / _CONFIGURATION).write_text(json.dumps(configuration, indent=1))

    def _configuration(self, authority: CertificateAuthority) -> dict[str, Any]:
        pki = self._folder / "pki"
        return {
            **kubelet_configuration(port=self._port, ca_file=str(authority.file), pki=f"{pki}/host-kubelet"),
            **kube_release.settings(kube_release.HOST, self._binaries.minor),
            "address": "127.0.0.1",
            # Pods right below the testbed's own group: kubelet tidies up only what it made itself.
            "cgroupRoot": f"/{self._folder.name}",
            "cgroupsPerQOS": False,
        }

    def _command(self, pause_image: str) -> list[str]:
        folder = self._folder
        endpoint = self._containerd.endpoint if self._containerd else f"unix://{folder}/dockershim.sock"
        values = {"engine": self._engine.socket, "pause": pause_image}
        return [
            str(self._binaries.path("kubelet")),
            f"--kubeconfig={folder}/host-kubelet.kubeconfig",
            f"--config={folder}/{_CONFIGURATION}",
            f"--hostname-override={self.name}",
            f"--node-labels={BUILDER_LABEL}=",
            f"--cert-dir={folder}/pki/kubelet",
            f"--container-runtime-endpoint={endpoint}",
            *kube_release.flags(kube_release.HOST, self._binaries.minor, values),
            # What a controller said that was killed twice is still to be read.
            "--maximum-dead-containers-per-container=20",
        ]


def make_cgroups(root: Path, name: str) -> None:
    """Make the control group that the node's containers live in, in every hierarchy; the supervisor removes it."""
    if (root / "cgroup.controllers").exists():
        (root / name).mkdir(exist_ok=True)
        return
    for hierarchy in (path for path in root.iterdir() if path.is_dir() and not path.is_symlink()):
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        # A version 1 cpuset group starts without CPUs, and no process can enter it then.
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if (group / setting).exists():
                (group / setting).write_text((hierarchy / setting).read_text())


def kubelet_configuration(*, port: int, ca_file: str, pki: str) -> dict[str, Any]:
    """Return what the kubelets of host and guests are configured with alike; `pki` is a key pair without its ending."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "port": port,
        "readOnlyPort": 0,
        "healthzPort": 0,
        "tlsCertFile": f"{pki}.crt",
        "tlsPrivateKeyFile": f"{pki}.key",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": ca_file},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        # A test machine's disk may well be 90 % full; nothing is to be evicted or collected for that.
        "evictionHard": {"nodefs.available": "0%", "imagefs.available": "0%", "memory.available": "10Mi"},
        "imageGCHighThresholdPercent": 100,
        "nodeStatusUpdateFrequency": "1s",
        # What has not changed need not be written each second, which everybody who watches nodes would read.
        "nodeStatusReportFrequency": "10s",
        "syncFrequency": "5s",
        "fileCheckFrequency": "60s",
        "httpCheckFrequency": "60s",
        "serializeImagePulls": False,
        "runtimeRequestTimeout": "5m",
    }
