"""What a driver build costs through the product, how soon it starts, and how many a fleet's new kernel makes.

``python bench/builds.py`` starts a real API server, container engine and registry (``testbed``) and prints (with
``--jobs`` only the part about Jobs)

- a build on a kernel whose headers and compiler the engine has (a new version of a driver, and a second driver), from
  request to tag in the registry, beside a bare ``make -C HEADERS M=SRC modules`` in a container of the same image;
- the same with the kernel's toolchain: the build in which the engine pulls it, the next ones, and one in an engine that
  has nothing in its cache;
- the same in Jobs on this machine as a node, which begin with the toolchain;
- the time from a node's new kernel label to the first line of the build, by the real controller in its own process;
- the number of builds when a thousand nodes come up with one new kernel.

Needs what the proving ground needs: Debian 12, root. Ten minutes; best on a machine that has nothing else to do. Where
/var/tmp is ext4 without a journal, each Job after the first takes some five seconds more than the one before: that file
system does not give out inodes that were freed in the last minutes, and looks for others, file by file.
"""

import queue
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from driver_builder.model.driver_key import DriverKey

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

import docker  # noqa: E402

from driver_builder.api.driver_spec import RegistrySettings  # noqa: E402
from driver_builder.builds.docker.docker_builder import DockerBuilder  # noqa: E402
from driver_builder.builds.docker.docker_engine import docker_engine  # noqa: E402
from driver_builder.builds.job.job_builder import JobBuilder  # noqa: E402
from driver_builder.builds.job.job_manifest import JobSettings  # noqa: E402
from driver_builder.builds.pipeline.pipeline import build_and_push  # noqa: E402
from driver_builder.builds.pipeline.toolchain_image import keep_toolchain  # noqa: E402
from driver_builder.model.build import (  # noqa: E402
    Builder,
    BuildRequest,
    ModuleSpec,
    Source,
    SourceFiles,
    SourcePackage,
)
from driver_builder.model.images import ImageRef  # noqa: E402
from driver_builder.model.kernels import KernelTarget, KernelVersion  # noqa: E402
from driver_builder.model.toolchain import toolchain_image  # noqa: E402
from driver_builder.nodes.changes import StartBuild  # noqa: E402
from driver_builder.registry.registry import RegistryClient  # noqa: E402
from driver_builder.registry.registry_access import Registries  # noqa: E402
from kube_api import names  # noqa: E402
from kube_api.client import Client  # noqa: E402
from kube_api.resources import CONFIG_MAPS, DRIVER_CONTAINERS, NODES  # noqa: E402
from testbed.kernels import available_releases, release_key  # noqa: E402
from testbed.packages import refreshed_apt  # noqa: E402
from testbed.progress import for_terminal  # noqa: E402
from testbed.testbed import Testbed  # noqa: E402
from tests.support.loopback import ALLOWED, ALLOWING, LOOPBACK, VARIABLE  # noqa: E402
from tests.support.real_parts.cluster_setup import admin, install  # noqa: E402
from tools import product_images  # noqa: E402

SAMPLES = 3
OLD_KERNEL = "6.1.0-9-cloud-amd64"
FLEET = 1000
NAMESPACE = "driverwright"
EDU, SMALL, LARGE = "edu", "acpi-call-dkms", "xtables-addons-dkms"
MODULES = {EDU: "edudrv", SMALL: "acpi_call", LARGE: "xt_pknock"}
WORDS = {LARGE: "M=/bare/extensions XA_ABSTOPSRCDIR=/bare XA_TOPSRCDIR=/bare"}
"""What a make call needs beside the headers, where that is not M=/bare: as the package's dkms.conf says."""
OS = ("debian", "12")
STARTED = re.compile(r"build [0-9a-f]{20}: starting (?P<driver>\S+) for")
ENDED = re.compile(r"build [0-9a-f]{20}: (?:done|failed)")
QUIET_SECONDS = 15.0

BARE = """\
set -e
cp -r /source /bare
for n in 1 2 3; do
    make -C {headers} {words} clean >/dev/null
    began=$(date +%s.%N)
    make -C {headers} -j "$(nproc)" {words} CONFIG_DEBUG_INFO_BTF_MODULES= modules >/dev/null 2>&1
    echo "seconds $began $(date +%s.%N)"
done
"""


def main() -> None:
    """Measure and print."""
    kernel = _stable_kernel()
    if "--jobs" not in sys.argv[1:]:
        with Testbed.start(nodes=False, host_node=False, progress=for_terminal()) as ground:
            install(admin(ground))
            report_warm_builds(ground, kernel)
            report_engine_toolchains(ground, kernel)
            report_controller(ground, kernel)
    with Testbed.start(progress=for_terminal()) as ground:
        install(admin(ground))
        report_jobs(ground, kernel)


def report_controller(ground: Testbed, kernel: str) -> None:
    """Print how soon the controller builds, and how often."""
    with controller(ground) as log:
        start_fleet(ground)
        report_latency(ground, log)
        report_fleet(ground, log, kernel)


# --- a warm build beside a bare make ----------------------------------------------------------------------------------


def report_warm_builds(ground: Testbed, kernel: str) -> None:
    """Print what building through the product costs on a kernel that the engine knows."""
    with docker_engine(ground.engine.socket) as api:
        line = Line(ground, api, kernel)
        print(f"kernel                          {kernel}")
        print(f"first driver on a new kernel    {line.seconds(EDU, 'cold'):.1f} s, with compiler and headers")
        for driver, words in ((EDU, "new version of a driver"), (SMALL, "second driver"), (LARGE, "a large driver")):
            warm = [line.seconds(driver, f"warm-{driver}-{number}") for number in range(SAMPLES)]
            # The first of a package downloads it, and what it depends on.
            print(f"{words:<32}{beside_make(warm, statistics.median(line.bare(driver)), factor=1.3, extra=5)}")
        print(f"image of the edu driver         {line.image_bytes / (1 << 20):.2f} MiB in the registry, compressed")


def report_engine_toolchains(ground: Testbed, kernel: str) -> None:
    """Print what toolchains cost where the engine has compiler and headers in its cache, and save where it has not."""
    with docker_engine(ground.engine.socket) as api:
        line = Line(ground, api, kernel)
        line.seconds(EDU, "engine-cold")
        bare = statistics.median(line.bare(EDU))
        without = [line.seconds(EDU, f"without-{number}") for number in range(SAMPLES)]
        print(f"new version, no toolchain       {beside_make(without, bare, factor=1.3, extra=5)}")
        print(f"its toolchain, afterwards       {line.kept_toolchain(EDU, 'engine-cold')}")
        line.use_toolchains()
        print(f"new version, which pulls it     {line.seconds(EDU, 'pulling'):.1f} s")
        pulled = [line.seconds(EDU, f"pulled-{number}") for number in range(SAMPLES)]
        print(f"new version, once it is pulled  {beside_make(pulled, bare, factor=1.3, extra=5)}")
        line.forget()
        print(f"an engine that has nothing      {line.seconds(EDU, 'forgotten'):.1f} s, from the toolchain")


def report_jobs(ground: Testbed, kernel: str) -> None:
    """Print what a build costs in Jobs: the first one installs compiler and headers, the others have a toolchain."""
    with docker_engine(ground.engine.socket) as api:
        line = Line(ground, api, kernel)
        line.seconds(EDU, "cold")
        bare = statistics.median(line.bare(EDU))
        line.use_jobs()
        print(f"first driver, in a Job          {line.seconds(EDU, 'job-cold'):.1f} s, with compiler and headers")
        print(f"its toolchain, afterwards       {line.kept_toolchain(EDU, 'job-cold')}")
        warm = []
        for number in range(SAMPLES):
            warm.append(line.seconds(EDU, f"job-warm-{number}"))
            assert not [text for text in line.log if "apt-get" in text], "a package manager ran"
        print(f"new version, in a Job           {beside_make(warm, bare, factor=1.5, extra=15)}")


def beside_make(warm: Sequence[float], bare: float, *, factor: float, extra: int) -> str:
    """Say how long builds took beside a bare make, and whether ``factor`` times that and ``extra`` seconds are kept."""
    median, allowed = statistics.median(warm), factor * bare + extra
    return (
        f"{median:.1f} s ({', '.join(f'{each:.1f}' for each in warm)}); bare make {bare:.1f} s; "
        f"{median / bare:.2f} times, {median - bare:+.1f} s; {factor} times and {extra} s are {allowed:.1f} s: "
        f"{'within' if median <= allowed else 'NOT within'}"
    )


class Line:
    """Builds from request to tag, as the controller does them."""

    def __init__(self, ground: Testbed, api: docker.APIClient, kernel: str) -> None:
        self._ground = ground
        self._api = api
        self._registries = Registries(admin(ground), reach=LOOPBACK)
        self._target = KernelTarget(KernelVersion(kernel), *OS, "amd64")
        self._base_image = ground.base_image
        self._jobs: JobSettings | None = None
        self._has_toolchains = False
        self.log: list[str] = []
        """The lines of the last build."""

    def use_toolchains(self) -> None:
        """Begin with the kernel's toolchain from now on."""
        self._has_toolchains = True

    def use_jobs(self) -> None:
        """Build in Jobs from now on, with toolchains."""
        self.use_toolchains()
        registry, base = self._ground.registry.host, self._ground.base_image
        images = product_images.build_all(
            self._api, registry, base_image=base, say=lambda _: None, names=("driver-builder", "buildah"), keep=True
        )
        self._base_image = product_images.push_base_image(self._api, registry, base_image=base)
        self._jobs = JobSettings(
            image=images["buildah"], hand_over_image=images["driver-builder"], host_network=True, reach=ALLOWING
        )

    def seconds(self, driver: str, version: str) -> float:
        """Build, verify, push and tag a version of a driver that nobody built before."""
        action = self._action(driver, version)
        self.log.clear()
        began = time.monotonic()
        build_and_push(
            action,
            builder=self._builder(action),
            registries=self._registries,
            log=self.log.append,
            cancelled=threading.Event(),
            use_toolchain=self._has_toolchains,
        )
        return time.monotonic() - began

    def kept_toolchain(self, driver: str, version: str) -> str:
        """Push the toolchain, as the controller does once an image has its tag; says what that took."""
        action = self._action(driver, version)
        began = time.monotonic()
        keep_toolchain(
            action,
            builder=self._builder(action),
            registries=self._registries,
            log=lambda _line: None,
            cancelled=threading.Event(),
        )
        seconds = time.monotonic() - began
        reference = toolchain_image(action.request, action.image)
        assert reference is not None
        size = self._bytes(reference.repository, reference.reference) / (1 << 20)
        return f"{seconds:.1f} s; {size:.0f} MiB in the registry"

    def forget(self) -> None:
        """Remove all images from the engine but the base image."""
        for image in self._api.images(quiet=True):
            if self._base_image not in (self._api.inspect_image(image)["RepoTags"] or ()):
                with suppress(docker.errors.APIError):
                    # One that others stand on goes with the last of them.
                    self._api.remove_image(image, force=True)

    def _action(self, driver: str, version: str) -> StartBuild:
        request = BuildRequest(
            recipe="bench:1",
            driver=DriverKey(f"{NAMESPACE}/{driver}"),
            version=version,
            target=self._target,
            template="debian",
            base_image=self._base_image,
            source=_source(driver, version),
            modules=(ModuleSpec(name=MODULES[driver]),),
            args={} if driver == EDU else {"BENCH": version},
        )
        return StartBuild(
            namespace=NAMESPACE,
            request=request,
            image=ImageRef(self._ground.registry.host, f"bench/{driver}", version),
            registry=RegistrySettings(plain_http=True),
            waiting=1,
        )

    def _builder(self, action: StartBuild) -> Builder:
        if self._jobs is None:
            return DockerBuilder(self._api)
        registry = RegistryClient(action.image.host, plain_http=True, reach=LOOPBACK)
        return JobBuilder(admin(self._ground), action, settings=self._jobs, registry=registry)

    def bare(self, driver: str) -> list[float]:
        """Compile the same source three times by make alone, where compiler and headers are installed."""
        (image,) = (
            tag
            for found in self._api.images()
            for tag in found["RepoTags"] or ()
            if tag.startswith("driverwright-cache/") and self._holds(tag, f"{MODULES[driver]}.ko")
        )
        headers = f"/usr/src/linux-headers-{self._target.kernel_version}"
        script = BARE.format(headers=headers, words=WORDS.get(driver, "M=/bare"))
        printed = self._run(image, script)
        times = re.findall(r"^seconds (\S+) (\S+)$", printed, re.MULTILINE)
        return [float(ended) - float(began) for began, ended in times]

    def _holds(self, image: str, module: str) -> bool:
        return "yes" in self._run(image, f'[ -z "$(find /built/ -name {module})" ] || echo yes')

    def _run(self, image: str, script: str) -> str:
        container = self._api.create_container(image, ["bash", "-c", script])
        try:
            self._api.start(container)
            assert self._api.wait(container)["StatusCode"] == 0, self._api.logs(container)
            return bytes(self._api.logs(container, stderr=False)).decode()
        finally:
            self._api.remove_container(container, force=True)

    @property
    def image_bytes(self) -> int:
        """Size of the edu image in the registry."""
        return self._bytes(f"bench/{EDU}", "cold")

    def _bytes(self, repository: str, reference: str) -> int:
        registry = RegistryClient(self._ground.registry.host, plain_http=True, reach=LOOPBACK)
        manifest = registry.fetch_manifest(repository, reference)
        assert manifest is not None
        return sum(int(part["size"]) for part in (manifest["config"], *manifest["layers"]))


def _source(driver: str, version: str) -> Source:
    if driver != EDU:
        return SourcePackage(name=driver)
    folder = REPOSITORY / "examples" / "edu-driver" / "src"
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
    return SourceFiles(files={**files, "edudrv.c": files["edudrv.c"] + f"/* {version} */\n".encode()})


# --- the controller ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Log:
    """What the controller said: lines with the monotonic time at which they came."""

    lines: "queue.SimpleQueue[tuple[float, str]]"

    def until(self, pattern: re.Pattern[str], timeout: float = 300) -> tuple[float, re.Match[str]]:
        """Give the next line that matches, and when it came."""
        end = time.monotonic() + timeout
        while True:
            at, line = self.lines.get(timeout=max(0.0, end - time.monotonic()))
            if found := pattern.search(line):
                return at, found

    def all_for(self, seconds: float) -> list[str]:
        """Give all lines that come until nothing was said for some seconds."""
        found: list[str] = []
        while True:
            try:
                found.append(self.lines.get(timeout=seconds)[1])
            except queue.Empty:
                return found


@contextmanager
def controller(ground: Testbed) -> Iterator[Log]:
    """Run the controller as a process of its own."""
    command = [sys.executable, "-m", "driver_builder", "run", "--kubeconfig", str(ground.kubeconfig), "-n", NAMESPACE]
    command += ["--docker-host", ground.engine.socket, "--port", "0", "--max-builds", "4", "--no-feature-rules"]
    command += ["--loader-image", "registry.example.com/loader:1"]
    lines: queue.SimpleQueue[tuple[float, str]] = queue.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(command, cwd=folder, env=_environment(), stderr=subprocess.PIPE, text=True)
        reader = threading.Thread(target=_read, args=(process.stderr, lines), daemon=True)
        reader.start()
        try:
            log = Log(lines)
            log.until(re.compile("acting as"))
            yield log
        finally:
            process.terminate()
            process.wait(30)


def _read(stream: IO[str], lines: "queue.SimpleQueue[tuple[float, str]]") -> None:
    for line in stream:
        lines.put((time.monotonic(), line))


def _environment() -> dict[str, str]:
    return {"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", VARIABLE: ALLOWED}


def start_fleet(ground: Testbed) -> None:
    """Make a thousand nodes on a kernel that is to have no driver."""
    client = admin(ground)
    apply_driver(client, ground, "fleet")
    for number in range(FLEET):
        client.create(NODES.path(), _node(f"fleet-{number:04}", "fleet", OLD_KERNEL))


def report_latency(ground: Testbed, log: Log) -> None:
    """Print how soon after a node's change of kernel a build begins, with a thousand other nodes in the cluster."""
    client = admin(ground)
    apply_driver(client, ground, "latency")
    client.create(NODES.path(), _node("latency", "latency", "6.1.0-900-cloud-amd64"))
    log.until(ENDED)
    seconds = []
    for number in range(901, 901 + SAMPLES):
        log.all_for(3.0)
        changed = time.monotonic()
        client.patch(NODES.path(name="latency"), _kernel(f"6.1.0-{number}-cloud-amd64"))
        at, _ = log.until(STARTED)
        seconds.append(at - changed)
        log.until(ENDED)
    told = f"median {statistics.median(seconds):.2f} s, worst {max(seconds):.2f} s of {SAMPLES}"
    print(f"new kernel to build start       {told}, with {FLEET} other nodes (asked for: 1 s)")


def report_fleet(ground: Testbed, log: Log, kernel: str) -> None:
    """Print how many builds it makes when one node after the other comes up with a new kernel."""
    client = admin(ground)
    log.all_for(3.0)
    began = time.monotonic()
    for number in range(FLEET):
        client.patch(NODES.path(name=f"fleet-{number:04}"), _kernel(kernel))
    took = time.monotonic() - began
    _wait_for_image(client, "fleet")
    waited = time.monotonic() - began
    # The other driver's failed builds are tried again meanwhile.
    started = [found["driver"] for line in log.all_for(QUIET_SECONDS) if (found := STARTED.search(line))]
    builds = started.count(f"{NAMESPACE}/fleet")
    status = client.get(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="fleet"))["status"]
    (target,) = (target for target in status["targets"] if target["kernel"] == kernel)
    print(
        f"{FLEET} nodes on one new kernel    {builds} build; they came in {took:.0f} s; after {waited:.0f} s the image "
        f"was there and rolled out to {target['nodes']} nodes"
    )


def apply_driver(client: Client, ground: Testbed, name: str) -> None:
    """Ask for the edu driver on the nodes of a pool."""
    source = REPOSITORY / "examples" / "edu-driver" / "src"
    files = {path.name: path.read_text() for path in source.iterdir() if path.is_file()}
    client.create(CONFIG_MAPS.path(namespace=NAMESPACE), {"metadata": {"name": name}, "data": files})
    spec: Mapping[str, Any] = {
        "version": "1.0.0",
        "nodeSelector": {"pool": name},
        "image": f"{ground.registry.host}/bench/{name}",
        "registry": {"plainHttp": True},
        "source": {"configMap": {"name": name}},
        "build": {"template": "debian", "baseImage": ground.base_image},
        "kernelMappings": [{"literal": OLD_KERNEL, "skip": True}, {"regexp": r"6\..*"}],
        "module": {"names": ["edudrv"]},
    }
    kind = {"apiVersion": "driverwright.io/v1alpha1", "kind": "DriverContainer"}
    client.create(DRIVER_CONTAINERS.path(namespace=NAMESPACE), {**kind, "metadata": {"name": name}, "spec": spec})


def _node(name: str, pool: str, kernel: str) -> dict[str, Any]:
    labels = {
        "pool": pool,
        names.KERNEL_VERSION_LABEL: kernel,
        names.OS_ID_LABEL: OS[0],
        names.OS_VERSION_LABEL: OS[1],
        names.ARCHITECTURE_LABEL: "amd64",
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def _kernel(release: str) -> dict[str, Any]:
    return {"metadata": {"labels": {names.KERNEL_VERSION_LABEL: release}}}


def _wait_for_image(client: Client, name: str) -> None:
    path, end = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=name), time.monotonic() + 120
    while time.monotonic() < end:
        targets = client.get(path).get("status", {}).get("targets", ())
        if any(target.get("imageDigest") and target["nodes"] == FLEET for target in targets):
            return
        time.sleep(0.5)
    raise AssertionError(f"no image for {name}: {targets}")


def _stable_kernel() -> str:
    """Name the newest kernel of the oldest series: the one that the archive's drivers are made for."""
    releases = sorted(available_releases(refreshed_apt()), key=release_key)
    return [release for release in releases if release_key(release)[:2] == release_key(releases[0])[:2]][-1]


if __name__ == "__main__":
    main()
