"""Images and kernels as Kernel Module Management (KMM) writes them, and what they are here. Pure.

Place in the flow: ``kmm`` calls it for each kernel mapping of a Module.
"""

import re
from collections.abc import Mapping

import re2

from driver_builder.api.mapping_settings import compiled
from driver_builder.model import images

_VARIABLE = re.compile(r"\$(?:\{(?P<braced>[A-Za-z0-9_]*)\}|(?P<plain>[A-Za-z_][A-Za-z0-9_]*))")
_OF_A_KERNEL = "KERNEL_"
_NOT_IN_A_TAG = re.compile(r"[^A-Za-z0-9._-]")
_PARTS = re.compile(r"[.,-]")
_TAKES_ANY = (".*", ".+")


def variables_of(text: str) -> frozenset[str]:
    """Return the variables that a text names."""
    return frozenset(match["braced"] or match["plain"] or "" for match in _VARIABLE.finditer(text))


def differs_by_kernel(text: str) -> bool:
    """Return whether a text names a variable of the kernel."""
    return any(name.startswith(_OF_A_KERNEL) for name in variables_of(text))


def replaced(text: str, values: Mapping[str, str]) -> str:
    """Replace the variables that are known, and leave others as they are."""
    return _VARIABLE.sub(lambda match: values.get(match["braced"] or match["plain"] or "", match[0]), text)


def trimmed(kernel: str) -> str:
    """Return a kernel release as KMM compares it."""
    return kernel.removesuffix("+")


def variables_for(kernel: str) -> dict[str, str]:
    """Return the variables of a kernel release; those of its parts only if it has three."""
    release = trimmed(kernel)
    version = _NOT_IN_A_TAG.sub("_", release)
    values = {"KERNEL_FULL_VERSION": version, "KERNEL_VERSION": version}
    parts = _PARTS.split(release)
    if len(parts) >= 3:
        values |= dict(zip(("KERNEL_X", "KERNEL_Y", "KERNEL_Z"), parts[:3], strict=True))
        values["KERNEL_XYZ"] = ".".join(parts[:3])
    return values


def reference(image: str) -> str:
    """Write an image as it is named here: with its registry, and by its digest alone where it has one.

    The kubelet takes an image without a registry from Docker Hub.
    """
    name, at, digest = image.partition("@")
    host, slash, _ = name.partition("/")
    if not slash:
        name = f"docker.io/library/{name}"
    elif not images.is_registry(host):
        name = f"docker.io/{name}"
    return f"{repository(name)}@{digest}" if at else name


def repository(image: str) -> str:
    """Return an image without tag and digest."""
    folder, slash, last = image.partition("@")[0].rpartition("/")
    return f"{folder}{slash}{last.partition(':')[0]}"


def whole(regexp: str) -> str:
    """Make an expression for all of a release of one that KMM looks for anywhere in it."""
    plain = regexp.replace(r"\\", "")
    if plain.rfind(r"\Q") > plain.rfind(r"\E"):
        regexp += r"\E"
    if "|" in regexp:
        return f".*(?:{regexp}).*"
    begins = regexp.startswith(("^", *_TAKES_ANY))
    ends = regexp.endswith(("$", *_TAKES_ANY)) and not regexp.endswith((r"\$", r"\.*", r"\.+"))
    return f"{'' if begins else '.*'}{regexp}{'' if ends else '.*'}"


def matches(regexp: str, kernel: str) -> bool:
    """Return whether KMM's expression matches a kernel; one that is not an expression matches none."""
    try:
        return compiled(whole(regexp)).fullmatch(trimmed(kernel)) is not None
    except re2.error:
        return False
