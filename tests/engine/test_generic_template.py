"""The template ``generic`` with a real kernel: built against its source alone, its configuration and its symbols.

Debian's kernel takes the part of a kernel that somebody built for himself: its headers are not used. Its source is in
a package of its own, with the configuration and Module.symvers it gives what an admin would have of such a kernel. What
no build of a module compiles or reads is left out of it: the code of drivers, file systems and other architectures.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from driver_builder.archives.image_archive import ImageArchive, read_image_archive
from driver_builder.base.errors import BuildFailed
from driver_builder.base.reasons import Reason
from driver_builder.builds.docker.docker_builder import DockerBuilder
from driver_builder.builds.docker.docker_engine import docker_engine
from driver_builder.model.build import BuildRequest, ModuleSpec, SourceArchive
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.kernels import KernelTarget, KernelVersion
from driver_builder.modules.module_elf import read_elf
from driver_builder.modules.verify import VerifiedModule, verify
from testbed.cache import cached_folder
from testbed.command import run
from testbed.guest import emulation
from testbed.guest.script import run_script
from testbed.kernels import CLOUD, KernelPackage, newest_kernel, release_key
from testbed.packages import PrivateApt, ensure_packages, unpack
from testbed.progress import PlainLines
from testbed.testbed import Testbed
from tests.engine.test_package_managers import source as source_asking_for_headers
from tests.kernel.test_loader_on_real_kernels import LOAD, PROBE, image_entries
from tests.support.driver_builder.image_tars import read_files
from tests.support.real_parts.web_server import served

LEFT_OUT = (
    *(f"{folder}/*.[chS]" for folder in ("block", "drivers", "fs", "net", "samples", "sound")),
    *("Documentation/*/*", "arch/[!x]*/*.*", "tools/perf/*", "tools/testing/*"),
)
"""Kconfig files stay, or the configuration would be another one."""


@dataclass(frozen=True, slots=True)
class Mirror:
    """Where the kernel's source and the driver's lie; ``strange`` has an option that the kernel does not know."""

    url: str
    source: SourceArchive
    strange: SourceArchive

    def request(self, kernel: KernelPackage, source: SourceArchive, base_image: str) -> BuildRequest:
        """What a DriverContainer for a kernel of one's own leads to."""
        return BuildRequest(
            recipe=f"test-generic-{source.sha256}",
            driver=DriverKey("driverwright/edu-generic"),
            version="1.0.0",
            target=KernelTarget(KernelVersion(kernel.release), "custom", "1", "amd64"),
            template="generic",
            base_image=base_image,
            source=source,
            modules=(ModuleSpec(name="edudrv", parameters=("use_irq=1",)),),
            args={"HEADERS_MIRROR": self.url},
        )


pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def kernel() -> KernelPackage:
    """The newest cloud kernel: the only one whose source package is sure to be of the same version."""
    ensure_packages(emulation.PACKAGES)
    return newest_kernel(CLOUD, PlainLines())


@pytest.fixture(scope="module")
def mirror(kernel: KernelPackage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    """The source as kernel.org would name it, and the driver's with what is known of the kernel, from a web server."""
    root = tmp_path_factory.mktemp("mirror")
    source = kernel_source(kernel)
    shutil.copy(source, root / source.name)
    config = kernel.config.read_bytes()
    contents = {"driver": config, "strange": config + b"CONFIG_NOBODY_KNOWS=y\n"}
    digests = {name: _pack(root / f"{name}.tar.gz", kernel, content) for name, content in contents.items()}
    with served(root) as url:
        sources = [SourceArchive(url=f"{url}/{name}.tar.gz", sha256=sha256) for name, sha256 in digests.items()]
        yield Mirror(url, *sources)


def kernel_source(kernel: KernelPackage) -> Path:
    """Return the archive of the kernel's source, out of the cache."""
    series = ".".join(map(str, release_key(kernel.release)[:2]))
    name = f"linux-source-{series}"
    digest = hashlib.sha256(repr(LEFT_OUT).encode()).hexdigest()[:8]

    def make(folder: Path) -> None:
        (package,) = PrivateApt().download([f"{name}={kernel.version}"], folder / "deb")
        unpack(package, folder / "unpacked")
        archive, tree = folder / f"unpacked/usr/src/{name}.tar.xz", folder / name
        excludes = [f"--exclude={name}/{pattern}" for pattern in LEFT_OUT]
        run(["tar", "--extract", "--file", archive, "--directory", folder, *excludes], timeout=300)
        packed = folder / f"linux-{series}.tar.xz"
        run(["tar", "--create", "--file", packed, "--use-compress-program=xz -1 -T0", "--directory", folder, name])
        for left in (folder / "deb", folder / "unpacked", tree):
            shutil.rmtree(left)

    kept = cached_folder(f"kernel-sources/{name}_{kernel.version}-{digest}", make)
    for old in kept.parent.iterdir():
        if old != kept and not old.name.startswith("."):
            shutil.rmtree(old, ignore_errors=True)
    return kept / f"linux-{series}.tar.xz"


def _pack(archive: Path, kernel: KernelPackage, config: bytes) -> str:
    """Pack the driver with what is known of its kernel; returns the checksum."""
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(kernel.symvers, arcname="kernel.symvers")
        for name, content in {**source_asking_for_headers().files, "kernel.config": config}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return hashlib.sha256(archive.read_bytes()).hexdigest()


@dataclass(frozen=True, slots=True)
class Made:
    """What was built, and what was said meanwhile."""

    image: ImageArchive
    module: VerifiedModule
    log: list[str]


@pytest.fixture(scope="module")
def made(
    kernel: KernelPackage, mirror: Mirror, engine_ground: Testbed, tmp_path_factory: pytest.TempPathFactory
) -> Made:
    """Build as the controller does, and verify."""
    request = mirror.request(kernel, mirror.source, engine_ground.base_image)
    log: list[str] = []
    folder = tmp_path_factory.mktemp("generic")
    with docker_engine(engine_ground.engine.socket) as api:
        built = DockerBuilder(api).build(request, directory=folder, log=log.append, cancelled=threading.Event())
    image = read_image_archive(built.archive, folder / "layers")
    (module,) = verify(image, request=request, module_symvers=built.module_symvers)
    return Made(image, module, log)


def test_a_module_is_built_against_the_source_alone(kernel: KernelPackage, made: Made) -> None:
    """No headers of the kernel are installed, and the module is for it all the same, symbol by symbol."""
    assert not [line for line in made.log if "linux-headers" in line]
    assert made.module.vermagic.split()[0] == kernel.release


def test_its_struct_module_is_the_kernels(kernel: KernelPackage, made: Made) -> None:
    """As large as in the kernel's own modules: the loader of a kernel of that time does not compare it."""
    own = next(kernel.modules.rglob("crc-itu-t.ko")).read_bytes()
    (ours,) = [data for path, data in read_files(made.image, "/lib/modules").items() if path.endswith("edudrv.ko")]
    assert size_of_struct_module(ours) == size_of_struct_module(own)


def size_of_struct_module(module: bytes) -> int:
    """Bytes."""
    return len(read_elf(module).section(".gnu.linkonce.this_module"))


def test_a_configuration_that_cannot_be_kept_is_refused(
    kernel: KernelPackage, mirror: Mirror, engine_ground: Testbed, tmp_path: Path
) -> None:
    """The option that would be lost is named."""
    request = mirror.request(kernel, mirror.strange, engine_ground.base_image)
    with (
        docker_engine(engine_ground.engine.socket) as api,
        pytest.raises(BuildFailed, match="another configuration:-NOBODY_KNOWS y") as caught,
    ):
        DockerBuilder(api).build(request, directory=tmp_path, log=lambda _: None, cancelled=threading.Event())
    assert caught.value.reason is Reason.HEADERS_MISSING


def test_the_kernel_takes_it(kernel: KernelPackage, made: Made, tmp_path: Path) -> None:
    """Loaded, proven and computing, as from headers."""
    sections = {
        "load": LOAD,
        "probe": PROBE,
        "factorial": "exec 3<>/dev/edu0; echo 10 >&3; cat <&3",
    }
    entries = image_entries([layer.path for layer in made.image.layers])
    ran = run_script(kernel.vmlinuz, entries, sections, tmp_path, devices=["edu"])
    assert list(ran.sections) == list(sections), ran.console
    assert ran.sections["load"].output == f"driverwright: Loaded: edudrv on {kernel.release}\n"
    assert (ran.sections["load"].code, ran.sections["probe"].code) == (0, 0)
    assert ran.sections["factorial"].output == "3628800\n"
