"""Signed driver images: real engine, registry and kernels.

The example's driver is built and signed for a kernel. Then the kernel itself is asked: what the loader does, what it
says of the signature.
"""

from __future__ import annotations

import base64
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.archives.image_archive import ImageArchive
from driver_builder.base.errors import VerificationFailed
from driver_builder.base.reasons import Reason
from driver_builder.builds.docker.docker_builder import DockerBuilder
from driver_builder.builds.docker.docker_engine import docker_engine
from driver_builder.builds.pipeline.pipeline import build_and_push
from driver_builder.builds.signing_secrets import SigningSecrets
from driver_builder.model import images
from driver_builder.model.build import BuildRequest, ModuleSpec, Signing, SourceFiles
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.image_state import Present
from driver_builder.model.images import ImageRef
from driver_builder.model.kernels import KernelTarget, KernelVersion
from driver_builder.modules.module_signature import split_signature
from driver_builder.modules.module_signer import parse_signer
from driver_builder.modules.verify import verify
from driver_builder.nodes.changes import StartBuild
from driver_builder.registry.image_download import download
from driver_builder.registry.image_signature import has_signature
from driver_builder.registry.registry import RegistryClient
from driver_builder.registry.registry_access import Registries
from kube_api.resources import SECRETS
from testbed.guest import cpio, emulation
from testbed.guest.script import run_script
from testbed.guest.secure_boot import MEMORY_MIB, provide_secure_boot
from testbed.kernels import CLOUD, KernelPackage, newest_kernel
from testbed.packages import ensure_packages
from testbed.progress import PlainLines
from testbed.testbed import Testbed
from tests.kernel.test_loader_on_real_kernels import LOAD, image_entries
from tests.support.driver_builder.image_tars import read_files
from tests.support.driver_builder.memory_client import MemoryClient
from tests.support.driver_builder.module_signing import a_signer, key_bytes
from tests.support.loopback import LOOPBACK

SOURCE = Path(__file__).parents[2] / "examples" / "edu-driver" / "src"
NAMESPACE, REPOSITORY = "driverwright", "integration/signed-edu"
OURS, OTHER = a_signer("edu"), a_signer("other")
IMAGE_KEY = ec.generate_private_key(ec.SECP256R1())
MODULE = "$(find /lib/modules -name edudrv.ko)"


@dataclass(frozen=True, slots=True)
class Made:
    """An image in the registry, and what was said while it was made."""

    image: ImageArchive
    labels: dict[str, str]
    digest: str
    log: list[str]


@pytest.fixture(scope="module")
def kernel() -> KernelPackage:
    """A kernel that other tests build for as well."""
    ensure_packages(emulation.PACKAGES)
    return newest_kernel(CLOUD, PlainLines())


def source_files() -> dict[str, bytes]:
    """The edu driver, as no other test gives it: the engine has it compiled for none of the kernels."""
    return {path.name: path.read_bytes() for path in sorted(SOURCE.iterdir())} | {"whose": __name__.encode()}


class Workshop:
    """The pipeline with a real engine and registry; the keys are in Secrets."""

    def __init__(self, ground: Testbed, builder: DockerBuilder, folder: Path) -> None:
        self.client = RegistryClient(ground.registry.host, plain_http=True, reach=LOOPBACK)
        self._host = ground.registry.host
        self._builder = builder
        self._folder = folder
        self._cluster = MemoryClient()
        pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        for name, content in {"module-key": key_bytes(OURS), "image-key": IMAGE_KEY.private_bytes(*pem)}.items():
            data = {"key": base64.b64encode(content).decode()}
            self._cluster.create(SECRETS.path(namespace=NAMESPACE), {"metadata": {"name": name}, "data": data})

    def request(self, kernel: str) -> BuildRequest:
        """What the example's DriverContainer leads to, with both signatures."""
        return BuildRequest(
            recipe=f"recipe-{kernel}",
            driver=DriverKey(f"{NAMESPACE}/edu"),
            version="1.0.0",
            target=KernelTarget(KernelVersion(kernel), "debian", "12", "amd64"),
            template="debian",
            base_image="debian:bookworm-slim",
            source=SourceFiles(files=source_files()),
            modules=(ModuleSpec(name="edudrv", parameters=("use_irq=1",)),),
            signing=Signing(key_secret="module-key", certificate_secret="public", image_key_secret="image-key"),
            signing_certificate=OURS.der,
        )

    def image(self, kernel: str) -> ImageRef:
        """The image of a kernel by its tag."""
        return ImageRef(self._host, REPOSITORY, f"1.0.0-{kernel}")

    def make(self, kernel: str) -> Made:
        """Carry out the action that a plan would have for a kernel."""
        log: list[str] = []
        action = StartBuild(
            namespace=NAMESPACE,
            request=self.request(kernel),
            image=self.image(kernel),
            registry=RegistrySettings(plain_http=True),
            waiting=1,
        )
        digest = build_and_push(
            action,
            builder=self._builder,
            registries=Registries(self._cluster, reach=LOOPBACK),
            secrets=SigningSecrets(self._cluster),
            log=log.append,
            cancelled=threading.Event(),
        )
        state = self.client.inspect(REPOSITORY, self.image(kernel).reference)
        assert isinstance(state, Present)
        assert state.digest == digest
        image = download(self.client, REPOSITORY, digest, self._folder / kernel)
        return Made(image, dict(state.labels), digest, log)


@pytest.fixture(scope="module")
def workshop(engine_ground: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """One for all tests."""
    with docker_engine(engine_ground.engine.socket) as api:
        yield Workshop(engine_ground, DockerBuilder(api), tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def built(workshop: Workshop, kernel: KernelPackage) -> Made:
    """The image that is built."""
    return workshop.make(kernel.release)


def module_of(image: ImageArchive) -> bytes:
    """The driver's one module."""
    (module,) = [content for path, content in read_files(image, "/lib/modules").items() if path.endswith("edudrv.ko")]
    return module


def test_what_is_built_is_signed(workshop: Workshop, kernel: KernelPackage, built: Made, tmp_path: Path) -> None:
    """By the wanted key alone, as modinfo reads it, and the image by its own."""
    assert "signed 1 modules as CN=edu" in built.log
    request, symvers = workshop.request(kernel.release), kernel.symvers.read_text()
    verify(built.image, request=request, module_symvers=symvers)
    with pytest.raises(VerificationFailed) as caught:
        verify(built.image, request=replace(request, signing_certificate=OTHER.der), module_symvers=symvers)
    assert caught.value.reason is Reason.WRONG_MODULE_SIGNER
    (tmp_path / "edudrv.ko").write_bytes(module_of(built.image))
    said = subprocess.run(["/sbin/modinfo", tmp_path / "edudrv.ko"], check=True, capture_output=True, text=True).stdout
    fields = dict(line.split(":", 1) for line in said.splitlines() if ":" in line)
    assert (fields["signer"].strip(), fields["sig_hashalgo"].strip()) == ("edu", "sha256")

    image = workshop.image(kernel.release).at(built.digest)
    assert has_signature(workshop.client, image, IMAGE_KEY.public_key())
    assert not has_signature(workshop.client, image, ec.generate_private_key(ec.SECP256R1()).public_key())
    assert "'edu'" in built.labels[images.SIGNER_LABEL]


def test_no_key_is_in_the_image_or_in_the_log(built: Made) -> None:
    """Not one line of it."""
    lines = [line.encode() for line in key_bytes(OURS).decode().splitlines()[1:-1]]
    said = "\n".join(built.log).encode() + built.image.config_bytes
    contents = [said, *read_files(built.image, "/").values()]
    assert not [line for line in lines for content in contents if line in content]


def entries_of(image: ImageArchive) -> dict[str, cpio.Entry]:
    """The root file system of an image: of what stands in several layers the highest."""
    return {entry.path: entry for entry in image_entries([layer.path for layer in image.layers])}


def test_under_secure_boot_the_loader_loads_what_is_signed_by_a_known_key_alone(
    kernel: KernelPackage, built: Made, tmp_path: Path
) -> None:
    """Real firmware, a kernel that locks itself down, the driver image: refused, and with the firmware's key loaded."""
    secure_boot = provide_secure_boot(PlainLines())
    signer = parse_signer(
        secure_boot.key_file.read_bytes(), secure_boot.certificate_file.read_bytes(), now=datetime.now(UTC)
    )
    entries = entries_of(built.image)
    entries["known.ko"] = cpio.file("known.ko", signer.sign(module_of(built.image)))
    sections = {
        "locked": "dmesg | grep 'Kernel is locked down'",
        "unknown": f"{LOAD}; cat /dev/termination-log",
        "known": f"cp /known.ko {MODULE}; {LOAD}",
        "factorial": "exec 3<>/dev/edu0; echo 10 >&3; cat <&3",
    }
    vmlinuz = secure_boot.sign_kernel(kernel.vmlinuz, tmp_path)
    ran = run_script(
        vmlinuz,
        entries.values(),
        sections,
        tmp_path,
        devices=["edu"],
        memory_mib=MEMORY_MIB,
        qemu_words=secure_boot.qemu_words(tmp_path),
        timeout=600,
    )
    assert list(ran.sections) == list(sections), ran.console
    assert "from EFI Secure Boot" in ran.sections["locked"].output
    assert "LoadFailed: Loading of module with unavailable key is rejected" in ran.sections["unknown"].output
    assert ran.sections["known"].output.endswith(f"driverwright: Loaded: edudrv on {kernel.release}\n")
    assert ran.sections["factorial"].output == "3628800\n"


def test_a_kernel_that_demands_signatures_reads_ours(kernel: KernelPackage, built: Made, tmp_path: Path) -> None:
    """It tells an unsigned module, a signature that it cannot read, and one of a key that it does not know apart.

    Its own modules load, so it is the key alone that it lacks: Debian builds its kernels with a key nobody else has.
    """
    module = module_of(built.image)
    plain, _ = split_signature(module)
    first = len(plain)
    damaged = plain + bytes([module[first] ^ 0xFF]) + module[first + 1 :]
    own = next(kernel.modules.rglob("crc-itu-t.ko"))
    entries = entries_of(built.image)
    for name, content in {"ours": module, "plain": plain, "damaged": damaged, "own": own.read_bytes()}.items():
        entries[f"{name}.ko"] = cpio.file(f"{name}.ko", content)
    sections = {name: f"dmesg -c >/dev/null; insmod /{name}.ko; dmesg" for name in ("plain", "damaged", "ours")}
    sections["own"] = "insmod /own.ko && cut -d' ' -f1 /proc/modules"
    ran = run_script(
        kernel.vmlinuz, entries.values(), sections, tmp_path, kernel_options="module.sig_enforce=1"
    ).sections
    assert "Loading of unsigned module is rejected" in ran["plain"].output
    assert "Bad message" in ran["damaged"].output
    assert "Loading of module with unavailable key is rejected" in ran["ours"].output
    assert ran["own"].output == "crc_itu_t\n"
