"""The image of one kernel made of another kernel's: real modules, a registry, and all that stands in the way."""

import base64
import json
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.archives.image_archive import ImageArchive
from driver_builder.base.errors import BuildFailed, RegistryRefused
from driver_builder.base.reasons import Reason
from driver_builder.builds.pipeline.pipeline import build_and_push
from driver_builder.builds.signing_secrets import SigningSecrets
from driver_builder.model import images
from driver_builder.model.build import (
    BuildRequest,
    BuiltImage,
    KernelFacts,
    LogSink,
    ModuleSpec,
    Signing,
    SourceFiles,
)
from driver_builder.model.image_state import Present
from driver_builder.model.images import ImageRef
from driver_builder.model.kernels import KernelVersion
from driver_builder.nodes.actions import ReuseCandidate, StartBuild
from driver_builder.registry.image_download import download
from driver_builder.registry.registry import RegistryClient
from driver_builder.registry.registry_access import Registries
from kube_api.resources import SECRETS
from tests.support.driver_builder.factories import target
from tests.support.driver_builder.image_tars import docker_20, read_files, tar_of
from tests.support.driver_builder.kernel_modules import (
    HELPER,
    MAGIC,
    PROBE,
    PROBE_MODULE,
    SYMVERS_47,
    SYMVERS_55,
    SYMVERS_56,
)
from tests.support.driver_builder.memory_client import MemoryClient
from tests.support.driver_builder.scripted_registry import MemoryRegistry, ScriptedRegistry, scripted_registry
from tests.support.loopback import LOOPBACK

OLD, NEW, ANCIENT = "6.1.0-55-cloud-amd64", "6.1.0-56-cloud-amd64", "6.1.0-47-cloud-amd64"
REPOSITORY = "team/probe"
FACTS = KernelFacts(module_symvers=SYMVERS_56, compiler="gcc 13", vermagic=MAGIC.replace("-55-", "-56-"))
DEP = b"updates/dw_probe.ko: updates/dw_helper.ko\nupdates/dw_helper.ko:\n"
ALIASES = "".join(f"alias {alias} dw_probe\n" for alias in PROBE_MODULE.aliases).encode()


class PlainBuilder:
    """A builder that has the image of the old kernel, and counts what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def build(
        self,
        request: BuildRequest,
        *,
        directory: Path,
        log: LogSink,  # noqa: ARG002  # of the protocol
        cancelled: threading.Event,  # noqa: ARG002
    ) -> BuiltImage:
        """Write the image; a kernel but the old one is refused."""
        self.asked.append("build")
        if request.target.kernel_version != OLD:
            raise BuildFailed(Reason.COMPILE_ERROR, "it would have been compiled")
        folder = f"lib/modules/{OLD}"
        files = {
            f"{folder}/updates/dw_helper.ko": HELPER,
            f"{folder}/updates/dw_probe.ko": PROBE,
            f"{folder}/modules.dep": DEP,
            f"{folder}/modules.alias": ALIASES,
            "driver/kernel": f"{OLD}\n".encode(),
        }
        archive = docker_20(directory / "image.tar", [tar_of({"bin/busybox": b"x"}), tar_of(files)])
        return BuiltImage(archive=archive, module_symvers=SYMVERS_55, compiler="gcc 12")


class KnowingBuilder(PlainBuilder):
    """One that knows the new kernel."""

    def __init__(self, facts: KernelFacts | None = FACTS) -> None:
        super().__init__()
        self.facts = facts

    def kernel_facts(
        self,
        request: BuildRequest,
        *,
        log: LogSink,  # noqa: ARG002
        cancelled: threading.Event,  # noqa: ARG002
    ) -> KernelFacts | None:
        """Tell it."""
        self.asked.append(f"facts of {request.target.kernel_version}")
        return self.facts


@pytest.fixture
def server(memory: MemoryRegistry) -> Iterator[ScriptedRegistry]:
    """A registry with the image of the old kernel."""
    with scripted_registry(memory) as server:
        make(server, PlainBuilder(), kernel=OLD)
        yield server


def signed_by(key: ec.EllipticCurvePrivateKey) -> MemoryClient:
    """A cluster with the key of images in a Secret."""
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    cluster = MemoryClient()
    body = {"metadata": {"name": "images"}, "data": {"key": base64.b64encode(pem).decode()}}
    cluster.create(SECRETS.path(namespace="team"), body)
    return cluster


def request(kernel: str) -> BuildRequest:
    """The request of a kernel."""
    return BuildRequest(
        recipe="debian:1",
        driver="team/probe",
        version="1",
        target=replace(target(), kernel_version=KernelVersion(kernel)),
        template="debian",
        base_image="debian:bookworm-slim",
        source=SourceFiles(files={}),
        modules=(ModuleSpec(name="dw_probe"),),
    )


def carry_out(
    server: ScriptedRegistry,
    builder: PlainBuilder,
    log: LogSink,
    *others: ReuseCandidate,
    kernel: str = NEW,
    cluster: MemoryClient | None = None,
) -> None:
    """Carry out the action for a kernel; with a cluster that has a key, its image is signed."""
    signing = Signing(image_key_secret="images") if cluster else None
    action = StartBuild(
        namespace="team",
        request=replace(request(kernel), signing=signing),
        image=ImageRef(server.host, REPOSITORY, kernel),
        registry=RegistrySettings(plain_http=True),
        waiting=1,
        reuse=others,
    )
    cluster = cluster or MemoryClient()
    build_and_push(
        action,
        builder=builder,
        registries=Registries(cluster, reach=LOOPBACK),
        secrets=SigningSecrets(cluster),
        log=log,
        cancelled=threading.Event(),
    )


def make(
    server: ScriptedRegistry, builder: PlainBuilder, *others: ReuseCandidate, kernel: str = NEW
) -> tuple[Present, list[str]]:
    """Carry out an action that succeeds; returns what the registry has then, and the log."""
    log: list[str] = []
    carry_out(server, builder, log.append, *others, kernel=kernel)
    state = client(server).inspect(REPOSITORY, kernel)
    assert isinstance(state, Present)
    return state, log


def client(server: ScriptedRegistry) -> RegistryClient:
    """A client of the registry."""
    return RegistryClient(server.host, plain_http=True, reach=LOOPBACK)


def candidate(server: ScriptedRegistry, kernel: str = OLD, *, key: str = "") -> ReuseCandidate:
    """The image of a kernel."""
    return ReuseCandidate(
        kernel=kernel, image=ImageRef(server.host, REPOSITORY, kernel), key=key or request(kernel).key
    )


def fetched(server: ScriptedRegistry, kernel: str, folder: Path) -> ImageArchive:
    """The image of a kernel as the registry has it."""
    state = client(server).inspect(REPOSITORY, kernel)
    assert isinstance(state, Present)
    return download(client(server), REPOSITORY, state.digest, folder / kernel)


def test_modules_that_fit_are_used_again(server: ScriptedRegistry, tmp_path: Path) -> None:
    """No build; the layers of the old image and a small one, labelled as what they are."""
    builder = KnowingBuilder()
    state, log = make(server, builder, candidate(server))
    assert builder.asked == [f"facts of {NEW}"]
    assert f"re-used the modules of kernel {OLD}: 11 symbol CRCs agree" in log

    old, new = (fetched(server, kernel, tmp_path) for kernel in (OLD, NEW))
    assert new.layers[:-1] == tuple(
        replace(layer, path=mine.path) for layer, mine in zip(old.layers, new.layers, strict=False)
    )
    assert read_files(new, "/driver/kernel") == {"/driver/kernel": f"{NEW}\n".encode()}
    with tarfile.open(new.layers[-1].path) as tar:
        assert {member.name: (member.linkname, member.mode) for member in tar} == {
            "driver": ("", 0o755),
            "lib": ("", 0o755),
            "lib/modules": ("", 0o755),
            "driver/kernel": ("", 0o644),
            f"lib/modules/{NEW}": (OLD, 0o777),
        }
    labels = state.labels
    assert labels[images.KERNEL_LABEL] == NEW
    assert labels[images.KEY_LABEL] == request(NEW).key
    assert labels[images.COMPILER_LABEL] == "gcc 12"
    assert json.loads(labels[images.REUSED_LABEL])["kernel"] == OLD
    assert {item["name"] for item in json.loads(labels[images.MODULES_LABEL])} == {"dw_probe"}


def test_an_image_that_was_made_so_can_be_used_again(server: ScriptedRegistry, tmp_path: Path) -> None:
    """The modules stay those of the first kernel, and the third one finds them by its own name."""
    make(server, KnowingBuilder(), candidate(server))
    third = "6.1.0-57-cloud-amd64"
    facts = replace(FACTS, vermagic=MAGIC.replace("-55-", "-57-"))
    state, log = make(server, KnowingBuilder(facts), candidate(server, NEW), kernel=third)
    assert f"re-used the modules of kernel {OLD}: 11 symbol CRCs agree" in log
    assert json.loads(state.labels[images.REUSED_LABEL])["kernel"] == OLD
    assert read_files(fetched(server, third, tmp_path), "/driver/kernel") == {"/driver/kernel": f"{third}\n".encode()}


def test_the_kernel_of_the_modules_needs_no_link(server: ScriptedRegistry, tmp_path: Path) -> None:
    """It would hide their folder."""
    make(server, KnowingBuilder(), candidate(server))
    facts = KernelFacts(module_symvers=SYMVERS_55, compiler="", vermagic=MAGIC)
    make(server, KnowingBuilder(facts), candidate(server, NEW), kernel=OLD)
    files = read_files(fetched(server, OLD, tmp_path), f"/lib/modules/{OLD}")
    assert files[f"/lib/modules/{OLD}/updates/dw_probe.ko"] == PROBE


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        pytest.param(replace(FACTS, module_symvers=SYMVERS_47), "module_layout (expected 0xca916cb2", id="symbols"),
        pytest.param(
            replace(FACTS, vermagic=FACTS.vermagic.replace("preempt", "preempt_rt")), "preempt_rt", id="words"
        ),
        pytest.param(
            replace(FACTS, vermagic=MAGIC), "does not report the version magic of 6.1.0-56", id="other headers"
        ),
        pytest.param(replace(FACTS, vermagic=""), "does not report the version magic of 6.1.0-56", id="no magic"),
        pytest.param(None, "does not report the version magic of 6.1.0-56", id="no facts"),
        pytest.param(replace(FACTS, module_symvers="404"), "line 1 of Module.symvers", id="no symvers"),
    ],
)
def test_what_does_not_fit_is_built(server: ScriptedRegistry, facts: KernelFacts | None, message: str) -> None:
    """With a word about why."""
    builder = KnowingBuilder(facts)
    log: list[str] = []
    with pytest.raises(BuildFailed, match="it would have been compiled"):
        carry_out(server, builder, log.append, candidate(server))
    assert any(message in line for line in log)


@pytest.mark.parametrize("builder", [PlainBuilder(), KnowingBuilder()], ids=["knows nothing", "is not asked"])
def test_without_a_candidate_that_is_there_it_is_built(server: ScriptedRegistry, builder: PlainBuilder) -> None:
    """An image that is not built yet, or bears another key, is none; a builder may not know kernels at all."""
    others = [candidate(server, ANCIENT), candidate(server, key="another")]
    others += [] if isinstance(builder, KnowingBuilder) else [candidate(server)]
    with pytest.raises(BuildFailed, match="it would have been compiled"):
        make(server, builder, *others)
    assert builder.asked == ["build"]


def test_a_candidate_that_cannot_be_fetched_is_passed_over() -> None:
    """A registry that lost a layer does not keep the driver from being built."""
    memory = MemoryRegistry()
    with scripted_registry(memory) as server:
        make(server, PlainBuilder(), kernel=OLD)
        lost = memory.manifest(OLD)["layers"][0]["digest"]
        del memory.blobs[lost]
        log: list[str] = []
        with pytest.raises(BuildFailed, match="it would have been compiled"):
            carry_out(server, KnowingBuilder(), log.append, candidate(server))
    assert any("cannot reuse" in line and lost in line for line in log)


def test_headers_that_cannot_be_had_end_the_build_at_once(server: ScriptedRegistry) -> None:
    """The driver could not be built without them either."""

    class Failing(KnowingBuilder):
        def kernel_facts(self, *_: object, **__: object) -> KernelFacts | None:
            raise BuildFailed(Reason.HEADERS_MISSING, "no headers")

    builder = Failing()
    with pytest.raises(BuildFailed, match="no headers"):
        make(server, builder, candidate(server))
    assert builder.asked == []


def test_only_an_image_that_is_signed_with_our_key_is_signed_again(
    server: ScriptedRegistry, memory: MemoryRegistry
) -> None:
    """The new image has the loader of the old one: a signature must not vouch for what nobody signed."""
    cluster = signed_by(ec.generate_private_key(ec.SECP256R1()))
    log: list[str] = []
    with pytest.raises(BuildFailed, match="it would have been compiled"):
        carry_out(server, KnowingBuilder(), log.append, candidate(server), cluster=cluster)
    assert f"cannot reuse the modules of {OLD}: their image is not signed with our key" in log

    with pytest.raises(RegistryRefused, match="is not signed with our key"):
        carry_out(server, PlainBuilder(), log.append, kernel=OLD, cluster=cluster)
    del memory.manifests[OLD]
    carry_out(server, PlainBuilder(), log.append, kernel=OLD, cluster=cluster)
    carry_out(server, KnowingBuilder(), log.append, candidate(server), cluster=cluster)
    assert f"re-used the modules of kernel {OLD}: 11 symbol CRCs agree" in log
