"""The kernel update that NVIDIA's driver does not compile for, told before a node reboots into it.

``make nvidia-case`` takes Debian's own package of NVIDIA's open kernel modules and every kernel ABI that the archives
offer of the oldest series, in one flavour. Real parts: API server, registry, container engine, ``driver-builder`` as a
person would call it. A Node object stands for the GPU node; nothing boots.

It asks ``driver-builder preflight`` for the newest kernel and for the oldest, halves its way to the update that broke
the driver, and lets ``driver-builder gate`` say whether the node may move. Which kernels these are is found out here
and now; when the archives have moved on, it says what it found instead. All that commands print is shown whole.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from bench.matrix.kernels import known_kernels  # noqa: E402
from demo.deploy import DEPLOY, ensure  # noqa: E402
from driver_builder.base.errors import TemporaryError  # noqa: E402
from kube_api import names  # noqa: E402
from kube_api.client import Client  # noqa: E402
from kube_api.errors import NotFound  # noqa: E402
from kube_api.resources import NODES  # noqa: E402
from testbed.apt_sources import parse_os_release  # noqa: E402
from testbed.base_image import ensure_image_with_components  # noqa: E402
from testbed.errors import TestbedError  # noqa: E402
from testbed.kernels import flavour_of, release_key  # noqa: E402
from testbed.progress import Progress, for_terminal  # noqa: E402
from testbed.testbed import Testbed  # noqa: E402

DRIVER, NODE = "nvidia-open", "gpu-node-1"
PACKAGE = "nvidia-open-kernel-dkms"
COMPONENTS = ("contrib", "non-free", "non-free-firmware")
MODULES = ("nvidia", "nvidia_modeset", "nvidia_drm", "nvidia_uvm")
GPU_LABEL = {"nvidia.com/gpu.present": "true"}
FIELD_MANAGER = "nvidia-case"
_BUILD_SECONDS = 3600
_DEFINITION_SECONDS = 30


def main(arguments: Sequence[str] | None = None) -> int:
    """Tell the case; 0 when all that was found fits together, whatever was found."""
    options = _parser().parse_args(arguments)
    progress = for_terminal()
    try:
        kernels = choose_kernels(options.flavour)
        with Testbed.start(nodes=False, host_node=False, progress=progress) as ground, cluster(ground) as client:
            base_image = base_image_of(ground, progress)
            set_up(client, ground, base_image, kernels[0])
            return Case(ground=ground, progress=progress, kernels=kernels).tell()
    except (TestbedError, TemporaryError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="NVIDIA's open modules and the kernel update that breaks them.")
    parser.add_argument("--flavour", default="amd64", help="of the kernels: amd64, cloud-amd64 (default %(default)s)")
    return parser


def choose_kernels(flavour: str) -> list[str]:
    """Return the kernels of a flavour in the oldest series that the archives have headers of, oldest first.

    Raises:
        TestbedError: when there is none.
    """
    kernels = of_oldest_series(known_kernels(), flavour)
    if not kernels:
        raise TestbedError(f"no headers of {flavour} kernels in the archives", hint="run apt-get update")
    return kernels


def of_oldest_series(releases: Sequence[str], flavour: str) -> list[str]:
    """Return the releases of a flavour in its oldest series, oldest first."""
    own = sorted((release for release in releases if flavour_of(release) == flavour), key=release_key)
    return [release for release in own if release_key(release)[:2] == release_key(own[0])[:2]]


def break_between(kernels: Sequence[str], is_well: Callable[[str], bool]) -> tuple[str, str]:
    """Halve the way from the oldest kernel, which is well, to the newest, which is not; gives last good and first bad.

    As few builds as can be; it takes for granted that what is broken stays broken in newer ones.
    """
    good, bad = 0, len(kernels) - 1
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if is_well(kernels[middle]) else (good, middle)
    return kernels[good], kernels[bad]


@contextmanager
def cluster(ground: Testbed) -> Iterator[Client]:
    """Connect as a user would, with a kubeconfig."""
    yield Client.from_environment(str(ground.kubeconfig))


def base_image_of(ground: Testbed, progress: Progress) -> str:
    """Have a Debian image whose apt knows the components that NVIDIA's packages are in."""
    client = ground.engine.client()
    try:
        return ensure_image_with_components(client, COMPONENTS, progress)
    finally:
        client.close()


def set_up(client: Client, ground: Testbed, base_image: str, kernel: str) -> None:
    """Define what the commands look at: the driver, and a node with a GPU on the oldest kernel."""
    for path in ("namespace.yaml", "crds/drivercontainers.yaml"):
        for obj in yaml.safe_load_all((DEPLOY / path).read_text()):
            ensure(client, obj, field_manager=FIELD_MANAGER)
    _wait_for_definition(client, driver(ground.registry.host, base_image))
    client.apply(NODES.path(name=NODE), node(kernel), field_manager=FIELD_MANAGER)
    print(f"The driver:\n\n{yaml.safe_dump(driver(ground.registry.host, base_image), sort_keys=False)}")
    print(f"{NODE} runs {kernel} and has a GPU.", flush=True)


def _wait_for_definition(client: Client, obj: dict[str, Any]) -> None:
    """Apply an object whose definition is served a moment after it was created."""
    deadline = time.monotonic() + _DEFINITION_SECONDS
    while True:
        try:
            ensure(client, obj, field_manager=FIELD_MANAGER)
        except NotFound:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def driver(registry: str, base_image: str) -> dict[str, Any]:
    """Write the DriverContainer of a GPU admin."""
    return {
        "apiVersion": f"{names.GROUP}/v1alpha1",
        "kind": "DriverContainer",
        "metadata": {"name": DRIVER, "namespace": "driverwright"},
        "spec": {
            "version": "535",
            "nodeSelector": GPU_LABEL,
            "image": f"{registry}/drivers/{DRIVER}",
            "registry": {"plainHttp": True},
            "source": {"package": {"name": PACKAGE}},
            "build": {"baseImage": base_image, "deadline": "1h"},
            "module": {"names": list(MODULES)},
        },
    }


def node(kernel: str) -> dict[str, Any]:
    """Write the Node of a machine with a GPU, with the labels that nfd-worker gives it."""
    release = parse_os_release(Path("/etc/os-release").read_text())
    labels = {
        names.KERNEL_VERSION_LABEL: names.label_value(kernel),
        names.OS_ID_LABEL: release["ID"],
        names.OS_VERSION_LABEL: release["VERSION_ID"],
        names.ARCHITECTURE_LABEL: "amd64",
        **GPU_LABEL,
    }
    annotations = {names.KERNEL_VERSION_ANNOTATION: kernel}
    metadata = {"name": NODE, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Asks ``driver-builder`` about the kernels, and shows all that it answers."""

    ground: Testbed
    progress: Progress
    kernels: Sequence[str]
    verdicts: dict[str, bool] = field(default_factory=dict)

    def tell(self) -> int:
        """Ask about newest and oldest, find the break, and ask whether the node may move; gives the exit code."""
        oldest, newest = self.kernels[0], self.kernels[-1]
        print(f"The archives offer {len(self.kernels)} kernels of this flavour: {', '.join(self.kernels)}.")
        if self.preflight(newest):
            print(f"\nThe archives have moved on: {PACKAGE} builds for the newest kernel, {newest}.")
            return int(not self.gate(newest))
        if len(self.kernels) == 1 or not self.preflight(oldest):
            print(f"\nThe archives have moved on: {PACKAGE} builds for neither {newest} nor {oldest}.")
            return int(self.gate(newest))
        said = [self.gate(oldest), not self.gate(newest)]
        good, bad = break_between(self.kernels, self.preflight)
        print(f"\n{PACKAGE} builds up to {good}. It broke with the update to {bad}.")
        said += [self.gate(good), not self.gate(bad)]
        print("\n" + "\n".join(f"{kernel}: {self._word(kernel)}" for kernel in self.kernels))
        return int(not all(said))

    def _word(self, kernel: str) -> str:
        return {True: "has a driver", False: "has NO driver", None: "not asked"}[self.verdicts.get(kernel)]

    def preflight(self, kernel: str) -> bool:
        """Whether the driver builds for a kernel and fits it; what is well is pushed."""
        release = parse_os_release(Path("/etc/os-release").read_text())
        words = ["preflight", "--kernel", kernel, "--os", f"{release['ID']}:{release['VERSION_ID']}", "--push", DRIVER]
        self.verdicts[kernel] = self._run(words, yes=("verified", "present"), no=("FAILED",))
        return self.verdicts[kernel]

    def gate(self, kernel: str) -> bool:
        """Whether the node may move to a kernel."""
        return self._run(["gate", NODE, kernel], yes=("may move to",), no=("must not move to",))

    def _run(self, words: Sequence[str], *, yes: tuple[str, ...], no: tuple[str, ...]) -> bool:
        """Run ``driver-builder``, show what it prints, its exit code and its time, and read the answer.

        Raises:
            TestbedError: when it gave no answer, or an exit code that says something else.
        """
        code, output = self._shown(words)
        if code == 0 and any(word in output for word in yes):
            return True
        if code == 1 and any(word in output for word in no):
            return False
        raise TestbedError(f"driver-builder {' '.join(words)} gave no answer", hint="read what it printed")

    def _shown(self, words: Sequence[str]) -> tuple[int, str]:
        began = time.monotonic()
        with self.progress.step(f"driver-builder {' '.join(words)}"):
            done = subprocess.run(
                [sys.executable, "-m", "driver_builder", *words],
                cwd=REPOSITORY,
                env={
                    **os.environ,
                    "DRIVER_BUILDER_KUBECONFIG": str(self.ground.kubeconfig),
                    "DOCKER_HOST": self.ground.engine.socket,
                    "DRIVER_BUILDER_REGISTRY_ALLOWED_HOSTS": self.ground.registry.host,
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_BUILD_SECONDS,
                check=False,
                text=True,
            )
        print(f"\n$ driver-builder {' '.join(words)}\n{done.stdout.rstrip()}")
        print(f"exit code {done.returncode}, after {time.monotonic() - began:.0f} s", flush=True)
        return done.returncode, done.stdout


if __name__ == "__main__":
    sys.exit(main())
