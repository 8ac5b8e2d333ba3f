"""Driver images built by a real Docker Engine: the real template for a real kernel, and everything that goes wrong."""

from __future__ import annotations

import gc
import hashlib
import re
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import pytest

from driver_builder.archives.image_archive import read_image_archive
from driver_builder.archives.image_layers import opened_layer
from driver_builder.base.errors import BuildFailed, TemporaryError, VerificationFailed
from driver_builder.base.reasons import Reason
from driver_builder.builds.docker.docker_builder import DockerBuilder
from driver_builder.builds.docker.docker_engine import docker_engine
from driver_builder.model.build import (
    BuildRequest,
    BuiltImage,
    ModuleSpec,
    Source,
    SourceArchive,
    SourceFiles,
    SourceGit,
    SourceImage,
    SourcePackage,
)
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.image_state import Present
from driver_builder.model.kernels import KernelTarget, KernelVersion
from driver_builder.model.userspace import Userspace, UserspaceArchive, UserspacePackages
from driver_builder.modules.verify import verify
from driver_builder.registry.credentials import Credentials
from driver_builder.registry.registry import RegistryClient
from testbed.kernels import available_releases, newest_release
from testbed.packages import refreshed_apt
from testbed.testbed import Testbed
from tests.support.driver_builder.image_tars import read_files
from tests.support.loopback import LOOPBACK
from tests.support.real_parts import web_server
from tests.support.real_parts.build_bench import LeapingClock
from tests.support.real_parts.libraries import VERSION_FILE
from tests.support.real_parts.libraries import served as served_libraries

pytestmark = pytest.mark.every_engine

MODULE_SOURCE = Path(__file__).parents[1] / "data" / "modules"
BASE_IMAGE = "debian:bookworm-slim"
QUICK_KERNEL = "6.1.0-55-cloud-amd64"
QUICK_TEMPLATE = """\
FROM {{ base_image }} AS build
RUN mkdir -p /out/driver /facts
COPY modules /out/driver/
{% if source_image %}
COPY --from={{ source_image }} {{ source_path }} /src
{% else %}
COPY source/ /src/
{% endif %}
RUN sh /src/build.sh {{ kernel_version }}
FROM scratch
COPY --from=build /out/ /
"""
GOOD_SCRIPT = "echo 0x1 > /facts/Module.symvers; echo 'gcc 12' > /facts/compiler; echo built"


@pytest.fixture
def api(engine_ground: Testbed) -> Iterator[docker.APIClient]:
    """The engine, closed again."""
    with docker_engine(engine_ground.engine.socket) as client:
        yield client


@pytest.fixture
def clock() -> LeapingClock:
    """What the builder's deadlines are counted by."""
    return LeapingClock()


@pytest.fixture
def builder(api: docker.APIClient, clock: LeapingClock, tmp_path: Path) -> DockerBuilder:
    """A builder with a template that runs the source's own script."""
    folder = tmp_path / "templates"
    folder.mkdir()
    (folder / "quick.Dockerfile.j2").write_text(QUICK_TEMPLATE)
    return DockerBuilder(api, templates=folder, clock=clock)


def quick(script: str = GOOD_SCRIPT, **fields: Any) -> BuildRequest:
    """A request that takes no more than its script."""
    defaults: dict[str, Any] = {
        "recipe": "quick:1",
        "driver": DriverKey("integration/quick"),
        "version": "1",
        "target": KernelTarget(KernelVersion(QUICK_KERNEL), "debian", "12", "amd64"),
        "template": "quick",
        "base_image": BASE_IMAGE,
        "source": SourceFiles(files={"build.sh": script.encode()}),
        "modules": (ModuleSpec(name="quick", parameters=("debug=1",)),),
    }
    return BuildRequest(**{**defaults, **fields})


class Run:
    """One build in a directory of its own, with what it said."""

    def __init__(self, builder: DockerBuilder, directory: Path) -> None:
        self.builder = builder
        self.directory = directory
        self.lines: list[str] = []
        self.cancelled = threading.Event()
        self.when_waiting: Callable[[], None] | None = None
        """What happens once the command of ``SILENT`` runs."""

    def __call__(self, request: BuildRequest) -> BuiltImage:
        """Build, and keep the lines."""
        return self.builder.build(request, directory=self.directory, log=self.log, cancelled=self.cancelled)

    def log(self, line: str) -> None:
        """Keep a line, and do what its time has come for."""
        self.lines.append(line)
        if self.when_waiting and line == "waiting":
            self.when_waiting()


@pytest.fixture
def build(builder: DockerBuilder, tmp_path: Path) -> Run:
    """A build to be run."""
    return Run(builder, tmp_path)


def traces(api: docker.APIClient) -> set[str]:
    """Names of images that builds use, and containers of any kind."""
    tags = {tag for image in api.images() for tag in image["RepoTags"] or ()}
    names = {name for container in api.containers(all=True) for name in container["Names"]}
    return {tag for tag in tags if tag.startswith("driverwright-build")} | names


def wait_until_no_container(api: docker.APIClient) -> None:
    """Wait for the engine, which ends a cancelled build on its own time."""
    deadline = time.monotonic() + 600
    while api.containers(all=True):
        assert time.monotonic() < deadline, api.containers(all=True)
        time.sleep(0.1)


def newest_kernel() -> str:
    """The newest cloud kernel of Debian's own series."""
    return newest_release(available_releases(refreshed_apt()))


def test_a_build_reaches_no_network_where_the_setting_says_so(
    api: docker.APIClient, builder: DockerBuilder, tmp_path: Path
) -> None:
    """With --build-network none a build has the loopback alone; by default it has what the machine has."""
    offline = DockerBuilder(api, templates=tmp_path / "templates", network="none")
    for number, built_by in enumerate((offline, builder)):
        run = Run(built_by, tmp_path)
        # Another command, or the second build finds the first one in the cache.
        run(quick(f"{GOOD_SCRIPT}; echo networks: $(ls /sys/class/net) # {number}"))
        found = [line for line in run.lines if line.startswith("networks:")]
        ours = " ".join(sorted(path.name for path in Path("/sys/class/net").iterdir()))
        assert found == ["networks: lo" if built_by is offline else f"networks: {ours}"]


def test_a_real_driver_is_built_verified_and_pushed(
    engine_ground: Testbed,
    api: docker.APIClient,
    tmp_path: Path,
) -> None:
    """Two modules, one depending on the other, from source to registry by the template that we ship."""
    kernel = newest_kernel()
    names = ("dw_helper.c", "dw_probe.c", "Makefile")
    request = quick(
        target=KernelTarget(KernelVersion(kernel), "debian", "12", "amd64"),
        driver=DriverKey("integration/probe"),
        template="debian",
        source=SourceFiles(files={name: (MODULE_SOURCE / name).read_bytes() for name in names}),
        modules=(ModuleSpec(name="dw_probe", parameters=("verbosity=2",)),),
    )
    built = Run(DockerBuilder(api), tmp_path)(request)
    assert built.compiler.startswith("gcc ")
    assert "\tvmlinux\t" in built.module_symvers

    image = read_image_archive(built.archive, tmp_path)
    (probe,) = verify(image, request=request, module_symvers=built.module_symvers)
    assert probe.vermagic.startswith(f"{kernel} ")
    assert probe.srcversion
    assert read_files(image, "/driver/needs-device") == {"/driver/needs-device": b"dw_probe\n"}
    assert read_files(image, "/driver/modules") == {"/driver/modules": b"dw_probe verbosity=2\n"}

    client = RegistryClient(engine_ground.registry.host, plain_http=True, reach=LOOPBACK)
    digest = client.push("integration/probe", image.with_labels({"driverwright.io/key": request.key}))
    client.tag("integration/probe", digest, "k1")
    state = client.inspect("integration/probe", "k1")
    assert state == Present(digest=digest, labels={"driverwright.io/key": request.key})

    with pytest.raises(VerificationFailed) as caught:
        verify(image, request=request, module_symvers=re.sub(r"^0x....", "0x0123", built.module_symvers, flags=re.M))
    assert caught.value.reason is Reason.WRONG_SYMBOL_CRC


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SourceGit, SourceArchive]]:
    """A driver below drivers/probe, as a commit and as an archive with a top folder, from a web server.

    In the repository a part of it is in a submodule, and the Makefile asks git which version it is.
    """
    root = tmp_path_factory.mktemp("web")
    tree = root / "probe-1.0" / "drivers" / "probe"
    tree.mkdir(parents=True)
    for name in ("dw_helper.c", "dw_probe.c", "Makefile"):
        (tree / name).write_bytes((MODULE_SOURCE / name).read_bytes())
    with tarfile.open(root / "probe.tar.gz", "w:gz") as archive:
        archive.add(root / "probe-1.0", arcname="probe-1.0")

    helper = root / "helper"
    helper.mkdir()
    (tree / "dw_helper.c").rename(helper / "dw_helper.c")
    _commit(helper)
    (tree / "dw_helper.c").symlink_to("helper/dw_helper.c")
    with (tree / "Makefile").open("a") as makefile:
        makefile.write("$(if $(filter v1.0,$(shell git describe --dirty)),,$(error git does not know the version))\n")
    commit = _commit(root / "probe-1.0", submodule=("../../helper/.git", "drivers/probe/helper"))
    with web_server.served(root) as url:
        sha256 = hashlib.sha256((root / "probe.tar.gz").read_bytes()).hexdigest()
        yield (
            SourceGit(url=f"{url}/probe-1.0/.git", commit=commit, path="drivers/probe"),
            SourceArchive(url=f"{url}/probe.tar.gz", sha256=sha256, path="probe-1.0/drivers/probe"),
        )


def _commit(folder: Path, *, submodule: tuple[str, str] = ("", "")) -> str:
    """Make a folder a repository of one commit, ready for a server that knows nothing of git; returns the commit.

    The URL of a submodule is relative to ``folder/.git``, which is what is served.
    """

    def git(*words: str) -> str:
        who = ("-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "protocol.file.allow=always")
        argv = ["git", "-C", str(folder), *who, *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    url, path = submodule
    if path:
        git("submodule", "--quiet", "add", str(folder / ".git" / url), path)
        git("config", "-f", ".gitmodules", f"submodule.{path}.url", url)
    git("add", ".")
    git("commit", "-q", "-m", "probe")
    git("tag", "-a", "-m", "probe", "v1.0")
    git("update-server-info")
    return git("rev-parse", "HEAD")


def shipped(source: Source, *modules: str) -> BuildRequest:
    """A request for the newest cloud kernel by the template that we ship."""
    return quick(
        target=KernelTarget(KernelVersion(newest_kernel()), "debian", "12", "amd64"),
        template="debian",
        source=source,
        modules=tuple(ModuleSpec(name=name) for name in modules),
    )


@pytest.mark.long
@pytest.mark.parametrize("kind", [pytest.param(0, id="git"), pytest.param(1, id="archive")])
def test_a_source_is_fetched_inside_the_build(
    served: tuple[SourceGit, SourceArchive], kind: int, api: docker.APIClient, tmp_path: Path
) -> None:
    """By its commit, with submodules and version, or by its checksum; from a folder below its root."""
    request = shipped(served[kind], "dw_probe")
    built = Run(DockerBuilder(api), tmp_path)(request)
    (probe,) = verify(read_image_archive(built.archive, tmp_path), request=request, module_symvers=built.module_symvers)
    assert probe.name == "dw_probe"


def test_a_source_that_is_not_what_was_asked_for_is_not_built(
    served: tuple[SourceGit, SourceArchive], api: docker.APIClient, tmp_path: Path
) -> None:
    """Another checksum, a commit that nobody has: each says so."""
    git, archive = served
    wrong = f"has sha256 {archive.sha256}, not 0000"
    is_missing(replace(archive, sha256="0" * 64), wrong, api, tmp_path)
    is_missing(replace(git, commit="0" * 40), "no commit 0000", api, tmp_path)


@pytest.mark.long
def test_a_source_that_is_not_there_is_not_built(
    served: tuple[SourceGit, SourceArchive], api: docker.APIClient, tmp_path: Path
) -> None:
    """A folder, an archive or a package: each says so."""
    _, archive = served
    is_missing(replace(archive, path="gone"), "no folder gone", api, tmp_path)
    is_missing(replace(archive, url=f"{archive.url}.gone"), "cannot be downloaded", api, tmp_path)
    name = "no-such-driver-dkms"
    is_missing(SourcePackage(name=name), f"{name} is not in the archives", api, tmp_path)
    other = SourcePackage(name="acpi-call-dkms", version="0.0.1")
    is_missing(other, "acpi-call-dkms=0.0.1 is not in the archives", api, tmp_path)


def is_missing(source: Source, words: str, api: docker.APIClient, folder: Path) -> None:
    """Build a source that cannot be had as it was asked for."""
    with pytest.raises(BuildFailed, match=words) as caught:
        Run(DockerBuilder(api), folder)(shipped(source, "dw_probe"))
    assert caught.value.reason is Reason.SOURCE_MISSING


def test_a_dkms_package_is_built_as_its_dkms_conf_says(api: docker.APIClient, tmp_path: Path) -> None:
    """A real driver of a third party, from package to verified module; dkms signs nothing with a key of its own."""
    request = shipped(SourcePackage(name="acpi-call-dkms"), "acpi_call")
    build = Run(DockerBuilder(api), tmp_path)
    built = build(request)
    (module,) = verify(
        read_image_archive(built.archive, tmp_path), request=request, module_symvers=built.module_symvers
    )
    assert module.vermagic.startswith(f"{request.target.kernel_version} ")
    assert any("modules won't be signed" in line for line in build.lines)


USERSPACE_PACKAGE = "libutempter0"


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UserspaceArchive]:
    """A user space from a web server."""
    with served_libraries(tmp_path_factory.mktemp("libraries")) as archive:
        yield archive


def test_a_user_space_of_an_archive_is_built_and_verified(
    libraries: UserspaceArchive, api: docker.APIClient, tmp_path: Path
) -> None:
    """Beside the modules, and of their version; firmware of it is where firmware is."""
    names = ("dw_helper.c", "dw_probe.c", "Makefile")
    request = replace(
        shipped(SourceFiles(files={name: (MODULE_SOURCE / name).read_bytes() for name in names}), "dw_probe"),
        userspace=Userspace(content=libraries, version_file=VERSION_FILE),
        firmware_path="/userspace/fw",
    )
    built = Run(DockerBuilder(api), tmp_path)(request)
    image = read_image_archive(built.archive, tmp_path)
    verify(image, request=request, module_symvers=built.module_symvers)
    assert read_files(image, "/userspace") == {
        "/userspace/lib/libprobe.so.2.5": b"library",
        "/userspace/bin/probe": b"program",
    }
    assert read_files(image, "/firmware") == {"/firmware/probe.bin": b"firmware"}
    with opened_layer(image.layers[1]) as tar:
        entries = {entry.name: entry for entry in tar}
    link, program = entries["userspace/lib/libprobe.so"], entries["userspace/bin/probe"]
    assert (link.linkname, program.mode & 0o7777, program.mtime) == ("libprobe.so.2.5", 0o755, 0)

    other = replace(request, userspace=Userspace(content=libraries, version_file="lib/libprobe.so.2.4"))
    with pytest.raises(VerificationFailed, match=r"no file lib/libprobe\.so\.2\.4") as caught:
        verify(image, request=other, module_symvers=built.module_symvers)
    assert caught.value.reason is Reason.USERSPACE_MISMATCH


@pytest.mark.long
def test_a_user_space_of_packages_is_built_and_verified(api: docker.APIClient, tmp_path: Path) -> None:
    """Exactly the version that is named; another one than the modules' is refused, one that is nowhere not built."""
    shown = refreshed_apt().cache("show", USERSPACE_PACKAGE)
    version = re.findall(r"^Version: (\S+)$", shown, re.MULTILINE)[0]
    upstream = version.partition("-")[0].encode()
    names = ("dw_helper.c", "dw_probe.c", "Makefile")
    files = {name: (MODULE_SOURCE / name).read_bytes() for name in names}
    files["dw_probe.c"] = files["dw_probe.c"].replace(b'MODULE_VERSION("2.5")', b'MODULE_VERSION("' + upstream + b'")')
    content = UserspacePackages(pins=((USERSPACE_PACKAGE, version),))
    request = replace(shipped(SourceFiles(files=files), "dw_probe"), userspace=Userspace(content=content))
    built = Run(DockerBuilder(api), tmp_path)(request)
    image = read_image_archive(built.archive, tmp_path)
    verify(image, request=request, module_symvers=built.module_symvers)
    assert any("/libutempter.so.0" in path or "/libutempter.so." in path for path in read_files(image, "/userspace"))

    nowhere = replace(request, userspace=Userspace(content=UserspacePackages(pins=((USERSPACE_PACKAGE, "0.0.1-1"),))))
    with pytest.raises(
        BuildFailed, match=f"{USERSPACE_PACKAGE}=0.0.1-1 of spec.userspace is not in the archives"
    ) as caught:
        Run(DockerBuilder(api), tmp_path)(nowhere)
    assert caught.value.reason is Reason.SOURCE_MISSING


def test_a_driver_that_is_not_for_the_kernel_says_so(api: docker.APIClient, tmp_path: Path) -> None:
    """A cloud kernel has no graphics: the message has the condition."""
    request = shipped(SourcePackage(name="evdi-dkms"), "evdi")
    with pytest.raises(BuildFailed, match=r"not for .*BUILD_EXCLUSIVE_CONFIG=.*CONFIG_DRM") as caught:
        Run(DockerBuilder(api), tmp_path)(request)
    assert caught.value.reason is Reason.NOT_APPLICABLE


def test_a_build_leaves_its_image_on_disk_and_its_cache_in_the_engine(build: Run, api: docker.APIClient) -> None:
    """No container and no image of its own stays; a prune does not cost the next build its cache."""
    built = build(quick())
    assert (built.module_symvers, built.compiler) == ("0x1\n", "gcc 12")
    assert "built" in build.lines
    assert read_files(read_image_archive(built.archive, build.directory), "/driver/modules") == {
        "/driver/modules": b"quick debug=1\n"
    }
    assert traces(api) == set()

    api.prune_images()
    build.lines.clear()
    again = build(quick(recipe="quick:2"))
    assert "built" not in build.lines
    assert [line for line in build.lines if "Using cache" in line]
    assert again.module_symvers == built.module_symvers
    assert traces(api) == set()


def test_equal_requests_give_equal_images(build: Run, api: docker.APIClient) -> None:
    """Building again, from the cache, changes no digest: nodes are not disturbed."""
    first = read_image_archive(build(quick()).archive, build.directory)
    second = read_image_archive(build(quick()).archive, build.directory)
    assert first.digest == second.digest
    assert traces(api) == set()


def test_a_newer_source_takes_the_place_of_the_older_cache(build: Run, api: docker.APIClient) -> None:
    """However often a driver is built for a kernel, the engine keeps one image of it."""
    build(quick())
    (before,) = api.images("driverwright-cache/*:latest", quiet=True)[:1]
    build(quick(f"{GOOD_SCRIPT}; echo newer"))
    assert before not in api.images(quiet=True, all=True)


@pytest.mark.parametrize(
    ("script", "reason", "words"),
    [
        pytest.param("echo driverwright: no a.ko; exit 66", Reason.COMPILE_ERROR, "no a.ko", id="module not built"),
        pytest.param("kill -9 $$", Reason.OUT_OF_MEMORY, "out of memory", id="killed"),
        pytest.param("dd if=/dev/zero of=/dev/full", Reason.DISK_FULL, "disk", id="disk full"),
        pytest.param("exit 3", Reason.BUILD_ERROR, "exit code 3", id="anything else"),
        pytest.param("true", Reason.TEMPLATE_INVALID, "/facts/Module.symvers", id="no facts"),
    ],
)
def test_a_command_that_fails_is_classified(
    script: str, reason: Reason, words: str, build: Run, api: docker.APIClient
) -> None:
    """With the last lines of what it printed, and without a trace in the engine."""
    with pytest.raises(BuildFailed, match=words) as caught:
        build(quick(f"echo hello; {script}"))
    assert caught.value.reason is reason
    assert not caught.value.log_tail or "hello" in caught.value.log_tail
    assert traces(api) == set()


def test_a_base_image_that_is_nowhere_is_missing(build: Run, engine_ground: Testbed) -> None:
    """A base image that does not exist is reported as missing, by its name."""
    missing = f"{engine_ground.registry.host}/no/such:1"
    with pytest.raises(BuildFailed, match=missing) as caught:
        build(quick(base_image=missing))
    assert caught.value.reason is Reason.BASE_IMAGE_MISSING


def test_a_dockerfile_that_is_none_is_the_templates_fault(build: Run) -> None:
    """An invalid Dockerfile is a template error with the engine's message."""
    (build.directory / "templates" / "quick.Dockerfile.j2").write_text("FRIM {{ base_image }}\n")
    with pytest.raises(BuildFailed, match="unknown instruction: FRIM") as caught:
        build(quick())
    assert caught.value.reason is Reason.TEMPLATE_INVALID


def test_a_source_image_is_pulled_with_its_credentials(
    engine_ground: Testbed,
    api: docker.APIClient,
    build: Run,
) -> None:
    """By digest, from a registry that asks for a password; without it the source is missing."""
    registry = engine_ground.registry
    registry.set_auth("anna", "s3cret")
    try:
        digest = push_source(engine_ground, api, {"username": "anna", "password": "s3cret"})
        source = SourceImage(reference=f"{registry.host}/integration/source@{digest}", path="/src")
        with pytest.raises(BuildFailed) as caught:
            build(quick(source=source))
        assert caught.value.reason is Reason.SOURCE_MISSING
        known = {registry.host: Credentials(username="anna", password="s3cret")}
        folder = build.directory / "templates"
        built = Run(DockerBuilder(api, templates=folder, credentials=known), build.directory)(quick(source=source))
        assert built.compiler == "gcc 12"
    finally:
        registry.set_auth(None)


def push_source(ground: Testbed, api: docker.APIClient, auth: dict[str, str]) -> str:
    """An image with a source below /src, pushed and gone from the engine; returns its digest."""
    name = f"{ground.registry.host}/integration/source"
    script = f'mkdir /src; echo "{GOOD_SCRIPT}" > /src/build.sh'
    container = api.create_container(ground.small_image, ["sh", "-c", script])
    try:
        api.start(container)
        assert api.wait(container)["StatusCode"] == 0
        api.commit(container, repository=name, tag="1")
    finally:
        api.remove_container(container, force=True)
    items = list(api.push(name, tag="1", auth_config=auth, stream=True, decode=True))
    (pushed,) = api.inspect_image(f"{name}:1")["RepoDigests"]
    api.remove_image(f"{name}:1", force=True)
    assert not [item for item in items if "error" in item], items
    return str(pushed.partition("@")[2])


SILENT = "echo waiting; sleep 1200"


def test_a_cancelled_build_ends_at_once(build: Run, api: docker.APIClient) -> None:
    """Though its command prints nothing; the engine ends the command too."""
    build.when_waiting = build.cancelled.set
    started = time.monotonic()
    with pytest.raises(BuildFailed) as caught:
        build(quick(SILENT))
    assert caught.value.reason is Reason.CANCELLED
    assert "waiting" in caught.value.log_tail
    assert time.monotonic() - started < 600, "the command alone takes twenty minutes"
    wait_until_no_container(api)


def test_a_build_ends_at_its_deadline(build: Run, clock: LeapingClock, api: docker.APIClient) -> None:
    """With the last line that its command printed; the deadline passes once that runs."""
    build.when_waiting = lambda: clock.leap(3600)
    started = time.monotonic()
    with pytest.raises(BuildFailed, match=r"within 3600 s \(last line: waiting\)") as caught:
        build(quick(SILENT, deadline_seconds=3600))
    assert caught.value.reason is Reason.DEADLINE_EXCEEDED
    assert time.monotonic() - started < 600, "the command alone takes twenty minutes"
    wait_until_no_container(api)


# docker's own client leaves its socket to the garbage collector when nobody listens on it.
@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
def test_an_engine_that_dies_is_a_matter_of_time(
    build: Run,
    engine_ground: Testbed,
    api: docker.APIClient,
) -> None:
    """In the middle of a build and before one: a temporary error; once it is back, the build succeeds."""
    build.when_waiting = engine_ground.engine.kill
    try:
        with pytest.raises(TemporaryError, match="build engine"):
            build(quick(SILENT))
        with pytest.raises(TemporaryError, match="build engine"):
            build(quick())
        with pytest.raises(TemporaryError, match="connecting to unix://"), docker_engine(engine_ground.engine.socket):
            pass
    finally:
        engine_ground.engine.start()
        gc.collect()
    assert build(quick()).compiler == "gcc 12"
    for container in api.containers(all=True):
        api.remove_container(container["Id"], force=True)
