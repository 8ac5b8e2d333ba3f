"""The driver image on the kernels it is for: built in a real engine, booted in QEMU beside a real (emulated) device.

A guest's initial root file system is the driver image itself, with the loader where a pod has it, so that it runs as it
does there. What it does is written as shell, one section after the other; the tests read the sections from the console.
"""

import json
import re
import tarfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from driver_builder.archives.image_archive import read_image_archive
from driver_builder.builds.docker.docker_builder import DockerBuilder
from driver_builder.model.build import BuildRequest, ModuleSpec, SourceFiles
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.kernels import KernelTarget, KernelVersion
from driver_builder.modules.verify import verify
from testbed.command import run
from testbed.guest import cpio, emulation
from testbed.guest.script import Section, run_script
from testbed.kernels import KernelPackage, choose_kernels
from testbed.packages import ensure_packages
from testbed.progress import PlainLines
from testbed.testbed import Testbed

SOURCE = Path(__file__).parents[2] / "examples" / "edu-driver"
VERSIONS = {"bookworm": "12", "trixie": "13"}
BUSYBOX = Path("/bin/busybox")
LOADER_SCRIPT = Path(__file__).parents[2] / "driver_builder" / "loader" / "loader.sh"
MAXIMUM_IMAGE_SIZE = 1 << 20

LOADER = "/driverwright/busybox sh /driverwright/loader.sh"
LOAD = f"{LOADER} load"
VERDICT = "cat /dev/termination-log"
PROBE = f"{LOADER} probe"
MODULE = "$(find /lib/modules -name edudrv.ko)"
DRIVER = "/sys/bus/pci/drivers/edudrv"
FACTORIAL = "exec 3<>/dev/edu0; echo 10 >&3; cat <&3"
LIVE = "/sys/module/edudrv/initstate"
UNLOAD = (
    "export DRIVER=a.edu-0a1b2c3d BOOT_ID=$(cat /proc/sys/kernel/random/boot_id) "
    f"UNLOAD=edudrv:$(cat /sys/module/edudrv/srcversion); {LOADER} unload"
)
INTERRUPTS = "grep -c ' edu0$' /proc/interrupts"
# The pod's main container: its first line says that it holds, then the kubelet ends it. Not before that line: a shell
# that has not got as far as its trap dies of SIGTERM.
HOLD_AND_STOP = (
    f"rm -f /tmp/held; {LOADER} hold >/tmp/held 2>&1 & "
    "until [ -s /tmp/held ] || ! kill -0 $! 2>/dev/null; do sleep 0.1; done; "
    "kill -TERM $!; wait $!; held=$?; cat /tmp/held; (exit $held)"
)


@dataclass(frozen=True, slots=True)
class Did(Section):
    """What one piece of shell did in the guest."""

    @property
    def verdict(self) -> Any:
        """The loader's verdict."""
        return json.loads(self.output)


@dataclass(frozen=True, slots=True)
class DriverImage:
    """A built driver image: the entries of its root file system, and the size of the tar it is saved as."""

    entries: tuple[cpio.Entry, ...]
    size: int
    srcversion: str | None


def edu_request(kernel: KernelPackage) -> BuildRequest:
    """Return the request that the example's DriverContainer leads to."""
    return BuildRequest(
        recipe=f"test-loader-{kernel.release}",
        driver=DriverKey("driverwright/edu"),
        version="1.0.0",
        target=KernelTarget(KernelVersion(kernel.release), "debian", VERSIONS[kernel.codename], "amd64"),
        template="debian",
        base_image=f"debian:{kernel.codename}-slim",
        source=SourceFiles(files={path.name: path.read_bytes() for path in sorted((SOURCE / "src").iterdir())}),
        modules=(ModuleSpec(name="edudrv", parameters=("use_irq=1",)),),
    )


def image_entries(layers: list[Path]) -> Iterator[cpio.Entry]:
    """Return what the layers hold, the loader beside it as in a pod, and a shell for the tests.

    A driver image's layers hide nothing of each other.
    """
    yield cpio.program("driverwright/busybox", BUSYBOX.read_bytes())
    yield cpio.file("driverwright/loader.sh", LOADER_SCRIPT.read_bytes())
    for applet in run([BUSYBOX, "--list"]).split():
        yield cpio.link(f"bin/{applet}", "/driverwright/busybox")
    for layer in layers:
        with tarfile.open(layer) as tar:
            for member in tar:
                if member.issym():
                    yield cpio.link(member.name, member.linkname)
                elif member.isfile():
                    file = tar.extractfile(member)
                    assert file is not None
                    yield cpio.file(member.name, file.read(), member.mode & 0o777)


def boot(kernel: KernelPackage, image: DriverImage, sections: Mapping[str, str], folder: Path, *devices: str) -> Any:
    """Boot a kernel on a driver image, run the sections, and return what each of them did."""
    ran = run_script(kernel.vmlinuz, image.entries, sections, folder, devices=devices)
    assert list(ran.sections) == list(sections), ran.console
    return {name: Did(found.output, found.code) for name, found in ran.sections.items()}


@pytest.fixture(scope="module")
def kernels() -> list[KernelPackage]:
    """Return two kernels that refuse each other's modules, of the oldest and the newest series Debian has."""
    ensure_packages(emulation.PACKAGES)
    return choose_kernels(2, PlainLines())


@pytest.fixture(scope="module")
def images(
    kernels: list[KernelPackage], engine_ground: Testbed, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, DriverImage]:
    """Build the example's driver image for each kernel, and verify it as the controller does."""
    client = engine_ground.engine.client()
    built: dict[str, DriverImage] = {}
    try:
        for kernel in kernels:
            folder = tmp_path_factory.mktemp("image")
            request = edu_request(kernel)
            result = DockerBuilder(client).build(
                request, directory=folder, log=lambda _: None, cancelled=threading.Event()
            )
            archive = read_image_archive(result.archive, folder)
            (module,) = verify(archive, request=request, module_symvers=result.module_symvers)
            entries = tuple(image_entries([layer.path for layer in archive.layers]))
            built[kernel.release] = DriverImage(entries, result.archive.stat().st_size, module.srcversion)
    finally:
        client.close()
    return built


@pytest.mark.parametrize("number", [pytest.param(0, id="oldest"), pytest.param(1, id="newest", marks=pytest.mark.long)])
def test_a_driver_pod_lives_on_its_kernel(
    kernels: list[KernelPackage], images: dict[str, DriverImage], tmp_path: Path, number: int
) -> None:
    """Load, probe, compute, lose the device and get it back, stay when the pod ends, change over, go when asked."""
    kernel = kernels[number]
    image = images[kernel.release]
    sections = {
        "unready": PROBE,
        "load": LOAD,
        "verdict": VERDICT,
        "ready": PROBE,
        "factorial": FACTORIAL,
        "too_large": "echo 13 >/dev/edu0",
        "interrupts": INTERRUPTS,
        "registers": "cd /sys/bus/pci/devices/0000:00:02.0; cat identification live",
        "unbound": f"echo 0000:00:02.0 >{DRIVER}/unbind; {PROBE}",
        "bound": f"echo 0000:00:02.0 >{DRIVER}/bind; {PROBE}",
        "again": f"{LOAD} && {VERDICT}",
        "stop": f"{HOLD_AND_STOP}; cat {LIVE}",
        "drift": f"HOLD_SECONDS=1 {LOADER} hold & sleep 1; rmmod edudrv; wait $!",
        "evidence": VERDICT,
        "repaired": LOAD,
        "differs": f"sed -i s/use_irq=1/use_irq=0/ /driver/modules; exec 3</dev/edu0; {LOAD}",
        "why": VERDICT,
        "change": f"{LOAD}; {INTERRUPTS}",
        "in_use": f"exec 3</dev/edu0; {UNLOAD}; {VERDICT}",
        "unload": f"{UNLOAD} && {VERDICT}",
        "gone": f"ls /sys/module/edudrv; {PROBE}",
        "polling": f"insmod {MODULE} use_irq=0; {FACTORIAL}; {INTERRUPTS}",
    }
    did = boot(kernel, image, sections, tmp_path, "edu,addr=2", "edu,addr=3")

    assert image.size <= MAXIMUM_IMAGE_SIZE
    assert (did["unready"].code, did["unready"].output) == (1, "driverwright: module edudrv is not loaded\n")
    assert (did["load"].code, did["load"].output) == (0, f"driverwright: Loaded: edudrv on {kernel.release}\n")
    verdict = did["verdict"].verdict
    assert (verdict["result"], verdict["kernel"]) == ("Loaded", kernel.release)
    assert len(verdict["bootID"]) == 36
    devices = ["0000:00:02.0", "0000:00:03.0"]
    assert verdict["modules"] == [{"name": "edudrv", "srcversion": image.srcversion, "devices": devices}]
    assert (did["ready"].code, did["ready"].output) == (0, "")
    assert did["factorial"].output == "3628800\n"
    assert did["too_large"].code != 0
    assert did["interrupts"].output == "1\n"
    assert did["registers"].output == "010000ed\n1\n"
    assert did["unbound"].code == 0  # the second device is still bound
    assert did["bound"].code == 0
    assert did["again"].code == 0
    assert "already loaded" in did["again"].output
    assert did["stop"].output.endswith("until SIGTERM\nlive\n")
    assert did["drift"].code == 1
    evidence = did["evidence"].verdict
    assert (evidence["result"], evidence["module"]) == ("NotLive", "edudrv")
    assert did["repaired"].code == 0
    assert did["differs"].code == 1
    why = did["why"].verdict
    assert (why["result"], why["parameter"], why["want"]) == ("ParametersDiffer", "use_irq", "0")
    assert "refcnt 1, devices 0000:00:02.0 0000:00:03.0 as edu0 edu1" in why["message"]
    assert did["change"].output.endswith(f"Loaded: edudrv on {kernel.release}\n0\n")
    assert '"result":"InUse"' in did["in_use"].output
    assert '"remaining":["edudrv"]' in did["in_use"].output
    assert '"result":"Unloaded"' in did["unload"].output
    assert did["gone"].code == 1
    assert did["polling"].output == "3628800\n0\n"


def test_modules_of_a_vendors_image(
    kernels: list[KernelPackage], images: dict[str, DriverImage], tmp_path: Path
) -> None:
    """As KMM's documentation has them, without our data files: by our loader, then by the image's own program."""
    kernel = kernels[0]
    image = images[kernel.release]
    named = f"export KERNEL={kernel.release} DRIVER=a.edu-0a1b2c3d MODULES"
    file = f"/opt/lib/modules/{kernel.release}/edudrv.ko"
    program = f"{named}=edudrv LOADER=image SETTLE_SECONDS=2 POD_UID=u; mkdir -p /host/run/driverwright"
    own = "export LOADER=image HOLD_SECONDS=1 DRIVER=a.edu-0a1b2c3d POD_UID=u"
    did = boot(
        kernel,
        image,
        {
            "kmod": f"mkdir -p ${{x:=/opt/lib/modules/$(uname -r)}} && mv {MODULE} $x && rm -r /lib/modules /driver",
            "load": f"{named}='edudrv use_irq=1'; {LOAD} && {VERDICT}",
            "factorial": f"{PROBE} && {FACTORIAL} && {INTERRUPTS}",
            "unload": f"{UNLOAD} && rm -r /driverwright/driver",
            "prepare": f"{program}; {LOADER} prepare && ! {PROBE}",
            "program": f"(sleep 1; insmod {file} use_irq=0; sleep 1000) & {program}; {LOADER} prove; {VERDICT}",
            "ready": f"{own}; {PROBE} && {FACTORIAL}",
            "drift": f"{own}; {LOADER} hold & sleep 1; rmmod edudrv; wait $!; {VERDICT}",
        },
        tmp_path,
        "edu,addr=2",
    )
    expected = [{"name": "edudrv", "srcversion": image.srcversion, "devices": ["0000:00:02.0"]}]
    assert json.loads(did["load"].output.splitlines()[-1])["modules"] == expected
    assert did["factorial"].output == "3628800\n1\n"
    assert did["unload"].code == 0, did["unload"].output
    assert did["prepare"].code == 0, did["prepare"].output
    assert json.loads(did["program"].output.splitlines()[-1])["modules"] == expected
    assert did["ready"].output == "3628800\n"
    assert json.loads(did["drift"].output.splitlines()[-1])["result"] == "NotLive"


def test_without_its_device_the_driver_is_no_success(
    kernels: list[KernelPackage], images: dict[str, DriverImage], tmp_path: Path
) -> None:
    """The module loads, but a node where it binds nothing must not become ready."""
    sections = {"load": f"DEVICE_TIMEOUT=1 {LOAD}", "verdict": VERDICT, "probe": PROBE}
    did = boot(kernels[0], images[kernels[0].release], sections, tmp_path)
    assert did["load"].code == 1
    assert did["verdict"].verdict["result"] == "NoDevice"
    assert did["probe"].output == "driverwright: no device is bound to module edudrv\n"


@pytest.mark.parametrize(("built", "running"), [(0, 1), (1, 0)])
def test_another_kernels_driver_is_refused_twice(
    kernels: list[KernelPackage], images: dict[str, DriverImage], tmp_path: Path, built: int, running: int
) -> None:
    """The loader does not even try; and if it did, the kernel would refuse the module and say why."""
    ours, other = kernels[built], kernels[running]
    lie = f'echo "{other.release}" >/driver/kernel; ln -s {ours.release} /lib/modules/{other.release}'
    sections = {
        "load": LOAD,
        "verdict": VERDICT,
        "probe": PROBE,
        "stop": HOLD_AND_STOP,
        "insmod": f"insmod {MODULE}",
        "lie": f"{lie}; {LOAD}",
        "kernel_says": VERDICT,
    }
    did = boot(other, images[ours.release], sections, tmp_path, "edu,addr=2")

    assert did["load"].code == 0
    assert did["load"].output.startswith("driverwright: WrongKernel: ")
    verdict = did["verdict"].verdict
    assert (verdict["result"], verdict["kernel"], verdict["builtFor"]) == ("WrongKernel", other.release, ours.release)
    assert did["probe"].code == 1
    assert (did["stop"].code, did["stop"].output.count("\n")) == (0, 1)
    assert did["insmod"].code != 0
    assert did["lie"].code == 1
    refusal = did["kernel_says"].verdict
    assert (refusal["result"], refusal["module"]) == ("LoadFailed", "edudrv")
    assert re.search(
        r"edudrv: disagrees about version of symbol module_layout|section size must match", refusal["message"]
    )


def test_the_workload_computes_on_the_device(
    kernels: list[KernelPackage], images: dict[str, DriverImage], tmp_path: Path
) -> None:
    """The example's workload prints the factorial, and fails without a device, leaving nothing in its place."""
    image = images[kernels[0].release]
    script = cpio.program("bin/factorial", (SOURCE / "workload/factorial").read_bytes())
    image = DriverImage((*image.entries, script), image.size, image.srcversion)
    sections = {
        "without": "/bin/factorial",
        "with_driver": f"{LOAD}; /bin/factorial 10",
        "too_large": "/bin/factorial 13",
    }
    did = boot(kernels[0], image, sections, tmp_path, "edu")
    assert (did["without"].code, did["without"].output.count("\n")) == (1, 1)
    assert did["with_driver"].output.endswith("10! = 3628800\n")
    assert did["with_driver"].code == 0
    assert did["too_large"].code != 0
