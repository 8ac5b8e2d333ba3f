"""The containerd of this machine's node, from Kubernetes 1.24 on: root, state, socket, network and registry of its own.

Images have to be in the registry: those of the container engine are not seen here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from testbed import containerd, runtime_wrapper
from testbed.command import environment, run
from testbed.process import Processes
from testbed.progress import Step
from testbed.registry import Registry

_NAME = "host-containerd"
_READY_TIMEOUT = 240.0
_LOOPBACK = {"cniVersion": "0.3.1", "name": "lo", "plugins": [{"type": "loopback"}]}


class HostContainerd:
    """The runtime of this machine's kubelet."""

    def __init__(self, processes: Processes, registry: Registry) -> None:
        self._processes = processes
        self._registry = registry
        self._folder = processes.folder / "containerd"
        self._socket = processes.folder / "containerd.sock"

    @property
    def endpoint(self) -> str:
        """Its address, as a kubelet takes it."""
        return f"unix://{self._socket}"

    def bring_up(self, pause_image: str, step: Step) -> None:
        """Start it, and pull the image of pods' sandboxes, for which no kubelet has a password."""
        programs = containerd.ensure_containerd(step)
        self._write_files(pause_image)
        # It takes the shim that it finds first, and the tree has that of another version.
        path = f"{programs}:{environment()['PATH']}"
        command: list[str | Path] = [programs / "containerd", "--config", self._folder / "config.toml"]
        self._processes.spawn(_NAME, command, env={"PATH": path})
        ctr: list[str | Path] = [programs / "ctr", "--address", self._socket, "--namespace", "k8s.io"]

        def answers() -> bool:
            return self._socket.exists() and "Server:" in run([*ctr, "version"], check=False)

        self._processes.wait_ready(_NAME, answers, _READY_TIMEOUT, step)
        step.detail(f"pulling {pause_image}")
        run([*ctr, "images", "pull", "--plain-http", *self._login(), pause_image], timeout=300)
        # Without the label containerd's Kubernetes side does not see what another client has pulled.
        run([*ctr, "images", "label", pause_image, "io.cri-containerd.image=managed"])

    def _login(self) -> Sequence[str]:
        registry = self._registry
        return () if registry.username is None else ("--user", f"{registry.username}:{registry.password}")

    def _write_files(self, pause_image: str) -> None:
        folder = self._folder
        launcher = folder / "oci-runtime"
        files = {
            "net.d/99-loopback.conflist": json.dumps(_LOOPBACK),
            launcher.name: runtime_wrapper.launcher_text(sys.executable),
            "config.toml": containerd.configuration(
                pause_image=pause_image,
                registries=f"{folder}/certs.d",
                network=f"{folder}/net.d",
                runtime=str(launcher),
                places=f'root = "{folder}/root"\nstate = "{folder}/state"\n[grpc]\n  address = "{self._socket}"\n',
            ),
        }
        port = self._registry.port
        for name, text in containerd.registry_files(f"http://127.0.0.1:{port}", port).items():
            files[f"certs.d/{name}"] = text
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        launcher.chmod(0o755)
