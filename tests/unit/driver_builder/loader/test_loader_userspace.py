"""How the loader exports a driver's user space on its node, and removes it."""

from pathlib import Path

import pytest

from tests.support.real_parts.loader_world import SRCVERSION, World, write

OWNER = "team.edu-0a1b2c3d"
PLACE = "/run/driverwright/team.edu"
NVIDIA = "/run/nvidia/driver"


@pytest.fixture
def world(world: World) -> World:
    """A node whose /run the pod sees, and an image with a user space."""
    world.environment |= {
        "DRIVER": OWNER,
        "HOST_ROOT": str(world.root),
        "HOST_RUN": str(world.root / "run/driverwright"),
        "USERSPACE": f"{PLACE} aaaa",
    }
    for folder in ("run/driverwright", "run/nvidia", "firmware", "modprobe.d"):
        (world.root / folder).mkdir(parents=True)
    put_userspace(world, "1.0")
    return world


def put_userspace(world: World, version: str) -> None:
    """Lay a user space of one library, a link to it and a program into the image."""
    folder = world.root / "image/userspace"
    write(folder / "lib/libedu.so.1", version)
    (folder / "lib/libedu.so").unlink(missing_ok=True)
    (folder / "lib/libedu.so").symlink_to("libedu.so.1")
    write(folder / "bin/edu", "program").chmod(0o4775)


def exported(world: World, place: str = PLACE) -> str:
    """Return the version that pods would get."""
    return (world.root / place.lstrip("/") / "lib/libedu.so").read_text()


def copies(world: World, folder: str = "run/driverwright") -> list[str]:
    """Return all that lies beside the link, but for the loader's records."""
    names = (path.name for path in (world.root / folder).iterdir())
    return sorted(name for name in names if name != "owners" and not name.endswith(".parameters"))


def upgrade(world: World, version: str, digest: str, place: str = PLACE) -> None:
    """Let the next image have another user space."""
    put_userspace(world, version)
    world.environment["USERSPACE"] = f"{place} {digest}"


def test_it_is_there_once_the_modules_are_loaded(world: World) -> None:
    """Files and links as in the image; nobody else may write them, and no program has set-id bits."""
    assert world.run("load").verdict["result"] == "Loaded"
    assert exported(world) == "1.0"
    link = world.root / PLACE.lstrip("/")
    assert str(link.readlink()) == ".team.edu@aaaa"
    assert str((link / "lib/libedu.so").readlink()) == "libedu.so.1"
    assert (link / "bin/edu").stat().st_mode & 0o7777 == 0o755


def test_the_same_user_space_is_not_copied_again(world: World) -> None:
    """A restarted pod changes nothing."""
    world.run("load")
    before = (world.root / PLACE.lstrip("/")).resolve().stat()
    put_userspace(world, "of another image with the same digest")
    assert world.run("load").verdict["result"] == "Loaded"
    assert (exported(world), (world.root / PLACE.lstrip("/")).resolve().stat().st_ino) == ("1.0", before.st_ino)


def test_what_has_it_mounted_keeps_its_files(world: World) -> None:
    """A mount shows the copy that the link showed; the copy before the last one goes."""
    world.run("load")
    mounted = (world.root / PLACE.lstrip("/")).resolve()
    upgrade(world, "1.1", "bbbb")
    assert world.run("load").verdict["result"] == "Loaded"
    assert (exported(world), (mounted / "lib/libedu.so").read_text()) == ("1.1", "1.0")
    world.run("load")
    assert copies(world) == [".team.edu@aaaa", ".team.edu@bbbb", "team.edu"]
    upgrade(world, "1.2", "cccc")
    world.run("load")
    assert copies(world) == [".team.edu@bbbb", ".team.edu@cccc", "team.edu"]


def test_a_half_copy_is_never_shown(world: World) -> None:
    """A loader that was killed while it copied left one."""
    write(world.root / "run/driverwright/.team.edu@aaaa.new/lib/libedu.so", "half")
    world.run("load")
    assert (exported(world), copies(world)) == ("1.0", [".team.edu@aaaa", "team.edu"])


def test_a_load_that_fails_shows_nothing_new(world: World) -> None:
    """The copy that this run has made goes as well."""
    write(world.root / "refused/edudrv", "edudrv: no\n")
    assert world.run("load").verdict["result"] == "LoadFailed"
    assert copies(world) == []


def test_a_load_that_fails_halfway_leaves_no_copy(world: World) -> None:
    """One module of the new image is live by then; the next image that fails would leave another one."""
    world.run("load")
    world.is_live("edudrv", srcversion="AAAA")
    write(world.root / "image/driver/modules", "edudrv\nedu2\n")
    upgrade(world, "1.1", "bbbb")
    assert world.run("load").verdict["module"] == "edu2"
    assert (copies(world), exported(world)) == ([".team.edu@aaaa", "team.edu"], "1.0")


def test_a_link_in_its_place_is_refused(world: World) -> None:
    """It would show pods a folder of the node, whose modes would change."""
    (world.root / "image/userspace").rename(world.root / "elsewhere")
    (world.root / "image/userspace").symlink_to(world.root / "elsewhere")
    ran = world.run("load")
    assert (ran.verdict["result"], copies(world)) == ("LoadFailed", [])
    assert (world.root / "elsewhere/bin/edu").stat().st_mode & 0o7777 == 0o4775


def test_a_driver_in_use_keeps_its_user_space(world: World) -> None:
    """Another build cannot replace the module, so the link stays with the live one."""
    world.run("load")
    world.is_live("edudrv", srcversion="AAAA", refcnt=1)
    upgrade(world, "1.1", "bbbb")
    assert world.run("load").verdict["result"] == "LoadFailed"
    assert exported(world) == "1.0"


def test_a_full_run_is_refused_before_anything_is_unloaded(world: World) -> None:
    """Services of the node need the rest."""
    world.is_live("edudrv", srcversion="AAAA")
    world.environment["KEPT_FREE"] = str(1 << 40)
    ran = world.run("load")
    assert (ran.verdict["result"], world.calls, copies(world)) == ("LoadFailed", [], [])
    assert "KiB free" in ran.verdict["message"]


def test_an_image_without_user_space_is_refused(world: World) -> None:
    """A prebuilt one, for example."""
    (world.root / "image/userspace").rename(world.root / "elsewhere")
    ran = world.run("load")
    assert (ran.verdict["result"], world.calls) == ("LoadFailed", [])
    assert "no folder /userspace" in ran.verdict["message"]


def test_nvidias_place(world: World) -> None:
    """The copies lie beside the link; an empty folder, made by a pod that waits, makes room."""
    (world.root / "run/nvidia/driver").mkdir()
    upgrade(world, "1.0", "aaaa", NVIDIA)
    assert world.run("load").verdict["result"] == "Loaded"
    assert (exported(world, NVIDIA), str((world.root / "run/nvidia/driver").readlink())) == ("1.0", ".team.edu@aaaa")
    assert copies(world) == []


@pytest.mark.parametrize("kind", ["folder", "link", "link of another driver"])
def test_what_is_not_ours_stays(world: World, kind: str) -> None:
    """NVIDIA's own container mounts a folder there."""
    place = world.root / "run/nvidia/driver"
    if kind == "folder":
        write(place / "lib/libcuda.so", "theirs")
    else:
        place.symlink_to("elsewhere" if kind == "link" else ".team.other@aaaa")
    upgrade(world, "1.0", "aaaa", NVIDIA)
    ran = world.run("load")
    assert (ran.verdict["result"], world.calls) == ("LoadFailed", [])
    assert NVIDIA in ran.verdict["message"]
    assert copies(world, "run/nvidia") == ["driver"]


def test_another_place_is_another_place(world: World) -> None:
    """Nothing stays at the first one."""
    world.run("load")
    upgrade(world, "1.0", "aaaa", NVIDIA)
    assert world.run("load").verdict["result"] == "Loaded"
    assert (copies(world), exported(world, NVIDIA)) == ([], "1.0")


def test_a_driver_that_has_none_any_more_leaves_none(world: World) -> None:
    """Another driver's stays."""
    write(world.root / "run/driverwright/.team.edu2@aaaa/file", "")
    (world.root / "run/driverwright/team.edu2").symlink_to(".team.edu2@aaaa")
    world.run("load")
    del world.environment["USERSPACE"]
    assert world.run("load").verdict["result"] == "Loaded"
    assert copies(world) == [".team.edu2@aaaa", "team.edu2"]


@pytest.mark.parametrize("place", [PLACE, NVIDIA])
def test_it_goes_with_the_driver(world: World, place: str) -> None:
    """After its modules."""
    upgrade(world, "1.0", "aaaa", place)
    world.run("load")
    unloads(world)
    assert world.run("unload").verdict["result"] == "Unloaded"
    assert copies(world) + copies(world, "run/nvidia") == []


def test_it_stays_with_modules_that_are_in_use(world: World) -> None:
    """What uses them needs its libraries."""
    world.run("load")
    unloads(world)
    world.is_live("edudrv", refcnt=1)
    assert world.run("unload").verdict["result"] == "InUse"
    assert exported(world) == "1.0"


def test_files_of_an_earlier_boot_take_no_user_space_of_this_one_away(world: World) -> None:
    """The driver stays, on another kernel."""
    world.run("load")
    unloads(world)
    world.environment["BOOT_ID"] = "an-earlier-one"
    assert world.run("unload").verdict["result"] == "Unloaded"
    assert exported(world) == "1.0"


def unloads(world: World) -> None:
    """Let the next run be an unload pod's."""
    del world.environment["USERSPACE"]
    world.environment |= {
        "BOOT_ID": "3f0b",
        "UNLOAD": f"edudrv:{SRCVERSION}",
        "DRIVER_ROOT": str(Path(world.root, "no-image")),
    }
