"""What an engine of the tests has in its cache from the start: what installs Debian packages, and nothing of ours.

Compiler and headers as our own template installs them: tests build for the same few kernels again and again, and that
takes longer than all they do with them. They are made by the same commands, so that its builds find them. And the
first layers of other images, up to where these copy something: the product's own, what the other templates install
of Debian, and the base image with other distributions' package managers.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import docker

from driver_builder.builds.docker.docker_engine import docker_engine
from driver_builder.builds.templates.templates import HEADERS_STAGE, render, templates_directory
from driver_builder.model.build import BuildRequest, ModuleSpec, OwnTemplate, SourceFiles
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.kernels import KernelTarget, KernelVersion
from testbed.base_image import base_image_archive, base_image_ref, ensure_base_image
from testbed.errors import TestbedError
from testbed.kernels import CLOUD, GENERIC, KernelPackage, choose_kernels, newest_kernel, parse_candidates
from testbed.packages import PrivateApt
from testbed.progress import PlainLines, Progress, Step
from testbed.warm_root import Preparation
from tests.support.real_parts import rpm_archive

_ROOT = Path(__file__).parents[1]
OWN_TEMPLATE = "docs/templates.md"
_EXAMPLE = re.compile(r"```dockerfile\n(.*?)```\n", re.DOTALL)
_KERNELS = 2
_DEBIANS = {"bookworm": "12", "trixie": "13"}
_OTHER = "trixie"
"""The Debian release whose stock kernel the tests have beside those of the tree."""
_TOOLS = (
    *("gcc", "gcc-12", "libc6-dev", "libzstd-dev", "make", "kmod", "busybox-static", "dkms", "dnf", "zypper"),
    *("dwarves",),
)


def preparation(progress: Progress | None = None) -> Preparation:
    """Return what the engines of the tests are made to do before their data is kept."""
    progress = progress or PlainLines()
    kernels = _kernels(progress)
    other_base = base_image_archive(progress, _OTHER).parent.name
    versions = parse_candidates(PrivateApt().cache("policy", *_TOOLS))
    recipes = [_headers_stage(_request(kernel)) for kernel in kernels]
    others = [*_of_the_product(), *_of_templates(kernels[0])]
    of_kernels = [(kernel.release, kernel.version) for kernel in kernels]
    parts = (sorted(versions.items()), of_kernels, recipes, others, other_base)

    def prepare(address: str, step: Step) -> None:
        with docker_engine(address) as api:
            ensure_base_image(api, _OTHER, progress)
            for number, (kernel, text) in enumerate(zip(kernels, recipes, strict=True)):
                step.detail(f"installing compiler and headers of {kernel.release}")
                _build(api, text, f"testbed/headers:{number}")
            for number, text in enumerate(others):
                step.detail(f"installing what other images stand on: {number + 1} of {len(others)}")
                _build(api, text, f"testbed/others:{number}")

    return Preparation(hashlib.sha256(repr(parts).encode()).hexdigest(), prepare)


def own_template() -> OwnTemplate:
    """Return the example of an admin's own template."""
    found = _EXAMPLE.search((_ROOT / OWN_TEMPLATE).read_text())
    if not found:
        raise TestbedError(f"{OWN_TEMPLATE} has no example of a template")
    return OwnTemplate(place=OWN_TEMPLATE, text=found[1])


def _of_the_product() -> Iterator[str]:
    for path in sorted((_ROOT / "dockerfiles").glob("*/Dockerfile")):
        yield from first_layers(path.read_text())


def _of_templates(kernel: KernelPackage) -> Iterator[str]:
    """Give what templates install of Debian, and the image in which other distributions' are built."""
    request = _request(kernel)
    tools = _rendered(replace(request, template="rhel"))
    # What is fetched from where a test serves it, is made by the test.
    generic, _, _ = _rendered(replace(request, template="generic")).partition("\nRUN file=")
    own = _rendered(replace(request, template="own", own_template=own_template()))
    yield from (next(first_layers(text)) for text in (tools, generic, own))
    yield f"FROM {base_image_ref()}\n{rpm_archive.package_managers(kernel)}\n"


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
            raise TestbedError(f"the engine did not build {tag}: {line['error']}")


def _kernels(progress: Progress) -> list[KernelPackage]:
    own = (newest_kernel(CLOUD, progress), *choose_kernels(_KERNELS, progress))
    found = {kernel.release: kernel for kernel in (*own, newest_kernel(GENERIC, progress, _OTHER))}
    return list(found.values())


def _request(kernel: KernelPackage) -> BuildRequest:
    return BuildRequest(
        recipe=f"headers-{kernel.release}",
        driver=DriverKey("testbed/headers"),
        version="1",
        target=KernelTarget(KernelVersion(kernel.release), "debian", _DEBIANS[kernel.codename], "amd64"),
        template="debian",
        base_image=base_image_ref(kernel.codename),
        source=SourceFiles(files={"Makefile": b""}),
        modules=(ModuleSpec(name="none"),),
    )


def _headers_stage(request: BuildRequest) -> str:
    return _rendered(request).partition(f"FROM {HEADERS_STAGE} AS ")[0]


def _rendered(request: BuildRequest) -> str:
    return render(request, templates_directory(None))
