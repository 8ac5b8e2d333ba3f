"""Builds in Kubernetes Jobs: a real kubelet runs buildah in a pod, with driver-builder's own account and rights."""

import base64
import contextlib
import gzip
import hashlib
import inspect
import io
import json
import multiprocessing
import shutil
import socket
import tarfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import docker
import pytest

from driver_builder.api.build_settings import BuilderKind, ConfigMapKey
from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.archives.image_archive import read_image_archive
from driver_builder.base.errors import BuildFailed, DriverBuilderError, RegistryRefused, TemporaryError
from driver_builder.base.reasons import Reason
from driver_builder.builds.build_queue import BuildQueue
from driver_builder.builds.job.job_builder import JobBuilder
from driver_builder.builds.job.job_manifest import BUILD_LABEL, JobSettings
from driver_builder.builds.job.job_run import Patience
from driver_builder.builds.pipeline.pipeline import build_and_push
from driver_builder.builds.pipeline.toolchain_image import keep_toolchain
from driver_builder.builds.templates.templates import templates_directory
from driver_builder.cli import main
from driver_builder.cli.builder_choice import secret_values
from driver_builder.model.build import BuildRequest, BuiltImage, ModuleSpec, SourceFiles
from driver_builder.model.build_proxy import BuildProxy
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.image_state import Present
from driver_builder.model.images import KERNEL_LABEL, KEY_LABEL, MODULES_LABEL, USERSPACE_LABEL, ImageRef
from driver_builder.model.kernels import KernelTarget, KernelVersion
from driver_builder.model.toolchain import toolchain_image
from driver_builder.nodes.changes import StartBuild
from driver_builder.registry.credentials import Credentials
from driver_builder.registry.registry import RegistryClient
from driver_builder.registry.registry_access import Registries
from kube_api.client import Client
from kube_api.credentials import ServiceAccount
from kube_api.resources import CONFIG_MAPS, DRIVER_CONTAINERS, JOBS, PODS, SECRETS
from testbed import base_image
from testbed.errors import TestbedError
from testbed.kernels import available_releases, newest_release
from testbed.packages import refreshed_apt, release_codename
from testbed.ports import free_ports
from testbed.progress import Silent
from testbed.testbed import Testbed
from tests.recording import Say, plain
from tests.support.driver_builder import factories
from tests.support.loopback import ALLOWED, ALLOWING, LOOPBACK
from tests.support.real_parts import build_network, libraries
from tests.support.real_parts.build_bench import LeapingClock
from tests.support.real_parts.cluster_setup import Json, admin, as_service_account, create_quietly, install
from tests.support.real_parts.images import derive, said
from tools import product_images

pytestmark = pytest.mark.every_engine

NAMESPACE = "driverwright"
REPOSITORY = "job-builds/probe"
MODULE_SOURCE = Path(__file__).parents[1] / "data" / "modules"
TELL = '. /etc/os-release; buildah --version; echo "$PRETTY_NAME"'
SID = "sid"
SECRET, TOKEN = "job-build-token", "s3cret-of-the-vendor-0123456789"
QUICK_TEMPLATE = """\
FROM {{ base_image }} AS build
SHELL ["/bin/sh", "-euc"]
RUN mkdir -p /out/driver /facts; echo 0x1 >/facts/Module.symvers; echo gcc 12 >/facts/compiler
COPY source/ modules /out/driver/
RUN sh /out/driver/build.sh
FROM scratch
COPY --from=build /out/ /
"""
STAGED_TEMPLATE = """\
FROM {{ base_image }} AS headers
RUN echo installing the headers; mkdir /facts; echo "{{ kernel_version }} SMP" >/facts/vermagic; \\
    echo gcc 12 >/facts/compiler; echo 0x1 >/facts/Module.symvers
FROM headers AS build
SHELL ["/bin/sh", "-euc"]
RUN mkdir -p /out/driver
COPY source/ modules /out/driver/
RUN sh /out/driver/build.sh
FROM scratch
COPY --from=build /out/ /
"""
WAIT_SECONDS = 900.0
PATIENCE = Patience(look=0.3)
SHORT = Patience(look=0.3, hopeless=4.0)
"""For a Job whose image cannot be pulled."""
SMALL = "50Mi"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test with the buildah of the tree's Debian, and with that of sid: long, but for one that always is."""
    marker = metafunc.definition.get_closest_marker("every_engine")
    marks = [pytest.mark.new_engine, *([] if marker and marker.kwargs.get("always") else [pytest.mark.long])]
    builders = [pytest.param("", id="buildah of the tree"), pytest.param(SID, id="buildah of sid", marks=marks)]
    metafunc.parametrize("place", builders, indirect=True, scope="module")


@dataclass
class Place:
    """The cluster that builds, seen by its administrator and by driver-builder.

    ``codename`` is the Debian whose buildah it is (empty: the tree's).
    """

    codename: str
    ground: Testbed
    root: Client
    client: Client
    settings: JobSettings
    templates: Path
    base_image: str
    """That of a build by our own template."""
    shipped: frozenset[Path]
    """The blobs that the registry has before the first build."""

    def blobs(self) -> frozenset[Path]:
        """Return what the registry has got of builds."""
        return blobs(self.ground) - self.shipped

    @property
    def registry(self) -> RegistryClient:
        """Connect to the driver's registry."""
        username, password = self.ground.registry.username, self.ground.registry.password
        known = Credentials(username=username, password=password or "") if username else None
        return RegistryClient(self.ground.registry.host, credentials=known, plain_http=True, reach=LOOPBACK)

    def action(self, key: str, script: str = "true", **request: Any) -> StartBuild:
        """Ask for a build that takes no more than its script."""
        fields: Json = {
            "recipe": key,
            "driver": DriverKey(f"{NAMESPACE}/probe"),
            "version": "1",
            "target": KernelTarget(KernelVersion("6.1.0-55-cloud-amd64"), "debian", "12", "amd64"),
            "template": "quick",
            # Each build pulls and unpacks its base image anew.
            "base_image": self.ground.small_image,
            "source": SourceFiles(files={"build.sh": script.encode()}),
            "modules": (ModuleSpec(name="quick"),),
            "deadline_seconds": 900.0,
            **request,
        }
        return StartBuild(
            namespace=NAMESPACE,
            request=BuildRequest(**fields),
            image=ImageRef(self.ground.registry.host, REPOSITORY, key),
            registry=RegistrySettings(plain_http=True),
            waiting=1,
            builder=BuilderKind.JOB,
        )

    def left(self, key: str) -> list[str]:
        """Name what there is of a build in the cluster."""
        selector = f"{BUILD_LABEL}={key}"
        found = [
            (resource.kind, item["metadata"]["name"])
            for resource in (JOBS, CONFIG_MAPS, PODS)
            for item in self.root.list(resource.path(namespace=NAMESPACE), label_selector=selector).items
        ]
        return [f"{kind}/{name}" for kind, name in found]


@dataclass
class Build:
    """One build in a Job, with what it said."""

    place: Place
    action: StartBuild
    directory: Path
    settings: JobSettings | None = None
    patience: Patience = PATIENCE
    clock: LeapingClock = field(default_factory=LeapingClock)
    is_leaving: Callable[[], bool] = lambda: False
    toolchain: ImageRef | None = None
    lines: list[str] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def builder(self) -> JobBuilder:
        """Make the builder."""
        return JobBuilder(
            self.place.client,
            self.action,
            settings=self.settings or self.place.settings,
            registry=self.place.registry,
            templates=self.place.templates if self.action.request.template in ("quick", "staged", "network") else None,
            is_leaving=self.is_leaving,
            patience=self.patience,
            clock=self.clock,
        )

    def __call__(self) -> BuiltImage:
        """Build."""
        self.directory.mkdir(exist_ok=True)
        builder = self.builder()
        return (builder.from_toolchain(self.toolchain) if self.toolchain else builder).build(
            self.action.request, directory=self.directory, log=self.lines.append, cancelled=self.cancelled
        )

    def failure(self) -> DriverBuilderError:
        """Build what cannot be built; returns how it ended, once nothing of it is left."""
        with pytest.raises(DriverBuilderError) as caught:
            self()
        wait_until("nothing of the build is left", lambda: not self.place.left(self.action.request.key))
        return caught.value


def wait_until(what: str, check: Callable[[], object]) -> None:
    """Wait for something in the cluster."""
    end = time.monotonic() + WAIT_SECONDS
    while not check():
        assert time.monotonic() < end, f"{what}: not within {WAIT_SECONDS:.0f} s"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def place(
    request: pytest.FixtureRequest, ground: Testbed, tmp_path_factory: pytest.TempPathFactory, tested_on: Say
) -> Place:
    """Both images of a build's pod, the base image in the registry, accounts and rights as deployed, a build Secret."""
    root = admin(ground)
    install(root)
    create_quietly(
        root,
        SECRETS.path(namespace=NAMESPACE),
        {"metadata": {"name": SECRET}, "stringData": {"key": TOKEN}},
    )
    registry, base = ground.registry.host, ground.base_image
    with contextlib.closing(ground.engine.client(timeout=600)) as api:
        releases = {"driver-builder": "", "buildah": request.param}
        images = {name: _product_image(api, name, codename, registry) for name, codename in releases.items()}
        of_builds = product_images.push_base_image(api, registry, base_image=base)
        builder, system = said(api, images["buildah"], TELL).splitlines()
    tested_on("builder", builder=f"buildah {plain(builder.removeprefix('buildah version '))}", base=system)
    templates = tmp_path_factory.mktemp("templates")
    (templates / "quick.Dockerfile.j2").write_text(QUICK_TEMPLATE)
    (templates / "staged.Dockerfile.j2").write_text(STAGED_TEMPLATE)
    (templates / "network.Dockerfile.j2").write_text(build_network.TEMPLATE)
    shutil.copytree(templates_directory() / "parts", templates / "parts")
    return Place(
        codename=request.param,
        ground=ground,
        root=root,
        client=as_service_account(ground, NAMESPACE, "driver-builder"),
        settings=JobSettings(
            image=images["buildah"], hand_over_image=images["driver-builder"], host_network=True, reach=ALLOWING
        ),
        templates=templates,
        base_image=of_builds,
        shipped=blobs(ground),
    )


def _product_image(api: docker.APIClient, name: str, codename: str, registry: str) -> str:
    """Build and push an image of ours on the base of a Debian release; where sid's cannot be made, skip."""
    try:
        base = base_image.ensure_base_image(api, codename or release_codename(), Silent())
        built = product_images.build_all(
            api, registry, base_image=base, say=lambda _: None, names=(name,), keep=True, tag=codename or "latest"
        )
    except (TestbedError, product_images.ImageError) as error:
        if codename != SID:
            raise
        pytest.skip(f"no image {name} of {codename}: {error}")
    return built[name]


def blobs(ground: Testbed) -> frozenset[Path]:
    """Return the files of the registry's blobs."""
    return frozenset(path for path in (ground.folder / "registry" / "storage").rglob("data") if path.is_file())


Waiting = Callable[[str], DriverBuilderError]
"""Gives how one of the builds below failed, once nothing of it is left."""


@pytest.fixture(scope="module", autouse=True)
def _begun(request: pytest.FixtureRequest, place: Place) -> None:
    """Begin the builds that fail after a long wait before the first test, where one of the tests to come wants them."""
    of_place = [
        item for item in request.session.items if item.path == request.path and _codename(item) == place.codename
    ]
    if any("waiting" in inspect.signature(getattr(item, "obj", print)).parameters for item in of_place):
        request.getfixturevalue("waiting")


def _codename(item: pytest.Item) -> str | None:
    """Return the parameter of a test's place."""
    found: str | None = item.callspec.params["place"] if hasattr(item, "callspec") else None
    return found


@pytest.fixture(scope="module")
def waiting(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Waiting]:
    """Builds that fail after a long wait, from the first test on: the others need not wait for them.

    Two at a time: a node has room for four.
    """

    def build(name: str, script: str = "true", **changes: Any) -> Build:
        """Describe a build; ``changes`` are of its request or of the builder's settings."""
        of_settings = {key: changes.pop(key) for key in tuple(changes) if key in ("image", "node_selector")}
        sizes = {"work_size": changes.pop("work_size")} if "work_size" in changes else {}
        settings = replace(place.settings, **of_settings, **sizes)
        folder = tmp_path_factory.mktemp("waiting") / "job"
        patience = SHORT if "image" in of_settings else PATIENCE
        return Build(place, place.action(name, script, **changes), folder, settings=settings, patience=patience)

    hanging = build("deadline", "echo hanging; sleep 1200", deadline_seconds=3600.0)
    unfit = build("selected", node_selector={"no": "such"})
    cancelled = build("cancelled", "echo begun; sleep 1200")
    (opened,) = free_ports(1)
    deleted = build("deleted", f"echo begun; {until_open(opened)}; echo 'x.c:3:1: error: bad'; exit 65")
    evicted = build("evicted", "dd if=/dev/zero of=/filled bs=1M count=80; sleep 1200", work_size=SMALL)
    no_image = f"{place.ground.registry.host}/no/such:1"
    with ThreadPoolExecutor(2) as pool:
        failures = {
            "evicted": pool.submit(evicted.failure),
            "deadline": pool.submit(_failure_when_late, hanging, "hanging", 3600.0),
            "cancelled": pool.submit(_failure_when_cancelled, cancelled),
            "deleted": pool.submit(_failure_when_deleted, deleted, opened),
            "no node fits": pool.submit(_failure_when_late, unfit, "waiting: 0/1 nodes", PATIENCE.start + 1.0),
            "image cannot be pulled": pool.submit(build("no-image", image=no_image).failure),
        }
        yield lambda name: failures[name].result()
        for future in failures.values():
            future.cancel()
        hanging.cancelled.set()


def until_open(port: int) -> str:
    """Return a command of a build that waits until the test listens on a port."""
    return f"until nc -w 1 127.0.0.1 {port} -e true 2>/dev/null; do sleep 0.2; done"


def _failure_when_late(build: Build, words: str, seconds: float) -> DriverBuilderError:
    """Let so many seconds pass when a build has got so far that it says these words: a busy node takes its time."""
    threading.Thread(target=_leap_when_said, args=(build, words, seconds)).start()
    return build.failure()


def _leap_when_said(build: Build, words: str, seconds: float) -> None:
    wait_until(f"the build says {words!r}", lambda: any(line.startswith(words) for line in build.lines))
    build.clock.leap(seconds)


def _failure_when_cancelled(build: Build) -> DriverBuilderError:
    threading.Thread(target=_cancel_when_begun, args=(build,)).start()
    return build.failure()


def _failure_when_deleted(build: Build, opened: int) -> DriverBuilderError:
    """Delete the pod of a build that waits for the port ``opened``, which is open once another pod waits for it."""
    with socket.socket() as port:
        port.bind(("127.0.0.1", opened))
        threading.Thread(target=_delete_pod_when_begun, args=(build, port)).start()
        return build.failure()


def newest_kernel() -> str:
    """The newest cloud kernel of Debian's own series."""
    return newest_release(available_releases(refreshed_apt()))


@pytest.mark.long
def test_engine_and_job_build_the_same_driver(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """``driver-builder preflight --push`` as an admin would, with either builder: both images say and hold the same.

    Compiler and headers are installed in the Job; the modules are the same to the byte, and so is what they were built
    against.
    """
    files = {name: (MODULE_SOURCE / name).read_text() for name in ("dw_helper.c", "dw_probe.c", "Makefile")}
    create_quietly(
        place.root, CONFIG_MAPS.path(namespace=NAMESPACE), {"metadata": {"name": "probe-source"}, "data": files}
    )
    kernel = newest_kernel()
    by_job, by_engine = (
        _preflight(place, builder, kernel, capsys) for builder in (BuilderKind.JOB, BuilderKind.DOCKER)
    )
    assert by_job == by_engine
    labels, content = by_job
    assert labels[KERNEL_LABEL] == kernel
    assert [module["name"] for module in json.loads(labels[MODULES_LABEL])] == ["dw_probe"]
    assert [name for name in content if name.endswith("/dw_probe.ko")]
    wait_until("nothing of the build is left", lambda: not place.left(labels[KEY_LABEL]))


@pytest.mark.long
def test_engine_and_job_build_the_same_user_space(
    place: Place, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Beside the modules, verified to be of their version; its firmware is where firmware is."""
    files = {name: (MODULE_SOURCE / name).read_text() for name in ("dw_helper.c", "dw_probe.c", "Makefile")}
    create_quietly(
        place.root, CONFIG_MAPS.path(namespace=NAMESPACE), {"metadata": {"name": "probe-source"}, "data": files}
    )
    kernel = newest_kernel()
    with libraries.served(tmp_path) as archive:
        pin = {"url": archive.url, "sha256": archive.sha256}
        changes: Json = {"userspace": {"archive": pin, "versionFile": libraries.VERSION_FILE}}
        changes["module"] = {"names": ["dw_probe"], "firmwarePath": "/userspace/fw"}
        by_job, by_engine = (
            _preflight(place, builder, kernel, capsys, **changes) for builder in (BuilderKind.JOB, BuilderKind.DOCKER)
        )
    assert by_job == by_engine
    labels, content = by_job
    assert labels[USERSPACE_LABEL].startswith("sha256:")
    assert {name: text for name, text in content.items() if name.startswith(("userspace/", "firmware/"))} == {
        "userspace/lib/libprobe.so.2.5": b"library",
        "userspace/lib/libprobe.so": b"library",
        "userspace/bin/probe": b"program",
        "firmware/probe.bin": b"firmware",
    }


@pytest.mark.long
def test_a_driver_is_built_in_a_job_without_a_package_manager(place: Place, tmp_path: Path) -> None:
    """By our own template: the first build's kernel is kept as a toolchain, and the next version begins with it."""
    files = {name: (MODULE_SOURCE / name).read_bytes() for name in ("dw_helper.c", "dw_probe.c", "Makefile")}
    registries = Registries(place.client, reach=LOOPBACK)
    logs = []
    for version in ("1", "2"):
        action = place.action(
            f"real-{version}",
            recipe="debian:1",
            version=version,
            template="debian",
            base_image=place.base_image,
            target=KernelTarget(KernelVersion(newest_kernel()), "debian", "12", "amd64"),
            source=SourceFiles(files=files),
            modules=(ModuleSpec(name="dw_probe"),),
            deadline_seconds=1800.0,
        )
        build = Build(place, action, tmp_path)
        given: Json = {"builder": build.builder(), "registries": registries, "cancelled": threading.Event()}
        build_and_push(action, log=build.lines.append, use_toolchain=True, **given)
        keep_toolchain(action, log=lambda _line: None, **given)
        logs.append(build.lines)
    installing, from_toolchain = ([line for line in lines if "apt-get" in line] for lines in logs)
    assert installing
    assert from_toolchain == []
    assert any(line.startswith("building from toolchain ") for line in logs[1])
    assert isinstance(place.registry.inspect(REPOSITORY, "real-2"), Present)


@pytest.fixture
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[build_network.Network]:
    """What builds fetch by a proxy."""
    with build_network.build_network(tmp_path_factory.mktemp("network")) as made:
        yield made


@pytest.mark.long
def test_a_job_builds_by_a_proxy_from_servers_of_a_private_ca(
    place: Place, network: build_network.Network, tmp_path: Path
) -> None:
    """With the password out of its Secret and the CA out of its ConfigMap: neither stays in driver and toolchain."""
    secret = {"username": build_network.USER, "password": build_network.PASSWORD}
    create_quietly(place.root, SECRETS.path(namespace=NAMESPACE), {"metadata": {"name": "proxy"}, "stringData": secret})
    create_quietly(
        place.root,
        CONFIG_MAPS.path(namespace=NAMESPACE),
        {"metadata": {"name": "build-ca"}, "data": {"bundle.pem": f"# ours\n{network.ca}"}},
    )
    host = place.ground.registry.host
    with contextlib.closing(place.ground.engine.client(timeout=600)) as api:
        derive(place.ground, build_network.IMAGE, {}, build_network.INSTALL, network="host")
        base_image = product_images.push_base_image(api, host, base_image=build_network.IMAGE)
    action = place.action(
        "network",
        template="network",
        base_image=base_image,
        source=network.git,
        args={"HEADERS_MIRROR": network.direct},
    )
    action = replace(
        action,
        proxy=BuildProxy(https=network.proxy.url, no_proxy="127.0.0.1", secret="proxy"),
        ca_config_map=ConfigMapKey(name="build-ca", key="bundle.pem"),
    )
    network.proxy.asked.clear()
    build = Build(place, action, tmp_path / "driver")
    images = [build().archive]
    assert "git.example.com" in network.proxy.asked
    toolchain = build.builder().toolchain(
        action.request, directory=tmp_path, log=build.lines.append, cancelled=threading.Event()
    )
    assert toolchain is not None
    images.append(toolchain)
    hidden = build_network.hidden_words(network)
    assert [name for path in images for name in build_network.entries_with(path, hidden)] == []
    assert not [line for line in build.lines for words in hidden if words in line]

    failed = Build(place, replace(action, ca_config_map=None), tmp_path / "failed").failure()
    assert "SSL certificate problem" in "\n".join(getattr(failed, "log_tail", ())), failed


def _preflight(
    place: Place, builder: BuilderKind, kernel: str, capsys: pytest.CaptureFixture[str], **changes: Any
) -> tuple[Mapping[str, str], dict[str, bytes]]:
    """Build, verify and push by the command; returns labels and files of what is in the registry then."""
    repository = f"job-builds/by-{builder.value}"
    secrets = {"secrets": [{"name": SECRET}]} if builder is BuilderKind.JOB else {}
    driver = factories.driver_object(
        "job-probe",
        finalizer=False,
        spec_changes={
            "image": f"{place.ground.registry.host}/{repository}",
            "registry": {"plainHttp": True},
            "source": {"configMap": {"name": "probe-source"}},
            "module": {"names": ["dw_probe"]},
            "build": {"builder": builder.value, "baseImage": place.base_image, **secrets},
            **changes,
        },
    )
    del driver["metadata"]["uid"]
    create_quietly(place.root, DRIVER_CONTAINERS.path(namespace=NAMESPACE), driver)
    images = [f"--job-image={place.settings.image}", f"--hand-over-image={place.settings.hand_over_image}"]
    where = [
        f"--kubeconfig={place.ground.kubeconfig}",
        f"--namespace={NAMESPACE}",
        "--job-host-network",
        f"--registry-allowed-hosts={ALLOWED}",
    ]
    engine = f"--docker-host={place.ground.engine.socket}"
    words = ["preflight", "job-probe", "--push", f"--kernel={kernel}", "--os=debian:12", "--output=json", engine]
    capsys.readouterr()
    try:
        assert main.main([*words, *where, *images]) == 0
    finally:
        place.root.delete(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="job-probe"))
    (result,) = json.loads(capsys.readouterr().out)
    assert (result["verdict"], result["kernel"]) == ("verified", kernel)
    tag = result["message"].rpartition(":")[2]
    state = place.registry.inspect(repository, tag)
    assert isinstance(state, Present), state
    return state.labels, _files(place.registry, repository, tag)


def _files(registry: RegistryClient, repository: str, tag: str) -> dict[str, bytes]:
    """Read what the layers of an image hold; those of a driver image hide nothing of each other."""
    manifest = registry.fetch_manifest(repository, tag)
    assert manifest
    found = {}
    for layer in manifest["layers"]:
        blob = registry.fetch_blob(repository, layer["digest"], limit=layer["size"])
        with tarfile.open(fileobj=io.BytesIO(blob)) as tar:
            for member in tar:
                content = tar.extractfile(member)
                if content is not None:
                    found[member.name.removeprefix("./")] = content.read()
    return found


@pytest.mark.every_engine(always=True)
def test_a_secret_is_read_by_the_build_and_is_nowhere_afterwards(place: Place, tmp_path: Path) -> None:
    """Every command can read it; no blob of the registry holds it, packed or not, and no log."""
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    script = f'echo "{digest}  /run/secrets/{SECRET}/key" | sha256sum -c && echo "the secret is right"'
    action = replace(place.action("secret", script), build_secrets=(SECRET,))
    build = Build(place, action, tmp_path / "job")
    built = build()
    assert "the secret is right" in build.lines
    assert not [line for line in build.lines if TOKEN in line]
    image = read_image_archive(built.archive, tmp_path / "layers")
    place.registry.push(REPOSITORY, image)
    pushed = place.blobs()
    assert len(pushed) > 2
    assert [path for path in pushed if any(TOKEN.encode() in form for form in _forms(path.read_bytes()))] == []
    assert any(b"build.sh" in form for path in pushed for form in _forms(path.read_bytes())), (
        "the layers were looked into"
    )


def _forms(content: bytes) -> Iterator[bytes]:
    yield content
    with contextlib.suppress(OSError, EOFError, zlib.error):
        yield gzip.decompress(content)


def test_a_secret_that_a_build_prints_is_hidden(place: Place, tmp_path: Path) -> None:
    """The queue knows what is in the Secrets of a build, and so does the log that it keeps of a failed one."""
    # Not once: what a command prints last before it fails, buildah may lose.
    script = f"for i in $(seq 20); do cat /run/secrets/{SECRET}/key; echo; sleep 0.1; done; exit 65"
    action = replace(place.action("printed", script), build_secrets=(SECRET,))
    kept: list[str] = []
    ended = threading.Event()

    def work(_: StartBuild, log: Callable[[str], None], cancelled: threading.Event) -> str:
        Build(place, action, tmp_path / "job").builder().build(
            action.request, directory=tmp_path, log=log, cancelled=cancelled
        )
        return ""

    queue = BuildQueue(
        work,
        wake=ended.set,
        secrets=lambda action: secret_values(action, place.client),
        keep_log=lambda _action, _failure, lines: kept.extend(lines),
    )
    queue.submit(action)
    assert ended.wait(WAIT_SECONDS)
    queue.stop()
    assert any("***" in line for line in kept), kept
    assert not [line for line in kept if TOKEN in line]


def test_a_cancelled_build_leaves_nothing(waiting: Waiting) -> None:
    """In the middle of a command that would take long: Job, pod and ConfigMap go."""
    failure = waiting("cancelled")
    assert isinstance(failure, BuildFailed)
    assert failure.reason is Reason.CANCELLED


def _cancel_when_begun(build: Build) -> None:
    wait_until("the build has begun", lambda: "begun" in build.lines)
    build.cancelled.set()


def _delete_pod_when_begun(build: Build, port: socket.socket) -> None:
    wait_until("the build has begun", lambda: "begun" in build.lines)
    name = next(name for name in build.place.left(build.action.request.key) if name.startswith("Pod/"))
    build.place.root.delete(PODS.path(namespace=NAMESPACE, name=name.removeprefix("Pod/")))
    wait_until("another pod builds", lambda: build.lines.count("begun") == 2)
    port.listen()


def _build_and_be_killed(
    account: ServiceAccount, action: StartBuild, settings: JobSettings, templates: Path, said: Any
) -> None:
    """Build in a process of its own."""
    registry = RegistryClient(action.image.host, plain_http=True, reach=LOOPBACK)
    builder = JobBuilder(
        Client(account.pooled()), action, settings=settings, registry=registry, templates=templates, patience=PATIENCE
    )
    builder.build(action.request, directory=templates, log=said.put, cancelled=threading.Event())


def test_a_killed_controller_finds_its_build_again(place: Place, tmp_path: Path) -> None:
    """SIGKILL in the middle: the next one follows the same Job and pod, and nothing is built twice."""
    (opened,) = free_ports(1)
    action = place.action("adopt", f"echo begun; {until_open(opened)}; echo done")
    token = place.ground.ca_file.with_name(f"token-{NAMESPACE}-driver-builder")
    account = ServiceAccount(place.ground.api_server, ca_file=str(place.ground.ca_file), token_file=str(token))
    context = multiprocessing.get_context("spawn")
    said = context.SimpleQueue()
    first = context.Process(target=_build_and_be_killed, args=(account, action, place.settings, place.templates, said))
    first.start()
    while said.get() != "begun":
        pass
    first.kill()
    first.join()
    uids = _pod_uids(place, action)
    build = Build(place, action, tmp_path / "job")
    with socket.create_server(("127.0.0.1", opened)):
        built = build()
    assert built.compiler == "gcc 12"
    assert build.lines[0].startswith("following Job ")
    assert build.lines.count("begun") == build.lines.count("done") == 1
    assert len(uids) == 1
    wait_until("nothing of the build is left", lambda: not place.left(action.request.key))


def _pod_uids(place: Place, action: StartBuild) -> set[str]:
    pods = place.root.list(PODS.path(namespace=NAMESPACE), label_selector=f"{BUILD_LABEL}={action.request.key}").items
    return {pod["metadata"]["uid"] for pod in pods}


@pytest.mark.long
def test_a_controller_that_leaves_lets_its_build_go_on(place: Place, tmp_path: Path) -> None:
    """An update of the controller costs no build: the next one follows the Job that is there."""
    (opened,) = free_ports(1)
    action = place.action("leave", f"echo begun; {until_open(opened)}")
    build = Build(place, action, tmp_path / "job", is_leaving=lambda: True)
    threading.Thread(target=_cancel_when_begun, args=(build,)).start()
    with pytest.raises(BuildFailed):
        build()
    assert any(name.startswith("Job/") for name in place.left(action.request.key))
    again = Build(place, action, tmp_path / "again")
    with socket.create_server(("127.0.0.1", opened)):
        assert again().compiler == "gcc 12"
    assert again.lines[0].startswith("following Job ")


@pytest.mark.parametrize(
    ("script", "changes", "expected"),
    [
        pytest.param(
            "for i in $(seq 9); do echo 'x.c:3:1: error: bad'; sleep 0.1; done; exit 65",
            {},
            (Reason.COMPILE_ERROR, "x.c:3: bad"),
            id="compile error",
        ),
        pytest.param(
            "tail /dev/zero",
            {"resources": {"limits": {"memory": "160Mi"}}},
            (Reason.OUT_OF_MEMORY, "out of memory"),
            id="out of memory",
        ),
        pytest.param(
            "true",
            {"build_secrets": ("no-such-secret",)},
            (Reason.SOURCE_MISSING, "no-such-secret does not exist"),
            id="no such Secret",
        ),
    ],
)
def test_a_build_that_fails_says_why(
    place: Place, tmp_path: Path, script: str, changes: Json, expected: tuple[Reason, str]
) -> None:
    """The same reasons as with an engine; nothing is left of it."""
    failure = Build(place, replace(place.action(script, script), **changes), tmp_path / "job").failure()
    assert isinstance(failure, BuildFailed), failure
    assert failure.reason is expected[0], failure
    assert expected[1] in str(failure)


def test_a_deadline_ends_a_build(waiting: Waiting) -> None:
    """With the last line in the message."""
    failure = waiting("deadline")
    assert isinstance(failure, BuildFailed)
    assert failure.reason is Reason.DEADLINE_EXCEEDED
    assert "hanging" in str(failure)


def test_a_build_whose_pod_is_deleted_goes_on_in_another_one(waiting: Waiting) -> None:
    """A drain kills the build's container; this is no build that ran out of memory, and the next pod's end counts."""
    failure = waiting("deleted")
    assert isinstance(failure, BuildFailed), failure
    assert failure.reason is Reason.COMPILE_ERROR, failure
    assert failure.log_tail.count("begun") == 2


def test_a_build_that_fills_its_node_is_ended(waiting: Waiting) -> None:
    """The kubelet evicts the pod, here with room for less than the base image."""
    failure = waiting("evicted")
    assert isinstance(failure, BuildFailed), failure
    assert failure.reason is Reason.DISK_FULL
    assert f'EmptyDir volume "work" exceeds the limit "{SMALL}"' in str(failure)


@pytest.mark.parametrize(
    ("name", "words"), [("no node fits", "0/1 nodes are available"), ("image cannot be pulled", "ImagePull")]
)
def test_a_pod_that_cannot_start_is_given_up(waiting: Waiting, name: str, words: str) -> None:
    """In the words of scheduler and kubelet, and not for ever."""
    failure = waiting(name)
    assert isinstance(failure, TemporaryError)
    assert words in str(failure)


def test_a_registry_that_refuses_is_reported_as_such(place: Place, tmp_path: Path) -> None:
    """The Secret of the registry reaches the second container only, and what it says comes back."""
    name = "job-push-elsewhere"
    config = json.dumps({"auths": {"elsewhere.example": {"username": "u", "password": "p"}}})
    body = {
        "metadata": {"name": name},
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": config},
    }
    create_quietly(place.root, SECRETS.path(namespace=NAMESPACE), body)
    action = place.action("refused")
    action = replace(action, registry=RegistrySettings(secret=name, plain_http=True))
    failure = Build(place, action, tmp_path / "job").failure()
    assert isinstance(failure, RegistryRefused), failure
    assert "no credentials for" in str(failure)


@contextlib.contextmanager
def private_registry(place: Place) -> Iterator[tuple[RegistrySettings, str]]:
    """Let the registry want a password while the block runs; gives a driver's settings, and a build Secret with it."""
    registry = place.ground.registry
    username, password = "somebody", "their-password"
    # As kubectl create secret docker-registry writes it: buildah reads auth alone.
    entry = {"auth": base64.b64encode(f"{username}:{password}".encode()).decode()}
    config = json.dumps({"auths": {registry.host: entry}})
    for name in ("job-push", "job-pull"):
        body = {
            "metadata": {"name": name},
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": {".dockerconfigjson": config},
        }
        create_quietly(place.root, SECRETS.path(namespace=NAMESPACE), body)
    registry.set_auth(username, password)
    try:
        yield RegistrySettings(secret="job-push", plain_http=True), "job-pull"
    finally:
        registry.set_auth(None)


def test_a_private_base_image_is_pulled_with_a_build_secret(place: Place, tmp_path: Path) -> None:
    """The registry's own Secret is not seen by the build; one that is given to the build is."""
    with private_registry(place) as (push, pull):
        action = replace(place.action("private"), registry=push)
        failure = Build(place, action, tmp_path / "refused").failure()
        assert isinstance(failure, BuildFailed), failure
        assert failure.reason is Reason.BASE_IMAGE_MISSING, failure
        given = replace(action, build_secrets=(pull,))
        assert Build(place, given, tmp_path / "job")().compiler == "gcc 12"


def test_a_job_begins_with_a_toolchain_that_only_another_container_may_pull(place: Place, tmp_path: Path) -> None:
    """A Job of its own makes it; the build installs nothing, and could not pull its base image without a password."""
    with private_registry(place) as (push, pull):
        action = replace(place.action("staged", "echo building", template="staged"), registry=push)
        making = Build(place, replace(action, build_secrets=(pull,)), tmp_path / "making")
        keep_toolchain(
            making.action,
            builder=making.builder(),
            registries=Registries(place.client, plain_http_passwords=True, reach=LOOPBACK),
            log=making.lines.append,
            cancelled=threading.Event(),
        )
        assert "installing the headers" in making.lines
        assert "building" not in making.lines
        reference = toolchain_image(action.request, action.image)
        assert reference is not None
        state = place.registry.inspect(reference.repository, reference.reference)
        assert isinstance(state, Present), state
        build = Build(place, action, tmp_path / "job", toolchain=reference.at(state.digest))
        built = build()
        assert (built.compiler, built.module_symvers) == ("gcc 12", "0x1\n")
        assert "building" in build.lines
        assert "installing the headers" not in build.lines
        unknown = Build(place, action, tmp_path / "unknown", toolchain=reference.at(f"sha256:{'0' * 64}")).failure()
    assert isinstance(unknown, BuildFailed)
    assert unknown.reason is Reason.BASE_IMAGE_MISSING, unknown
    key = hashlib.sha256(str(reference).encode()).hexdigest()[:20]
    wait_until("nothing is left", lambda: not place.left(key) and not place.left(action.request.key))
