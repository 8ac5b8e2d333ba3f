"""containerd below kubelets that do not speak to a Docker Engine (from 1.24 on): its programs, and what configures it.

The programs are those of Debian's sid, unpacked into the cache and installed nowhere. On a guest they take the place of
its release's; this machine's node has them as well (:mod:`testbed.host_containerd`). runc is that of the system: sid's
wants a newer libc, and crun of Debian 12 does not read what this containerd writes.
"""

from __future__ import annotations

import json
from pathlib import Path

from testbed import unpacked
from testbed.command import run
from testbed.errors import CommandError, UnsupportedMachineError
from testbed.progress import Step

SUITE, PACKAGES = "sid", ("containerd",)
PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr")


def ensure_containerd(step: Step) -> Path:
    """Return the folder of its programs: of the newest version that sid has, or that was unpacked before.

    Raises:
        UnsupportedMachineError: it does not run here: sid moves.
        ArchiveError: there is none.
    """
    folder = unpacked.packages("containerd", SUITE, PACKAGES, step) / "usr/bin"
    try:
        step.detail(run([folder / "containerd", "--version"]).strip())
    except CommandError as error:
        hint = "Kubernetes before 1.24 needs none; for the tests of an API server alone: make pytest TESTS=tests/api"
        raise UnsupportedMachineError(f"containerd of {SUITE} does not run here:\n{error}", hint=hint) from error
    return folder


def configuration(*, pause_image: str, registries: str, network: str, runtime: str, places: str = "") -> str:
    """Return its configuration, in the form of its second release (``version = 3``).

    ``registries``: the folder of hosts.toml files. ``network``: that of CNI. ``runtime``: the OCI runtime. ``places``:
    lines with root, state and socket, where they are not the usual ones.
    """
    snapshotters = ("blockfile", "btrfs", "devmapper", "erofs", "zfs")
    unused = [f"io.containerd.snapshotter.v1.{name}" for name in snapshotters]
    return f"""version = 3
disabled_plugins = {json.dumps([*unused, "io.containerd.internal.v1.opt"])}
{places}[plugins."io.containerd.nri.v1.nri"]
  # Its socket has one place for all testbeds.
  disable = true
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{pause_image}"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "{registries}"
[plugins."io.containerd.cri.v1.runtime"]
  # Root may lack the capability to lower a score, as in the engine.
  restrict_oom_score_adj = true
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{network}"
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = "{runtime}"
"""


def registry_files(address: str, port: int) -> dict[str, str]:
    """Return the hosts.toml files of a registry without TLS, by path; images name it as this machine does."""
    text = f'server = "{address}"\n[host."{address}"]\n  capabilities = ["pull", "resolve"]\n'
    return {f"{host}:{port}/hosts.toml": text for host in ("127.0.0.1", "localhost")}
