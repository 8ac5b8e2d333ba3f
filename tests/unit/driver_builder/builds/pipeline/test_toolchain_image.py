"""The toolchain of a kernel: used where it is the right one, pushed where there is none, and never in the way."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.archives.image_archive import read_image_archive, sha256
from driver_builder.base.errors import (
    BuildFailed,
    DriverBuilderError,
    RegistryUnavailable,
    TemporaryError,
    VerificationFailed,
)
from driver_builder.base.reasons import Reason
from driver_builder.base.telemetry import ToolchainUse
from driver_builder.builds.pipeline.pipeline import build_and_push, build_and_verify
from driver_builder.builds.pipeline.toolchain_image import keep_toolchain
from driver_builder.builds.pipeline.toolchain_queue import ToolchainQueue
from driver_builder.builds.signing_secrets import SigningSecrets
from driver_builder.model.build import BuildRequest, BuiltImage, LogSink, OwnTemplate, Signing
from driver_builder.model.images import COMPILER_LABEL, KERNEL_LABEL, TOOLCHAIN_LABEL, ImageRef
from driver_builder.model.toolchain import toolchain_image, toolchain_key
from driver_builder.nodes.changes import StartBuild
from driver_builder.registry.image_signature import has_signature
from driver_builder.registry.registry import RegistryClient
from driver_builder.registry.registry_access import Registries
from tests.support.driver_builder.factories import KERNEL
from tests.support.driver_builder.image_tars import docker_20, tar_of
from tests.support.driver_builder.memory_client import MemoryClient
from tests.support.driver_builder.scripted_registry import (
    MemoryRegistry,
    Reply,
    Request,
    ScriptedRegistry,
    scripted_registry,
)
from tests.support.loopback import LOOPBACK
from tests.unit.driver_builder.builds.pipeline.test_pipeline import FILES, REQUEST, SYMVERS, TAG
from tests.unit.driver_builder.builds.pipeline.test_pipeline_signing import IMAGE_KEY, OURS, cluster

REPOSITORY = "team/helper"
REGISTRIES = Registries(MemoryClient(), reach=LOOPBACK)
MAGIC = f"{KERNEL} SMP preempt mod_unload modversions \n".encode()
FACTS = {"facts/vermagic": MAGIC, "facts/compiler": b"gcc 12.2.0\n", "facts/Module.symvers": SYMVERS.encode()}


@dataclass
class Workshop:
    """A builder with a package manager, unless ``packages`` is another end; ``damage`` is how a toolchain serves."""

    packages: DriverBuilderError | None = None
    damage: DriverBuilderError | None = None
    symvers_of_toolchain: str = SYMVERS
    facts: dict[str, bytes] = field(default_factory=lambda: dict(FACTS))
    did: list[str] = field(default_factory=list)
    base: ImageRef | None = None

    def from_toolchain(self, image: ImageRef) -> "Workshop":
        """Begin with a toolchain."""
        return replace(self, base=image)

    def build(
        self,
        request: BuildRequest,  # noqa: ARG002 - of the protocol
        *,
        directory: Path,
        log: LogSink,
        cancelled: threading.Event,  # noqa: ARG002
    ) -> BuiltImage:
        """Write the driver's image."""
        self.did.append(f"from {self.base.reference}" if self.base else "installed and built")
        if (error := self.damage if self.base else self.packages) is not None:
            raise error
        log("built")
        archive = docker_20(directory / "image.tar", [tar_of(FILES)])
        symvers = self.symvers_of_toolchain if self.base else SYMVERS
        return BuiltImage(archive=archive, module_symvers=symvers, compiler="gcc 12.2.0")

    def toolchain(
        self,
        request: BuildRequest,
        *,
        directory: Path,
        log: LogSink,  # noqa: ARG002
        cancelled: threading.Event,  # noqa: ARG002
    ) -> Path | None:
        """Write the toolchain."""
        self.did.append("toolchain")
        if request.template == "generic":
            return None
        return docker_20(directory / "toolchain.tar", [tar_of({"usr/bin/gcc": b"gcc"}), tar_of(self.facts)])


def action(server: ScriptedRegistry, **changes: Any) -> StartBuild:
    """Ask for a build."""
    request = replace(REQUEST, **changes)
    return StartBuild(
        namespace="team",
        request=request,
        image=ImageRef(server.host, REPOSITORY, f"{TAG}-{request.key}"),
        registry=RegistrySettings(plain_http=True),
        waiting=1,
    )


def build(wanted: StartBuild, workshop: Workshop, *, secrets: SigningSecrets | None = None) -> list[str]:
    """Carry out a build as the controller does; returns its log."""
    log: list[str] = []
    build_and_push(
        wanted,
        builder=workshop,
        registries=REGISTRIES,
        secrets=secrets,
        log=log.append,
        cancelled=threading.Event(),
        use_toolchain=True,
    )
    return log


def keep(wanted: StartBuild, workshop: Workshop, **more: Any) -> None:
    """Push the toolchain as the controller does."""
    given = {"cancelled": threading.Event(), "log": lambda _line: None, **more}
    keep_toolchain(wanted, builder=workshop, registries=REGISTRIES, **given)


def of(wanted: StartBuild) -> ImageRef:
    """Name the toolchain of a build."""
    reference = toolchain_image(wanted.request, wanted.image)
    assert reference is not None
    return reference


def labelled(server: ScriptedRegistry, folder: Path, reference: ImageRef, labels: dict[str, str]) -> str:
    """Let the tag of a toolchain name an image with these labels; returns its digest."""
    image = read_image_archive(docker_20(folder / "other.tar", [tar_of({"a": b"b"})]), folder / "other-layers")
    client = RegistryClient(server.host, plain_http=True, reach=LOOPBACK)
    digest = client.push(REPOSITORY, image.with_labels(labels))
    client.tag(REPOSITORY, digest, reference.reference)
    return digest


def counted(use: ToolchainUse) -> float:
    """How often that has happened in this process."""
    return REGISTRY.get_sample_value("driver_builder_toolchains_total", {"result": use.value}) or 0.0


def test_the_first_build_installs_and_the_second_one_begins_with_the_toolchain(
    server: ScriptedRegistry, memory: MemoryRegistry
) -> None:
    """By its digest; another driver and version, although no package can be installed any more."""
    first, workshop = action(server), Workshop()
    before = {use: counted(use) for use in ToolchainUse}
    build(first, workshop)
    keep(first, workshop)
    digest = sha256(memory.manifests[of(first).reference][1])
    gone = BuildFailed(Reason.HEADERS_MISSING, "is in none of these places")
    second, later = action(server, version="2"), Workshop(packages=gone)
    assert f"building from toolchain {of(first).at(digest)}" in build(second, later)
    assert workshop.did == ["installed and built", "toolchain"]
    assert later.did == [f"from {digest}"]
    assert second.image.reference in memory.tags
    gained = {use: counted(use) - before[use] for use in ToolchainUse if counted(use) != before[use]}
    assert gained == {ToolchainUse.ABSENT: 1, ToolchainUse.PUSHED: 1, ToolchainUse.USED: 1}


def test_it_says_what_it_is(server: ScriptedRegistry, memory: MemoryRegistry) -> None:
    """Its key, its kernel and its compiler, as labels and annotations; its tag is set last."""
    wanted = action(server)
    keep(wanted, Workshop())
    annotations = memory.manifest(of(wanted).reference)["annotations"]
    expected = {TOOLCHAIN_LABEL: toolchain_key(wanted.request), KERNEL_LABEL: KERNEL, COMPILER_LABEL: "gcc 12.2.0"}
    assert {name: annotations[name] for name in expected} == expected
    puts = [request.path.rpartition("/")[2] for request in server.requests if request.method == "PUT"]
    assert puts[-1] == of(wanted).reference


def test_one_that_is_there_is_not_made_again(server: ScriptedRegistry) -> None:
    """One question to the registry."""
    wanted, workshop = action(server), Workshop()
    keep(wanted, workshop)
    asked = len(server.requests)
    keep(action(server, version="2"), workshop)
    assert workshop.did == ["toolchain"]
    assert {request.method for request in server.requests[asked:]} == {"GET"}


def test_it_is_recorded_before_it_has_a_tag(server: ScriptedRegistry, memory: MemoryRegistry) -> None:
    """Under its own name, so that gc finds it."""
    wanted, found = action(server), list[tuple[ImageRef, str, bool]]()

    def pushed(action: StartBuild, digest: str) -> None:
        found.append((action.image, digest, action.image.reference in memory.manifests))

    keep(wanted, Workshop(), pushed=pushed)
    assert found == [(of(wanted), sha256(memory.manifests[of(wanted).reference][1]), False)]


@pytest.mark.parametrize("labels", [{}, {TOOLCHAIN_LABEL: "0" * 20}, {"io.driverwright.build-key": REQUEST.key}])
def test_what_is_not_the_right_one_is_not_used_and_replaced(
    labels: dict[str, str], server: ScriptedRegistry, memory: MemoryRegistry, tmp_path: Path
) -> None:
    """Whatever its tag says; the build goes on without it and reports why."""
    wanted, workshop = action(server), Workshop()
    digest = labelled(server, tmp_path, of(wanted), labels)
    log = build(wanted, workshop)
    assert any(digest in line and f"does not have the label {TOOLCHAIN_LABEL}" in line for line in log)
    keep(wanted, workshop)
    assert workshop.did == ["installed and built", "toolchain"]
    assert memory.manifest(of(wanted).reference)["annotations"][TOOLCHAIN_LABEL] == toolchain_key(wanted.request)


DAMAGES = [
    pytest.param({"damage": BuildFailed(Reason.BASE_IMAGE_MISSING, "cannot be pulled")}, "cannot be pulled", id="pull"),
    pytest.param({"damage": BuildFailed(Reason.BUILD_ERROR, "no bash")}, "no bash", id="no shell"),
    pytest.param({"damage": BuildFailed(Reason.COMPILER_MISMATCH, "no gcc")}, "no gcc", id="no compiler"),
    pytest.param({"damage": BuildFailed(Reason.DISK_FULL, "no room")}, "no room", id="no room for it"),
    pytest.param({"damage": BuildFailed(Reason.TEMPLATE_INVALID, "no facts")}, "no facts", id="no facts"),
    pytest.param({"symvers_of_toolchain": ""}, "dw_helper", id="of another kernel"),
]


@pytest.mark.parametrize(("damages", "words"), DAMAGES)
def test_one_that_does_not_serve_fails_no_build(damages: dict[str, Any], words: str, server: ScriptedRegistry) -> None:
    """The driver is built by the package manager, and the log has the reason."""
    wanted, workshop = action(server), Workshop(**damages)
    keep(wanted, workshop)
    before = counted(ToolchainUse.UNUSABLE)
    log = build(wanted, workshop)
    assert workshop.did[-1] == "installed and built"
    assert any("is not used" in line and words in line for line in log), log
    assert counted(ToolchainUse.UNUSABLE) == before + 1


@pytest.mark.parametrize(
    "reason", [Reason.COMPILE_ERROR, Reason.NOT_APPLICABLE, Reason.CANCELLED, Reason.OUT_OF_MEMORY]
)
def test_a_failure_that_is_not_the_toolchains_is_not_tried_again(reason: Reason, server: ScriptedRegistry) -> None:
    """It would be the same, only later."""
    wanted, workshop = action(server), Workshop(damage=BuildFailed(reason, "as it is"))
    keep(wanted, workshop)
    with pytest.raises(BuildFailed, match="as it is"):
        build(wanted, workshop)
    assert len(workshop.did) == 2


def test_an_engine_that_is_away_is_away(server: ScriptedRegistry) -> None:
    """That says nothing about a toolchain: the build is tried again later."""
    wanted, workshop = action(server), Workshop(damage=TemporaryError("the engine is away"))
    keep(wanted, workshop)
    with pytest.raises(TemporaryError):
        build(wanted, workshop)
    assert "installed and built" not in workshop.did


@pytest.mark.parametrize(
    ("packages", "expected"),
    [
        pytest.param(BuildFailed(Reason.HEADERS_MISSING, "no headers"), "no bash", id="the archive has lost them"),
        pytest.param(BuildFailed(Reason.COMPILE_ERROR, "x.c:1"), "x.c:1", id="the driver's own fault"),
    ],
)
def test_both_ways_fail(packages: BuildFailed, expected: str, server: ScriptedRegistry) -> None:
    """The failure is reported that can be fixed: that headers have gone is what the toolchain was kept for."""
    workshop = Workshop(packages=packages, damage=BuildFailed(Reason.BUILD_ERROR, "no bash"))
    wanted = action(server)
    keep(wanted, workshop)
    with pytest.raises(BuildFailed, match=expected):
        build(wanted, workshop)


def test_a_registry_that_does_not_say_prevents_no_build(memory: MemoryRegistry) -> None:
    """Nothing is used and nothing is pushed over what it may have."""

    def failing(request: Request) -> Reply:
        return Reply(status=503) if "toolchain-" in request.path else memory(request)

    with scripted_registry(failing) as server:
        wanted, workshop = action(server), Workshop()
        assert any("is not used" in line and "503" in line for line in build(wanted, workshop))
        with pytest.raises(RegistryUnavailable):
            keep(wanted, workshop)
    assert workshop.did == ["installed and built"]


def test_a_toolchain_of_another_kernel_is_not_pushed(server: ScriptedRegistry, memory: MemoryRegistry) -> None:
    """An empty module that it built bears the name of the kernel that it is for."""
    other = {**FACTS, "facts/vermagic": b"6.1.0-9-amd64 SMP \n"}
    for facts, words in ((other, "6.1.0-9-amd64"), ({}, "no kernel")):
        with pytest.raises(VerificationFailed, match=words):
            keep(action(server), Workshop(facts=facts))
    assert memory.tags == []


def test_where_there_is_nothing_to_keep_nothing_is_asked(server: ScriptedRegistry) -> None:
    """A custom template has no toolchain, and neither has a template without the stage."""
    own = OwnTemplate(place="ConfigMap a/b/c", text="FROM x AS headers")
    workshop = Workshop()
    build(action(server, own_template=own), workshop)
    keep(action(server, own_template=own), workshop)
    assert not [request for request in server.requests if "toolchain-" in request.path]
    keep(action(server, template="generic"), workshop)
    assert workshop.did == ["installed and built", "toolchain"]
    assert not [request for request in server.requests if request.method == "PUT" and "toolchain-" in request.path]


def test_with_an_image_key_it_is_signed_and_only_signed_ones_are_used(
    server: ScriptedRegistry, memory: MemoryRegistry
) -> None:
    """One that was pushed before there was a key is replaced by a signed one."""
    wanted = action(server, signing=Signing(image_key_secret="images"))
    secrets, workshop = SigningSecrets(cluster()), Workshop()
    keep(action(server), workshop)
    assert any("is not signed with our key" in line for line in build(wanted, workshop, secrets=secrets))
    keep(wanted, workshop, secrets=secrets)
    signed = of(wanted).at(sha256(memory.manifests[of(wanted).reference][1]))
    assert has_signature(RegistryClient(server.host, plain_http=True, reach=LOOPBACK), signed, IMAGE_KEY.public_key())
    build(replace(wanted, image=replace(wanted.image, reference="again")), workshop, secrets=secrets)
    assert workshop.did == ["toolchain", "installed and built", "toolchain", f"from {signed.reference}"]


def test_our_key_signs_nothing_of_an_unsigned_toolchain(
    server: ScriptedRegistry, memory: MemoryRegistry, tmp_path: Path
) -> None:
    """Without an image key, whoever may push a toolchain would choose what our module key signs."""
    signing = Signing(key_secret="modules", certificate_secret="public")
    wanted = action(server, signing=signing, signing_certificate=OURS.der)
    labelled(server, tmp_path, of(wanted), {TOOLCHAIN_LABEL: toolchain_key(wanted.request) or ""})
    secrets, workshop = SigningSecrets(cluster(images=b"")), Workshop()
    assert "signed 1 modules as CN=ours" in build(wanted, workshop, secrets=secrets)
    assert workshop.did == ["installed and built"]
    memory.manifests.clear()
    keep(wanted, workshop, secrets=secrets)
    assert memory.tags == []


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"registry": RegistrySettings(plain_http=True, secret="missing")}, id="no password"),
        pytest.param({"signing": Signing(image_key_secret="images")}, id="no image key"),
    ],
)
def test_a_build_that_is_not_kept_needs_no_secret_of_the_registry(
    changes: dict[str, Any], server: ScriptedRegistry
) -> None:
    """As preflight without --push does not; the log says why it installs."""
    workshop, log = Workshop(), list[str]()
    request = {name: value for name, value in changes.items() if name == "signing"}
    wanted = replace(action(server, **request), registry=changes.get("registry", RegistrySettings(plain_http=True)))
    build_and_verify(
        wanted,
        builder=workshop,
        registries=REGISTRIES,
        secrets=SigningSecrets(cluster(images=b"")),
        log=log.append,
        cancelled=threading.Event(),
        use_toolchain=True,
    )
    assert workshop.did == ["installed and built"]
    assert any(line.startswith("toolchains are not used: ") for line in log)


def test_a_build_that_is_not_kept_begins_with_it_too(server: ScriptedRegistry) -> None:
    """As preflight without --push."""
    wanted, workshop = action(server), Workshop()
    keep(wanted, workshop)
    build_and_verify(
        wanted,
        builder=workshop,
        registries=REGISTRIES,
        log=lambda _line: None,
        cancelled=threading.Event(),
        use_toolchain=True,
    )
    assert [step.split(":")[0] for step in workshop.did] == ["toolchain", "from sha256"]


def test_a_push_that_is_cancelled_sets_no_tag(server: ScriptedRegistry, memory: MemoryRegistry) -> None:
    """The controller leaves."""
    leaving = threading.Event()
    leaving.set()
    with pytest.raises(BuildFailed, match="cancelled"):
        keep(action(server), Workshop(), cancelled=leaving)
    assert memory.tags == []


def test_a_controller_that_leaves_waits_for_no_layer_and_leaves_no_tag(memory: MemoryRegistry) -> None:
    """The layer on its way is its last word to the registry: another controller may act already."""
    begun, released, ended = threading.Event(), threading.Event(), threading.Event()

    def slow(request: Request) -> Reply:
        if request.method == "PUT":
            begun.set()
            assert released.wait(60)
        return memory(request)

    with scripted_registry(slow) as server, ThreadPoolExecutor(max_workers=1) as pool:

        def work(wanted: StartBuild, log: LogSink, cancelled: threading.Event) -> None:
            try:
                keep(wanted, Workshop(), log=log, cancelled=cancelled)
            finally:
                ended.set()

        queue = ToolchainQueue(work, pool=pool)
        queue.submit(action(server))
        assert begun.wait(60)
        queue.stop()
        assert not ended.is_set()
        released.set()
        pool.shutdown(wait=True)
        puts = [request for request in server.requests if request.method == "PUT"]
    assert len(puts) == 1
    assert memory.tags == []
