"""Whose module it is: the loader replaces and removes nothing that another driver has loaded on the node."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.real_parts.loader_world import KERNEL, PATIENCE, SRCVERSION, World, write

FIRST, SECOND = "team.edu", "other-team.edu.b"
TARGET = "0a1b2c3d"
OTHER = "AAAA"


@pytest.fixture
def world(world: World) -> World:
    """A node that remembers, and the pod of the first driver."""
    (world.root / "run").mkdir()
    world.environment["DRIVER"] = f"{FIRST}-{TARGET}"
    return world


@pytest.fixture
def joined(world: World) -> World:
    """The first driver is loaded; the pod of the second, which has another build of the module, comes to its node."""
    assert world.run("load").code == 0
    (world.root / "calls").unlink()
    become_second(world)
    return world


@pytest.fixture
def beside(joined: World) -> World:
    """The second driver has loaded nextdrv; the pod of the first is made anew, nothing of its own changed."""
    joined.image(["nextdrv"])
    assert joined.run("load").verdict["result"] == "Loaded"
    (joined.root / "calls").unlink()
    joined.environment["DRIVER"] = f"{FIRST}-{TARGET}"
    joined.image(["edudrv use_irq=1"])
    return joined


def become_second(world: World) -> None:
    """Be the second driver's pod, with an image of its own."""
    world.environment["DRIVER"] = f"{SECOND}-{TARGET}"
    write(world.root / "image/driver/identities", f"edudrv srcversion {OTHER}\n")
    shutil.rmtree(world.root / "modules-to-be/edudrv")
    shutil.copytree(world.sys / "module/edudrv", world.root / "modules-to-be/edudrv", symlinks=True)
    write(world.root / "modules-to-be/edudrv/srcversion", f"{OTHER}\n")


def record(world: World, name: str = "edudrv") -> str | None:
    """Return what the node says of a module."""
    file = world.root / "run/owners" / name
    return file.read_text() if file.exists() else None


def says(world: World, text: str, name: str = "edudrv") -> None:
    """Let the node say something of a module."""
    write(world.root / "run/owners" / name, text)


def test_the_node_says_who_loaded_a_module(world: World) -> None:
    """By driver and not by target, and by its name in the kernel."""
    world.image(["edu-drv"])
    world.run("load")
    assert record(world, "edu_drv") == f"3f0b {FIRST} live\n"


def test_another_drivers_module_is_not_replaced(joined: World) -> None:
    """The second driver says so with a word of its own; nothing was touched."""
    joined.environment["BLACKLIST"] = "nouveau"
    (joined.root / "modprobe.d").mkdir()
    ran = joined.run("load")
    assert (ran.code, ran.verdict["result"], ran.verdict["module"]) == (1, "ModuleConflict", "edudrv")
    assert ran.verdict["message"] == (
        "module edudrv was loaded on this node by driver team/edu, and driver other-team/edu.b would replace it: "
        "let only one of them name it, or select different nodes; "
        "if team/edu no longer exists, rmmod it or reboot the node"
    )
    assert joined.calls == []
    assert list((joined.root / "modprobe.d").iterdir()) == []
    assert record(joined) == f"3f0b {FIRST} live\n"


def test_all_of_it_or_nothing(joined: World) -> None:
    """Another module of the second driver could be loaded, and a module of the kernel could make room."""
    joined.image(["edu_one", "edudrv"])
    joined.is_live("vendor")
    joined.environment["REMOVE_MODULES"] = "vendor"
    write(joined.sys / "module/edudrv/srcversion", f"{OTHER}\n")
    assert joined.run("load").verdict["result"] == "ModuleConflict"
    assert joined.calls == []
    assert (record(joined, "edu_one"), record(joined, "vendor")) == (None, None)


@pytest.mark.parametrize("name", ["edudrv", "edu-drv"])
def test_another_drivers_module_does_not_make_room(world: World, name: str) -> None:
    """The second driver has it on its list of modules to remove."""
    world.image([name])
    world.run("load")
    world.environment |= {"DRIVER": f"{SECOND}-{TARGET}", "REMOVE_MODULES": "edudrv edu_drv"}
    world.image(["nextdrv"])
    before = world.calls
    ran = world.run("load")
    assert (ran.verdict["result"], ran.verdict["module"]) == ("ModuleConflict", name.replace("-", "_"))
    assert "driver other-team/edu.b would remove it" in ran.verdict["message"]
    assert world.calls == before


def test_another_drivers_module_is_left_where_the_own_ones_are_live(beside: World) -> None:
    """The first driver is to remove what the second has loaded."""
    beside.environment["REMOVE_MODULES"] = "nextdrv"
    write(beside.sys / "module/nextdrv/srcversion", f"{OTHER}\n")
    ran = beside.run("load")
    assert (ran.code, ran.verdict["result"]) == (0, "Loaded")
    assert (
        ran.verdict["message"]
        == "module nextdrv of spec.module.inTreeModulesToRemove belongs to driver other-team/edu.b: not unloaded"
    )
    assert beside.calls == []
    assert (record(beside), record(beside, "nextdrv")) == (f"3f0b {FIRST} live\n", f"3f0b {SECOND} live\n")


def test_another_drivers_module_on_the_blacklist_is_a_conflict(world: World) -> None:
    """It cannot be kept away, and naming it among those to be removed would not help; nothing was touched."""
    world.run("load")
    before = world.calls
    world.environment |= {"DRIVER": f"{SECOND}-{TARGET}", "BLACKLIST": "nouveau edudrv"}
    (world.root / "modprobe.d").mkdir()
    world.image(["nextdrv"])
    ran = world.run("load")
    assert (ran.code, ran.verdict["result"], ran.verdict["module"]) == (1, "ModuleConflict", "edudrv")
    assert (
        "driver team/edu, and driver other-team/edu.b would blacklist it: let only one of them"
        in ran.verdict["message"]
    )
    assert world.calls == before
    assert list((world.root / "modprobe.d").iterdir()) == []
    assert (record(world), record(world, "nextdrv")) == (f"3f0b {FIRST} live\n", None)


def test_a_module_on_the_blacklist_is_left_where_the_own_ones_are_live(beside: World) -> None:
    """Another driver has loaded it since this one was there: no reason to call this one broken."""
    beside.environment["BLACKLIST"] = "nextdrv"
    (beside.root / "modprobe.d").mkdir()
    ran = beside.run("load")
    assert (ran.code, ran.verdict["result"]) == (0, "Loaded")
    assert ran.verdict["message"] == "module nextdrv of spec.module.blacklist is already loaded: not unloaded"
    assert beside.calls == []
    assert (record(beside), record(beside, "nextdrv")) == (f"3f0b {FIRST} live\n", f"3f0b {SECOND} live\n")


def test_a_module_that_another_driver_is_at_work_on_is_left_where_the_own_ones_are_live(world: World) -> None:
    """The second driver is about to replace what the first one is to remove."""
    world.is_live("edudrv")
    world.is_live("vendor", srcversion=OTHER)
    world.environment["REMOVE_MODULES"] = "vendor"
    says(world, f"3f0b {SECOND} 1000\n", "vendor")
    assert world.run("load").verdict["result"] == "Loaded"
    assert world.calls == []
    assert record(world, "vendor") == f"3f0b {SECOND} 1000\n"


def test_nothing_is_said_of_a_module_that_is_left_in_use(world: World) -> None:
    """It was to make room, and does not: the driver that names it may have it."""
    world.is_live("edudrv")
    world.is_live("vendor", srcversion=OTHER, refcnt=1)
    world.environment["REMOVE_MODULES"] = "vendor"
    assert world.run("load").verdict["result"] == "Loaded"
    assert record(world, "vendor") is None


def test_a_driver_replaces_its_own_module(world: World) -> None:
    """Also the pod of another of its targets."""
    world.run("load")
    write(world.sys / "module/edudrv/srcversion", f"{OTHER}\n")
    world.environment["DRIVER"] = f"{FIRST}-4e5f6a7b"
    assert world.run("load").verdict["result"] == "Loaded"
    assert world.calls[1:] == ["rmmod edudrv", "insmod edudrv.ko use_irq=1"]
    assert record(world) == f"3f0b {FIRST} live\n"


def test_the_same_build_is_the_second_drivers_as_well(joined: World) -> None:
    """Nothing has to be replaced; the module stays the first one's."""
    write(joined.root / "image/driver/identities", f"edudrv srcversion {SRCVERSION}\n")
    assert joined.run("load").verdict["result"] == "Loaded"
    assert joined.calls == []
    assert record(joined) == f"3f0b {FIRST} live\n"


def test_the_same_build_is_not_loaded_anew_for_another_drivers_parameters(joined: World) -> None:
    """It would go for a moment, and come back as the second driver wants it."""
    write(joined.root / "image/driver/identities", f"edudrv srcversion {SRCVERSION}\n")
    joined.shows("edudrv", use_irq="0")
    assert joined.run("load").verdict["result"] == "ModuleConflict"
    assert joined.calls == []


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(None, id="nothing"),
        pytest.param("", id="an empty file"),
        pytest.param(f"before {FIRST} live\n", id="another boot"),
        pytest.param(f"3f0b {FIRST} 1\n", id="a loader that was killed long ago"),
        pytest.param(f"3f0b {FIRST} 2000\n", id="a loader of the future"),
        pytest.param(f"3f0b {FIRST} live and more\n", id="too many words"),
        pytest.param(f"3f0b {FIRST}\n", id="too few words"),
        pytest.param("3f0b ../../etc live\n", id="no name"),
        pytest.param("3f0b $(reboot) live\n", id="a command"),
        pytest.param(f"3f0b {'a' * 100_000} live\n", id="a long line"),
        pytest.param(f"\n3f0b {FIRST} live\n", id="not the first line"),
        pytest.param("\0\1\2", id="no text"),
    ],
)
def test_what_nobody_owns_makes_room(joined: World, text: str | None) -> None:
    """A module that was loaded by hand, by the initial ramdisk or by an older loader; a file that says nothing."""
    (joined.root / "run/owners/edudrv").unlink()
    if text is not None:
        says(joined, text)
    assert joined.run("load").verdict["result"] == "Loaded"
    assert joined.calls == ["rmmod edudrv", "insmod edudrv.ko use_irq=1"]
    assert record(joined) == f"3f0b {SECOND} live\n"


def test_a_module_that_is_not_live_any_more_is_nobodys(joined: World) -> None:
    """Somebody removed it, or it could not be loaded."""
    shutil.rmtree(joined.sys / "module/edudrv")
    assert joined.run("load").verdict["result"] == "Loaded"
    assert record(joined) == f"3f0b {SECOND} live\n"


def test_a_module_that_is_live_already_becomes_the_drivers(world: World) -> None:
    """An older loader has loaded it."""
    world.is_live("edudrv", refcnt=1)
    world.run("load")
    assert world.calls == []
    assert record(world) == f"3f0b {FIRST} live\n"


def test_a_module_that_could_not_be_replaced_does_not_become_the_drivers(world: World) -> None:
    """It is in use, and nobody's: the next driver may have it."""
    world.is_live("edudrv", srcversion=OTHER, refcnt=1)
    assert world.run("load").verdict["result"] == "LoadFailed"
    assert record(world) is None


def test_a_driver_keeps_its_module_when_its_next_build_is_refused(world: World) -> None:
    """The build of before is live and in use."""
    world.run("load")
    write(world.sys / "module/edudrv/srcversion", f"{OTHER}\n")
    write(world.sys / "module/edudrv/refcnt", "1\n")
    assert world.run("load").verdict["result"] == "LoadFailed"
    assert record(world) == f"3f0b {FIRST} live\n"


@pytest.mark.parametrize("started", [1000, 881])
def test_a_loader_waits_for_another_drivers_that_is_at_work(world: World, started: int) -> None:
    """Two pods come to a node at once: the first one that says what it will load goes on."""
    says(world, f"3f0b {SECOND} {started}\n")
    ran = world.run("load")
    assert (ran.code, ran.verdict["result"]) == (1, "ModuleConflict")
    assert ran.verdict["message"] == (
        "driver other-team/edu.b is loading or unloading module edudrv, and driver team/edu would replace it"
    )
    assert world.calls == []


def test_what_is_about_to_be_loaded_is_said_before(world: World) -> None:
    """And nothing is said of modules that made room, once they have."""
    world.environment["REMOVE_MODULES"] = "vendor"
    world.is_live("vendor")
    insmod, rmmod = world.root / "insmod", world.root / "rmmod"
    for program in (insmod, rmmod):
        seen = 'cat "$WORLD"/run/owners/* >>"$WORLD/seen"\n'
        write(program, program.read_text().replace("\n", f"\n{seen}", 1))
    world.run("load")
    assert (world.root / "seen").read_text().splitlines() == [f"3f0b {FIRST} 1000"] * 4
    assert (record(world), record(world, "vendor")) == (f"3f0b {FIRST} live\n", None)


def test_only_one_of_two_loaders_gets_the_module(world: World) -> None:
    """They start at the same moment; the second ends while the other one is still loading."""
    wait = '\nuntil [ -e "$WORLD/go" ]; do sleep 0.05; done\n'
    write(world.root / "insmod", (world.root / "insmod").read_text().replace("\n", wait, 1))
    # However long one of them gets no processor, it was not killed.
    world.environment["LOCK_SECONDS"] = "600"
    loaders = {FIRST: world.start("load")}
    world.environment |= {"DRIVER": f"{SECOND}-{TARGET}", "TERMINATION_LOG": str(world.root / "second")}
    loaders[SECOND] = world.start("load")
    deadline = time.monotonic() + PATIENCE
    while all(loader.poll() is None for loader in loaders.values()) and time.monotonic() < deadline:
        time.sleep(0.02)
    write(world.root / "go", "")
    ends = {name: (loader.communicate(timeout=PATIENCE)[0], loader.returncode) for name, loader in loaders.items()}
    (winner,) = (name for name, (_, code) in ends.items() if code == 0)
    (refused,) = (said for name, (said, _) in ends.items() if name != winner)
    assert "ModuleConflict" in refused
    assert len(world.calls) == 1
    assert record(world) == f"3f0b {winner} live\n"


def test_a_module_that_is_loaded_anew_is_nobody_elses_meanwhile(world: World) -> None:
    """The second driver's pod comes while the first one's old build has gone and its new one is not there yet."""
    world.run("load")
    become_second(world)
    world.environment["DRIVER"] = f"{FIRST}-{TARGET}"
    insmod = world.root / "insmod"
    wait = '\necho >"$WORLD/away"\nuntil [ -e "$WORLD/go" ]; do sleep 0.05; done\n'
    waits = world.root / "insmod-that-waits"
    write(waits, insmod.read_text().replace("\n", wait, 1)).chmod(0o755)
    world.environment["INSMOD"] = str(waits)
    first = world.start("load")
    until(world.root / "away")
    world.environment |= {"DRIVER": f"{SECOND}-{TARGET}", "INSMOD": str(insmod)}
    second = world.run("load").verdict["result"]
    write(world.root / "go", "")
    first.communicate(timeout=PATIENCE)
    assert (first.returncode, second, record(world)) == (0, "ModuleConflict", f"3f0b {FIRST} live\n")


def test_a_driver_keeps_what_could_not_be_unloaded_to_be_loaded_anew(world: World) -> None:
    """It is live as before."""
    world.run("load")
    write(world.sys / "module/edudrv/srcversion", f"{OTHER}\n")
    write(world.root / "rmmod", "#!/bin/sh\nexit 1\n")
    assert world.run("load").verdict["result"] == "LoadFailed"
    assert record(world) == f"3f0b {FIRST} live\n"


def test_a_module_in_use_that_a_rebuild_leaves_becomes_the_drivers(world: World) -> None:
    """An older loader has loaded it; it is the wanted one."""
    world.is_live("edudrv", refcnt=1)
    world.environment["REBUILD"] = "again"
    assert world.run("load").verdict["result"] == "Loaded"
    assert record(world) == f"3f0b {FIRST} live\n"


def test_a_module_that_its_driver_names_no_more_is_for_others(world: World) -> None:
    """The driver stays on the node; another one has the module now, in another build."""
    world.image(["edudrv", "nextdrv"])
    world.run("load")
    world.image(["nextdrv"])
    says(world, f"3f0b {SECOND} live\n", "vendor")
    world.run("load")
    assert (record(world), record(world, "nextdrv")) == (None, f"3f0b {FIRST} live\n")
    assert record(world, "vendor") == f"3f0b {SECOND} live\n"


def leave_lock(world: World) -> None:
    """Let a loader be killed in the moment that it had the lock."""
    owners = world.root / "run/owners"
    owners.mkdir(parents=True)
    (owners / ".locked").symlink_to(f"killed-{TARGET}:12.30")


def test_a_lock_that_was_left_is_broken(world: World) -> None:
    """Its loader was killed in the moment that it had it."""
    leave_lock(world)
    world.environment["LOCK_SECONDS"] = "0"
    assert world.run("load").verdict["result"] == "Loaded"
    assert record(world) == f"3f0b {FIRST} live\n"
    assert [entry.name for entry in (world.root / "run/owners").iterdir()] == ["edudrv"]


# Programs that stop a loader at the moment that a test is about: before it breaks a lock, with what it has just read of
# an owner, and before it looks at the lock again.
BREAKING = """case $* in
*.breaking)
    echo >"$WORLD/breaks"
    until [ -e "$WORLD/break" ]; do /bin/sleep 0.05; done
    ;;
esac
exec /bin/mkdir "$@"
"""
READING = """/usr/bin/head "$@" >"$WORLD/read"
echo >"$WORLD/reads"
until [ -e "$WORLD/go-on" ]; do /bin/sleep 0.05; done
exec cat "$WORLD/read"
"""
SLEEPING = """[ ! -e "$WORLD/break" ] || echo >"$WORLD/sleeps"
until [ ! -e "$WORLD/break" ] || [ -e "$WORLD/ended" ]; do /bin/sleep 0.05; done
"""


def test_a_lock_that_was_left_is_broken_once(tmp_path: Path) -> None:
    """Two loaders wait for it: who is late leaves the lock that the first one has taken by then."""
    # busybox's shell takes its own programs.
    world = World(tmp_path, ["dash"])
    leave_lock(world)
    says(world, "nothing")
    for name, text in (("late/mkdir", BREAKING), ("late/sleep", SLEEPING), ("first/head", READING)):
        write(tmp_path / name, f"#!/bin/sh\n{text}").chmod(0o755)
    path = os.environ["PATH"]
    world.environment |= {"DRIVER": f"{FIRST}-{TARGET}", "LOCK_SECONDS": "0", "PATH": f"{tmp_path}/first:{path}"}
    first = dict(world.environment)
    world.environment |= {"DRIVER": f"{SECOND}-{TARGET}", "LOCK_SECONDS": "2", "PATH": f"{tmp_path}/late:{path}"}
    late = world.start("load")
    until(tmp_path / "breaks")
    world.environment = first
    early = world.start("load")
    until(tmp_path / "reads")
    write(tmp_path / "break", "")
    until(tmp_path / "sleeps", or_ended=late)
    write(tmp_path / "go-on", "")
    said = early.communicate(timeout=PATIENCE)[0]
    write(tmp_path / "ended", "")
    assert "Loaded: edudrv" in said
    assert late.communicate(timeout=PATIENCE)[0].count("edudrv is already loaded") == 1
    assert record(world) == f"3f0b {FIRST} live\n"


def until(file: Path, *, or_ended: subprocess.Popen[str] | None = None) -> None:
    """Wait until there is a file, or a loader has ended."""
    deadline = time.monotonic() + PATIENCE
    while not file.exists() and time.monotonic() < deadline and (or_ended is None or or_ended.poll() is None):
        time.sleep(0.02)


def test_without_a_place_to_remember_the_driver_is_loaded(world: World) -> None:
    """It is said; nothing is refused for that."""
    write(world.root / "run/owners", "no folder")
    ran = world.run("load")
    assert ran.verdict["result"] == "Loaded"
    assert "owners cannot be written: another driver may replace or remove what is loaded" in ran.output


def unload(world: World) -> None:
    """Be the unload pod of the first driver."""
    world.environment |= {
        "DRIVER": f"{FIRST}-{TARGET}",
        "BOOT_ID": "3f0b",
        "UNLOAD": f"edudrv:{SRCVERSION}",
        "DRIVER_ROOT": str(world.root / "no-image"),
    }


def test_a_driver_that_goes_owns_nothing_any_more(joined: World) -> None:
    """What is another driver's stays so."""
    says(joined, f"3f0b {SECOND} live\n", "nextdrv")
    unload(joined)
    assert joined.run("unload").verdict["result"] == "Unloaded"
    assert (record(joined), record(joined, "nextdrv")) == (None, f"3f0b {SECOND} live\n")


def test_the_last_driver_that_goes_leaves_no_folder(joined: World) -> None:
    """Of the node's memory nothing is left, not even where it was."""
    unload(joined)
    assert joined.run("unload").verdict["result"] == "Unloaded"
    assert list((joined.root / "run").iterdir()) == []


def test_a_driver_that_comes_as_the_last_one_goes_remembers(tmp_path: Path) -> None:
    """The folder goes after it was made and before the lock is in it."""
    # busybox's shell takes its own programs.
    world = World(tmp_path, ["dash"])
    (world.root / "run").mkdir()
    gone = '[ -e "$WORLD/gone" ] || rmdir "$WORLD/run/owners"; echo >"$WORLD/gone"; exec /bin/ln "$@"'
    write(tmp_path / "going/ln", f"#!/bin/sh\n{gone}\n").chmod(0o755)
    world.environment |= {"DRIVER": f"{FIRST}-{TARGET}", "PATH": f"{tmp_path}/going:{os.environ['PATH']}"}
    assert "cannot be written" not in world.run("load").output
    assert record(world) == f"3f0b {FIRST} live\n"


def test_another_drivers_module_of_the_same_build_is_not_unloaded(joined: World) -> None:
    """The second one had it too; the Node's annotation of the first one may be missing."""
    unload(joined)
    joined.environment["DRIVER"] = f"{SECOND}-{TARGET}"
    ran = joined.run("unload")
    assert (ran.verdict["result"], ran.verdict["message"]) == (
        "Unloaded",
        "module edudrv was loaded on this node by driver team/edu, and is not unloaded",
    )
    assert joined.calls == []
    assert record(joined) == f"3f0b {FIRST} live\n"


def test_what_a_driver_that_goes_could_not_unload_may_be_replaced(joined: World) -> None:
    """As soon as nothing uses it: the driver is not wanted there any more."""
    image = joined.environment["DRIVER_ROOT"]
    write(joined.sys / "module/edudrv/refcnt", "1\n")
    unload(joined)
    assert joined.run("unload").verdict["result"] == "InUse"
    joined.environment |= {"DRIVER": f"{SECOND}-{TARGET}", "DRIVER_ROOT": image}
    assert joined.run("load").verdict["result"] == "LoadFailed"
    write(joined.sys / "module/edudrv/refcnt", "0\n")
    assert joined.run("load").verdict["result"] == "Loaded"
    assert joined.calls == ["rmmod edudrv", "insmod edudrv.ko use_irq=1"]


def test_files_of_an_earlier_boot_go_without_the_modules_of_this_one(joined: World) -> None:
    """The driver stays on the node; what it left with another kernel is taken."""
    unload(joined)
    joined.environment["BOOT_ID"] = "before"
    assert joined.run("unload").verdict["result"] == "Unloaded"
    assert record(joined) == f"3f0b {FIRST} live\n"


def test_on_another_kernel_nothing_is_said(world: World) -> None:
    """On another kernel the loader writes no owner file and loads nothing."""
    write(world.root / "image/driver/kernel", f"{KERNEL}-other\n")
    world.run("load")
    assert record(world) is None
