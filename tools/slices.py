"""The long tests in slices: ``.ci/run`` runs one after each push, so that no long proof is older than a week.

A slice takes twelve minutes at most on two cores that nobody else uses. What takes longer is run by hand
(``BY_HAND``); tests/README.md says when it last was.
"""

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORLD = "tests/unit/driver_builder/world"

SLICES: Mapping[str, tuple[str, ...]] = {
    "elsewhere-and-later": ("tests/contract/test_anywhere.py",),
    "engine": ("tests/engine",),
    "release": ("tests/engine/test_release.py", "tests/engine/test_offline_build.py"),
    "kernels": ("tests/kernel", "tests/cluster/test_nvidia_devices_long.py"),
    "Debian-13": ("tests/kernel/test_debian_13.py",),
    "waves": ("tests/cluster/test_waves.py",),
    "stages": ("tests/cluster/test_stages.py",),
    "dependent-drivers": ("tests/cluster/test_dependent_drivers.py",),
    "vendors-images": ("tests/cluster/test_vendor_images.py",),
    "vendors-waves": ("tests/cluster/test_vendor_image_waves.py",),
    "vendors-loaders": ("tests/cluster/test_vendor_image_loaders.py",),
    "Jobs": (
        "tests/cluster/test_job_builder.py",
        "tests/cluster/test_device_agent.py",
        "tests/cluster/test_device_sources.py",
        "tests/cluster/test_dra_on_node.py",
        "tests/cluster/test_job_kernel_discovery.py",
    ),
    "new-engines": ("tests/engine",),
    "new-buildah": ("tests/cluster/test_job_builder.py",),
    "without-an-engine": ("tests/cluster/test_without_an_engine.py",),
    "controller": ("tests/api", "tests/kernel/test_worker_hotplug.py"),
    "units": ("tests/contract", "tests/unit"),
    "installation": ("tests/cluster/test_install.py",),
    "cluster": ("tests/cluster",),
    "drain": ("tests/cluster/test_drain.py", "tests/cluster/test_device_agent_on_guest.py"),
    "worlds": (WORLD,),
    "worlds-of-waves": (
        f"{WORLD}/test_world_edits.py",
        f"{WORLD}/test_world_order.py",
        f"{WORLD}/test_world_rollout.py",
        f"{WORLD}/test_world_wave_faults.py",
    ),
    "worlds-under-attack": (
        f"{WORLD}/test_world_attack.py",
        f"{WORLD}/test_world_attack_depends.py",
        f"{WORLD}/test_world_attack_long.py",
        f"{WORLD}/test_world_attack_longer.py",
    ),
    "worlds-with-agents": (
        f"{WORLD}/test_world_agent_drain.py",
        f"{WORLD}/test_world_agent_drain_long.py",
    ),
    "nvidia-walk": (
        "tests/api/test_nvidia_walk.py",
        "tests/api/test_gpu_partitions.py",
        "tests/api/test_autoscaling.py",
    ),
    "nvidia-chain": ("tests/cluster/test_nvidia_chain.py",),
    "silent-node": ("tests/cluster/test_silent_node.py",),
    "trouble": ("tests/cluster/test_trouble.py", "tests/cluster/test_all_nodes.py"),
    "profiles": ("tests/cluster/test_gpu_profiles_long.py", "tests/cluster/test_gpu_use_long.py"),
    "MIG": (
        "tests/unit/device_agent/mig/test_decide_histories_long.py",
        "tests/unit/device_agent/nvidia/test_mig_with_nvml.py",
        "tests/cluster/test_mig_long.py",
    ),
    "MIG-drains-and-boots": ("tests/cluster/test_mig_drain_long.py", "tests/cluster/test_mig_boot_long.py"),
    "MIG-kills": ("tests/cluster/test_mig_kills_long.py",),
}
"""What each runs: files, and folders without what another slice names."""
MARKERS: Mapping[str, str] = {"new-engines": "new_engine", "new-buildah": "new_engine"}
"""Slices that take the tests with a marker out of files which others run without them."""
BY_HAND = ("tests/api/test_soak.py", "tests/api/test_versions_take_turns.py")


def tests(name: str, tier: str) -> str:
    """Return the expression by which pytest takes a slice's tests of a tier, such as ``long``."""
    if marker := MARKERS.get(name):
        return f"({tier}) and {marker}"
    return " and not ".join((f"({tier})", *sorted(set(MARKERS.values()))))


def arguments(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return pytest's arguments for the paths of a slice."""
    plain = [named for name, named in SLICES.items() if name not in MARKERS]
    others = {path for named in (*plain, BY_HAND) for path in named} - set(paths)
    below = sorted(other for other in others if any(Path(other).is_relative_to(path) for path in paths))
    return (*paths, *(f"--ignore={path}" for path in below))


def due() -> str:
    """Name the slice whose turn it is: by the number of commits, and by the day where Git has no history."""
    turn = _commits() or int(time.time()) // 86_400
    return list(SLICES)[turn % len(SLICES)]


def _commits() -> int:
    """Count the commits of the branch itself, merges as one; 0 where there is no history or a part of it."""
    has_all = _git("rev-parse", "--is-shallow-repository") == "false"
    return int(_git("rev-list", "--first-parent", "--count", "HEAD") or 0) if has_all else 0


def _git(*words: str) -> str:
    """Return what Git answers of this repository; nothing where it fails or is not there."""
    command = ("git", "-c", "safe.directory=*", "-C", str(ROOT), *words)
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""
