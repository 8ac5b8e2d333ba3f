"""Modules of the image that a named one needs: they come, are replaced, checked and unloaded with it."""

import pytest

from tests.support.real_parts.loader_world import DEVICE, KERNEL, SRCVERSION, World, write

CORE, NEXT = "C0DE1", "C0DE2"
BOOT = "3f0b"


def core_of_image(world: World, srcversion: str, *, depends: str = "") -> None:
    """Lay out edu-core, which edudrv needs and the spec does not name, and let insmod make it live."""
    folder = world.root / "image/lib/modules" / KERNEL
    write(folder / "modules.dep", "updates/edu-core.ko:\nupdates/edudrv.ko: updates/edu-core.ko\n")
    write(folder / "updates/edu-core.ko", f"\0depends={depends}\0srcversion={srcversion}\0")
    write(world.root / "image/driver/depends", "edudrv edu_core\n")
    world.will_load("edu-core", srcversion=srcversion)


@pytest.fixture
def node(world: World) -> World:
    """Return a node without the driver, and an image with edudrv and the core that it needs."""
    core_of_image(world, CORE)
    world.environment["DRIVER"] = "driverwright.edu-2c602ba5"
    (world.root / "run").mkdir()
    return world


def loaded(node: World) -> World:
    """Load the driver; the calls so far are forgotten."""
    ran = node.run("load")
    assert ran.code == 0, ran.output
    node.holds("edudrv", "edu_core")
    (node.root / "calls").unlink()
    return node


def unload(node: World) -> tuple[str, str]:
    """Remove what the report names; returns result and message."""
    node.environment |= {"UNLOAD": f"edudrv:{SRCVERSION}", "BOOT_ID": BOOT}
    verdict = node.run("unload").verdict
    return verdict["result"], verdict["message"]


def test_a_needed_module_is_loaded_and_is_this_drivers(node: World) -> None:
    """Before the one that needs it, which is what the report names; nobody else may replace it."""
    ran = node.run("load")
    assert node.calls == ["insmod edu-core.ko", "insmod edudrv.ko use_irq=1"]
    assert [module["name"] for module in ran.verdict["modules"]] == ["edudrv"]
    assert (node.root / "run/owners/edu_core").read_text() == f"{BOOT} driverwright.edu live\n"


def test_what_a_needed_module_needs_of_the_node_is_loaded_first(node: World) -> None:
    """No data file of the image says so, only the module itself."""
    core_of_image(node, CORE, depends="libcrc32c")
    node.host_modules("kernel/lib/libcrc32c.ko:\n")
    node.will_load("libcrc32c")
    assert node.run("load").verdict["result"] == "Loaded"
    assert node.calls == ["insmod libcrc32c.ko", "insmod edu-core.ko", "insmod edudrv.ko use_irq=1"]


def test_the_next_pod_of_the_same_image_leaves_all_as_it_is(node: World) -> None:
    """Nothing is unloaded, and the driver still owns both."""
    loaded(node)
    assert node.run("load").verdict["result"] == "Loaded"
    assert node.calls == []
    assert sorted(path.name for path in (node.root / "run/owners").iterdir()) == ["edu_core", "edudrv"]


@pytest.mark.parametrize("changes", [[], ["edudrv"]], ids=["only the needed module changes", "both change"])
def test_an_upgrade_replaces_the_needed_module(node: World, changes: list[str]) -> None:
    """With the one that needs it, which is unloaded before it and loaded after it."""
    loaded(node)
    core_of_image(node, NEXT)
    for name in changes:
        write(node.root / "image/driver/identities", f"{name} srcversion BBBB\n")
        node.will_load(name, srcversion="BBBB", devices=["0000:00:04.0"])
    assert node.run("load").verdict["result"] == "Loaded"
    assert node.calls == ["rmmod edudrv", "rmmod edu_core", "insmod edu-core.ko", "insmod edudrv.ko use_irq=1"]
    assert (node.sys / "module/edu_core/srcversion").read_text() == f"{NEXT}\n"


def test_a_needed_module_in_use_refuses_the_upgrade(node: World) -> None:
    """Before anything is unloaded, as for a named one."""
    loaded(node)
    node.is_live("other")
    node.holds("other", "edu_core")
    core_of_image(node, NEXT)
    ran = node.run("load")
    assert (ran.verdict["result"], ran.verdict["module"], node.calls) == ("LoadFailed", "edu_core", [])
    assert "a different build of edu_core is loaded and cannot be replaced" in ran.verdict["message"]


def test_a_driver_that_works_is_not_reloaded_for_a_module_that_it_did_not_load(node: World) -> None:
    """As a loader of before has left them: the report says so, and a requested rebuild puts it right."""
    node.is_live("edudrv")
    node.is_live("edu_core", srcversion="AAAA")
    node.holds("edudrv", "edu_core")
    ran = node.run("load")
    assert (ran.verdict["result"], node.calls) == ("Loaded", [])
    assert "module edu_core, which the image has in another build, was not loaded by" in ran.verdict["message"]
    node.environment["REBUILD"] = "now"
    assert node.run("load").verdict["result"] == "Loaded"
    assert node.calls[:2] == ["rmmod edudrv", "rmmod edu_core"]


def kernels_own(node: World, srcversion: str, *, devices: bool = False) -> None:
    """Let the node's kernel have its own edu-core, which is live."""
    write(node.root / "host" / KERNEL / "kernel/edu-core.ko", f"\0depends=\0srcversion={srcversion}\0")
    node.host_modules("kernel/edu-core.ko:\n")
    node.is_live("edu_core", srcversion=srcversion)
    if not devices:
        (node.root / f"drivers/edu_core/{DEVICE}").unlink()


def test_the_kernels_own_module_of_the_same_build_stays_the_kernels(node: World) -> None:
    """An image may contain a copy of it: no rebuild reloads it, and no removal unloads it."""
    kernels_own(node, CORE)
    node.will_load("edu-core", srcversion=CORE)
    node.environment["REBUILD"] = "now"
    assert node.run("load").verdict["result"] == "Loaded"
    assert node.calls == ["insmod edudrv.ko use_irq=1"]
    assert not (node.root / "run/owners/edu_core").exists()
    assert unload(node) == ("Unloaded", "unloaded edudrv")
    assert (node.sys / "module/edu_core").exists()


def test_the_kernels_own_module_stays_where_a_device_uses_it(node: World) -> None:
    """It may be the node's network: nobody has asked to unload it."""
    kernels_own(node, "AAAA", devices=True)
    ran = node.run("load")
    assert (ran.verdict["result"], node.calls) == ("Loaded", ["insmod edudrv.ko use_irq=1"])
    assert f"is in use (refcnt 0, devices {DEVICE})" in ran.verdict["message"]


def test_the_kernels_own_module_comes_back_where_the_driver_fails(node: World) -> None:
    """As those of inTreeModulesToRemove do; what came for the driver has no owner any more."""
    kernels_own(node, "AAAA")
    node.refuses("edudrv", "edudrv: Unknown symbol")
    assert node.run("load").verdict["result"] == "LoadFailed"
    exchanged = ["rmmod edu_core", "insmod edu-core.ko"]
    assert node.calls == [*exchanged, "insmod edudrv.ko use_irq=1", *exchanged]
    assert not (node.root / "run/owners/edu_core").exists()


def test_the_kernels_own_module_makes_room_where_nothing_uses_it(node: World) -> None:
    """Once the driver is loaded."""
    node.is_live("edu_core", srcversion="AAAA")
    assert node.run("load").verdict["result"] == "Loaded"
    assert node.calls == ["rmmod edu_core", "insmod edu-core.ko", "insmod edudrv.ko use_irq=1"]


def test_the_kernels_own_module_stays_where_something_uses_it(node: World) -> None:
    """The kernel decides whether the driver can stand on it; the report says what stands below it."""
    node.is_live("edu_core", srcversion="AAAA")
    node.is_live("other")
    node.holds("other", "edu_core")
    ran = node.run("load")
    assert (ran.verdict["result"], node.calls) == ("Loaded", ["insmod edudrv.ko use_irq=1"])
    assert "module edu_core, which the image has in another build, is in use (refcnt 1" in ran.verdict["message"]
    assert not (node.root / "run/owners/edu_core").exists()


def test_another_drivers_module_stays(node: World) -> None:
    """Two images may have the same module: the driver that has loaded it keeps it."""
    node.is_live("edu_core", srcversion="AAAA")
    write(node.root / "run/owners/edu_core", f"{BOOT} driverwright.first live\n")
    ran = node.run("load")
    assert (ran.verdict["result"], node.calls) == ("Loaded", ["insmod edudrv.ko use_irq=1"])
    assert "belongs to driver driverwright/first" in ran.verdict["message"]
    assert unload(node) == ("Unloaded", "unloaded edudrv")
    assert (node.sys / "module/edu_core").exists()


def test_the_same_build_of_another_driver_stays_in_a_rebuild(node: World) -> None:
    """This driver is loaded anew on it, and nothing of the other one is in the way."""
    node.is_live("edu_core", srcversion=CORE)
    write(node.root / "run/owners/edu_core", f"{BOOT} driverwright.first live\n")
    loaded(node)
    node.environment["REBUILD"] = "now"
    assert node.run("load").verdict["result"] == "Loaded"
    assert node.calls == ["rmmod edudrv", "insmod edudrv.ko use_irq=1"]
    assert (node.root / "run/owners/edu_core").read_text() == f"{BOOT} driverwright.first live\n"


def test_two_drivers_that_need_the_same_module_may_come_at_the_same_time(node: World) -> None:
    """The second one waits for what the first one loads, and does not own it."""
    node.environment["DEPENDS_TIMEOUT"] = "300"
    owner = write(node.root / "run/owners/edu_core", f"{BOOT} driverwright.first 995\n")
    process = node.start("load")
    assert process.stdout is not None
    waits = "driverwright: waiting for module edu_core, which driver driverwright/first is loading or unloading\n"
    assert process.stdout.readline() == waits
    node.is_live("edu_core", srcversion=CORE)
    write(owner, f"{BOOT} driverwright.first live\n")
    process.communicate(timeout=300)
    assert process.returncode == 0
    assert node.calls == ["insmod edudrv.ko use_irq=1"]
    assert owner.read_text() == f"{BOOT} driverwright.first live\n"


def test_a_module_is_of_the_driver_that_names_it(node: World) -> None:
    """Another one loaded the same build because it needs it: its removal takes nothing away from this one."""
    loaded(node)
    node.environment["DRIVER"] = "driverwright.named-2c602ba5"
    node.image(["edu-core"], needs_device=False)
    write(node.root / "image/driver/identities", f"edu-core srcversion {CORE}\n")
    assert node.run("load").verdict["result"] == "Loaded"
    node.environment["DRIVER"] = "driverwright.edu-2c602ba5"
    assert unload(node) == ("Unloaded", "unloaded edudrv")
    assert node.calls == ["rmmod edudrv"]


def test_a_driver_that_fails_takes_away_what_came_for_it(node: World) -> None:
    """What it replaces could not come back otherwise."""
    node.refuses("edudrv", "edudrv: Unknown symbol")
    assert node.run("load").verdict["result"] == "LoadFailed"
    assert node.calls == ["insmod edu-core.ko", "insmod edudrv.ko use_irq=1", "rmmod edu_core"]


def test_a_removal_unloads_the_needed_module(node: World) -> None:
    """After the one that needs it; nothing of either stays on the node."""
    loaded(node)
    assert unload(node) == ("Unloaded", "unloaded edudrv, edu_core")
    assert node.calls == ["rmmod edudrv", "rmmod edu_core"]
    assert list((node.root / "run").iterdir()) == []


def test_a_removal_leaves_what_another_module_uses(node: World) -> None:
    """And succeeds: what was named is gone."""
    loaded(node)
    node.is_live("other")
    node.holds("other", "edu_core")
    result, message = unload(node)
    assert result == "Unloaded"
    assert message.startswith("unloaded edudrv; module edu_core, which came with it, stays: it is in use (refcnt 1")


def test_a_driver_that_is_wanted_again_before_it_could_go_has_its_needed_module(node: World) -> None:
    """A removal that found it in use has already given up what it owned."""
    loaded(node)
    node.is_live("other")
    node.holds("other", "edudrv")
    assert unload(node)[0] == "InUse"
    assert node.run("load").verdict["result"] == "Loaded"
    assert (node.root / "run/owners/edu_core").read_text() == f"{BOOT} driverwright.edu live\n"


def test_what_an_earlier_image_needed_goes_with_the_driver(node: World) -> None:
    """A later image may need it no more."""
    loaded(node)
    node.image(["edudrv use_irq=1"])
    assert node.run("load").verdict["result"] == "Loaded"
    assert unload(node) == ("Unloaded", "unloaded edudrv, edu_core")


@pytest.mark.parametrize(
    ("happens", "result"),
    [
        pytest.param(lambda node: node.goes("edu_core"), "NotLive", id="it is gone"),
        pytest.param(lambda node: node.becomes("edu_core", srcversion="AAAA"), "OtherBuild", id="it is another build"),
    ],
)
def test_a_needed_module_that_changes_ends_the_pod(node: World, happens: object, result: str) -> None:
    """As a named one does."""
    loaded(node)
    process = node.start("hold")
    assert process.stdout is not None
    assert process.stdout.readline() == f"driverwright: holding edu_core edudrv on {KERNEL} until SIGTERM\n"
    assert callable(happens)
    happens(node)
    process.communicate(timeout=300)
    verdict = (node.root / "termination-log").read_text()
    assert f'"result":"{result}"' in verdict
    assert '"module":"edu_core"' in verdict


def test_what_is_not_this_images_is_not_watched(node: World) -> None:
    """The driver works on the module that stayed: that it is another build ends no pod."""
    node.is_live("edudrv")
    node.is_live("edu_core", srcversion="AAAA")
    assert node.hold_and_stop().output == f"driverwright: holding edudrv on {KERNEL} until SIGTERM\n"
