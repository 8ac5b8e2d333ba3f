"""One image from request to registry: build, verify, push by digest, then move the tag.

Nothing is pushed before it is verified, and nothing has its final tag before it is pushed whole: a controller killed
anywhere in here leaves either no image or a complete one.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

from driver_builder import images
from driver_builder.actions import StartBuild
from driver_builder.build import Builder, BuildRequest, BuiltImage, LogSink
from driver_builder.image_archive import read_image_archive
from driver_builder.registries import Registries
from driver_builder.verify import VerifiedModule, verify


def build_and_push(
    action: StartBuild, *, builder: Builder, registries: Registries, log: LogSink, cancelled: Event
) -> str:
    """Carry out a build; gives the digest that was promoted.

    Raises:
        BuildFailed, VerificationFailed, RegistryRefused: final until something changes.
        TemporaryError: engine or registry away.
    """
    registry = registries.connect(action.namespace, action.registry, action.image.host)
    with TemporaryDirectory(prefix="driver-builder-") as name:
        directory = Path(name)
        built = builder.build(action.request, directory=directory, log=log, cancelled=cancelled)
        archive = read_image_archive(built.archive, directory / "layers")
        modules = verify(archive, request=action.request, module_symvers=built.module_symvers)
        log(f"verified {', '.join(module.name for module in modules)} against {action.request.target.kernel_version}")
        labelled = archive.with_labels(provenance(action.request, built, modules))
        digest = registry.push(action.image.repository, labelled)
        log(f"pushed {action.image.host}/{action.image.repository}@{digest}")
        registry.tag(action.image.repository, digest, action.image.reference)
        log(f"tagged {action.image}")
    return digest


def provenance(request: BuildRequest, built: BuiltImage, modules: Iterable[VerifiedModule]) -> dict[str, str]:
    """Write down what an image was made of, as its labels; ``plan`` reads the module identities back."""
    facts = [
        {"name": module.name, "identity": module.srcversion or module.build_id, "vermagic": module.vermagic}
        for module in modules
    ]
    symvers = hashlib.sha256(built.module_symvers.encode()).hexdigest()
    return {
        images.KEY_LABEL: request.key,
        images.DRIVER_LABEL: request.driver,
        images.VERSION_LABEL: request.version,
        images.KERNEL_LABEL: request.target.kernel_version,
        images.OS_LABEL: request.target.os,
        images.ARCHITECTURE_LABEL: request.target.architecture,
        images.COMPILER_LABEL: built.compiler,
        images.SYMVERS_LABEL: f"sha256:{symvers}",
        images.MODULES_LABEL: json.dumps(facts, sort_keys=True),
    }
