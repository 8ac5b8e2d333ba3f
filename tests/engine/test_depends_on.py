"""Two drivers of which one uses a symbol of the other: real engine, registry and kernel, from source to ``insmod``.

The first driver exports a GPL-only symbol in a namespace. The second one is built with nothing of the first but its
image in the registry. Then a kernel loads both, in the order that the loader keeps.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.archives.image_archive import ImageArchive
from driver_builder.base.errors import BuildFailed, VerificationFailed
from driver_builder.base.reasons import Reason
from driver_builder.builds.docker.docker_builder import DockerBuilder
from driver_builder.builds.docker.docker_engine import docker_engine
from driver_builder.builds.pipeline.pipeline import build_and_push
from driver_builder.model.build import BuildRequest, ModuleSpec, SourceFiles
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.image_state import Absent
from driver_builder.model.images import ImageRef
from driver_builder.model.kernels import KernelTarget, KernelVersion
from driver_builder.modules.kernel_module import KernelModule, parse_kernel_module
from driver_builder.modules.verify import verify
from driver_builder.nodes.changes import StartBuild
from driver_builder.registry.image_download import download
from driver_builder.registry.registry import RegistryClient
from driver_builder.registry.registry_access import Registries
from driver_builder.targets.desired_target import Exporter
from testbed.guest import cpio, emulation
from testbed.guest.script import run_script
from testbed.kernels import CLOUD, KernelPackage, newest_kernel
from testbed.packages import ensure_packages
from testbed.progress import PlainLines
from testbed.testbed import Testbed
from tests.kernel.test_loader_on_real_kernels import LOADER, image_entries
from tests.support.driver_builder.image_tars import read_files
from tests.support.driver_builder.memory_client import MemoryClient
from tests.support.loopback import LOOPBACK

SOURCE = Path(__file__).parents[1] / "data" / "modules"
NAMESPACE = "integration"
FIRST, SECOND = "dw_helper", "dw_probe"
SYMBOL = "dw_helper_double"
DKMS = f"""\
PACKAGE_NAME="{SECOND}"
PACKAGE_VERSION="1.0"
BUILT_MODULE_NAME[0]="{SECOND}"
DEST_MODULE_LOCATION[0]="/updates"
MAKE[0]="make -C ${{kernel_source_dir}} M=${{dkms_tree}}/${{PACKAGE_NAME}}/${{PACKAGE_VERSION}}/build modules"
CLEAN="true"
AUTOINSTALL="yes"
"""
VERDICT = "cat /dev/termination-log"


@dataclass(frozen=True, slots=True)
class Made:
    """A driver's image as the registry has it, with what was said while it was made."""

    exporter: Exporter
    image: ImageArchive
    log: list[str]

    @property
    def modules(self) -> dict[str, KernelModule]:
        """The modules in it, by name."""
        files = read_files(self.image, "/lib/modules")
        found = (parse_kernel_module(content, path) for path, content in files.items() if path.endswith(".ko"))
        return {module.name: module for module in found}


class Workshop:
    """The pipeline with a real engine and registry."""

    def __init__(self, ground: Testbed, builder: DockerBuilder, kernel: KernelPackage, folder: Path) -> None:
        self.client = RegistryClient(ground.registry.host, plain_http=True, reach=LOOPBACK)
        self._host = ground.registry.host
        self._builder = builder
        self._kernel = kernel
        self._folder = folder

    def request(self, name: str, *exporters: Exporter, **files: str) -> BuildRequest:
        """What a DriverContainer with this one module leads to; ``files`` are beside its source."""
        texts = {"Makefile": f"obj-m := {name}.o\n", f"{name}.c": (SOURCE / f"{name}.c").read_text(), **files}
        return BuildRequest(
            recipe=f"depends-on-{self._kernel.release}",
            driver=DriverKey(f"{NAMESPACE}/{name}"),
            version="1",
            target=KernelTarget(KernelVersion(self._kernel.release), "debian", "12", "amd64"),
            template="debian",
            base_image="debian:bookworm-slim",
            source=SourceFiles(files={path: text.encode() for path, text in texts.items()}),
            modules=(ModuleSpec(name=name, parameters=("verbosity=2",) if name == SECOND else ()),),
            depends=tuple((item.driver, item.key) for item in exporters),
        )

    def image(self, request: BuildRequest) -> ImageRef:
        """Return where an image is pushed to."""
        return ImageRef(self._host, request.driver, f"{request.version}-{request.key}")

    def make(self, request: BuildRequest, *exporters: Exporter) -> Made:
        """Carry out the action that a plan would have."""
        log: list[str] = []
        action = StartBuild(
            namespace=NAMESPACE,
            request=request,
            image=self.image(request),
            registry=RegistrySettings(plain_http=True),
            waiting=1,
            exporters=exporters,
        )
        digest = build_and_push(
            action,
            builder=self._builder,
            registries=Registries(MemoryClient(), reach=LOOPBACK),
            log=log.append,
            cancelled=threading.Event(),
        )
        exporter = Exporter(
            driver=request.driver, image=action.image, key=request.key, registry=action.registry, digest=digest
        )
        return Made(exporter, download(self.client, request.driver, digest, self._folder / request.key), log)


@pytest.fixture(scope="module")
def kernel() -> KernelPackage:
    """The newest one of the oldest series."""
    ensure_packages(emulation.PACKAGES)
    return newest_kernel(CLOUD, PlainLines())


@pytest.fixture(scope="module")
def workshop(
    engine_ground: Testbed, kernel: KernelPackage, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workshop]:
    """One for all tests."""
    with docker_engine(engine_ground.engine.socket) as api:
        yield Workshop(engine_ground, DockerBuilder(api), kernel, tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def first(workshop: Workshop) -> Made:
    """The driver that exports; nothing in its build is for the other one."""
    return workshop.make(workshop.request(FIRST))


@pytest.fixture(scope="module")
def second(workshop: Workshop, first: Made) -> Made:
    """The driver that depends on it."""
    return workshop.make(workshop.request(SECOND, first.exporter), first.exporter)


def test_a_module_is_built_with_the_symbols_in_another_drivers_image(first: Made, second: Made) -> None:
    """Modpost finds the symbol, with its CRC, and the module names the other one, which is not in its image."""
    assert f"driver {NAMESPACE}/{FIRST} exports 1 symbols" in second.log
    assert any("CC [M]" in line for line in second.log)
    assert not [line for line in second.log if "undefined" in line or "modpost: " in line]
    exported, module = first.modules[FIRST].exports[SYMBOL], second.modules[SECOND]
    assert list(second.modules) == [SECOND]
    assert module.depends == (FIRST,)
    assert exported.crc
    assert (exported.owner, exported.namespace, exported.is_gpl_only) == (FIRST, "DW_HELPER", True)
    assert module.crcs[SYMBOL] == exported.crc


@pytest.mark.long
def test_make_finds_the_symbols_in_a_tree_for_dkms(workshop: Workshop, first: Made, second: Made) -> None:
    """The module is the same one."""
    request = workshop.request(SECOND, first.exporter, **{"dkms.conf": DKMS})
    made = workshop.make(request, first.exporter)
    assert any("dkms build" in line or "DKMS" in line for line in made.log)
    assert made.modules[SECOND].depends == (FIRST,)
    assert made.modules[SECOND].crcs == second.modules[SECOND].crcs


def test_without_the_symbols_the_build_names_the_one_that_lacks(workshop: Workshop) -> None:
    """A driver that does not say what it depends on: nothing is pushed."""
    request = workshop.request(SECOND)
    with pytest.raises(BuildFailed, match=f'"{SYMBOL}".* undefined!') as caught:
        workshop.make(request)
    assert caught.value.reason is Reason.COMPILE_ERROR
    image = workshop.image(request)
    assert isinstance(workshop.client.inspect(image.repository, image.reference), Absent)


def test_without_the_symbols_the_verification_refuses(kernel: KernelPackage, workshop: Workshop, second: Made) -> None:
    """A module that was built with them, in an image that does not say what it depends on."""
    with pytest.raises(VerificationFailed, match=SYMBOL) as caught:
        verify(second.image, request=workshop.request(SECOND), module_symvers=kernel.symvers.read_text())
    assert caught.value.reason is Reason.MISSING_SYMBOL


@pytest.mark.long
def test_the_second_driver_waits_for_the_first(
    kernel: KernelPackage, first: Made, second: Made, tmp_path: Path
) -> None:
    """Alone it loads nothing; it loads once the first one has, computes with it, and leaves before it."""
    pods = {
        FIRST: f"DRIVER={NAMESPACE}.{FIRST}-0a1b2c3d DRIVER_ROOT=/{FIRST}",
        SECOND: f"DRIVER={NAMESPACE}.{SECOND}-0a1b2c3d DRIVER_ROOT=/{SECOND} DEPENDS={NAMESPACE}.{FIRST}:{FIRST}",
    }
    load = {name: f"{words} {LOADER} load" for name, words in pods.items()}
    unload = {
        name: f"{words} BOOT_ID=$(cat /proc/sys/kernel/random/boot_id)"
        f" UNLOAD={name}:$(cat /sys/module/{name}/srcversion) {LOADER} unload"
        for name, words in pods.items()
    }
    waiting = f"driverwright: waiting for module {FIRST} of driver {NAMESPACE}/{FIRST}"
    sections = {
        "kernel_alone": f"insmod /{SECOND}/lib/modules/*/updates/{SECOND}.ko; dmesg | grep {SECOND}:",
        "alone": f"DEPENDS_TIMEOUT=1 {load[SECOND]}",
        "why": VERDICT,
        "live": "cat /proc/modules",
        "both": f": >/tmp/second; DEPENDS_TIMEOUT=200 {load[SECOND]} >/tmp/second & "
        f"until grep -q '^{waiting}' /tmp/second || ! kill -0 $!; do sleep 1; done; "
        f"{load[FIRST]}; wait $!; echo $?; cat /tmp/second",
        "holders": f"ls /sys/module/{FIRST}/holders",
        "computes": "dmesg | grep 'verbosity 4$'",
        "in_use": unload[FIRST],
        "second_leaves": unload[SECOND],
        "first_leaves": unload[FIRST],
        "left": "cat /proc/modules",
    }
    ran = run_script(kernel.vmlinuz, entries_of(first=first, second=second), sections, tmp_path, devices=["edu"])
    did = ran.sections
    assert list(did) == list(sections), ran.console

    assert f"Unknown symbol {SYMBOL}" in did["kernel_alone"].output
    assert did["alone"].code == 1
    assert '"result":"WaitingForDependency"' in did["why"].output
    assert f"driver {NAMESPACE}/{FIRST} has not loaded module {FIRST} on this node" in did["why"].output
    assert did["live"].output == ""
    assert did["both"].output == (
        f"driverwright: Loaded: {FIRST} on {kernel.release}\n0\n"
        f"{waiting}\ndriverwright: Loaded: {SECOND} on {kernel.release}\n"
    )
    assert did["holders"].output == f"{SECOND}\n"
    assert did["computes"].code == 0
    assert did["in_use"].output.startswith(f"driverwright: InUse: module {FIRST} is in use")
    assert SECOND in did["in_use"].output
    assert (did["second_leaves"].code, did["first_leaves"].code) == (0, 0)
    assert did["left"].output == ""


def entries_of(*, first: Made, second: Made) -> Iterator[cpio.Entry]:
    """The loader, the node's folder that pods mount, and the content of each driver's image in a folder of its own."""
    yield from image_entries([])
    yield cpio.folder("host/run/driverwright")
    for name, made in {FIRST: first, SECOND: second}.items():
        for file in made.image.files("/"):
            yield cpio.file(f"{name}{file.path}", file.read())
