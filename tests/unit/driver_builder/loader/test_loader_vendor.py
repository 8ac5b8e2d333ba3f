"""The loader in a vendor's image: it has modules and no data files of ours, or loads its modules by its own program."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from tests.support.real_parts.loader_world import BUILD_ID, DEVICE, KERNEL, PATIENCE, SRCVERSION, Ran, World, write

NOTE = bytes.fromhex("040000001400000003000000") + b"GNU\0"
OTHER = "BBBB"


def module_file(world: World, name: str, *lines: str, note: bytes = b"", folder: str = "opt", suffix: str = "") -> Path:
    """Lay out a module as a vendor's image has it, with these strings in it."""
    path = world.root / "image" / folder / "lib/modules" / KERNEL / "extra" / f"{name}.ko{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = b"\x7fELF" + b"\0" * 60 + note + b"\0code\n\0" + "".join(f"{line}\0" for line in lines).encode()
    path.write_bytes(gzip.compress(content) if suffix else content)
    return path


@pytest.fixture
def vendor(world: World) -> World:
    """Return a node and a vendor's image with edudrv, whose name the manifest has."""
    shutil.rmtree(world.root / "image")
    module_file(world, "edudrv", "license=GPL", "alias=pci:v00001234d*", "depends=", f"srcversion={SRCVERSION}")
    world.environment |= {
        "POD_FOLDER": str(world.root / "pod"),
        "MODULES": "edudrv use_irq=1",
        "KERNEL": KERNEL,
        "DRIVER": "driverwright.edu-2c602ba5",
        "SETTLE_SECONDS": "1",
    }
    (world.root / "run").mkdir()
    return world


@pytest.fixture
def program(vendor: World) -> World:
    """Return a node where the image's own program loads edudrv."""
    shutil.rmtree(vendor.root / "image")
    vendor.environment |= {"LOADER": "image", "MODULES": "edudrv", "LIVE_TIMEOUT": "0", "POD_UID": "uid-1"}
    return vendor


def prove(world: World) -> Ran:
    """Run what runs in a proof pod, with a folder of its own."""
    before = world.environment["POD_FOLDER"]
    world.environment["POD_FOLDER"] = str(world.root / "proof")
    ran = world.run("prove")
    world.environment["POD_FOLDER"] = before
    return ran


def without(world: World, *names: str) -> None:
    """Take variables away that containers other than the loading one do not have."""
    for name in names:
        world.environment.pop(name)


def test_modules_are_loaded_from_opt_and_proven(vendor: World) -> None:
    """Names and parameters are the manifest's, the identity that of the file; `hold` and `probe` need no variables."""
    ran = vendor.run("load")
    assert ran.verdict["modules"] == [{"name": "edudrv", "srcversion": SRCVERSION, "devices": [DEVICE]}]
    assert vendor.calls == ["insmod edudrv.ko use_irq=1"]
    without(vendor, "MODULES", "KERNEL", "DRIVER")
    assert vendor.run("probe").code == 0
    assert vendor.hold_and_stop().output == f"driverwright: holding edudrv on {KERNEL} until SIGTERM\n"
    shutil.rmtree(vendor.sys / "module/edudrv")
    assert vendor.run("hold").verdict["result"] == "NotLive"


def test_what_another_program_loaded_of_the_same_image_is_taken_over(vendor: World) -> None:
    """As KMM leaves it, and in use: nothing is unloaded, nothing is loaded, and from now on it is this driver's."""
    vendor.environment["MODULES"] = "edudrv"
    vendor.is_live("edudrv", refcnt=3)
    ran = vendor.run("load")
    assert ran.verdict["modules"] == [{"name": "edudrv", "srcversion": SRCVERSION, "devices": [DEVICE]}]
    assert vendor.calls == []
    assert (vendor.root / "run/owners/edudrv").exists()


def test_another_build_of_the_same_name_is_no_proof(vendor: World) -> None:
    """What is live must be the file of the image."""
    vendor.will_load("edudrv", srcversion=OTHER, devices=[DEVICE])
    ran = vendor.run("load")
    assert ran.verdict["result"] == "LoadFailed"
    assert ran.verdict["message"] == f"module edudrv is loaded with srcversion {OTHER}; the image's has {SRCVERSION}"


def test_a_module_of_a_bus_needs_its_device(vendor: World) -> None:
    """As one of an image of ours does."""
    vendor.will_load("edudrv", devices=[])
    assert vendor.run("load").verdict["result"] == "NoDevice"


def test_a_module_without_a_srcversion_is_known_by_its_build_id(vendor: World) -> None:
    """The first note of the file has it."""
    module_file(vendor, "edudrv", "depends=", note=NOTE + bytes.fromhex(BUILD_ID))
    live = vendor.will_load("edudrv", devices=[])
    (live / "srcversion").unlink()
    (live / "notes").mkdir()
    (live / "notes/.note.gnu.build-id").write_bytes(NOTE + bytes.fromhex(BUILD_ID))
    assert vendor.run("load").verdict["modules"] == [{"name": "edudrv", "buildID": BUILD_ID, "devices": []}]


def test_a_module_without_any_identity_is_refused(vendor: World) -> None:
    """Nothing could prove that it is the one that is live."""
    module_file(vendor, "edudrv", "depends=")
    ran = vendor.run("load")
    assert (ran.verdict["result"], vendor.calls) == ("LoadFailed", [])
    assert "neither a srcversion nor a build id" in ran.verdict["message"]


@pytest.mark.parametrize("has_index", [False, True], ids=["without depmod", "with a link to the kernel's own"])
def test_what_a_module_needs_is_loaded_first(vendor: World, has_index: bool) -> None:
    """From the image, or the node where the image only names it; the dash of a file is the kernel's underscore."""
    vendor.environment["MODULES"] = "edudrv"
    module_file(vendor, "edudrv", "depends=dw_helper,mii", f"srcversion={SRCVERSION}")
    module_file(vendor, "dw-helper", "depends=")
    if has_index:
        lines = (
            "host/kernel/mii.ko:\n",
            "extra/dw-helper.ko:\n",
            "extra/edudrv.ko: extra/dw-helper.ko host/kernel/mii.ko\n",
        )
        write(vendor.root / "image/opt/lib/modules" / KERNEL / "modules.dep", "".join(lines))
    write(vendor.root / "host" / KERNEL / "kernel/mii.ko", "")
    vendor.host_modules("kernel/mii.ko:\n")
    vendor.will_load("dw-helper")
    vendor.will_load("mii")
    assert vendor.run("load").verdict["result"] == "Loaded"
    assert vendor.calls == ["insmod dw-helper.ko", "insmod mii.ko", "insmod edudrv.ko"]


def test_dir_name_is_another_folder(vendor: World) -> None:
    """And the message names it where the module is not there."""
    vendor.environment["DIR_NAME"] = "/vendor"
    ran = vendor.run("load")
    assert ran.verdict["message"].startswith(
        f"the image has no module edudrv in /vendor/lib/modules/{KERNEL}: set dirName"
    )
    module_file(vendor, "edudrv", f"srcversion={SRCVERSION}", folder="vendor")
    assert vendor.run("load").verdict["result"] == "Loaded"


def test_a_compressed_module_is_read(vendor: World) -> None:
    """By gzip; one that the loader cannot decompress is refused by its name, and says what is missing."""
    (vendor.root / "image/opt/lib/modules" / KERNEL / "extra/edudrv.ko").unlink()
    packed = module_file(vendor, "edudrv", f"srcversion={SRCVERSION}", suffix=".gz")
    assert vendor.run("load").verdict["result"] == "Loaded"
    packed = packed.rename(packed.with_suffix(".zst"))
    assert "no program that decompresses /opt" in vendor.run("load").verdict["message"]
    packed.rename(packed.with_suffix(".lz4"))
    assert "edudrv.ko.lz4: put it into the image uncompressed" in vendor.run("load").verdict["message"]


def test_a_module_by_zstd_is_read_by_the_program_at_the_end_of_the_loader(vendor: World) -> None:
    """Its description, then its file, which insmod gets decompressed; nothing of both is left on the node."""
    (vendor.root / "image/opt/lib/modules" / KERNEL / "extra/edudrv.ko").unlink()
    packed = module_file(vendor, "edudrv", f"srcversion={SRCVERSION}", suffix=".gz")
    packed.rename(packed.with_suffix(".zst"))
    vendor.ends_with("#!/bin/sh\nexec zcat\n")
    assert vendor.run("load").verdict["modules"][0]["srcversion"] == SRCVERSION
    assert vendor.calls == ["insmod edudrv.ko use_irq=1"]
    assert [path.name for path in (vendor.root / "run").glob(".*")] == []


def test_a_node_whose_run_forbids_programs_has_the_one_for_zstd_elsewhere(vendor: World) -> None:
    """As Debian and Ubuntu mount it: the container's own /dev has it, and nothing of it is left there."""
    (vendor.root / "image/opt/lib/modules" / KERNEL / "extra/edudrv.ko").unlink()
    packed = module_file(vendor, "edudrv", f"srcversion={SRCVERSION}", suffix=".gz")
    packed.rename(packed.with_suffix(".zst"))
    vendor.environment["TERMINATION_LOG"] = str(write(vendor.root / "dev/termination-log", ""))
    vendor.ends_with("#!/bin/sh\ncase $0 in */run/*) exit 126 ;; esac\nexec zcat\n")
    assert vendor.run("load").code == 0
    assert '"result":"Loaded"' in (vendor.root / "dev/termination-log").read_text()
    assert [path.name for path in (vendor.root / "dev").iterdir()] == ["termination-log"]


def test_a_module_by_zstd_that_cannot_be_decompressed_is_told(vendor: World) -> None:
    """What needs it fails by its name, and nothing of it is left on the node."""
    write(vendor.root / "image/opt/lib/modules" / KERNEL / "extra/edudrv.ko", "depends=mii\0srcversion=AA\0")
    write(vendor.root / "host" / KERNEL / "kernel/mii.ko.zst", "cut off")
    vendor.host_modules("kernel/mii.ko.zst:\n")
    vendor.ends_with("#!/bin/sh\nexec false\n")
    ran = vendor.run("load")
    assert (ran.verdict["result"], ran.verdict["module"], vendor.calls) == ("LoadFailed", "mii", [])
    assert "kernel/mii.ko.zst cannot be decompressed to" in ran.verdict["message"]
    assert [path.name for path in (vendor.root / "run").glob(".*")] == []


def test_firmware_is_the_folder_of_the_image_that_the_spec_names(vendor: World) -> None:
    """Links are followed, as vendors have them; a folder without files is refused."""
    vendor.environment["FIRMWARE_PATH"] = "/fw"
    (vendor.root / "firmware").mkdir()
    assert "no files in /fw" in vendor.run("load").verdict["message"]
    write(vendor.root / "image/fw/a.bin", "a")
    (vendor.root / "image/fw/b.bin").symlink_to("a.bin")
    assert vendor.run("load").verdict["result"] == "Loaded"
    assert (vendor.root / "firmware/updates" / KERNEL / "b.bin").read_text() == "a"


def test_another_kernel_is_left_alone(vendor: World) -> None:
    """The pod waits, whatever kernels the image has modules for."""
    vendor.environment["KERNEL"] = "6.12.117"
    assert vendor.run("load").verdict["result"] == "WrongKernel"
    assert vendor.calls == []


def test_an_image_of_ours_is_loaded_as_it_always_was(world: World) -> None:
    """Its data files count, and nothing that the manifest says for a vendor's."""
    world.environment |= {"POD_FOLDER": str(world.root / "pod"), "MODULES": "other", "KERNEL": KERNEL}
    assert world.run("load").verdict["result"] == "Loaded"
    assert not (world.root / "pod").exists()


def test_what_the_program_has_loaded_is_reported_once_it_stays(program: World) -> None:
    """`prove` ends with the load report, and records the owner; from then on the driver pod's `probe` succeeds."""
    assert program.run("prepare").code == 0
    program.is_live("edudrv")
    assert program.run("probe").code == 1
    ran = prove(program)
    assert ran.code == 0
    assert ran.verdict["modules"] == [{"name": "edudrv", "srcversion": SRCVERSION, "devices": [DEVICE]}]
    assert (program.root / "run/owners/edudrv").read_text() == "3f0b driverwright.edu live\n"
    assert program.calls == []
    without(program, "MODULES", "KERNEL")
    assert program.run("probe").code == 0


def test_what_was_proven_of_another_pod_is_no_proof(program: World) -> None:
    """Its program may have been told to end, and to unload."""
    program.run("prepare")
    program.is_live("edudrv")
    prove(program)
    program.environment["POD_UID"] = "uid-2"
    assert program.run("probe").code == 1
    assert prove(program).verdict["result"] == "Loaded"
    assert program.run("probe").code == 0


def test_a_missing_device_node_is_reported_before_anything_is_proven(program: World) -> None:
    """The driver pod stays unready, without contrary evidence of its own."""
    program.environment |= {"DEVICE_NODES": "/dev/edu0", "DEVICE_TIMEOUT": "0"}
    program.run("prepare")
    program.is_live("edudrv")
    assert prove(program).verdict["result"] == "DeviceNodeMissing"
    assert not (program.root / "run/driverwright.edu-2c602ba5.live").exists()


@pytest.mark.parametrize("word", ["prepare", "load"])
def test_the_program_of_the_pod_before_ends_first(vendor: World, word: str) -> None:
    """It may unload the modules as it ends; after its time the kubelet has killed it."""
    environ = vendor.root / "proc/4711/environ"
    write(environ, "A=b\0DRIVERWRIGHT_DRIVER=driverwright.edu\0")
    vendor.environment |= {"ENDING_SECONDS": "1", "LOADER": "image" if word == "prepare" else "ours"}
    ran = vendor.run(word)
    assert (ran.code, "waiting for the program of the pod before" in ran.output) == (0, True)
    write(environ, "DRIVERWRIGHT_DRIVER=driverwright.edu2\0")
    assert "waiting" not in vendor.run(word).output


def test_a_program_that_loads_nothing_is_a_failed_load(program: World) -> None:
    """After its time, with the module that is missing."""
    program.run("prepare")
    ran = prove(program)
    assert (ran.code, ran.verdict["result"], ran.verdict["module"]) == (1, "LoadFailed", "edudrv")
    assert ran.verdict["message"].startswith("module edudrv is not live 0 s after the image's own program was started")


def test_hold_watches_what_was_proven(program: World) -> None:
    """Before that it is silent; another build than the proven one is contrary evidence."""
    program.run("prepare")
    with program.start("hold") as held:
        program.is_live("edudrv")
        prove(program)
        assert held.stdout is not None
        assert held.stdout.readline() == f"driverwright: holding edudrv on {KERNEL} until SIGTERM\n"
        program.becomes("edudrv", srcversion=OTHER)
        held.wait(timeout=PATIENCE)
    assert json.loads((program.root / "termination-log").read_text())["result"] == "OtherBuild"


def test_a_new_boot_proves_anew(program: World) -> None:
    """What was proven before it says nothing, though the pod's folder is still there."""
    program.run("prepare")
    program.is_live("edudrv")
    prove(program)
    write(program.root / "proc/sys/kernel/random/boot_id", "4a1c\n")
    assert program.run("probe").code == 1
    assert prove(program).verdict["bootID"] == "4a1c"


def test_prepare_makes_room_and_leaves_the_modules_of_the_program(program: World) -> None:
    """Modules of the kernel go and are blacklisted; what the program has live is not unloaded."""
    program.environment |= {"REMOVE_MODULES": "nouveau", "BLACKLIST": "nouveau"}
    (program.root / "modprobe.d").mkdir()
    program.is_live("nouveau")
    program.is_live("edudrv", srcversion=OTHER)
    assert program.run("prepare").code == 0
    assert program.calls == ["rmmod nouveau"]
    assert [path.name for path in (program.root / "modprobe.d").iterdir()] == [
        "driverwright-driverwright.edu-2c602ba5.conf"
    ]


def loaded_by_us(world: World) -> None:
    """Let an image before have had our loader load edudrv, with firmware and a user space."""
    world.environment |= {"HOST_ROOT": str(world.root), "HOST_RUN": str(world.root / "run/driverwright")}
    world.is_live("edudrv", srcversion=OTHER)
    write(world.root / "run/driverwright/owners/edudrv", "3f0b driverwright.edu live\n")
    updates = world.root / "firmware/updates" / KERNEL
    write(updates / "edu.bin", "1.0")
    write(updates / ".driverwright-driverwright.edu-2c602ba5", "edu.bin\n")
    write(world.root / "run/driverwright/.driverwright.edu@aaaa/lib/libedu.so", "1.0")
    (world.root / "run/driverwright/driverwright.edu").symlink_to(".driverwright.edu@aaaa")


def test_prepare_takes_away_what_our_loader_loaded_before(program: World) -> None:
    """A program that leaves alone what it finds live would be proven by it; its firmware and libraries go as well."""
    loaded_by_us(program)
    assert program.run("prepare").code == 0
    assert program.calls == ["rmmod edudrv"]
    assert list((program.root / "firmware/updates").rglob("*.bin")) == []
    assert [path.name for path in (program.root / "run/driverwright").iterdir()] == ["owners"]


def test_prepare_refuses_what_is_in_use_before_the_program_begins(program: World) -> None:
    """Nothing is touched."""
    loaded_by_us(program)
    program.is_live("edudrv", srcversion=OTHER, refcnt=1)
    ran = program.run("prepare")
    assert (ran.verdict["result"], program.calls) == ("LoadFailed", [])
    assert "module edudrv is in use" in ran.verdict["message"]
    assert (program.root / "run/driverwright/driverwright.edu/lib/libedu.so").read_text() == "1.0"
    assert (program.root / "firmware/updates" / KERNEL / "edu.bin").exists()


def test_prepare_leaves_what_a_program_loaded_before(program: World) -> None:
    """Of any pod of this boot, for any target; its record may write the name in another way."""
    program.is_live("edu_drv", srcversion=OTHER)
    program.environment["MODULES"] = "edu_drv"
    write(program.root / "run/owners/edu_drv", "3f0b driverwright.edu live\n")
    write(program.root / "run/driverwright.edu-00000000.live", "3f0b uid-0\nedu-drv srcversion BBBB\n")
    assert program.run("prepare").code == 0
    assert program.calls == []


def test_prepare_refuses_what_another_driver_has_loaded(program: World) -> None:
    """Before the image's own program is started."""
    program.is_live("edudrv")
    write(program.root / "run/owners/edudrv", "3f0b other.edu live\n")
    assert program.run("prepare").verdict["result"] == "ModuleConflict"


def test_prepare_waits_for_a_driver_that_comes_first(program: World) -> None:
    """Before the image's own program is started."""
    program.environment["DEPENDS"] = "driverwright.ofed:ib_core"
    assert program.run("prepare").verdict["result"] == "WaitingForDependency"


def test_the_program_is_not_started_on_another_kernel(program: World) -> None:
    """`prepare` does not end: the pod waits for the node's labels."""
    program.environment["KERNEL"] = "6.12.117"
    with program.start("prepare") as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline().startswith("driverwright: WrongKernel: ")
        assert program.stop(waiting) == 0
