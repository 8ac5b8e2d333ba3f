"""What the containerd of this machine's kubelet is configured with, and which one it is."""

import tomllib
from pathlib import Path

import pytest

from testbed import unpacked
from testbed.errors import UnsupportedMachineError
from testbed.host_containerd import configuration, ensure_containerd, hosts_text
from testbed.progress import Silent

FOLDER = Path("/testbed/hostd")


def test_everything_of_it_lies_in_the_testbeds_folder() -> None:
    """Several testbeds run side by side."""
    read = tomllib.loads(configuration(FOLDER, Path("/testbed/hostd.sock"), "r/pause:1"))
    runtime, images = read["plugins"]["io.containerd.cri.v1.runtime"], read["plugins"]["io.containerd.cri.v1.images"]
    places = [
        *(read["root"], read["state"], read["grpc"]["address"]),
        *(runtime["cni"]["conf_dir"], images["registry"]["config_path"]),
        runtime["containerd"]["runtimes"]["runc"]["options"]["BinaryName"],
    ]
    assert [place for place in places if not place.startswith("/testbed/")] == []
    assert images["pinned_images"]["sandbox"] == "r/pause:1"
    assert read["version"] == 3


def test_images_come_from_the_testbeds_registry() -> None:
    """Without TLS."""
    read = tomllib.loads(hosts_text("http://127.0.0.1:5000"))
    assert read["server"] == "http://127.0.0.1:5000"
    assert list(read["host"]) == ["http://127.0.0.1:5000"]


def test_one_that_does_not_run_here_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sid moves: its programs may want a newer libc. The hint says what goes without it."""
    monkeypatch.setattr(unpacked, "packages", lambda *_: tmp_path)
    program = tmp_path / "usr/bin/containerd"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho version GLIBC_2.99 not found\nexit 1\n")
    program.chmod(0o755)
    with Silent().step("") as step, pytest.raises(UnsupportedMachineError, match="not found") as caught:
        ensure_containerd(step)
    assert "--no-host-node" in caught.value.hint
