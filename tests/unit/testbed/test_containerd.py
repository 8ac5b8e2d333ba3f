"""What the containerd below newer kubelets is configured with, and which one it is."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from testbed import unpacked
from testbed.containerd import configuration, ensure_containerd, registry_files
from testbed.errors import UnsupportedMachineError
from testbed.progress import Silent

PLACES = 'root = "/testbed/root"\n[grpc]\n  address = "/testbed/c.sock"\n'


def plugins(text: str) -> dict[str, Any]:
    """Read the plugins of a configuration in the newer form."""
    read = tomllib.loads(text)
    assert read["version"] == 3
    return {name.removeprefix("io.containerd.cri.v1."): plugin for name, plugin in read["plugins"].items()}


def test_everything_of_it_lies_where_it_is_told() -> None:
    """Several testbeds run side by side."""
    text = configuration(pause_image="r/p:1", registries="/t/c", network="/t/n", runtime="/t/oci", places=PLACES)
    read, of = tomllib.loads(text), plugins(text)
    assert (read["root"], read["grpc"]["address"]) == ("/testbed/root", "/testbed/c.sock")
    assert of["images"]["registry"]["config_path"] == "/t/c"
    assert of["images"]["pinned_images"]["sandbox"] == "r/p:1"
    assert of["runtime"]["cni"]["conf_dir"] == "/t/n"
    assert of["runtime"]["containerd"]["runtimes"]["runc"]["options"]["BinaryName"] == "/t/oci"


def test_images_come_from_a_registry_without_tls() -> None:
    """Under each of its names."""
    files = registry_files("http://10.0.2.2:5000", 5000)
    assert set(files) == {"127.0.0.1:5000/hosts.toml", "localhost:5000/hosts.toml"}
    for text in files.values():
        assert tomllib.loads(text)["server"] == "http://10.0.2.2:5000"


def test_one_that_does_not_run_here_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sid moves: its programs may want a newer libc. The hint says what goes without it."""
    monkeypatch.setattr(unpacked, "packages", lambda *_: tmp_path)
    program = tmp_path / "usr/bin/containerd"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho version GLIBC_2.99 not found\nexit 1\n")
    program.chmod(0o755)
    with Silent().step("") as step, pytest.raises(UnsupportedMachineError, match="not found") as caught:
        ensure_containerd(step)
    assert "tests/api" in caught.value.hint
