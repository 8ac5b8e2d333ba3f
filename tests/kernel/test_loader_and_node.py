"""What a driver does to its node besides loading, on a real kernel: firmware, modules that make room, a blacklist.

The driver is one that asks for firmware; the image is built by our template for Debian. Beside it the example of
docs/templates.md is built, which is the edu driver by a template of an admin's own.
"""

import gzip
import hashlib
import lzma
import shutil
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from driver_builder.archives.image_archive import read_image_archive
from driver_builder.base.errors import BuildFailed
from driver_builder.base.reasons import Reason
from driver_builder.builds.docker.docker_builder import DockerBuilder
from driver_builder.model.build import BuildRequest, ModuleSpec, SourceFiles
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.userspace import Userspace, UserspaceArchive
from driver_builder.modules.verify import verify
from testbed.command import run
from testbed.guest import cpio, emulation
from testbed.kernels import CLOUD, KernelPackage, choose_kernels, newest_kernel
from testbed.packages import ensure_packages
from testbed.progress import PlainLines
from testbed.testbed import Testbed
from tests.kernel.test_loader_on_real_kernels import (
    HOLD_AND_STOP,
    LOAD,
    LOADER,
    PROBE,
    VERDICT,
    DriverImage,
    boot,
    edu_request,
    image_entries,
)
from tests.support.driver_builder.image_tars import read_files
from tests.support.real_parts import web_server
from tools import product_images
from tools.warm_layers import own_template

SOURCE = Path(__file__).parents[1] / "data" / "firmware-driver"
STACK = SOURCE.with_name("stack-driver")
CHAIN = ("llc", "stp", "bridge")
"""Modules of the kernel that stand on each other, the lowest first. No hardware is needed for them."""
POD = "DRIVER=drivers.fw-0a1b2c3d"
SECOND = "DRIVER=drivers.second-0a1b2c3d"
UNLOAD = f"{POD} BOOT_ID=$(cat /proc/sys/kernel/random/boot_id)"
HOST = "mkdir -p /host/lib /host/etc/modprobe.d /lib/firmware; ln -s /lib/firmware /host/lib/firmware"
CHAIN_LOADED = "cd /host/lib/modules/$(uname -r) && for name in llc stp bridge; do insmod $name.ko*; done"
FIRMWARE = "cd /lib/firmware; find . -type f | sort"
OWNERS = "/host/run/driverwright/owners"
BLACKLIST = "cat /host/etc/modprobe.d/*"


@pytest.fixture(scope="module")
def kernel() -> KernelPackage:
    """The newest there is, whose own modules are compressed."""
    ensure_packages(emulation.PACKAGES)
    return choose_kernels(1, PlainLines())[0]


@pytest.fixture(scope="module")
def api(engine_ground: Testbed) -> Iterator[docker.APIClient]:
    """The engine, closed again."""
    client = engine_ground.engine.client()
    yield client
    client.close()


def firmware_request(kernel: KernelPackage) -> BuildRequest:
    """Ask for the driver that needs firmware."""
    files = {str(path.relative_to(SOURCE)): path.read_bytes() for path in SOURCE.rglob("*") if path.is_file()}
    return replace(
        edu_request(kernel),
        recipe=f"test-firmware-{kernel.release}",
        driver=DriverKey("drivers/fw"),
        source=SourceFiles(files=files),
        modules=(ModuleSpec(name="fwdrv"),),
        firmware_path="/source/firmware",
    )


def build(api: docker.APIClient, request: BuildRequest, folder: Path) -> DriverImage:
    """Build and verify an image as the controller does."""
    result = DockerBuilder(api).build(request, directory=folder, log=lambda _: None, cancelled=threading.Event())
    archive = read_image_archive(result.archive, folder)
    (module,) = verify(archive, request=request, module_symvers=result.module_symvers)
    entries = tuple(image_entries([layer.path for layer in archive.layers]))
    return DriverImage(entries, result.archive.stat().st_size, module.srcversion)


@pytest.fixture(scope="module")
def image(kernel: KernelPackage, api: docker.APIClient, tmp_path_factory: pytest.TempPathFactory) -> DriverImage:
    """The driver that needs firmware, and the node's own modules where a pod sees them."""
    image = build(api, firmware_request(kernel), tmp_path_factory.mktemp("image"))
    return replace(image, entries=(*image.entries, *host_modules(kernel)))


def host_modules(kernel: KernelPackage) -> Iterator[cpio.Entry]:
    """The chain of modules as the node has them, in one folder."""
    folder = f"host/lib/modules/{kernel.release}"
    files = [file_of(kernel, name) for name in CHAIN]
    for path in files:
        yield cpio.file(f"{folder}/{path.name}", path.read_bytes())
    lines = [
        f"{path.name}: {' '.join(below.name for below in reversed(files[:level]))}\n"
        for level, path in enumerate(files)
    ]
    yield cpio.file(f"{folder}/modules.dep", "".join(lines).encode())


@pytest.fixture(scope="module")
def with_shipped_loader(
    image: DriverImage, api: docker.APIClient, engine_ground: Testbed, tmp_path_factory: pytest.TempPathFactory
) -> DriverImage:
    """The same with what is in the loader's own image, built from its Dockerfile."""
    built = product_images.build_all(
        api,
        "test.invalid",
        base_image=engine_ground.base_image,
        say=lambda _: None,
        names=["loader"],
        push=False,
    )
    folder = tmp_path_factory.mktemp("loader")
    with (folder / "saved.tar").open("wb") as saved:
        saved.writelines(api.get_image(built["loader"]))
    files = read_files(read_image_archive(folder / "saved.tar", folder), "/")
    shipped = [cpio.program(f"driverwright/{name}", files[f"/{name}"]) for name in ("busybox", "loader.sh")]
    others = [entry for entry in image.entries if entry.path not in {it.path for it in shipped}]
    return replace(image, entries=(*shipped, *others))


def packed_modules(kernel: KernelPackage, folder: Path, *suffixes: str) -> Iterator[cpio.Entry]:
    """The chain of modules as nodes have them, each compressed as its suffix says."""
    names = [f"{name}.ko{suffix}" for name, suffix in zip(CHAIN, suffixes, strict=True)]
    for name, file in zip(CHAIN, names, strict=True):
        original = file_of(kernel, name)
        content = (lzma.open if original.suffix == ".xz" else open)(original, "rb").read()
        yield cpio.file(f"host/lib/modules/{kernel.release}/{file}", packed(content, Path(file).suffix, folder))
    lines = [f"{name}: {' '.join(reversed(names[:level]))}\n" for level, name in enumerate(names)]
    yield cpio.file(f"host/lib/modules/{kernel.release}/modules.dep", "".join(lines))


def packed(content: bytes, suffix: str, folder: Path) -> bytes:
    """Compress a module as the kernel's own build does."""
    if suffix == ".gz":
        return gzip.compress(content)
    if suffix == ".xz":
        return lzma.compress(content, check=lzma.CHECK_CRC32)
    if suffix == ".zst":
        (folder / "plain").write_bytes(content)
        run(["zstd", "--quiet", "--force", folder / "plain", "-o", folder / "packed"])
        return (folder / "packed").read_bytes()
    return content


def file_of(kernel: KernelPackage, name: str) -> Path:
    """Find a module of the kernel, compressed or not."""
    (path,) = kernel.modules.rglob(f"{name}.ko*")
    return path


@pytest.fixture
def with_user_space(kernel: KernelPackage, api: docker.APIClient, tmp_path: Path) -> Iterator[DriverImage]:
    """The same driver, whose firmware comes in an archive with its library."""
    tree = tmp_path / "web/fw-1.0.0"
    (tree / "lib").mkdir(parents=True)
    (tree / "lib/libfw.so.1.0.0").write_text("library\n")
    (tree / "lib/libfw.so").symlink_to("libfw.so.1.0.0")
    shutil.copytree(SOURCE / "firmware", tree / "firmware")
    with tarfile.open(tree.with_suffix(".tar"), "w") as archive:
        archive.add(tree, arcname=tree.name)
    sha256 = hashlib.sha256(tree.with_suffix(".tar").read_bytes()).hexdigest()
    with web_server.served(tree.parent) as url:
        content = UserspaceArchive(url=f"{url}/{tree.with_suffix('.tar').name}", sha256=sha256)
        userspace = Userspace(content=content, version_file="lib/libfw.so.1.0.0")
        request = replace(firmware_request(kernel), userspace=userspace, firmware_path="/userspace/firmware")
        (tmp_path / "image").mkdir()
        yield build(api, request, tmp_path / "image")


@pytest.mark.long
def test_a_user_space_is_exported_with_its_firmware(
    kernel: KernelPackage, with_user_space: DriverImage, tmp_path: Path
) -> None:
    """The kernel finds the firmware, pods the library; a mount keeps it over an upgrade; all goes with the driver."""
    export = "/run/driverwright/drivers.fw"
    library = f"cat /host{export}/lib/libfw.so"
    did = boot(
        kernel,
        with_user_space,
        {
            "host": f"{HOST}; mkdir -p /host/run /pod; mount -t tmpfs tmpfs /host/run; mkdir /host/run/driverwright",
            "load": f"{POD} USERSPACE='{export} aaaa' {LOAD}",
            "verdict": VERDICT,
            "says": "dmesg | grep -o 'its firmware says.*'",
            "library": library,
            "mount": f"mount -o bind /host{export} /pod && cat /pod/lib/libfw.so",
            "upgrade": f"{POD} USERSPACE='{export} bbbb' {LOAD}",
            "link": f"readlink /host{export}; {library}",
            "still": "cat /pod/lib/libfw.so; umount /pod",
            "unload": f"{UNLOAD} UNLOAD=fwdrv:$(cat /sys/module/fwdrv/srcversion) {LOADER} unload",
            "after": "ls -A /host/run/driverwright",
        },
        tmp_path,
    )
    assert did["load"].code == 0, did["load"].output
    assert did["verdict"].verdict["result"] == "Loaded"
    assert did["says"].output == "its firmware says: good day\n"
    assert did["library"].output == did["mount"].output == did["still"].output == "library\n"
    assert did["upgrade"].code == 0, did["upgrade"].output
    assert did["link"].output == ".drivers.fw@bbbb\nlibrary\n"
    assert did["unload"].code == 0, did["unload"].output
    assert did["after"].output == ""


def test_firmware_is_found_by_the_kernel(kernel: KernelPackage, image: DriverImage, tmp_path: Path) -> None:
    """Without it the module does not load, which the kernel says; with it it does; it goes with the driver."""
    insmod = "insmod $(find /lib/modules -name fwdrv.ko)"
    did = boot(
        kernel,
        image,
        {
            "host": HOST,
            "without": insmod,
            "load": f"{POD} {LOAD}",
            "verdict": VERDICT,
            "says": "dmesg | grep -o 'its firmware says.*'",
            "files": FIRMWARE,
            "probe": PROBE,
            "stop": f"export {POD}; {HOLD_AND_STOP}",
            "stays": FIRMWARE,
            "unload": f"{UNLOAD} UNLOAD=fwdrv:$(cat /sys/module/fwdrv/srcversion) {LOADER} unload",
            "after": FIRMWARE,
        },
        tmp_path,
    )
    assert did["without"].code != 0
    assert did["load"].code == 0, did["load"].output
    assert did["verdict"].verdict["result"] == "Loaded"
    assert did["says"].output == "its firmware says: good day\n"
    folder = f"./updates/{kernel.release}"
    assert did["files"].output.split() == [
        f"{folder}/.driverwright-drivers.fw-0a1b2c3d",
        f"{folder}/fwdrv/greeting.bin",
    ]
    assert did["probe"].code == 0
    assert did["stop"].code == 0
    assert did["stays"].output == did["files"].output
    assert did["unload"].code == 0, did["unload"].output
    assert did["after"].output == ""


def test_firmware_is_found_where_lib_firmware_is_read_only(
    kernel: KernelPackage, image: DriverImage, tmp_path: Path
) -> None:
    """The report says so; the other place works, by the kernel's search path, which goes with the driver."""
    there = f"{POD} FIRMWARE_PATH=:/var/lib/firmware"
    path = "/sys/module/firmware_class/parameters/path"
    files = f"cd /var/lib/firmware; find . -type f | sort; cat {path}"
    unload = f"UNLOAD=fwdrv:$(cat /sys/module/fwdrv/srcversion) {LOADER} unload"
    did = boot(
        kernel,
        image,
        {
            "host": f"{HOST}; mount -t tmpfs -o ro tmpfs /lib/firmware; mkdir -p /var/lib/firmware "
            "/host/run/driverwright /host/var/lib; ln -s /var/lib/firmware /host/var/lib/firmware",
            "read_only": f"{POD} {LOAD}",
            "why": VERDICT,
            "elsewhere": f"printf /opt/firmware >{path}; {there} {LOAD}",
            "whose": VERDICT,
            "load": f"printf '\\0' >{path}; {there} {LOAD}",
            "verdict": VERDICT,
            "says": "dmesg | grep -o 'its firmware says.*'",
            "files": files,
            "again": f"{there} {LOAD}",
            "unload": f"{UNLOAD} {unload}",
            "after": files,
        },
        tmp_path,
    )
    assert did["read_only"].code == 1
    assert "is the node's /lib/firmware read-only? See spec.module.firmwareHostPath" in did["why"].verdict["message"]
    assert did["elsewhere"].code == 1
    assert "firmware_class.path of the node's kernel to /opt/firmware" in did["whose"].verdict["message"]
    assert did["load"].code == 0, did["load"].output
    assert did["verdict"].verdict["result"] == "Loaded"
    assert did["says"].output == "its firmware says: good day\n"
    assert did["files"].output.split() == [
        "./.driverwright-drivers.fw-0a1b2c3d",
        "./fwdrv/greeting.bin",
        "/var/lib/firmware",
    ]
    assert did["again"].code == 0, did["again"].output
    assert did["unload"].code == 0, did["unload"].output
    assert did["after"].output.strip() == ""


@pytest.fixture(scope="module")
def stack(kernel: KernelPackage, api: docker.APIClient, tmp_path_factory: pytest.TempPathFactory) -> DriverImage:
    """Two versions of a driver that names its upper module only, the second one in /image2, and modules of the node."""
    entries: list[cpio.Entry] = list(host_modules(kernel))
    for version in (1, 2):
        sources = {path.name: path.read_bytes() for path in STACK.iterdir()}
        request = replace(
            edu_request(kernel),
            recipe=f"test-stack-{version}-{kernel.release}",
            driver=DriverKey("drivers/stack"),
            source=SourceFiles(files={**sources, "version.h": f"#define STACK_VERSION {version}\n".encode()}),
            modules=(ModuleSpec(name="stack_transport"),),
        )
        built = build(api, request, tmp_path_factory.mktemp("image"))
        folder = "" if version == 1 else "image2/"
        entries += [replace(entry, path=f"{folder}{entry.path}") for entry in built.entries]
    return DriverImage(tuple(entries), 0, None)


def test_modules_that_the_spec_does_not_name_come_and_go_with_the_driver(
    kernel: KernelPackage, stack: DriverImage, tmp_path: Path
) -> None:
    """What the named one needs of the image is replaced and unloaded with it, what it asks for is loaded before."""
    pod = "DRIVER=drivers.stack-0a1b2c3d"
    live = "cd /sys/module; ls -d llc stack_core stack_transport 2>/dev/null | xargs; cat stack_*/version | xargs"
    unload = f"UNLOAD=stack_transport:$(cat /sys/module/stack_transport/srcversion) {LOADER} unload"
    did = boot(
        kernel,
        stack,
        {
            "host": "mkdir -p /host/run/driverwright",
            "load": f"{pod} {LOAD}",
            "first": live,
            "upgrade": f"{pod} DRIVER_ROOT=/image2 {LOAD}",
            "second": live,
            "says": "dmesg | grep -o 'transport [12] on core [12]'",
            "again": f"{pod} DRIVER_ROOT=/image2 {LOAD}",
            "stop": f"export {pod} DRIVER_ROOT=/image2; {HOLD_AND_STOP}",
            "unload": f"{pod} BOOT_ID=$(cat /proc/sys/kernel/random/boot_id) {unload}",
            "after": "cd /sys/module; ls -d llc stack_core stack_transport 2>/dev/null | xargs",
        },
        tmp_path,
    )
    assert did["load"].code == 0, did["load"].output
    assert did["first"].output == "llc stack_core stack_transport\n1 1\n"
    assert did["upgrade"].code == 0, did["upgrade"].output
    assert did["second"].output == "llc stack_core stack_transport\n2 2\n"
    assert did["says"].output == "transport 1 on core 1\ntransport 2 on core 2\n"
    assert did["again"].output.count("already loaded") == 2
    assert "holding stack_core stack_transport on" in did["stop"].output
    assert did["unload"].code == 0, did["unload"].output
    assert did["after"].output == "llc\n"


def test_modules_of_the_kernel_make_room(kernel: KernelPackage, image: DriverImage, tmp_path: Path) -> None:
    """In use they are refused, and nothing has happened; in order they go; a driver that fails brings them back.

    Then a second driver comes, with another build of the first one's module: it gets it once the first is gone.
    """
    live = "cd /sys/module; ls -d llc stp bridge fwdrv 2>/dev/null | xargs"
    did = boot(
        kernel,
        image,
        {
            "host": f"{HOST}; mkdir -p /host/run/driverwright",
            "chain": CHAIN_LOADED,
            "in_use": f"{POD} REMOVE_MODULES='bridge llc' {LOAD}",
            "why": VERDICT,
            "untouched": live,
            "fails": f"mv /firmware /f; {POD} REMOVE_MODULES='bridge stp llc' {LOAD}; mv /f /firmware",
            "failure": VERDICT,
            "brought_back": live,
            "load": f"{POD} REMOVE_MODULES='bridge stp llc' {LOAD}",
            "removed": live,
            "stop": f"export {POD}; {HOLD_AND_STOP}",
            "stays": live,
            "joins": f"sed -i.bak 's/srcversion .*/srcversion AAAA/' /driver/identities; {SECOND} {LOAD}",
            "conflict": VERDICT,
            "owned": f"cat {OWNERS}/*; {live}",
            "leaves": f"{UNLOAD} UNLOAD=fwdrv:$(cat /sys/module/fwdrv/srcversion) {LOADER} unload; {live}",
            "second": f"mv /driver/identities.bak /driver/identities; {SECOND} {LOAD}",
            "taken": f"cat {OWNERS}/*; {live}",
        },
        tmp_path,
    )
    assert did["chain"].code == 0, did["chain"].output
    assert did["in_use"].code == 1
    assert did["why"].verdict["module"] == "llc"
    assert "module llc is in use (refcnt 2, used by modules bridge stp)" in did["why"].verdict["message"]
    assert did["untouched"].output == "bridge llc stp\n"
    assert did["fails"].output.count("loaded bridge again") == 1
    assert did["failure"].verdict["module"] == "fwdrv"
    assert did["brought_back"].output == "bridge llc stp\n"
    assert did["load"].code == 0, did["load"].output
    assert did["removed"].output == "fwdrv\n"
    assert did["stays"].output == "fwdrv\n"
    assert did["joins"].code == 1
    conflict = did["conflict"].verdict
    assert (conflict["result"], conflict["module"]) == ("ModuleConflict", "fwdrv")
    assert "loaded on this node by driver drivers/fw, and driver drivers/second would replace" in conflict["message"]
    boot_id = conflict["bootID"]
    assert did["owned"].output == f"{boot_id} drivers.fw live\nfwdrv\n"
    assert did["leaves"].output.endswith("driverwright: Unloaded: unloaded fwdrv\n\n")
    assert did["second"].code == 0, did["second"].output
    assert did["taken"].output == f"{boot_id} drivers.second live\nfwdrv\n"


@pytest.mark.parametrize(
    "suffixes",
    [
        pytest.param((".zst", ".xz", ".gz"), id="one of each"),
        pytest.param(("", ".zst", ".zst"), id="most zstd", marks=pytest.mark.long),
    ],
)
def test_modules_of_the_node_are_loaded_however_they_are_compressed(
    kernel: KernelPackage,
    with_shipped_loader: DriverImage,
    tmp_path: Path,
    suffixes: tuple[str, str, str],
) -> None:
    """What the driver needs of the node, and what made room for a driver that then failed: by the shipped loader."""
    others = [entry for entry in with_shipped_loader.entries if not entry.path.startswith("host/lib/modules/")]
    entries = (*others, *packed_modules(kernel, tmp_path, *suffixes))
    live = "cd /sys/module; ls -d llc stp bridge fwdrv 2>/dev/null | xargs"
    left = "ls -A /host/run/driverwright"
    did = boot(
        kernel,
        replace(with_shipped_loader, entries=entries),
        {
            "host": f"{HOST}; mkdir -p /host/run/driverwright; sed -i 's/^fwdrv.*/fwdrv bridge/' /driver/depends",
            "load": f"{POD} {LOAD}",
            "loaded": f"{live}; {left}",
            "unload": f"{UNLOAD} UNLOAD=fwdrv:$(cat /sys/module/fwdrv/srcversion) {LOADER} unload",
            "fails": f"echo fwdrv >/driver/depends; mv /firmware /f; {POD} REMOVE_MODULES='bridge stp llc' {LOAD}",
            "brought_back": f"{live}; {left}",
        },
        tmp_path,
    )
    assert did["load"].code == 0, did["load"].output
    assert did["loaded"].output == "bridge fwdrv llc stp\nowners\n"
    assert did["unload"].code == 0, did["unload"].output
    assert did["fails"].output.count("loaded bridge again") == 1, did["fails"].output
    assert did["brought_back"].output.startswith("bridge llc stp\n")
    assert ".plain" not in did["brought_back"].output


def test_a_blacklist_is_what_modprobe_obeys(kernel: KernelPackage, image: DriverImage, tmp_path: Path) -> None:
    """Live, it is refused; the file is read by the node's own modprobe; it goes with the driver."""
    did = boot(
        kernel,
        image,
        {
            "host": HOST,
            "chain": CHAIN_LOADED,
            "live": f"{POD} BLACKLIST='llc' {LOAD}",
            "why": VERDICT,
            "load": f"{POD} BLACKLIST='llc stp bridge' REMOVE_MODULES='bridge stp llc' {LOAD}",
            "file": BLACKLIST,
            "stop": f"export {POD} BLACKLIST=llc; {HOLD_AND_STOP}",
            "stays": BLACKLIST,
            "leave": f"{UNLOAD} {LOADER} unload",
            "gone": "ls -A /host/etc/modprobe.d",
        },
        tmp_path,
    )
    assert did["live"].code == 1
    assert did["why"].verdict["module"] == "llc"
    assert "is on spec.module.blacklist and already loaded (refcnt 2, " in did["why"].verdict["message"]
    assert did["load"].code == 0, did["load"].output
    assert did["stays"].output == did["file"].output
    assert (did["leave"].code, did["gone"].output) == (0, "")
    assert what_modprobe_does(kernel, "llc", tmp_path / "no.conf", "") == f"insmod {file_of(kernel, 'llc')}"
    assert what_modprobe_does(kernel, "llc", tmp_path / "a.conf", did["file"].output) == "install /bin/false"
    wanted = {f"blacklist {name}" for name in CHAIN} | {f"install {name} /bin/false" for name in CHAIN}
    assert wanted == set(did["file"].output.splitlines()[1:])


def what_modprobe_does(kernel: KernelPackage, name: str, file: Path, configuration: str) -> str:
    """Ask the distribution's own modprobe what it would do to load a module."""
    file.write_text(configuration)
    argv: list[str | Path] = [
        "modprobe",
        "--dry-run",
        "--verbose",
        "-C",
        file,
        "-d",
        kernel.tree,
        "-S",
        kernel.release,
        name,
    ]
    return run(argv).strip()


def test_a_build_without_its_firmware_says_so(
    kernel: KernelPackage, image: DriverImage, api: docker.APIClient, tmp_path: Path
) -> None:
    """A folder that is not there, told before anything is pushed."""
    assert image
    request = replace(firmware_request(kernel), recipe="test-no-firmware", firmware_path="/source/firmwear")
    with pytest.raises(BuildFailed, match="the build has no files in /source/firmwear") as caught:
        build(api, request, tmp_path)
    assert caught.value.reason is Reason.SOURCE_MISSING


def test_the_example_of_an_own_template_is_good(api: docker.APIClient, tmp_path: Path) -> None:
    """Built, verified and loaded, with a device: as docs/templates.md has it."""
    kernel = newest_kernel(CLOUD, PlainLines())
    request = replace(edu_request(kernel), recipe="own:1", template="own", own_template=own_template())
    (tmp_path / "image").mkdir()
    image = build(api, request, tmp_path / "image")
    did = boot(kernel, image, {"load": LOAD, "verdict": VERDICT, "probe": PROBE}, tmp_path, "edu,addr=2")
    assert did["load"].code == 0, did["load"].output
    (module,) = did["verdict"].verdict["modules"]
    assert module == {"name": "edudrv", "srcversion": image.srcversion, "devices": ["0000:00:02.0"]}
    assert did["probe"].code == 0
