"""How a driver goes from its node for good."""

import sys
from pathlib import Path

import pytest

from tests.support.real_parts.loader_world import BUILD_ID, KERNEL, SRCVERSION, World, write

OWNER = "team.edu-0a1b2c3d"


@pytest.fixture
def world(world: World) -> World:
    """A node with a driver of two modules, firmware and a blacklist; no image is at hand."""
    world.environment |= {
        "DRIVER": OWNER,
        "BOOT_ID": "3f0b",
        "UNLOAD": f"edudrv:{SRCVERSION} edu-core:{SRCVERSION}",
        "DRIVER_ROOT": str(world.root / "no-image"),
    }
    world.is_live("edu_core")
    world.is_live("edudrv")
    world.holds("edudrv", "edu_core")
    for kernel in (KERNEL, "6.0"):
        write(world.root / "firmware/updates" / kernel / "edu.bin", "one")
        write(world.root / "firmware/updates" / kernel / f".driverwright-{OWNER}", "edu.bin\n")
    write(world.root / "firmware/updates" / KERNEL / "other.bin", "theirs")
    write(world.root / f"modprobe.d/driverwright-{OWNER}.conf", "blacklist nouveau\n")
    write(world.root / "modprobe.d/driverwright-other.conf", "blacklist x\n")
    write(world.root / "run" / OWNER, "t1\n")
    write(world.root / "run" / f"{OWNER}.parameters", "3f0b edudrv use_irq=1\n")
    return world


def files(world: World) -> list[Path]:
    """Return what lies on the node."""
    folders = (world.root / "firmware", world.root / "modprobe.d", world.root / "run")
    return sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())


def test_everything_of_the_driver_goes(world: World) -> None:
    """Modules, firmware for whichever kernel, blacklist; nothing of anybody else."""
    ran = world.run("unload")
    assert ran.code == 0
    assert ran.verdict == {
        "result": "Unloaded",
        "kernel": KERNEL,
        "bootID": "3f0b",
        "module": "",
        "message": "unloaded edudrv edu-core",
        "remaining": [],
    }
    assert world.calls == ["rmmod edudrv", "rmmod edu_core"]
    kept = ["firmware/updates/" + KERNEL + "/other.bin", "modprobe.d/driverwright-other.conf"]
    assert files(world) == [world.root / path for path in kept]


def test_it_may_be_run_again(world: World) -> None:
    """A pod that ended before its verdict was read is made anew."""
    world.run("unload")
    ran = world.run("unload")
    assert (ran.code, ran.verdict["result"], ran.verdict["message"]) == (
        0,
        "Unloaded",
        "no module of the driver was loaded",
    )


@pytest.mark.parametrize("used", ["edu_core", "edudrv"])
def test_nothing_goes_while_one_module_is_in_use(world: World, used: str) -> None:
    """Neither modules nor what they may ask for; what stays is named."""
    count = world.sys / "module" / used / "refcnt"
    write(count, f"{int(count.read_text()) + 1}\n")
    before = files(world)
    ran = world.run("unload")
    assert (ran.code, ran.verdict["result"]) == (1, "InUse")
    assert ran.verdict["module"] == used.replace("edu_core", "edu-core")
    assert ran.verdict["remaining"] == ["edudrv", "edu-core"]
    assert world.calls == []
    assert files(world) == before


def test_another_build_stays(world: World) -> None:
    """Somebody else loaded it since."""
    world.is_live("edudrv", srcversion="AAAA")
    world.environment["UNLOAD"] = f"edudrv:{SRCVERSION}"
    assert world.run("unload").verdict["result"] == "Unloaded"
    assert world.calls == []


def test_a_build_id_is_an_identity_as_well(world: World) -> None:
    """Of a module without MODULE_VERSION."""
    folder = world.sys / "module/edudrv"
    (folder / "srcversion").unlink()
    (folder / "notes").mkdir()
    header = b"".join(number.to_bytes(4, sys.byteorder) for number in (4, 20, 3))
    (folder / "notes/.note.gnu.build-id").write_bytes(header + b"GNU\0" + bytes.fromhex(BUILD_ID))
    world.environment["UNLOAD"] = f"edudrv:{BUILD_ID}"
    world.run("unload")
    assert world.calls == ["rmmod edudrv"]


def test_after_another_boot_files_alone_go(world: World) -> None:
    """What is live then was loaded by somebody else."""
    world.environment["BOOT_ID"] = "before"
    ran = world.run("unload")
    assert (ran.code, ran.verdict["message"]) == (0, "the node has rebooted since: none of its modules is loaded")
    assert world.calls == []
    assert len(files(world)) == 2
