"""The symbols that a build gets from the images of the drivers that it depends on: real modules, and a registry."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tarfile import SYMTYPE

import pytest

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.archives.image_archive import read_image_archive
from driver_builder.base.errors import BuildFailed, RegistryRefused, VerificationFailed
from driver_builder.base.reasons import Reason
from driver_builder.builds.pipeline.pipeline import build_and_push
from driver_builder.builds.templates.templates import build_context, render, templates_directory
from driver_builder.model import images
from driver_builder.model.build import BuildRequest, BuiltImage, LogSink, ModuleSpec, SourceFiles
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.image_state import Present
from driver_builder.model.images import ImageRef
from driver_builder.modules.symvers import parse_module_symvers, render_module_symvers
from driver_builder.modules.verify import check_modules
from driver_builder.nodes.changes import StartBuild
from driver_builder.registry.image_store import push_image
from driver_builder.registry.registry import RegistryClient
from driver_builder.registry.registry_access import Registries
from driver_builder.targets.desired_target import Exporter
from tests.support.driver_builder.factories import target
from tests.support.driver_builder.image_tars import docker_20, special, tar_of
from tests.support.driver_builder.kernel_modules import HELPER, HELPER_MODULE, PROBE, PROBE_MODULE, SYMVERS_55
from tests.support.driver_builder.memory_client import MemoryClient
from tests.support.driver_builder.scripted_registry import MemoryRegistry, ScriptedRegistry, scripted_registry
from tests.support.loopback import LOOPBACK

KERNEL = "6.1.0-55-cloud-amd64"
FOLDER = f"lib/modules/{KERNEL}"
FIRST = BuildRequest(
    recipe="k",
    driver=DriverKey("team/helper"),
    version="1",
    target=target(KERNEL),
    template="debian",
    base_image="debian:bookworm-slim",
    source=SourceFiles(files={"Makefile": b"obj-m := x.o"}),
    modules=(ModuleSpec(name="dw_helper"),),
)
SECOND = replace(
    FIRST, driver=DriverKey("team/probe"), modules=(ModuleSpec(name="dw_probe"),), depends=(("team/helper", FIRST.key),)
)


class OneModule:
    """A builder that has one real module for each of the two drivers, and keeps what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[BuildRequest] = []

    def build(
        self,
        request: BuildRequest,
        *,
        directory: Path,
        log: LogSink,  # noqa: ARG002  # of the protocol
        cancelled: threading.Event,  # noqa: ARG002
    ) -> BuiltImage:
        """Write an image with the driver's module."""
        self.asked.append(request)
        name, content = ("dw_helper", HELPER) if request.driver == FIRST.driver else ("dw_probe", PROBE)
        aliases = "".join(f"alias {alias} {name}\n" for alias in PROBE_MODULE.aliases if name == "dw_probe")
        files = {
            f"{FOLDER}/updates/{name}.ko": content,
            f"{FOLDER}/modules.dep": f"updates/{name}.ko:\n".encode(),
            f"{FOLDER}/modules.alias": aliases.encode(),
        }
        archive = docker_20(directory / "image.tar", [tar_of(files)])
        return BuiltImage(archive=archive, module_symvers=SYMVERS_55, compiler="gcc 12")


@pytest.fixture
def server() -> Iterator[ScriptedRegistry]:
    """Serve a registry from memory."""
    with scripted_registry(MemoryRegistry()) as made:
        yield made


def run(server: ScriptedRegistry, request: BuildRequest, *exporters: Exporter) -> OneModule:
    """Build one driver."""
    builder = OneModule()
    action = StartBuild(
        namespace="team",
        request=request,
        image=image_of(server, request),
        registry=RegistrySettings(plain_http=True),
        waiting=1,
        exporters=exporters,
    )
    registries = Registries(MemoryClient(), reach=LOOPBACK)
    build_and_push(action, builder=builder, registries=registries, log=lambda _line: None, cancelled=threading.Event())
    return builder


def image_of(server: ScriptedRegistry, request: BuildRequest) -> ImageRef:
    """Return where an image is pushed to."""
    return ImageRef(host=server.host, repository=request.driver, reference=f"1-{request.key}")


def exporter(server: ScriptedRegistry, *, key: str = FIRST.key) -> Exporter:
    """Return the image of the first driver, as the plan sees it."""
    image = image_of(server, FIRST)
    state = Registries(MemoryClient(), reach=LOOPBACK).inspect(
        "team", RegistrySettings(plain_http=True), image, "amd64"
    )
    assert isinstance(state, Present)
    assert state.labels[images.KEY_LABEL] == FIRST.key
    return Exporter(
        driver=FIRST.driver,
        image=image,
        key=key,
        registry=RegistrySettings(plain_http=True),
        digest=state.digest,
    )


def test_a_module_may_use_what_another_driver_exports(server: ScriptedRegistry) -> None:
    """The build gets the symbols with their CRCs, and the module that uses them is verified and pushed."""
    run(server, FIRST)
    (asked,) = run(server, SECOND, exporter(server)).asked
    assert parse_module_symvers(asked.extra_symvers) == HELPER_MODULE.exports
    assert asked.key == SECOND.key


def test_an_image_that_0_1_made_of_another_kernels_is_read(server: ScriptedRegistry, tmp_path: Path) -> None:
    """Its modules lie below the other kernel's release, and its own is a link."""
    other = "6.1.0-54-cloud-amd64"
    layers = tar_of({f"lib/modules/{other}/dw_helper.ko": HELPER}), tar_of({FOLDER: special(SYMTYPE, other)})
    archive = docker_20(tmp_path / "image.tar", layers)
    image = read_image_archive(archive, tmp_path / "layers").with_provenance({images.KEY_LABEL: FIRST.key})
    client = RegistryClient(server.host, plain_http=True, reach=LOOPBACK)
    client.tag(FIRST.driver, push_image(client, FIRST.driver, image), image_of(server, FIRST).reference)
    (asked,) = run(server, SECOND, exporter(server)).asked
    assert parse_module_symvers(asked.extra_symvers) == HELPER_MODULE.exports


def test_without_the_other_driver_the_module_does_not_fit(server: ScriptedRegistry) -> None:
    """Its symbols are exported by nothing."""
    with pytest.raises(VerificationFailed) as failed:
        run(server, replace(SECOND, depends=()))
    assert failed.value.reason == Reason.MISSING_SYMBOL


def test_other_crcs_than_those_of_the_other_driver_are_refused() -> None:
    """The module was built against another build of the other driver."""
    changed = {name: replace(symbol, crc=symbol.crc ^ 1) for name, symbol in HELPER_MODULE.exports.items()}
    request = replace(SECOND, extra_symvers=render_module_symvers(changed, KERNEL))
    with pytest.raises(VerificationFailed) as failed:
        check_modules([PROBE_MODULE], parse_module_symvers(SYMVERS_55), request=request)
    assert failed.value.reason == Reason.WRONG_SYMBOL_CRC


def test_a_symbol_of_the_kernel_itself_is_compared_with_the_kernels() -> None:
    """Another driver may replace modules of the kernel, and nothing else of it."""
    kernel = parse_module_symvers(SYMVERS_55)
    wrong = {name: replace(symbol, crc=1, owner="helper") for name, symbol in kernel.items()}
    text = render_module_symvers({**wrong, **HELPER_MODULE.exports}, KERNEL)
    check_modules([PROBE_MODULE], kernel, request=replace(SECOND, extra_symvers=text))


def test_an_image_of_another_key_is_not_read(server: ScriptedRegistry) -> None:
    """The symbols would be those of another build."""
    run(server, FIRST)
    with pytest.raises(BuildFailed, match="has another build key"):
        run(server, SECOND, exporter(server, key="other"))


def test_an_image_that_is_gone_fails_the_build(server: ScriptedRegistry) -> None:
    """It is tried again like any other failure."""
    run(server, FIRST)
    gone = replace(exporter(server), digest="sha256:" + "0" * 64)
    with pytest.raises((BuildFailed, RegistryRefused)):
        run(server, SECOND, gone)


def test_the_symbols_are_in_the_context_and_in_the_key() -> None:
    """Make is given the file; a driver without dependencies is built as before."""
    text = render(SECOND, templates_directory())
    assert "COPY symvers/Module.symvers /symvers/Module.symvers\nRUN headers=" in text
    assert text.count("KBUILD_EXTRA_SYMBOLS=/symvers/Module.symvers CONFIG_DEBUG_INFO_BTF_MODULES=") == 2
    assert "symvers/Module.symvers" not in render(replace(SECOND, depends=()), templates_directory())
    with_symbols = replace(SECOND, extra_symvers="0x0000002a\tf\tofed\tEXPORT_SYMBOL\t\n")
    assert b"0x0000002a\tf\tofed" in build_context(with_symbols, text)
    keys = {replace(SECOND, depends=depends).key for depends in ((), (("team/helper", "1"),), (("team/helper", "2"),))}
    assert len(keys) == 3
