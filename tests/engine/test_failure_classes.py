"""Every class of failure, provoked with the real part: its reason, its words, nothing pushed, and recovery.

Engine, registry and package archive are real; the build queue is the controller's own. Docs: docs/operations.md, *Which
failures are proven*.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from driver_builder.builds.docker.docker_engine import docker_engine
from driver_builder.builds.templates.templates import render, templates_directory
from driver_builder.model.build import BuildRequest, ModuleSpec, SourceFiles
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.kernels import KernelTarget, KernelVersion
from testbed.ports import free_ports
from testbed.testbed import Testbed
from tests.engine.test_docker_builder import newest_kernel, wait_until_no_container
from tests.support.real_parts.apt_repository import Archive, served_headers
from tests.support.real_parts.build_bench import BuildBench
from tests.support.real_parts.images import derive
from tests.support.real_parts.small_parts import SmallEngine, SmallRegistry

pytestmark = [
    pytest.mark.every_engine,
    # docker's own client leaves its socket to the garbage collector when its engine dies.
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"),
]

MODULES = Path(__file__).parents[1] / "data" / "modules"
READY_KERNEL = "6.1.0-55-cloud-amd64"
OTHER_KERNEL = "6.1.0-47-cloud-amd64"
LONELY_KERNEL = "6.1.0-9055-cloud-amd64"
"""A kernel that no archive has headers for, but the test's own."""

QUICK_TEMPLATE = """\
FROM {{ base_image }} AS build
COPY source/ /src/
RUN sh /src/build.sh {{ kernel_version }}
FROM scratch
COPY --from=build /out/ /
"""
TAKE_READY = """\
mkdir -p /facts /out/driver "/out/lib/modules/$1/updates"
cp /src/dw_helper.ko "/out/lib/modules/$1/updates/"
echo updates/dw_helper.ko: >"/out/lib/modules/$1/modules.dep"
echo loader >/out/driver/loader
cp /src/Module.symvers /facts/
echo gcc >/facts/compiler
"""
GOOD_SOURCE = b"""\
#include <linux/module.h>
static int __init dw_init(void) { pr_info("hello\\n"); return 0; }
module_init(dw_init);
MODULE_LICENSE("GPL");
"""
BAD_SOURCE = GOOD_SOURCE.replace(b'pr_info("hello\\n")', b"nobody_declared(1)")
DOCTORED = b"""\
obj-m := dw.o
$(shell sed -i 's/^0x[0-9a-f]*\\t_printk\\t/0x12345678\\t_printk\\t/' /usr/src/linux-headers-*/Module.symvers)
"""
GOOD_MAKEFILE = b"obj-m := dw.o\n"


# ---------------------------------------------------------------- requests


def ready(script: str = "", **changes: Any) -> BuildRequest:
    """Take a module that is compiled already, after a script of the test's."""
    files = {
        "build.sh": f"{script}\n{TAKE_READY}".encode(),
        "dw_helper.ko": (MODULES / "dw_helper.ko").read_bytes(),
        "Module.symvers": (MODULES / f"{READY_KERNEL}.symvers").read_bytes(),
    }
    return BuildRequest(**{**_common(READY_KERNEL, "dw_helper"), "source": SourceFiles(files=files), **changes})


def with_file(request: BuildRequest, name: str, content: bytes) -> BuildRequest:
    """Change one file of a source."""
    assert isinstance(request.source, SourceFiles)
    return replace(request, source=SourceFiles(files={**request.source.files, name: content}))


def compiled(source: bytes = GOOD_SOURCE, makefile: bytes = GOOD_MAKEFILE, **changes: Any) -> BuildRequest:
    """Compile a driver by the template that we ship, against the headers of the test's own archive."""
    fields = {
        **_common(LONELY_KERNEL, "dw"),
        "template": "debian",
        "source": SourceFiles(files={"dw.c": source, "Makefile": makefile}),
    }
    return BuildRequest(**{**fields, **changes})


def _common(kernel: str, module: str) -> dict[str, Any]:
    return {
        "recipe": "quick:1",
        "driver": DriverKey("integration/failing"),
        "version": "1",
        "target": KernelTarget(KernelVersion(kernel), "debian", "12", "amd64"),
        "template": "quick",
        "base_image": "debian:bookworm-slim",
        "modules": (ModuleSpec(name=module),),
    }


# ---------------------------------------------------------------- parts


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a template that runs the source's own script."""
    folder = tmp_path_factory.mktemp("templates")
    (folder / "quick.Dockerfile.j2").write_text(QUICK_TEMPLATE)
    return folder


@pytest.fixture
def bench(engine_ground: Testbed, templates: Path, request: pytest.FixtureRequest) -> Iterator[BuildBench]:
    """A queue that builds with the quick template, into a repository of the test's own."""
    host, repository = engine_ground.registry.host, repository_of(request)
    with BuildBench(engine=engine_ground.engine.socket, host=host, repository=repository, templates=templates) as made:
        yield made


@pytest.fixture
def shipped(engine_ground: Testbed, request: pytest.FixtureRequest) -> Iterator[BuildBench]:
    """A queue that builds with the templates that we ship."""
    host, repository = engine_ground.registry.host, repository_of(request)
    with BuildBench(engine=engine_ground.engine.socket, host=host, repository=repository, templates=None) as made:
        yield made


def repository_of(request: pytest.FixtureRequest) -> str:
    """Name a repository after the test."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name.lower())
    return f"failures/{name.strip('-').replace('--', '-')}"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    """The archive with headers that nobody else has."""
    folder = tmp_path_factory.mktemp("archive")
    with served_headers(folder, like=newest_kernel(), kernel=LONELY_KERNEL, suites=["bookworm"]) as made:
        yield made


@pytest.fixture(scope="module")
def base_image(engine_ground: Testbed, archive: Archive) -> str:
    """The Debian image that trusts the archive's key, with the compiler as the template installs it.

    The engine has that layer, but for the template on this image it is another one.
    """
    name = "failures/base:1"
    instructions = render(compiled(), templates_directory(None)).partition("\n")[2]
    compiler, *_ = instructions.partition("\nWORKDIR ")
    trust = "COPY key.asc /etc/apt/trusted.gpg.d/test.asc"
    derive(engine_ground, name, {"key.asc": archive.public_key}, compiler, trust, network="host")
    return name


# ---------------------------------------------------------------- the driver's own fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """A request that fails, with its reason and what the message must say; ``mended`` is the fixed request."""

    broken: BuildRequest
    reason: str
    words: tuple[str, ...]
    mended: BuildRequest


MIRRORED = "MIRROR"
"""Stands for the address of the test's archive in the arguments below."""

COMPILED = {
    "headers that do not exist": Wrong(
        broken=compiled(),
        reason="HeadersMissing",
        words=(f"linux-headers-{LONELY_KERNEL}", "looked in: the archives of failures/base:1"),
        mended=compiled(args={"HEADERS_MIRROR": MIRRORED}),
    ),
    "a source that does not compile": Wrong(
        broken=compiled(BAD_SOURCE, args={"HEADERS_MIRROR": MIRRORED}),
        reason="CompileError",
        words=("dw.c:2:", "implicit declaration of function 'nobody_declared'"),
        mended=compiled(args={"HEADERS_MIRROR": MIRRORED}),
    ),
    "a compiler that is not there": Wrong(
        broken=compiled(args={"HEADERS_MIRROR": MIRRORED, "CC": "gcc-99"}),
        reason="CompilerMismatch",
        words=("gcc-99", "not found"),
        mended=compiled(args={"HEADERS_MIRROR": MIRRORED, "CC": "gcc-12"}),
    ),
    "an option of a newer compiler": Wrong(
        broken=compiled(
            makefile=GOOD_MAKEFILE + b"ccflags-y := -fno-such-thing-yet\n", args={"HEADERS_MIRROR": MIRRORED}
        ),
        reason="CompilerMismatch",
        words=("unrecognized command-line option '-fno-such-thing-yet'",),
        mended=compiled(args={"HEADERS_MIRROR": MIRRORED}),
    ),
    "a compiler without memory": Wrong(
        broken=with_file(
            compiled(
                makefile=GOOD_MAKEFILE + b"override CC := sh /source/limited\n", args={"HEADERS_MIRROR": MIRRORED}
            ),
            "limited",
            b'ulimit -v 70000\nexec gcc "$@"\n',
        ),
        reason="OutOfMemory",
        words=("ran out of memory",),
        mended=compiled(args={"HEADERS_MIRROR": MIRRORED}),
    ),
    "a module built against other symbols": Wrong(
        broken=compiled(makefile=DOCTORED, args={"HEADERS_MIRROR": MIRRORED}),
        reason="WrongSymbolCRC",
        words=("dw", "_printk"),
        mended=compiled(args={"HEADERS_MIRROR": MIRRORED}),
    ),
}


def against(request: BuildRequest, archive: Archive, base_image: str) -> BuildRequest:
    """Put in the addresses that are known only now."""
    args = {name: archive.url if value == MIRRORED else value for name, value in request.args.items()}
    return replace(request, args=args, base_image=base_image)


IN_LONG_TIER = (
    "headers that do not exist",
    "an option of a newer compiler",
    "a compiler without memory",
    "a module built against other symbols",
)
"""Each has a reason that another test of this folder provokes."""


def _compiled() -> list[object]:
    """Return the requests that fail; `make test` has one for each reason."""
    marks = {name: [pytest.mark.long] for name in IN_LONG_TIER}
    return [pytest.param(wrong, marks=marks.get(name, []), id=name) for name, wrong in COMPILED.items()]


@pytest.mark.parametrize("wrong", _compiled())
def test_a_faulty_driver_is_reported_and_builds_when_fixed(
    wrong: Wrong, shipped: BuildBench, archive: Archive, base_image: str
) -> None:
    """By the template that we ship: the compiler's and apt's own words, nothing pushed, and then it is."""
    fails_then_works(
        shipped, against(wrong.broken, archive, base_image), wrong, against(wrong.mended, archive, base_image)
    )


def fails_then_works(bench: BuildBench, broken: BuildRequest, wrong: Wrong, mended: BuildRequest) -> None:
    """Build a faulty request: it is reported, the registry is empty; build the fixed one: its tag exists."""
    failure = bench.build(broken)
    assert failure is not None
    said = (failure.reason, failure.message, bench.log[-20:])
    assert failure.reason == wrong.reason, said
    assert all(word in failure.message for word in wrong.words), said
    assert bench.tags() == []
    assert bench.build(mended) is None, bench.log[-20:]
    assert f"1-{mended.key}" in bench.tags()


def test_a_module_of_another_kernel_is_not_pushed(bench: BuildBench) -> None:
    """Compiled elsewhere, with that kernel's symbols; with its own it is pushed."""
    symvers = (MODULES / f"{OTHER_KERNEL}.symvers").read_bytes()
    wrong = Wrong(
        broken=with_file(ready(), "Module.symvers", symvers),
        reason="WrongSymbolCRC",
        words=("dw_helper", "module_layout"),
        mended=ready(),
    )
    fails_then_works(bench, wrong.broken, wrong, wrong.mended)


def test_standard_error_does_not_cut_what_a_template_says(bench: BuildBench) -> None:
    """The engine passes on a line's begin of standard error before a whole line of standard output."""
    wrong = Wrong(
        broken=ready("printf 'curl: ' >&2; sleep 1; echo 'driverwright: package x cannot be had'; exit 64"),
        reason="HeadersMissing",
        words=("package x cannot be had",),
        mended=ready(),
    )
    fails_then_works(bench, wrong.broken, wrong, wrong.mended)


# ---------------------------------------------------------------- what builds need


def recovers(
    bench: BuildBench, request: BuildRequest, *, trouble: Callable[[], object], mend: Callable[[], object],
    reason: str, words: tuple[str, ...], tags: Callable[[], list[str]] | None = None,
) -> None:  # fmt: skip
    """Build during a fault: it is reported and nothing pushed; afterwards the same request is built and pushed."""
    tags = tags or bench.tags
    trouble()
    try:
        failure = bench.build(request)
    finally:
        mend()
    assert failure is not None
    said = (failure.reason, failure.message, bench.log[-20:])
    assert failure.reason == reason, said
    assert all(word in failure.message for word in words), said
    assert tags() == []
    assert bench.build(request) is None, bench.log[-20:]
    assert f"1-{request.key}" in tags()


def test_package_archives_that_are_away(
    shipped: BuildBench, engine_ground: Testbed, archive: Archive, base_image: str
) -> None:
    """The archive of the base image refuses connections; with a living one in its place the driver is built."""
    (port,) = free_ports(1)
    sources = f"deb http://127.0.0.1:{port}/debian bookworm main\n".encode()
    repository, _, tag = base_image.partition(":")
    with docker_engine(engine_ground.engine.socket) as api:
        living = api.inspect_image(base_image)["Id"]

        def use_dead() -> None:
            derive(
                engine_ground, base_image, {"sources.list": sources},
                "RUN rm -f /etc/apt/sources.list.d/*", "COPY sources.list /etc/apt/sources.list",
            )  # fmt: skip

        recovers(
            shipped, against(compiled(args={"HEADERS_MIRROR": MIRRORED}), archive, base_image), trouble=use_dead,
            mend=lambda: api.tag(living, repository, tag), reason="PackageRepositoryUnavailable",
            words=(f"http://127.0.0.1:{port}/debian",),
        )  # fmt: skip


def test_an_engine_that_is_killed_in_the_middle(bench: BuildBench, engine_ground: Testbed) -> None:
    """SIGKILL while a command runs; the engine is started again, and so is the build."""

    def trouble() -> None:
        bench.when_waiting = engine_ground.engine.kill

    def mend() -> None:
        bench.when_waiting = None
        engine_ground.engine.start()
        gc.collect()
        with docker_engine(engine_ground.engine.socket) as api:
            for container in api.containers(all=True):
                api.remove_container(container["Id"], force=True)

    recovers(
        bench, ready("echo waiting; sleep 4"), trouble=trouble, mend=mend, reason="BuilderUnavailable",
        words=("the build engine",),
    )  # fmt: skip


def test_a_build_that_takes_too_long(bench: BuildBench, engine_ground: Testbed) -> None:
    """The deadline ends it, and the message has the last line; one that is quick enough is built."""
    wrong = Wrong(
        broken=ready("echo waiting; sleep 1200", deadline_seconds=3600),
        reason="DeadlineExceeded",
        words=("within 3600 s", "last line: waiting"),
        mended=ready(),
    )
    bench.when_waiting = lambda: bench.clock.leap(3600)
    fails_then_works(bench, wrong.broken, wrong, wrong.mended)
    with docker_engine(engine_ground.engine.socket) as api:
        wait_until_no_container(api)


def test_a_registry_that_is_stopped(bench: BuildBench, engine_ground: Testbed) -> None:
    """Built and verified, nowhere to put it; when the registry is back the same request is pushed."""
    registry = engine_ground.registry
    recovers(
        bench, ready(), trouble=registry.stop, mend=registry.start, reason="RegistryUnreachable",
        words=(bench.host, "connection refused"),
    )  # fmt: skip


def test_a_wrong_password(bench: BuildBench, engine_ground: Testbed) -> None:
    """The registry says no to the push; the message names the user and not the password."""
    registry = engine_ground.registry
    registry.set_auth("builder", "the right one")
    try:
        recovers(
            bench, ready(), trouble=lambda: bench.set_password("the wrong one"),
            mend=lambda: bench.set_password("the right one"), reason="RegistryUnauthorized",
            words=("denies access", "user 'builder'"), tags=lambda: bench.tags(auth=("builder", "the right one")),
        )  # fmt: skip
        assert not any("the wrong one" in line or "the right one" in line for line in bench.log)
    finally:
        registry.set_auth(None)


# ---------------------------------------------------------------- full


@pytest.fixture(scope="module")
def small_registry(engine_ground: Testbed) -> SmallRegistry:
    """A registry on a disk of its own, that can be too small."""
    return SmallRegistry.start(engine_ground.processes)


@pytest.fixture(scope="module")
def small_engine(engine_ground: Testbed) -> Iterator[SmallEngine]:
    """An engine with a disk and a memory limit of its own."""
    engine = SmallEngine.start(engine_ground.processes, kind=engine_ground.engine.kind)
    engine.pull(engine_ground.small_image)
    yield engine
    engine.stop()


def test_a_registry_whose_disk_is_full(
    small_registry: SmallRegistry, engine_ground: Testbed, templates: Path, request: pytest.FixtureRequest
) -> None:
    """It takes a part of the image and then no more: no manifest, no tag; with more room the same request is pushed."""
    socket = engine_ground.engine.socket
    with BuildBench(
        engine=socket, host=small_registry.host, repository=repository_of(request), templates=templates
    ) as bench:
        recovers(
            bench, ready(f"head -c {1 << 20} /dev/urandom >/src/more; mkdir -p /out; cp /src/more /out/"),
            trouble=lambda: small_registry.resize("256k"), mend=lambda: small_registry.resize("64m"),
            reason="RegistryFull", words=("has no room left", "500 UNKNOWN"),
        )  # fmt: skip


@pytest.fixture
def small(
    small_engine: SmallEngine, engine_ground: Testbed, templates: Path, request: pytest.FixtureRequest
) -> Iterator[BuildBench]:
    """A queue that builds in the small engine."""
    host, repository = engine_ground.registry.host, repository_of(request)
    with BuildBench(engine=small_engine.socket, host=host, repository=repository, templates=templates) as made:
        yield made


def test_an_engine_whose_disk_is_full(small: BuildBench, small_engine: SmallEngine, engine_ground: Testbed) -> None:
    """A command of the build writes more than there is room for; with more room the same request is built."""
    build = ready(f"head -c {24 << 20} /dev/zero >/src/big", base_image=engine_ground.small_image)
    recovers(
        small, build, trouble=lambda: small_engine.resize("20m"), mend=lambda: small_engine.resize("256m"),
        reason="DiskFull", words=("the disk of the build engine is full",),
    )  # fmt: skip


def test_a_build_that_the_kernel_kills_for_its_memory(
    small: BuildBench, small_engine: SmallEngine, engine_ground: Testbed
) -> None:
    """The out-of-memory killer ends a command of the build; with more memory the same request is built."""
    build = ready("x=$(head -c 60000000 /dev/zero | tr '\\0' x); echo ${#x}", base_image=engine_ground.small_image)
    recovers(
        small, build, trouble=lambda: small_engine.memory.limit(24 << 20), mend=lambda: small_engine.memory.limit(-1),
        reason="OutOfMemory", words=("ran out of memory",),
    )  # fmt: skip
