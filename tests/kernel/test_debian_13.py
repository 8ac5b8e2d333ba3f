"""Debian 13: drivers built by the template on ``debian:trixie-slim``, with gcc 14 and dkms 3.2, on its real kernels.

They are its stock kernel, whose own modules are compressed (``.ko.xz``), and the newest kernels of two series of its
backports, which are built without MODVERSIONS: these take modules of their own release only, so verification has no CRC
to compare and says so by the version magic. Which releases these are, the archive says.
"""

import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import docker
import pytest

from driver_builder.archives.image_archive import read_image_archive
from driver_builder.base.errors import BuildFailed, VerificationFailed
from driver_builder.base.reasons import Reason
from driver_builder.builds.docker.docker_builder import DockerBuilder
from driver_builder.builds.docker.docker_engine import docker_engine
from driver_builder.model.build import BuildRequest, BuiltImage, ModuleSpec, SourceFiles
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.kernels import KernelTarget, KernelVersion
from driver_builder.modules.kernel_module import parse_kernel_module
from driver_builder.modules.symvers import has_crcs, owner_names, parse_module_symvers
from driver_builder.modules.verify import VerifiedModule, check_modules, verify
from driver_builder.modules.verify_files import check_depends
from driver_builder.modules.verify_symbols import check_symbols
from testbed.base_image import ensure_base_image
from testbed.guest import cpio, emulation
from testbed.guest.script import Section, run_script
from testbed.kernels import CLOUD, GENERIC, KernelPackage, find_kernel, newest_kernel, series_of
from testbed.packages import ensure_packages
from testbed.progress import PlainLines
from testbed.testbed import Testbed
from tests.kernel.test_loader_on_real_kernels import FACTORIAL, LOAD, MODULE, SOURCE, UNLOAD, VERDICT, image_entries
from tests.kernel.test_verify_real_kernels import read_kernel
from tests.support.driver_builder.image_tars import read_files
from tests.support.real_parts.build_bench import BuildBench

pytestmark = pytest.mark.long

CODENAME = "trixie"
CONF = """\
PACKAGE_NAME="edu"
PACKAGE_VERSION="1.0"
BUILT_MODULE_NAME[0]="edudrv"
DEST_MODULE_LOCATION[0]="/updates"
AUTOINSTALL="yes"
BUILD_DEPENDS[0]="another"
MAKE="make -C ${kernel_source_dir} M=${dkms_tree}/edu/1.0/build modules"
"""
"""With a driver that plain dkms 3.2 would have installed before."""
STOCK, FIRST, SECOND = "stock", "first", "second"
BACKPORTS = (FIRST, SECOND)
REMOVED = b"""\
#include <linux/module.h>
#include <linux/timer.h>
static struct timer_list timer;
static void __exit bye(void) { del_timer(&timer); }
module_exit(bye);
MODULE_LICENSE("GPL");
"""
"""Of an interface that kernels had up to 6.15."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """A driver as it was built and verified for a kernel: its image's entries, and what the build said."""

    request: BuildRequest
    built: BuiltImage
    module: VerifiedModule
    content: bytes
    entries: tuple[cpio.Entry, ...]
    log: tuple[str, ...]


@pytest.fixture(scope="module")
def kernels() -> dict[str, KernelPackage]:
    """The stock kernel, and the newest of the two newest series of the backports."""
    ensure_packages(emulation.PACKAGES)
    progress = PlainLines()
    newer = series_of(CODENAME, CLOUD, progress)[1:][-2:]
    if len(newer) < len(BACKPORTS):
        pytest.skip(f"the backports of {CODENAME} have no two series with headers today: {newer}")
    return {
        STOCK: newest_kernel(GENERIC, progress, CODENAME),
        **{name: find_kernel(release, progress) for name, release in zip(BACKPORTS, newer, strict=True)},
    }


@pytest.fixture(scope="module")
def base_image(engine_ground: Testbed) -> str:
    """The image of Debian 13, in the engine."""
    with docker_engine(engine_ground.engine.socket) as api:
        return ensure_base_image(api, CODENAME, PlainLines())


@pytest.fixture(scope="module")
def api(engine_ground: Testbed, base_image: str) -> Iterator[docker.APIClient]:
    """The engine, with the image of Debian 13."""
    assert base_image
    with docker_engine(engine_ground.engine.socket) as client:
        yield client


def request_for(kernel: KernelPackage, **changes: object) -> BuildRequest:
    """Return what leads to the example's driver, by dkms, for a node of Debian 13."""
    files = {path.name: path.read_bytes() for path in sorted((SOURCE / "src").iterdir())}
    request = BuildRequest(
        recipe="debian-13",
        driver=DriverKey("driverwright/edu"),
        version="1.0.0",
        target=KernelTarget(KernelVersion(kernel.release), "debian", "13", "amd64"),
        template="debian",
        base_image=f"debian:{CODENAME}-slim",
        source=SourceFiles(files={**files, "dkms.conf": CONF.encode()}),
        modules=(ModuleSpec(name="edudrv", parameters=("use_irq=1",)),),
    )
    return replace(request, **changes)  # type: ignore[arg-type]


def build(api: docker.APIClient, request: BuildRequest, folder: Path) -> tuple[BuiltImage, list[str]]:
    """Build, and keep what was said."""
    log: list[str] = []
    built = DockerBuilder(api).build(request, directory=folder, log=log.append, cancelled=threading.Event())
    return built, log


@pytest.fixture(scope="module")
def drivers(
    kernels: Mapping[str, KernelPackage], api: docker.APIClient, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Driver]:
    """The driver of each kernel, verified as before a push."""
    found = {}
    for name, kernel in kernels.items():
        folder, request = tmp_path_factory.mktemp(name), request_for(kernel)
        built, log = build(api, request, folder)
        image = read_image_archive(built.archive, folder)
        (module,) = verify(image, request=request, module_symvers=built.module_symvers)
        (content,) = read_files(image, module.path).values()
        entries = tuple(image_entries([layer.path for layer in image.layers]))
        found[name] = Driver(
            request=request, built=built, module=module, content=content, entries=entries, log=tuple(log)
        )
    return found


def boot(
    kernel: KernelPackage, entries: tuple[cpio.Entry, ...], sections: Mapping[str, str], folder: Path
) -> dict[str, Section]:
    """Run the sections on a kernel beside an edu device."""
    ran = run_script(kernel.vmlinuz, entries, sections, folder, devices=("edu,addr=2",), memory_mib=512)
    assert list(ran.sections) == list(sections), ran.console
    return ran.sections


@pytest.mark.parametrize("name", [STOCK, *BACKPORTS])
def test_the_parts_are_those_of_debian_13(
    kernels: Mapping[str, KernelPackage], drivers: Mapping[str, Driver], name: str
) -> None:
    """Compiler, dkms and the kernel's form of modules; the driver's own one is in the image as every other is."""
    kernel, driver = kernels[name], drivers[name]
    dkms = next(found[1] for line in driver.log if (found := re.search(r"DKMS \(dkms-(\S+)\)", line)))
    print(f"{kernel.release}: {driver.built.compiler}, dkms {dkms}, {driver.module.vermagic.strip()}")
    assert "Debian 14." in driver.built.compiler
    assert dkms.startswith("3.2")
    assert driver.module.path.endswith("/updates/edudrv.ko")
    assert {path.suffix for path in kernel.modules.rglob("*.ko*")} == {".xz"}
    assert has_crcs(parse_module_symvers(driver.built.module_symvers)) == (name == STOCK)
    assert ("modversions" in driver.module.vermagic) == (name == STOCK)
    assert driver.built.module_symvers == kernel.symvers.read_text()


@pytest.mark.parametrize("name", [STOCK, *BACKPORTS])
def test_the_driver_lives_on_its_kernel_and_another_one_is_refused(
    kernels: Mapping[str, KernelPackage], drivers: Mapping[str, Driver], tmp_path: Path, name: str
) -> None:
    """The loader loads it, it computes, it goes; a module of another kernel is refused by verification and kernel."""
    kernel, driver = kernels[name], drivers[name]
    stranger = drivers[FIRST if name == SECOND else SECOND]
    sections = {
        "stranger": "insmod /stranger.ko; code=$?; dmesg | grep edudrv; exit $code",
        "load": f"{LOAD} && {VERDICT}",
        "factorial": FACTORIAL,
        "unload": UNLOAD,
        "gone": "ls /sys/module/edudrv",
        "again": f"insmod {MODULE} && {FACTORIAL}",
    }
    entries = (*driver.entries, cpio.file("stranger.ko", stranger.content))
    did = boot(kernel, entries, sections, tmp_path)
    assert did["stranger"].code != 0
    assert re.search(r"version magic|section size must match", did["stranger"].output), did["stranger"].output
    modules, symbols = [parse_kernel_module(stranger.content, "edudrv.ko")], kernel.symvers.read_text()
    with pytest.raises(VerificationFailed) as refused:
        check_modules(modules, parse_module_symvers(symbols), request=driver.request)
    assert refused.value.reason is Reason.WRONG_VERMAGIC
    assert did["load"].code == 0, did["load"].output
    assert f"driverwright: Loaded: edudrv on {kernel.release}" in did["load"].output
    assert driver.module.srcversion in did["load"].output
    assert did["factorial"].output == "3628800\n"
    assert did["unload"].code == 0, did["unload"].output
    assert did["gone"].code != 0
    assert did["again"].output == "3628800\n"


def test_some_of_the_kernels_own_modules_fit_it(kernels: Mapping[str, KernelPackage]) -> None:
    """What the distribution compressed, signed and indexed is known to load: nothing of it is refused."""
    for package in (kernels[STOCK], kernels[SECOND]):
        kernel = read_kernel(package, every=25)
        assert len(kernel.modules) > 20
        check_symbols(tuple(kernel.modules.values()), kernel.symvers, kernel.release)
        check_depends(kernel.modules.values(), owner_names(kernel.symvers), kernel.release)


def test_a_kernel_that_the_author_gave_up_is_not_built_for(
    kernels: Mapping[str, KernelPackage], api: docker.APIClient, tmp_path: Path
) -> None:
    """By dkms 3.2, OBSOLETE_BY is the last kernel of a driver: the message has the line, and nothing failed."""
    kernel = kernels[FIRST]
    files = dict(request_for(kernel).source.files)  # type: ignore[union-attr]
    files["dkms.conf"] += b'OBSOLETE_BY="6.12"\n'
    with pytest.raises(BuildFailed, match=r'says its dkms\.conf: OBSOLETE_BY="6\.12"') as caught:
        build(api, request_for(kernel, source=SourceFiles(files=files)), tmp_path)
    assert caught.value.reason is Reason.NOT_APPLICABLE


def test_an_interface_that_is_gone_is_a_compile_error_with_its_line(
    kernels: Mapping[str, KernelPackage], api: docker.APIClient, tmp_path: Path
) -> None:
    """By make, without dkms: file, line and the compiler's words are in the message."""
    source = SourceFiles(files={"Makefile": b"obj-m := old.o\n", "old.c": REMOVED})
    request = request_for(kernels[SECOND], source=source, modules=(ModuleSpec(name="old"),))
    with pytest.raises(BuildFailed, match=r"old\.c:4.*del_timer") as caught:
        build(api, request, tmp_path)
    assert caught.value.reason is Reason.COMPILE_ERROR


def test_a_toolchain_of_debian_13_builds_the_next_version(
    engine_ground: Testbed, kernels: Mapping[str, KernelPackage], base_image: str
) -> None:
    """Nothing is installed for it: compiler, dkms and headers come from the registry."""
    assert base_image
    host, engine = engine_ground.registry.host, engine_ground.engine.socket
    bench = BuildBench(engine=engine, host=host, repository="debian-13/edu", templates=None, toolchains=True)
    first = request_for(kernels[STOCK])
    with bench:
        assert bench.build(first) is None, bench.log[-20:]
        bench.log.clear()
        assert bench.build(replace(first, version="1.0.1")) is None, bench.log[-20:]
        assert any(line.startswith("building from toolchain ") for line in bench.log), bench.log
        assert not [line for line in bench.log if "driverwright: looking for" in line]
