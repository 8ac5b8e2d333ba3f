"""Modules that a driver asks for and does not need: by MODULE_SOFTDEP, or by spec.module.inTreeModulesToLoad."""

import shutil

import pytest

from tests.support.real_parts.loader_world import KERNEL, SRCVERSION, World, write

FIRST, LAST = "udp_tunnel", "crc_late"


@pytest.fixture
def node(world: World) -> World:
    """Return a node that has two modules of its own, and a driver with no more than its device."""
    world.environment["DRIVER"] = "driverwright.edu-2c602ba5"
    (world.root / "run").mkdir()
    world.host_modules(f"kernel/{FIRST.replace('_', '-')}.ko: kernel/below.ko\nkernel/below.ko:\nkernel/{LAST}.ko:\n")
    for name in (FIRST, LAST, "below"):
        world.will_load(name)
    return world


def asks_for(node: World, words: str) -> None:
    """Let depmod have found this in the module."""
    write(node.root / "image/lib/modules" / KERNEL / "modules.softdep", f"# of depmod\nsoftdep edudrv {words}\n")


def loaded(node: World) -> list[str]:
    """Return what is loaded, in order, after a load that worked."""
    ran = node.run("load")
    assert ran.verdict["result"] == "Loaded", ran.output
    return [call.split()[1].removesuffix(".ko") for call in node.calls]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(f"pre: {FIRST}", ["below", "udp-tunnel", "edudrv"], id="before, with what it needs"),
        pytest.param(f"post: {LAST}", ["edudrv", LAST], id="after"),
        pytest.param(f"pre: {FIRST} post: {LAST}", ["below", "udp-tunnel", "edudrv", LAST], id="both"),
        pytest.param("pre: nowhere", ["edudrv"], id="one that the node does not have"),
        pytest.param("pre: edudrv", ["edudrv"], id="itself"),
    ],
)
def test_what_a_module_asks_for_is_loaded_with_it(node: World, words: str, expected: list[str]) -> None:
    """In modprobe's order, from the node."""
    asks_for(node, words)
    assert loaded(node) == expected


def test_what_a_module_asks_for_may_fail(node: World) -> None:
    """The driver is loaded all the same, and nothing that was done for it is undone."""
    asks_for(node, f"pre: {FIRST}")
    write(node.root / "image/firmware/edu.bin", "one")
    (node.root / "firmware").mkdir()
    node.refuses("below", "below: disagrees about version of symbol module_layout")
    ran = node.run("load")
    assert ran.verdict["result"] == "Loaded"
    assert f"{FIRST}, for which edudrv asks, is not loaded" in ran.output
    assert (node.root / "firmware/updates" / KERNEL / "edu.bin").exists()
    assert (node.root / "run/owners/edudrv").exists()


def with_rider(node: World) -> World:
    """Load a driver that asks for a module of the node, which then stands on it; the calls so far are forgotten."""
    asks_for(node, f"post: {LAST}")
    held = "$SYSFS/module/edudrv"
    holds = f"mkdir -p {held}/holders; touch {held}/holders/{LAST}; echo 1 >{held}/refcnt"
    with (node.root / "insmod").open("a") as insmod:
        insmod.write(f"[ $name != {LAST} ] || {{ {holds}; }}\n")
    assert loaded(node) == ["edudrv", LAST]
    (node.root / "calls").unlink()
    return node


def test_what_it_asks_for_and_stands_on_it_holds_up_no_removal(node: World) -> None:
    """It goes first."""
    with_rider(node).environment |= {"BOOT_ID": "3f0b", "UNLOAD": f"edudrv:{SRCVERSION}"}
    assert node.run("unload").verdict["result"] == "Unloaded"
    assert node.calls == [f"rmmod {LAST}", "rmmod edudrv"]
    assert list((node.root / "run").iterdir()) == []


def test_what_it_asks_for_and_stands_on_it_holds_up_no_upgrade(node: World) -> None:
    """It goes first and comes last; also when a pod in between had nothing to load."""
    assert with_rider(node).run("load").verdict["result"] == "Loaded"
    assert node.calls == []
    write(node.root / "image/driver/identities", "edudrv srcversion BBBB\n")
    node.will_load("edudrv", srcversion="BBBB", devices=["0000:00:04.0"])
    assert node.run("load").verdict["result"] == "Loaded"
    assert node.calls == [f"rmmod {LAST}", "rmmod edudrv", "insmod edudrv.ko use_irq=1", f"insmod {LAST}.ko"]


def test_a_module_of_the_driver_is_loaded_when_another_one_asks_for_it(node: World) -> None:
    """With its parameters, whatever the order of the spec."""
    node.image(["edudrv use_irq=1", "edulate a=1"], needs_device=False)
    asks_for(node, "pre: edulate")
    assert node.run("load").verdict["result"] == "Loaded"
    assert node.calls == ["insmod edulate.ko a=1", "insmod edudrv.ko use_irq=1"]


def test_modules_that_ask_for_each_other_are_loaded_once(node: World) -> None:
    """As with modprobe, which breaks such a loop."""
    node.image(["edudrv", "edulate"], needs_device=False)
    index = node.root / "image/lib/modules" / KERNEL / "modules.softdep"
    write(index, "softdep edudrv pre: edulate\nsoftdep edulate pre: edudrv\n")
    assert sorted(loaded(node)) == ["edudrv", "edulate"]


@pytest.mark.parametrize("variable", ["BLACKLIST", "REMOVE_MODULES"])
def test_what_the_spec_keeps_away_is_not_asked_for(node: World, variable: str) -> None:
    """The admin's word counts."""
    (node.root / "modprobe.d").mkdir()
    asks_for(node, f"pre: {FIRST}")
    node.environment[variable] = "udp-tunnel"
    assert loaded(node) == ["edudrv"]


def test_a_vendors_module_asks_by_its_own_file(node: World) -> None:
    """Its image may have no index of depmod."""
    shutil.rmtree(node.root / "image")
    path = node.root / "image/opt/lib/modules" / KERNEL / "edudrv.ko"
    write(path, f"\0softdep=pre: {FIRST} post: {LAST}\0depends=\0srcversion={SRCVERSION}\0")
    for name in ("udp-tunnel", "below", LAST):
        write(node.root / "host" / KERNEL / f"kernel/{name}.ko", "")
    node.environment |= {"POD_FOLDER": str(node.root / "pod"), "MODULES": "edudrv", "KERNEL": KERNEL}
    assert loaded(node) == ["below", "udp-tunnel", "edudrv", LAST]


def test_a_module_of_the_kernel_that_the_spec_asks_for_comes_first(node: World) -> None:
    """After room was made, with what it needs; what is live or built in is there already."""
    node.is_live("old", srcversion="AAAA")
    node.is_live(LAST)
    write(node.root / "host" / KERNEL / "modules.builtin", "kernel/drivers/base/built-in.ko\n")
    node.environment["REMOVE_MODULES"] = f"old +{FIRST} +{LAST} +built_in"
    assert node.run("load").verdict["result"] == "Loaded"
    assert node.calls == ["rmmod old", "insmod below.ko", "insmod udp-tunnel.ko", "insmod edudrv.ko use_irq=1"]


def test_a_module_that_the_spec_asks_for_and_nobody_has_is_said(node: World) -> None:
    """The driver is not loaded without it."""
    node.environment["REMOVE_MODULES"] = "+nowhere"
    ran = node.run("load")
    assert (ran.verdict["result"], ran.verdict["module"], node.calls) == ("LoadFailed", "nowhere", [])
    assert "module nowhere of spec.module.inTreeModulesToLoad is not among the modules of" in ran.verdict["message"]


def test_a_driver_that_works_does_not_fail_for_a_module_that_is_asked_for_later(node: World) -> None:
    """Its modules are live: the report says what is missing."""
    node.is_live("edudrv")
    node.environment["REMOVE_MODULES"] = "+nowhere"
    ran = node.run("load")
    assert (ran.verdict["result"], node.calls) == ("Loaded", [])
    assert ran.verdict["message"] == "module nowhere of spec.module.inTreeModulesToLoad cannot be loaded"


def test_what_was_loaded_for_the_driver_stays_when_it_goes(node: World) -> None:
    """It is the kernel's own, and others may use it."""
    asks_for(node, f"pre: {FIRST}")
    loaded(node)
    node.environment |= {"BOOT_ID": "3f0b", "UNLOAD": f"edudrv:{SRCVERSION}"}
    assert node.run("unload").verdict["message"] == "unloaded edudrv"
    assert (node.sys / "module" / FIRST).exists()
