"""How the loader makes room for the wanted build: everything is looked at first, and all of it goes or nothing does."""

import pytest

from tests.support.real_parts.loader_world import DEVICE, KERNEL, SRCVERSION, World, write

OTHER = "AAAA"


def test_another_build_in_use_is_said_with_what_holds_it(world: World) -> None:
    """How many references there are, which modules have one, and as what its devices are there."""
    world.is_live("edudrv", srcversion=OTHER, refcnt=1)
    world.is_live("edu_net")
    world.holds("edu_net", "edudrv")
    write(world.root / "devices" / DEVICE / "misc/edu0/dev", "10:1")
    ran = world.run("load")
    assert (ran.code, ran.verdict["result"], ran.verdict["module"]) == (1, "LoadFailed", "edudrv")
    assert ran.verdict["message"] == (
        "a different build of edudrv is loaded and cannot be replaced: module edudrv is in use "
        f"(refcnt 2, used by modules edu_net, devices {DEVICE} as edu0)"
    )
    assert world.calls == []


def test_what_stands_on_another_build_goes_first(world: World) -> None:
    """To replace the first of two modules, the second goes first, although it is ours."""
    world.image(["edu_core", "edudrv"])
    world.is_live("edu_core", srcversion=OTHER)
    world.is_live("edudrv")
    world.holds("edudrv", "edu_core")
    assert world.run("load").verdict["result"] == "Loaded"
    assert world.calls == ["rmmod edudrv", "rmmod edu_core", "insmod edu_core.ko", "insmod edudrv.ko"]


def test_what_does_not_stand_on_another_build_stays(world: World) -> None:
    """Two modules of one driver that do not need each other."""
    world.image(["edu_one", "edu_two"], needs_device=False)
    world.is_live("edu_one", srcversion=OTHER)
    world.is_live("edu_two", refcnt=1)
    assert world.run("load").verdict["result"] == "Loaded"
    assert world.calls == ["rmmod edu_one", "insmod edu_one.ko"]


@pytest.mark.parametrize("used", ["edu_core", "edu_net"])
def test_nothing_goes_when_one_of_them_is_in_use(world: World, used: str) -> None:
    """The node keeps the driver that works."""
    world.image(["edu_core", "edu_net"], needs_device=False)
    for name in ("edu_core", "edu_net"):
        world.is_live(name, srcversion=OTHER, refcnt=1 if name == used else 0)
    world.holds("edu_net", "edu_core")
    ran = world.run("load")
    assert ran.verdict["result"] == "LoadFailed"
    assert f"module {used} is in use" in ran.verdict["message"]
    assert world.calls == []


def test_a_module_of_the_kernel_stays_when_our_other_build_is_in_use(world: World) -> None:
    """What makes room is looked at together with what is replaced."""
    world.environment["REMOVE_MODULES"] = "vendor"
    world.is_live("vendor", srcversion=OTHER)
    world.is_live("edudrv", srcversion=OTHER, refcnt=1)
    assert world.run("load").verdict["module"] == "edudrv"
    assert world.calls == []


def test_a_module_of_somebody_else_on_top_is_not_taken_away(world: World) -> None:
    """Only modules of the driver, and those that the spec names."""
    world.is_live("edudrv", srcversion=OTHER)
    world.is_live("somebody", srcversion=OTHER)
    world.holds("somebody", "edudrv")
    assert "used by modules somebody" in world.run("load").verdict["message"]
    assert world.calls == []


# ---------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    ("want", "have"),
    [
        pytest.param("use_irq=1", "1", id="the same"),
        pytest.param("use_irq=0x10", "16", id="written as another number"),
        pytest.param("use_irq=010", "8", id="octal"),
        pytest.param("use_irq=1", "Y", id="truth"),
        pytest.param("use_irq", "Y", id="truth without a value"),
        pytest.param("use_irq=off", "N", id="truth in words"),
        pytest.param("use-irq=1", "1", id="a name with a dash"),
        pytest.param("use_irq=1,0x2", "1,2,0,0", id="a list that shows what was not given"),
        pytest.param("use_irq=64", "64 MiB", id="a number that the driver shows in its own words"),
        pytest.param("use_irq=fast", "2", id="a word that the driver shows as a number"),
        pytest.param("other=1", "0", id="one that is not shown"),
        pytest.param("use_irq=99999999999999999999", "99999999999999999998", id="too large to be compared"),
    ],
)
def test_parameters_that_do_not_differ_keep_the_module(world: World, want: str, have: str) -> None:
    """A kernel shows them in its own form: nothing is unloaded for that."""
    world.image([f"edudrv {want}"])
    world.is_live("edudrv", refcnt=1)
    world.shows("edudrv", use_irq=have)
    assert world.run("load").verdict["result"] == "Loaded"
    assert world.calls == []


@pytest.mark.parametrize(
    ("want", "have"),
    [
        pytest.param("use_irq=0", "1", id="number"),
        pytest.param("use_irq=-1", "1", id="sign"),
        pytest.param("use_irq=0", "Y", id="truth"),
        pytest.param("use_irq=on", "N", id="truth in words"),
        pytest.param("use_irq", "N", id="truth without a value"),
        pytest.param("use_irq=1,3", "1,2", id="second of a list"),
        pytest.param("use_irq=edge", "level", id="text"),
        pytest.param("use_irq=edge", "(null)", id="text that was not set"),
    ],
)
def test_other_parameters_load_the_module_anew(world: World, want: str, have: str) -> None:
    """A module with other parameters is reloaded if nothing uses it."""
    world.image([f"edudrv {want}"])
    world.is_live("edudrv")
    world.shows("edudrv", use_irq=have)
    assert world.run("load").verdict["result"] == "Loaded"
    assert world.calls == ["rmmod edudrv", f"insmod edudrv.ko {want}"]


def test_other_parameters_of_a_module_in_use_have_a_verdict_of_their_own(world: World) -> None:
    """It works, with parameters of before: the admin ends what uses it, or leaves it until the next boot."""
    world.image(["edudrv debug=1 use_irq=0"])
    world.is_live("edudrv", refcnt=3)
    world.shows("edudrv", debug="1", use_irq="1")
    ran = world.run("load")
    assert ran.code == 1
    assert ran.verdict == {
        "result": "ParametersDiffer",
        "kernel": KERNEL,
        "bootID": "3f0b",
        "module": "edudrv",
        "message": "module edudrv is loaded with use_irq=1 instead of use_irq=0, and module edudrv is in use "
        f"(refcnt 3, devices {DEVICE}): stop what uses it, and the driver is reloaded",
        "parameter": "use_irq",
        "have": "1",
        "want": "0",
    }
    assert world.calls == []


@pytest.fixture
def recorded(world: World) -> World:
    """A node where our loader has loaded the module; its driver shows the parameter in a form of its own."""
    world.environment["DRIVER"] = "team.edu-0a1b2c3d"
    (world.root / "run").mkdir()
    world.image(["edudrv ring=1000 use_irq=1"])
    assert world.run("load").verdict["result"] == "Loaded"
    world.shows("edudrv", ring="1024", use_irq="1")
    return world


INSERTED = "insmod edudrv.ko ring=1000 use_irq=1"


def test_parameters_that_the_module_was_loaded_with_do_not_differ(recorded: World) -> None:
    """Not where the driver shows another value, in use or not."""
    for refcnt in ("0", "1"):
        write(recorded.sys / "module/edudrv/refcnt", f"{refcnt}\n")
        assert recorded.run("load").verdict["result"] == "Loaded"
    assert recorded.calls == [INSERTED]


def test_a_parameter_that_the_image_changes_differs(recorded: World) -> None:
    """The one that has changed is named; without a user the module is loaded anew, and that is recorded."""
    recorded.image(["edudrv ring=1000 use_irq=0"])
    write(recorded.sys / "module/edudrv/refcnt", "1\n")
    verdict = recorded.run("load").verdict
    assert (verdict["result"], verdict["parameter"]) == ("ParametersDiffer", "use_irq")
    write(recorded.sys / "module/edudrv/refcnt", "0\n")
    for _ in range(2):
        assert recorded.run("load").verdict["result"] == "Loaded"
        recorded.shows("edudrv", ring="1024", use_irq="0")
    assert recorded.calls == [INSERTED, "rmmod edudrv", "insmod edudrv.ko ring=1000 use_irq=0"]


def test_parameters_of_an_earlier_boot_say_nothing(recorded: World) -> None:
    """Somebody else has loaded the module since."""
    write(recorded.root / "proc/sys/kernel/random/boot_id", "4a1c\n")
    assert recorded.run("load").verdict["result"] == "Loaded"
    assert recorded.calls == [INSERTED, "rmmod edudrv", INSERTED]
    assert (recorded.root / "run/team.edu-0a1b2c3d.parameters").read_text() == "4a1c edudrv ring=1000 use_irq=1\n"


def test_parameters_of_each_module_are_recorded(world: World) -> None:
    """By the name that the kernel has."""
    world.environment["DRIVER"] = "team.edu-0a1b2c3d"
    (world.root / "run").mkdir()
    world.image(["edu-core a=1", "edudrv b=2"])
    world.run("load")
    world.shows("edu_core", a="5")
    world.shows("edudrv", b="5")
    assert world.run("load").verdict["result"] == "Loaded"
    assert world.calls == ["insmod edu-core.ko a=1", "insmod edudrv.ko b=2"]


# ---------------------------------------------------------------- a rebuild that was asked for


@pytest.fixture
def rebuilt(world: World) -> World:
    """A node with the wanted build, and a pod that was asked to load anew."""
    world.environment |= {"DRIVER": "team.edu-0a1b2c3d", "REBUILD": "t1", "NODE_NAME": "node-a"}
    (world.root / "run").mkdir()
    world.is_live("edudrv")
    return world


def test_a_rebuild_loads_anew_once(rebuilt: World) -> None:
    """Also where the modules are the same; the next pod leaves them."""
    for _ in range(2):
        assert rebuilt.run("load").verdict["result"] == "Loaded"
    assert rebuilt.calls == ["rmmod edudrv", "insmod edudrv.ko use_irq=1"]


def test_a_rebuild_of_one_node_loads_anew_there(rebuilt: World) -> None:
    """The others have the same words in their pods."""
    rebuilt.run("load")
    before = rebuilt.calls
    rebuilt.environment["NODE_REBUILDS"] = "node-ab:t2 node-b:t3"
    rebuilt.run("load")
    assert rebuilt.calls == before
    rebuilt.environment["NODE_REBUILDS"] = "node-b:t3 node-a:t2"
    rebuilt.run("load")
    assert rebuilt.calls == before * 2
    # Once it is done nobody asks any more.
    del rebuilt.environment["NODE_REBUILDS"]
    rebuilt.run("load")
    assert rebuilt.calls == before * 2
    rebuilt.environment["REBUILD"] = "t4"
    rebuilt.run("load")
    assert rebuilt.calls == before * 3


def test_a_rebuild_loads_anew_once_where_the_device_binds_slowly(rebuilt: World) -> None:
    """The pod is tried again, and must not take the module away each time."""
    rebuilt.will_load("edudrv", devices=[])
    for _ in range(2):
        assert rebuilt.run("load").verdict["result"] == "NoDevice"
    assert rebuilt.calls == ["rmmod edudrv", "insmod edudrv.ko use_irq=1"]


def test_a_rebuild_leaves_a_module_in_use(rebuilt: World) -> None:
    """It is the wanted one: the driver goes on, and is loaded anew with the next pod."""
    write(rebuilt.sys / "module/edudrv/refcnt", "1\n")
    ran = rebuilt.run("load")
    assert (ran.code, ran.verdict["result"]) == (0, "Loaded")
    assert "the driver is not reloaded" in ran.output
    assert rebuilt.calls == []
    write(rebuilt.sys / "module/edudrv/refcnt", "0\n")
    rebuilt.run("load")
    assert rebuilt.calls == ["rmmod edudrv", "insmod edudrv.ko use_irq=1"]


def test_without_a_place_to_remember_a_rebuild_the_driver_is_loaded(rebuilt: World) -> None:
    """It is said; nothing is refused for that."""
    (rebuilt.root / "run").rmdir()
    ran = rebuilt.run("load")
    assert (ran.code, ran.verdict["modules"][0]["srcversion"]) == (0, SRCVERSION)
    assert "cannot be written: the next pod reloads the driver again" in ran.output
