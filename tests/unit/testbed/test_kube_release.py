"""Which flags a release of Kubernetes is started with, and which programs of the user's are taken."""

from pathlib import Path

import pytest

from testbed import kube_binaries
from testbed.errors import UnsupportedMachineError
from testbed.kube_binaries import NEEDED, KubeBinaries, own_binaries
from testbed.kube_release import GUEST, HOST, TABLE, flags, parse_release, settings
from testbed.progress import PlainLines


@pytest.mark.parametrize(
    ("program", "minor", "expected"),
    [
        ("kube-controller-manager", 20, ["--port=0"]),
        ("kube-controller-manager", 22, ["--port=0"]),
        ("kube-controller-manager", 23, []),
        ("kube-scheduler", 22, ["--port=0"]),
        ("kube-scheduler", 36, []),
        (GUEST, 23, ["--container-runtime=remote"]),
        (GUEST, 24, []),
        (HOST, 24, []),
    ],
)
def test_a_release_gets_the_flags_it_knows(program: str, minor: int, expected: list[str]) -> None:
    """A flag that is gone ends a program at its start."""
    assert flags(program, minor) == expected


def test_a_kubelet_with_dockershim_is_led_to_the_engine() -> None:
    """The values of this testbed stand in the flags."""
    found = flags(HOST, 23, {"engine": "unix:///e.sock", "pause": "r/pause:1"})
    assert "--docker=unix:///e.sock" in found
    assert "--pod-infra-container-image=r/pause:1" in found
    assert not [flag for flag in found if "{" in flag]


@pytest.mark.parametrize(
    ("program", "minor", "expected"),
    [
        (HOST, 20, {}),
        (GUEST, 24, {"featureGates": {"LocalStorageCapacityIsolation": False}}),
        (GUEST, 30, {"localStorageCapacityIsolation": False}),
        (HOST, 31, {"failCgroupV1": False}),
        (GUEST, 36, {"localStorageCapacityIsolation": False, "failCgroupV1": False}),
    ],
)
def test_a_kubelet_gets_the_settings_it_knows(program: str, minor: int, expected: dict[str, object]) -> None:
    """A feature gate that is gone ends a kubelet as a flag does."""
    assert settings(program, minor) == expected


def test_each_row_is_for_some_release() -> None:
    """And says one thing: a flag or a setting."""
    assert all((item.until or 99) > item.since and bool(item.flag) != bool(item.setting) for item in TABLE)


@pytest.mark.parametrize(
    ("said", "release"),
    [
        ("Kubernetes v1.20.2", ("1.20.2", 20)),
        ("Kubernetes v1.36.2+k3s1", ("1.36.2+k3s1", 36)),
        ("exec format error", None),
    ],
)
def test_the_release_is_read_from_what_a_program_prints(said: str, release: tuple[str, int] | None) -> None:
    """Also that of a distribution's own."""
    assert parse_release(said) == release


def programs(folder: Path, version: str, names: tuple[str, ...] = NEEDED) -> Path:
    """Write programs that say which release they are."""
    for name in names:
        (folder / name).write_text(f"#!/bin/sh\necho Kubernetes {version}\n")
        (folder / name).chmod(0o755)
    return folder


def test_the_users_own_programs_are_taken_whatever_their_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is built then."""
    monkeypatch.setenv(kube_binaries.OWN, str(programs(tmp_path, "v1.36.2")))
    found = kube_binaries.ensure_kube_binaries(PlainLines())
    assert found == KubeBinaries(tmp_path, "1.36.2", 36)


@pytest.mark.parametrize(
    ("version", "names", "said"),
    [
        pytest.param("v1.30.1", ("kube-apiserver", "kubelet"), "has no kube-controller-manager, ", id="not all"),
        pytest.param("v1.19.4", NEEDED, "says 'Kubernetes v1.19.4'", id="too old"),
        pytest.param("from home", NEEDED, "says 'Kubernetes from home'", id="no release"),
    ],
)
def test_the_users_own_programs_are_refused_with_a_sentence(
    tmp_path: Path, version: str, names: tuple[str, ...], said: str
) -> None:
    """They are never passed over for others; the hint says what would do."""
    with pytest.raises(UnsupportedMachineError, match=said) as caught:
        own_binaries(programs(tmp_path, version, names))
    assert caught.value.hint


def test_an_etcd_that_comes_with_the_users_programs_is_started(tmp_path: Path) -> None:
    """A release has the one that it was made for; the tree's may be too old for it."""
    own = KubeBinaries(tmp_path, "1.36.2", 36)
    assert own.etcd == "etcd"
    programs(tmp_path, "v1.36.2", ("etcd",))
    assert own.etcd == str(tmp_path / "etcd")
