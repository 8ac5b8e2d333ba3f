"""The symbols that drivers export to one that depends on them, read from the modules in their images.

Place in the flow: ``pipeline`` puts them into the request, and so into the build's context, before it builds. The
images were verified when they were pushed, and nothing in their own builds or keys is for this.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from driver_builder.base.errors import BuildFailed, InvalidModule, VerificationFailed
from driver_builder.base.reasons import Reason
from driver_builder.model import images
from driver_builder.model.build import LogSink
from driver_builder.model.image_state import Present
from driver_builder.modules.image_modules import read_modules
from driver_builder.modules.symvers import ExportedSymbol, render_module_symvers
from driver_builder.nodes.changes import StartBuild
from driver_builder.registry.image_download import download
from driver_builder.registry.registry_access import PUSH_PATIENCE, Registries
from driver_builder.targets.desired_target import Exporter

_MODULES_FOLDER = "/lib/modules"
"""Of all kernels: an image that 0.1 made of another kernel's has its modules below that one's release."""


def with_symbols(
    action: StartBuild, registries: Registries, directory: Path, *, wait: Callable[[float], object], log: LogSink
) -> StartBuild:
    """Add to a build's request the symbols of the drivers that it depends on.

    Raises:
        BuildFailed: an image is not what the plan saw, or cannot be read.
        RegistryRefused, TemporaryError: it cannot be fetched.
    """
    found: dict[str, ExportedSymbol] = {}
    for number, exporter in enumerate(action.exporters):
        symbols = _symbols(action, exporter, registries, directory / f"exporter-{number}", wait)
        log(f"driver {exporter.driver} exports {len(symbols)} symbols")
        found |= symbols
    if not action.exporters:
        return action
    text = render_module_symvers(found, action.request.target.kernel_version)
    return replace(action, request=replace(action.request, extra_symvers=text))


def _symbols(
    action: StartBuild, exporter: Exporter, registries: Registries, directory: Path, wait: Callable[[float], object]
) -> dict[str, ExportedSymbol]:
    image = exporter.image.at(exporter.digest)
    registry = registries.store(
        action.namespace, exporter.registry, image.host, image.repository, patience=PUSH_PATIENCE, wait=wait
    )
    state = registry.inspect(image.repository, exporter.digest, architecture=action.request.target.architecture)
    if not isinstance(state, Present) or state.labels.get(images.KEY_LABEL, exporter.key) != exporter.key:
        raise _unusable(exporter, f"{image} does not exist any more, or has another build key")
    try:
        modules = read_modules(download(registry, image.repository, state.digest, directory), _MODULES_FOLDER).modules
    except (InvalidModule, VerificationFailed) as error:
        raise _unusable(exporter, str(error)) from error
    return {name: symbol for module in modules.values() for name, symbol in module.exports.items()}


def _unusable(exporter: Exporter, why: str) -> BuildFailed:
    return BuildFailed(Reason.IMAGE_INVALID, f"the symbols of driver {exporter.driver} cannot be read: {why}")
