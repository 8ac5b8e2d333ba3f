"""What the loader does to a node besides loading: modules that make room, a blacklist, firmware; how it undoes it."""

import shutil
from pathlib import Path

import pytest

from tests.support.real_parts.loader_world import DEVICE, KERNEL, SRCVERSION, World, write

OWNER = "team.edu-0a1b2c3d"
IN_TREE = "AAAA"


@pytest.fixture
def world(world: World) -> World:
    """A node whose folders the pod sees, for a pod with a name."""
    world.environment["DRIVER"] = OWNER
    for folder in ("firmware", "modprobe.d"):
        (world.root / folder).mkdir()
    return world


def put_firmware(world: World, **files: str) -> None:
    """Lay firmware into the image; a name's ``__`` stands for a folder."""
    for name, text in files.items():
        write(world.root / "image/firmware" / name.replace("__", "/"), text)


def on_the_node(world: World, kernel: str = KERNEL) -> dict[str, str]:
    """Return the firmware of a kernel on the node."""
    folder = world.root / "firmware/updates" / kernel
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def blacklist_of(world: World) -> Path:
    """Name the pod's file on the node."""
    return world.root / "modprobe.d" / f"driverwright-{OWNER}.conf"


# ---------------------------------------------------------------- modules that make room


def test_modules_make_room_in_their_order(world: World) -> None:
    """What stands on another one is named first; names with - are the kernel's with _; what is not there is left."""
    world.environment["REMOVE_MODULES"] = "vendor-net vendor_core gone"
    world.is_live("vendor_core", srcversion=IN_TREE)
    world.is_live("vendor-net", srcversion=IN_TREE)
    world.holds("vendor_net", "vendor_core")
    ran = world.run("load")
    assert ran.verdict["result"] == "Loaded"
    assert world.calls == ["rmmod vendor_net", "rmmod vendor_core", "insmod edudrv.ko use_irq=1"]
    assert "unloaded vendor-net" in ran.output


def test_what_stands_on_another_module_goes_first_in_whatever_order_they_are_named(world: World) -> None:
    """The kernel knows which one that is."""
    world.environment["REMOVE_MODULES"] = "vendor_core vendor_net"
    world.is_live("vendor_core", srcversion=IN_TREE)
    world.is_live("vendor_net", srcversion=IN_TREE)
    world.holds("vendor_net", "vendor_core")
    assert world.run("load").verdict["result"] == "Loaded"
    assert world.calls == ["rmmod vendor_net", "rmmod vendor_core", "insmod edudrv.ko use_irq=1"]


def test_a_module_in_use_is_refused_before_anything_is_unloaded(world: World) -> None:
    """The first one could go, the second cannot: both stay, and the message says who uses it."""
    world.environment["REMOVE_MODULES"] = "vendor_net vendor_core"
    core = world.is_live("vendor_core", srcversion=IN_TREE, refcnt=2)
    write(core / "holders" / "vendor_net", "")
    write(core / "holders" / "vendor_crypto", "")
    world.is_live("vendor_net", srcversion=IN_TREE)
    ran = world.run("load")
    assert (ran.code, ran.verdict["result"], ran.verdict["module"]) == (1, "LoadFailed", "vendor_core")
    assert (
        "vendor_core is in use (refcnt 2, used by modules vendor_crypto vendor_net, devices 0000:00:04.0)"
        in ran.verdict["message"]
    )
    assert "spec.module.inTreeModulesToRemove" in ran.verdict["message"]
    assert world.calls == []


def test_an_open_device_keeps_its_module(world: World) -> None:
    """A reference that is no module's has no name; it is counted."""
    world.environment["REMOVE_MODULES"] = "vendor"
    world.is_live("vendor", srcversion=IN_TREE, refcnt=1)
    assert "is in use (refcnt 1, devices 0000:00:04.0)" in world.run("load").verdict["message"]
    assert world.calls == []


def test_a_module_in_use_is_left_where_ours_is_live(world: World) -> None:
    """Nothing has to be loaded, so nothing needs room: the driver works as before, and the verdict says what stays."""
    world.environment["REMOVE_MODULES"] = "vendor"
    world.is_live("edudrv")
    world.is_live("vendor", srcversion=IN_TREE, refcnt=1)
    ran = world.run("load")
    assert (ran.code, ran.verdict["result"]) == (0, "Loaded")
    assert ran.verdict["message"] == (
        "module vendor of spec.module.inTreeModulesToRemove is in use (refcnt 1, devices 0000:00:04.0): not unloaded"
    )
    assert world.calls == []


def test_what_a_module_in_use_stands_on_is_left_with_it(world: World) -> None:
    """What is free goes all the same."""
    world.environment["REMOVE_MODULES"] = "vendor_core vendor_net vendor_misc"
    world.is_live("edudrv")
    world.is_live("vendor_core", srcversion=IN_TREE)
    world.is_live("vendor_net", srcversion=IN_TREE, refcnt=1)
    world.is_live("vendor_misc", srcversion=IN_TREE)
    world.holds("vendor_net", "vendor_core")
    assert world.run("load").verdict["result"] == "Loaded"
    assert world.calls == ["rmmod vendor_misc"]


def test_a_module_that_the_kernel_keeps_is_left_where_ours_is_live(world: World) -> None:
    """It looked free, but rmmod fails."""
    world.environment["REMOVE_MODULES"] = "vendor"
    world.is_live("edudrv")
    world.is_live("vendor", srcversion=IN_TREE)
    write(world.root / "rmmod", "#!/bin/sh\necho busy\nexit 1\n")
    ran = world.run("load")
    assert (ran.code, ran.verdict["result"]) == (0, "Loaded")
    assert "module vendor of spec.module.inTreeModulesToRemove could not be unloaded" in ran.verdict["message"]


def test_a_module_in_use_is_refused_where_one_of_ours_has_to_be_loaded(world: World) -> None:
    """The other one is live."""
    world.image(["edu_core", "edudrv"])
    world.environment["REMOVE_MODULES"] = "vendor"
    world.is_live("edu_core")
    world.is_live("vendor", srcversion=IN_TREE, refcnt=1)
    ran = world.run("load")
    assert (ran.verdict["result"], ran.verdict["module"]) == ("LoadFailed", "vendor")
    assert world.calls == []


def test_a_device_that_a_module_in_use_may_have_is_said(world: World) -> None:
    """Ours is live without a device: the verdict names what was left."""
    world.environment["REMOVE_MODULES"] = "vendor"
    world.is_live("edudrv")
    world.is_live("vendor", srcversion=IN_TREE, refcnt=1)
    (world.root / "drivers/edudrv" / "0000:00:04.0").unlink()
    ran = world.run("load")
    assert ran.verdict["result"] == "NoDevice"
    assert "module vendor of spec.module.inTreeModulesToRemove is in use" in ran.verdict["message"]


def test_our_own_module_does_not_make_room_for_itself(world: World) -> None:
    """A list that names the driver's own name means the kernel's build of it."""
    world.environment["REMOVE_MODULES"] = "edudrv"
    world.is_live("edudrv", refcnt=1)
    assert world.run("load").verdict["result"] == "Loaded"
    assert world.calls == []


def test_a_driver_that_does_not_load_gives_the_room_back(world: World) -> None:
    """A node must not lose its network to a driver that fails: what was unloaded is loaded again, the last first."""
    world.environment["REMOVE_MODULES"] = "vendor_net vendor_core"
    for name in ("vendor_net", "vendor_core"):
        world.is_live(name, srcversion=IN_TREE)
        world.will_load(name, srcversion=IN_TREE)
    world.host_modules("kernel/vendor_net.ko: kernel/vendor_core.ko\nkernel/vendor_core.ko:\n")
    world.refuses("edudrv", "edudrv: Unknown symbol misc_register (err -22)")
    ran = world.run("load")
    assert ran.verdict["message"] == "edudrv: Unknown symbol misc_register (err -22)"
    assert world.calls[-2:] == ["insmod vendor_core.ko", "insmod vendor_net.ko"]
    assert "loaded vendor_net again" in ran.output


def test_what_cannot_be_given_back_is_said(world: World) -> None:
    """Why the driver failed stays the verdict."""
    world.environment["REMOVE_MODULES"] = "vendor"
    world.is_live("vendor", srcversion=IN_TREE)
    world.refuses("edudrv", "edudrv: Unknown symbol misc_register (err -22)")
    ran = world.run("load")
    assert "Unknown symbol" in ran.verdict["message"]
    assert "vendor could not be loaded again" in ran.output


def test_without_its_device_the_driver_keeps_the_room(world: World) -> None:
    """It is live and may bind yet: another driver for the device would not help."""
    world.environment["REMOVE_MODULES"] = "vendor"
    world.is_live("vendor", srcversion=IN_TREE)
    world.host_modules("kernel/vendor.ko:\n")
    world.will_load("edudrv", devices=[])
    assert world.run("load").verdict["result"] == "NoDevice"
    assert world.calls == ["rmmod vendor", "insmod edudrv.ko use_irq=1"]


# ---------------------------------------------------------------- blacklist


def test_a_blacklist_is_written_before_the_driver_is_loaded(world: World) -> None:
    """Neither a device nor a name loads such a module while the file is there."""
    world.environment["BLACKLIST"] = "nouveau vendor-net"
    assert world.run("load").verdict["result"] == "Loaded"
    assert blacklist_of(world).read_text().splitlines()[1:] == [
        "blacklist nouveau",
        "install nouveau /bin/false",
        "blacklist vendor-net",
        "install vendor-net /bin/false",
    ]


def test_the_blacklist_stays_when_its_pod_ends(world: World) -> None:
    """It is to keep the modules away when the machine comes up again."""
    world.environment["BLACKLIST"] = "nouveau"
    world.run("load")
    world.hold_and_stop()
    assert blacklist_of(world).exists()


def test_a_blacklist_that_is_no_longer_asked_for_goes_with_the_next_load(world: World) -> None:
    """The pod before it wrote it; those of others stay."""
    world.environment["BLACKLIST"] = "nouveau"
    world.run("load")
    other = write(world.root / "modprobe.d/driverwright-other.conf", "somebody's")
    del world.environment["BLACKLIST"]
    assert world.run("load").verdict["result"] == "Loaded"
    assert list((world.root / "modprobe.d").iterdir()) == [other]


def test_a_blacklisted_module_that_is_live_is_refused(world: World) -> None:
    """The file stays: after the next boot the driver has its place."""
    world.environment["BLACKLIST"] = "nouveau"
    world.is_live("nouveau", srcversion=IN_TREE, refcnt=1)
    ran = world.run("load")
    assert (ran.code, ran.verdict["result"], ran.verdict["module"]) == (1, "LoadFailed", "nouveau")
    assert "on spec.module.blacklist and already loaded (refcnt 1, devices 0000:00:04.0)" in ran.verdict["message"]
    assert world.calls == []
    assert blacklist_of(world).exists()


def test_a_blacklisted_module_is_left_where_the_own_ones_are_live(world: World) -> None:
    """Somebody loaded it by hand beside a driver that works, and goes on working."""
    world.is_live("edudrv")
    world.environment["BLACKLIST"] = "nouveau"
    world.is_live("nouveau", srcversion=IN_TREE)
    ran = world.run("load")
    assert (ran.code, ran.verdict["result"]) == (0, "Loaded")
    assert ran.verdict["message"] == "module nouveau of spec.module.blacklist is already loaded: not unloaded"
    assert world.calls == []
    assert blacklist_of(world).exists()


def test_a_blacklisted_module_is_left_where_the_own_one_stays_in_use(world: World) -> None:
    """A rebuild was asked for, and the driver's module is in use: it goes on working, and so says the verdict."""
    world.is_live("edudrv", refcnt=1)
    world.environment |= {"BLACKLIST": "nouveau", "REBUILD": "again"}
    world.is_live("nouveau", srcversion=IN_TREE)
    ran = world.run("load")
    assert (ran.code, ran.verdict["result"]) == (0, "Loaded")
    assert ran.verdict["message"] == "module nouveau of spec.module.blacklist is already loaded: not unloaded"
    assert world.calls == []


@pytest.mark.parametrize(
    "name",
    [pytest.param("vendor-net", id="it makes room as well"), pytest.param("edudrv", id="it is the kernel's own build")],
)
def test_a_blacklisted_module_may_make_room(world: World, name: str) -> None:
    """Named in both lists, or of the driver's own name, it is unloaded and kept away."""
    world.environment |= {"BLACKLIST": name, "REMOVE_MODULES": "vendor_net"}
    world.is_live(name, srcversion=IN_TREE)
    assert world.run("load").verdict["result"] == "Loaded"
    assert world.calls == [f"rmmod {name.replace('-', '_')}", "insmod edudrv.ko use_irq=1"]


def test_a_blacklist_that_cannot_be_written_is_said(world: World) -> None:
    """A node with a read-only /etc."""
    world.environment |= {"BLACKLIST": "nouveau", "HOST_MODPROBE": str(world.root / "no/such/folder")}
    ran = world.run("load")
    assert (ran.code, ran.verdict["result"]) == (1, "LoadFailed")
    assert "cannot be written: is the node's /etc/modprobe.d read-only?" in ran.verdict["message"]


# ---------------------------------------------------------------- firmware


def test_firmware_lies_where_this_kernel_looks_first(world: World) -> None:
    """Below this kernel's own folder, which it searches before /lib/firmware; it stays when the pod ends."""
    put_firmware(world, **{"edu.bin": "one", "edu__two words.bin": "two"})
    assert world.run("load").verdict["result"] == "Loaded"
    world.hold_and_stop()
    found = on_the_node(world)
    listed = found.pop(f".driverwright-{OWNER}")
    assert found == {"edu.bin": "one", "edu/two words.bin": "two"}
    assert sorted(listed.splitlines()) == ["edu.bin", "edu/two words.bin"]


def test_firmware_that_the_image_no_longer_has_goes_with_the_next_load(world: World) -> None:
    """Also when it is all of it."""
    put_firmware(world, **{"edu.bin": "one"})
    world.run("load")
    shutil.rmtree(world.root / "image/firmware")
    assert world.run("load").verdict["result"] == "Loaded"
    assert on_the_node(world) == {}


def test_a_build_in_use_keeps_its_firmware_when_another_is_refused(world: World) -> None:
    """It may ask for it again at any time."""
    put_firmware(world, **{"edu.bin": "one"})
    world.run("load")
    world.is_live("edudrv", srcversion="AAAA", refcnt=1)
    assert world.run("load").verdict["result"] == "LoadFailed"
    assert on_the_node(world)["edu.bin"] == "one"


def test_a_newer_image_takes_over_the_firmware(world: World) -> None:
    """Also of a pod that was killed: what it left is replaced, and what is no longer wanted goes."""
    put_firmware(world, **{"edu.bin": "one", "old.bin": "old"})
    world.run("load")
    (world.root / "image/firmware/old.bin").unlink()
    put_firmware(world, **{"edu.bin": "newer"})
    world.run("load")
    found = on_the_node(world)
    assert found.pop(f".driverwright-{OWNER}") == "edu.bin\n"
    assert found == {"edu.bin": "newer"}


def test_firmware_of_others_is_not_touched(world: World) -> None:
    """Another content in the same place is refused before anything is done; the same content is theirs."""
    theirs = write(world.root / "firmware/updates" / KERNEL / "edu.bin", "theirs")
    put_firmware(world, **{"edu.bin": "ours"})
    ran = world.run("load")
    assert (ran.code, ran.verdict["result"]) == (1, "LoadFailed")
    assert "firmware edu.bin: the node has a different file of this name" in ran.verdict["message"]
    assert (theirs.read_text(), world.calls) == ("theirs", [])
    put_firmware(world, **{"edu.bin": "theirs"})
    assert world.run("load").verdict["result"] == "Loaded"
    assert f".driverwright-{OWNER}" in on_the_node(world)
    assert theirs.exists()


def test_firmware_goes_when_the_driver_does_not_load(world: World) -> None:
    """A driver that never was leaves nothing."""
    put_firmware(world, **{"edu.bin": "one"})
    world.refuses("edudrv", "edudrv: Unknown symbol misc_register (err -22)")
    world.run("load")
    assert list((world.root / "firmware").rglob("*")) in ([], [world.root / "firmware/updates"])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        pytest.param(lambda root: (root / "firmware").rmdir(), "set spec.module.firmwarePath", id="not mounted"),
        pytest.param(lambda root: write(root / "firmware/updates", ""), "read-only?", id="read-only"),
    ],
)
def test_firmware_that_cannot_be_written_is_said(world: World, spoil: object, message: str) -> None:
    """Before the driver is loaded, which would wait for it in vain."""
    assert callable(spoil)
    put_firmware(world, **{"edu.bin": "one"})
    spoil(world.root)
    ran = world.run("load")
    assert (ran.code, ran.verdict["result"]) == (1, "LoadFailed")
    assert message in ran.verdict["message"]
    assert world.calls == []


PLACE = "/var/lib/firmware"


@pytest.fixture
def read_only(world: World) -> World:
    """Return a node whose /lib/firmware is not for this driver, and a kernel that searches nowhere else yet."""
    world.environment |= {"HOST_ROOT": str(world.root / "node"), "FIRMWARE_PATH": f":{PLACE}", "DRIVER": OWNER}
    write(world.sys / "module/firmware_class/parameters/path", "\n")
    (world.root / f"node{PLACE}").mkdir(parents=True)
    (world.root / "run").mkdir()
    put_firmware(world, **{"edu.bin": "one"})
    return world


def in_the_place(world: World) -> dict[str, str]:
    """Return what lies in /var/lib/firmware."""
    folder = world.root / f"node{PLACE}"
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def searched(world: World) -> str:
    """Return where the kernel searches; a zero byte is what the loader writes for nowhere."""
    return (world.sys / "module/firmware_class/parameters/path").read_text().strip("\0\n")


def gone(world: World) -> str:
    """Remove the driver from the node; returns the result."""
    world.environment |= {"BOOT_ID": "3f0b", "UNLOAD": f"edudrv:{SRCVERSION}"}
    return str(world.run("unload").verdict["result"])


def test_firmware_in_another_place_is_searched_there(read_only: World) -> None:
    """By a path that is set once; both go with the driver."""
    assert read_only.run("load").verdict["result"] == "Loaded"
    assert in_the_place(read_only) == {"edu.bin": "one", f".driverwright-{OWNER}": "edu.bin\n"}
    assert searched(read_only) == PLACE
    assert list((read_only.root / "firmware").rglob("*")) == []
    assert gone(read_only) == "Unloaded"
    assert (in_the_place(read_only), searched(read_only)) == ({}, "")
    assert list((read_only.root / "run").iterdir()) == []


def test_a_search_path_of_another_program_stays(read_only: World) -> None:
    """The report says where the kernel looks instead, and nothing is touched."""
    write(read_only.sys / "module/firmware_class/parameters/path", "/opt/firmware\n")
    ran = read_only.run("load")
    assert (ran.verdict["result"], read_only.calls) == ("LoadFailed", [])
    assert "has set firmware_class.path of the node's kernel to /opt/firmware" in ran.verdict["message"]
    assert (in_the_place(read_only), searched(read_only)) == ({}, "/opt/firmware")


def test_a_driver_that_works_does_not_fail_for_a_search_path_that_is_set_later(read_only: World) -> None:
    """Its modules are live: the report says it, and the path stays."""
    assert read_only.run("load").verdict["result"] == "Loaded"
    write(read_only.sys / "module/firmware_class/parameters/path", "/opt/firmware\n")
    ran = read_only.run("load")
    assert ran.verdict["result"] == "Loaded"
    assert "has set firmware_class.path of the node's kernel to /opt/firmware" in ran.verdict["message"]
    assert searched(read_only) == "/opt/firmware"


@pytest.mark.parametrize("path", [PLACE, f"{PLACE}/"])
def test_the_same_path_of_another_program_is_used_and_stays(read_only: World, path: str) -> None:
    """As KMM or the kernel's command line may have set it."""
    write(read_only.sys / "module/firmware_class/parameters/path", f"{path}\n")
    assert read_only.run("load").verdict["result"] == "Loaded"
    assert gone(read_only) == "Unloaded"
    assert (in_the_place(read_only), searched(read_only)) == ({}, path)


def test_the_path_stays_while_another_driver_has_firmware_there(read_only: World) -> None:
    """Of this product or not; the last one of ours empties it."""
    assert read_only.run("load").verdict["result"] == "Loaded"
    theirs = write(read_only.root / f"node{PLACE}/other.bin", "theirs")
    assert gone(read_only) == "Unloaded"
    assert (in_the_place(read_only), searched(read_only)) == ({"other.bin": "theirs"}, PLACE)
    theirs.unlink()
    assert read_only.run("load").verdict["result"] == "Loaded"
    assert gone(read_only) == "Unloaded"
    assert searched(read_only) == ""


def test_another_kernels_target_takes_the_firmware_over(read_only: World) -> None:
    """The folder is one for all kernels: what the target of before is told to remove is no longer its own."""
    assert read_only.run("load").verdict["result"] == "Loaded"
    first, second = OWNER, f"{OWNER.rpartition('-')[0]}-ffffffff"
    read_only.environment["DRIVER"] = second
    put_firmware(read_only, **{"edu.bin": "newer"})
    assert read_only.run("load").verdict["result"] == "Loaded"
    read_only.environment |= {"DRIVER": first, "BOOT_ID": "an earlier one", "UNLOAD": ""}
    assert read_only.run("unload").verdict["result"] == "Unloaded"
    assert in_the_place(read_only) == {"edu.bin": "newer", f".driverwright-{second}": "edu.bin\n"}
    assert searched(read_only) == PLACE


def test_a_driver_that_does_not_load_leaves_no_path(read_only: World) -> None:
    """Nor firmware."""
    read_only.refuses("edudrv", "edudrv: Unknown symbol misc_register (err -22)")
    assert read_only.run("load").verdict["result"] == "LoadFailed"
    assert (in_the_place(read_only), searched(read_only)) == ({}, "")


@pytest.mark.parametrize("back", [False, True], ids=["to the other place", "and back"])
def test_firmware_moves_with_the_spec(read_only: World, back: bool) -> None:
    """What the place of before has goes once the new one has it."""
    there = read_only.environment.pop("FIRMWARE_PATH")
    assert read_only.run("load").verdict["result"] == "Loaded"
    assert on_the_node(read_only)["edu.bin"] == "one"
    read_only.environment["FIRMWARE_PATH"] = there
    assert read_only.run("load").verdict["result"] == "Loaded"
    assert (in_the_place(read_only)["edu.bin"], on_the_node(read_only)) == ("one", {})
    if back:
        read_only.environment.pop("FIRMWARE_PATH")
        assert read_only.run("load").verdict["result"] == "Loaded"
        assert (on_the_node(read_only)["edu.bin"], in_the_place(read_only), searched(read_only)) == ("one", {}, "")


def test_an_image_without_firmware_needs_no_folder(world: World) -> None:
    """As all did before there was any."""
    (world.root / "firmware").rmdir()
    ran = world.run("load")
    assert ran.verdict["modules"][0]["devices"] == [DEVICE]
