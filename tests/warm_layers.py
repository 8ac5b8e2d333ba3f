"""What an engine of the tests has in its cache from the start: what installs Debian packages, and nothing of ours.

Compiler and headers as our own template installs them: tests build for the same few kernels again and again, and that
takes longer than all they do with them. They are made by the product's own builder, so that its builds find them. And
the first layers of the product's own images, up to where these copy something.
"""

from __future__ import annotations

import hashlib
import io
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import docker

from driver_builder.building.docker_builder import DockerBuilder
from driver_builder.building.docker_engine import docker_engine
from driver_builder.building.templates import HEADERS_STAGE, render, templates_directory
from driver_builder.model.build import BuildRequest, ModuleSpec, SourceFiles
from driver_builder.model.kernels import KernelTarget, KernelVersion
from tests.proving_ground.base_image import base_image_ref
from tests.proving_ground.errors import ProvingGroundError
from tests.proving_ground.kernels import CLOUD, KernelPackage, choose_kernels, newest_kernel, parse_candidates
from tests.proving_ground.packages import PrivateApt
from tests.proving_ground.progress import PlainLines, Progress, Step
from tests.proving_ground.warm_root import Preparation

_DOCKERFILES = Path(__file__).parents[1] / "dockerfiles"
_KERNELS = 3
_TOOLS = ("gcc", "gcc-12", "libc6-dev", "make", "kmod", "busybox-static", "dkms", "binutils")


def preparation(progress: Progress | None = None) -> Preparation:
    """Return what the engines of the tests are made to do before their data is kept."""
    kernels = _kernels(progress or PlainLines())
    requests = [_request(kernel) for kernel in kernels]
    versions = parse_candidates(PrivateApt().cache("policy", *_TOOLS))
    recipes = [_headers_stage(request) for request in requests]
    product = [text for path in sorted(_DOCKERFILES.glob("*/Dockerfile")) for text in first_layers(path.read_text())]
    parts = (sorted(versions.items()), [(kernel.release, kernel.version) for kernel in kernels], recipes, product)

    def prepare(address: str, step: Step) -> None:
        with docker_engine(address) as api:
            for number, request in enumerate(requests):
                step.detail(f"installing compiler and headers of {request.target.kernel_version}")
                DockerBuilder(api).kernel_facts(request, log=lambda _: None, cancelled=threading.Event())
                # Under a name of its own: a test that looks for the builder's finds what it has made itself.
                (image,) = api.images(name="driverwright-headers/*", quiet=True)
                (name,) = api.inspect_image(image)["RepoTags"]
                api.tag(image, "testbed/headers", str(number))
                api.remove_image(name)
            for number, text in enumerate(product):
                step.detail("installing what the product's images stand on")
                _build(api, text, f"testbed/product:{number}")

    return Preparation(hashlib.sha256(repr(parts).encode()).hexdigest(), prepare)


def first_layers(dockerfile: str) -> Iterator[str]:
    """Split a Dockerfile into its stages, each up to where it copies something; those that run nothing are left out."""
    head, *stages = re.split(r"(?m)^(?=FROM )", dockerfile)
    for stage in stages:
        text = re.split(r"(?m)^(?=COPY )", stage)[0]
        if re.search(r"(?m)^RUN ", text):
            yield head + text


def _build(api: docker.APIClient, dockerfile: str, tag: str) -> None:
    base = {"BASE_IMAGE": base_image_ref()}
    file = io.BytesIO(dockerfile.encode())
    for line in api.build(fileobj=file, tag=tag, network_mode="host", rm=True, decode=True, buildargs=base):
        if "error" in line:
            raise ProvingGroundError(f"the engine did not build {tag}: {line['error']}")


def _kernels(progress: Progress) -> list[KernelPackage]:
    found = {kernel.release: kernel for kernel in (newest_kernel(CLOUD, progress), *choose_kernels(_KERNELS, progress))}
    return list(found.values())


def _request(kernel: KernelPackage) -> BuildRequest:
    return BuildRequest(
        key=f"headers-{kernel.release}",
        driver="testbed/headers",
        version="1",
        target=KernelTarget(KernelVersion(kernel.release), "debian", "12", "amd64"),
        template="debian",
        base_image="debian:bookworm-slim",
        source=SourceFiles(files={"Makefile": b""}),
        modules=(ModuleSpec(name="none"),),
    )


def _headers_stage(request: BuildRequest) -> str:
    text = render(request, templates_directory(None))
    return text.partition(f"FROM {HEADERS_STAGE} AS ")[0]
