"""The script that asks a package repository for its kernels: one per package manager, in ``dockerfiles/lookup``.

Place in the flow: an engine runs it in a build, a Job as its command. It prints a line ``driverwright-kernel:
RELEASE`` for each kernel, and its exit code is one that ``failures`` classifies.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from driver_builder.api.spec_rules import BASE_IMAGE
from driver_builder.base.errors import ConfigurationError
from driver_builder.builds.templates.templates import shipped
from driver_builder.model.repositories import Repository

SCRIPTS: Mapping[str, str] = {
    "amazon": "dnf.sh",
    "debian": "apt.sh",
    "fedora": "dnf.sh",
    "rhel": "dnf.sh",
    "sles": "zypper.sh",
    "ubuntu": "apt.sh",
}
"""By template; the value is the script's one argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelScript:
    """A script for bash, with its file name and its arguments."""

    name: str
    text: str
    arguments: tuple[str, ...]


def script_for(repository: Repository) -> KernelScript:
    """Read the script that asks a repository.

    Raises:
        ConfigurationError: there is none, or the base image's name is not allowed in a Dockerfile.
    """
    if wrong := BASE_IMAGE.wrong_with(repository.base_image):
        raise ConfigurationError(f"base image {repository.base_image!r} {wrong}")
    name = SCRIPTS.get(repository.template)
    if name is None:
        known = ", ".join(sorted(SCRIPTS))
        raise ConfigurationError(f"kernels of {repository.template!r} cannot be discovered; known: {known}")
    return KernelScript(name=name, text=_read(name), arguments=(repository.template,))


def _read(name: str) -> str:
    places = [folder / name for folder in shipped("lookup")]
    place = next((place for place in places if place.is_file()), None)
    if place is None:
        raise ConfigurationError(f"there is no {' or '.join(map(str, places))}; install driverwright again")
    return place.read_text(encoding="utf-8")
