"""What one guest alone gets: its name, its certificates, its testbed's ports.

All of it comes with the initial root file system and is kept in memory (/run/guest), so that one disk template fits
every guest of every testbed.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from pathlib import Path

from testbed import containerd, kube_release
from testbed.guest import cpio
from testbed.host_node import kubelet_configuration
from testbed.kubeconfig import node_kubeconfig
from testbed.pki import CertificateAuthority

# QEMU's user network, the same for each guest: what tells guests apart is their kubelet's port.
NODE_IP = "10.0.2.15"
HOST_IP = "10.0.2.2"
_INIT = Path(__file__).with_name("guest-init.sh")
_FOLDER = "/run/guest"


def guest_files(
    *,
    name: str,
    minor: int,
    kubelet_port: int,
    api_port: int,
    registry_port: int,
    pause_image: str,
    authority: CertificateAuthority,
) -> bytes:
    """Return the archive to be appended to the initial root file system."""
    serving = authority.issue(f"system:node:{name}", hosts=[NODE_IP, "127.0.0.1", name])
    kubelet = {
        **kubelet_configuration(port=kubelet_port, ca_file=f"{_FOLDER}/ca.crt", pki=f"{_FOLDER}/kubelet"),
        "resolvConf": "/etc/resolv.conf",
        # Emulation makes what an idle kubelet does expensive: a third less with these.
        **kube_release.settings(kube_release.GUEST, minor),
        "nodeStatusUpdateFrequency": "2s",
        "evictionHard": {"nodefs.available": "0%", "imagefs.available": "0%", "memory.available": "0%"},
    }
    settings = {
        "NODE_NAME": name,
        "NODE_IP": NODE_IP,
        "HOST_IP": HOST_IP,
        "API_PORT": str(api_port),
        "KUBELET_FLAGS": " ".join(kube_release.flags(kube_release.GUEST, minor)),
        "MACHINE_ID": hashlib.md5(name.encode(), usedforsecurity=False).hexdigest(),
    }
    return cpio.archive(
        [
            cpio.program("guest/init", _INIT.read_bytes()),
            cpio.file("guest/settings", "".join(f"{key}={shlex.quote(value)}\n" for key, value in settings.items())),
            cpio.file("guest/ca.crt", authority.file.read_bytes()),
            cpio.file("guest/kubelet.crt", serving.certificate),
            cpio.file("guest/kubelet.key", serving.key, 0o600),
            cpio.file("guest/kubelet.json", json.dumps(kubelet, indent=1)),
            cpio.file("guest/kubeconfig", node_kubeconfig(f"https://127.0.0.1:{api_port}", authority, name), 0o600),
            *containerd_files(minor=minor, registry_port=registry_port, pause_image=pause_image),
        ]
    )


def containerd_files(*, minor: int, registry_port: int, pause_image: str) -> list[cpio.Entry]:
    """Return what configures the guest's containerd: images have the same names as on the host."""
    if minor < kube_release.DOCKERSHIM_UNTIL:
        return [cpio.file("guest/containerd.toml", _of_its_release(registry_port, pause_image))]
    text = containerd.configuration(
        pause_image=pause_image, registries=f"{_FOLDER}/certs.d", network="/etc/cni/net.d", runtime="runc"
    )
    hosts = containerd.registry_files(f"http://{HOST_IP}:{registry_port}", registry_port)
    return [
        cpio.file("guest/containerd.toml", text),
        *(cpio.file(f"guest/certs.d/{name}", content) for name, content in hosts.items()),
    ]


def _of_its_release(registry_port: int, pause_image: str) -> str:
    mirrors = "".join(
        f'  [plugins."io.containerd.grpc.v1.cri".registry.mirrors."{host}:{registry_port}"]\n'
        f'    endpoint = ["http://{HOST_IP}:{registry_port}"]\n'
        for host in ("127.0.0.1", "localhost")
    )
    unused = ["aufs", "btrfs", "zfs", "devmapper"]
    return f"""version = 2
disabled_plugins = {json.dumps([f"io.containerd.snapshotter.v1.{name}" for name in unused])}
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause_image}"
  # crun starts a container in a third of the time that runc takes on an emulated CPU.
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "/usr/bin/crun"
{mirrors}"""
