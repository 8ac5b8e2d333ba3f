"""A controller whose parts fail on purpose, in bursts: at each quiet checkpoint everything is as wanted.

What a soak does follows from its seed: ``SOAK_SEED=7 pytest tests/api/test_soak.py`` repeats one. See tests/README.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.kernels import CLOUD, newest_kernel
from testbed.progress import PlainLines
from testbed.testbed import Testbed
from tests.support.real_parts.cluster_setup import admin, install
from tests.support.soak import invariants
from tests.support.soak.schedule import Act, Size, burst
from tests.support.soak.soak import Soak

SHORT = Size(
    exchanges=10,
    worlds=4,
    troubles=2,
    gap=1.5,
    world_acts=(Act.COSMETIC, Act.JOIN, Act.LATE_BOOT, Act.MOVE, Act.DRIFT, Act.DELETE),
    trouble_acts=(Act.KILL, Act.DROP, Act.CLOCK, Act.FULL_DISK),
)
SHORT_BURSTS = 1
LONG = Size(exchanges=18, worlds=5, troubles=3, gap=4.0)
LONG_SECONDS = float(os.environ.get("SOAK_SECONDS", "2400"))
LONG_FAULTS = int(os.environ.get("SOAK_FAULTS", "500"))
KINDS = 12
ROUND, WITH_RESTARTS = 16, 4
"""Of so many bursts the first have restarts; in the others one process lives on, for its memory to be compared."""
FEWEST_CHECKPOINTS = 6
GROWTH_MIB = 16.0


@contextmanager
def soaking(cluster: Testbed, builds: Testbed, folder: Path, name: str, compiled: str = "") -> Iterator[Soak]:
    """Have a soak."""
    client = admin(cluster)
    install(client)
    soak = Soak(cluster, builds, client, name=name, folder=folder, compiled=compiled)
    try:
        yield soak
    finally:
        soak.end()


def say(capsys: pytest.CaptureFixture[str], words: str) -> None:
    """Print words at once, and again where the test fails."""
    print(words)
    with capsys.disabled():
        print(words, flush=True)


def test_some_faults_of_many_kinds(
    control_plane_ground: Testbed, engine_ground: Testbed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One burst, the same one in every run."""
    seed = int(os.environ.get("SOAK_SEED", "1"))
    say(capsys, f"soak: SOAK_SEED={seed}")
    with soaking(control_plane_ground, engine_ground, tmp_path, "soak-short") as soak:
        soak.begin(2)
        for number in range(SHORT_BURSTS):
            planned = burst(seed, number, SHORT)
            print(planned)
            soak.run(planned, linger=10.0)
            soak.checkpoint(number)
        print(f"faults: {dict(soak.faults)}")
        assert soak.faults.total() >= SHORT.worlds + SHORT.troubles


@pytest.mark.long
@pytest.mark.timeout(3 * 3600)
def test_hundreds_of_faults(
    control_plane_ground: Testbed, engine_ground: Testbed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bursts of all kinds of faults for SOAK_SECONDS, and until there were SOAK_FAULTS; another seed in each run."""
    seed = int(os.environ.get("SOAK_SEED") or time.time())
    say(capsys, f"soak: SOAK_SEED={seed} SOAK_SECONDS={LONG_SECONDS:.0f} SOAK_FAULTS={LONG_FAULTS}")
    end = time.monotonic() + LONG_SECONDS
    compiled = newest_kernel(CLOUD, PlainLines()).release
    with soaking(control_plane_ground, engine_ground, tmp_path, "soak-long", compiled) as soak:
        soak.begin(4)
        number = 0
        while time.monotonic() < end or soak.faults.total() < LONG_FAULTS:
            planned = burst(seed, number, LONG, restarts=number % ROUND < WITH_RESTARTS)
            print(planned)
            soak.run(planned, linger=15.0)
            soak.checkpoint(number)
            resident = soak.checkpoints[-1].resident_mib
            say(capsys, f"burst {number}: {soak.faults.total()} faults until now, {resident:.0f} MiB")
            number += 1
        say(capsys, f"soak: SOAK_SEED={seed}: {number} bursts, {soak.faults.total()} faults: {dict(soak.faults)}")
        assert len(soak.faults) >= KINDS
        resident_mib = soak.longest_life()
        say(capsys, f"soak: memory of one process at its checkpoints (MiB): {[round(item) for item in resident_mib]}")
        if len(resident_mib) >= FEWEST_CHECKPOINTS:
            assert invariants.growth(resident_mib) <= GROWTH_MIB, resident_mib
