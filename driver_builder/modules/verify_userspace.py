"""The user space in an image: bounded, and of the same version as the modules beside it.

Place in the flow: ``verify`` asks it of a built image, before anything is pushed.
"""

from collections.abc import Sequence

from driver_builder.archives.image_archive import ImageArchive
from driver_builder.base.errors import VerificationFailed
from driver_builder.base.reasons import Reason
from driver_builder.model.build import BuildRequest
from driver_builder.model.userspace import FOLDER, Userspace, UserspacePackages, version_in_name
from driver_builder.modules.kernel_module import KernelModule
from kube_api.text import first_few, printable

_MAX_VERSION_FILE = 64 << 10
_SHOWN = 100
_NAMED = 3


def check_userspace(image: ImageArchive, request: BuildRequest, modules: Sequence[KernelModule]) -> None:
    """Check the user space of a request that has one: it is of the version of one of the ``modules``.

    Raises:
        VerificationFailed: IMAGE_INVALID, it is missing or too large; USERSPACE_MISMATCH, its version is another one.
    """
    if request.userspace is None:
        return
    found, place = _version(image, request.userspace)
    stated = {f"module {module.name}": module.version for module in modules if module.version}
    # Helpers of the kernel's own have versions of their own.
    wanted = stated or {"spec.version": request.version}
    if found not in wanted.values():
        words = first_few([f"{printable(version, _SHOWN)} ({by})" for by, version in wanted.items()], _NAMED)
        raise VerificationFailed(
            Reason.USERSPACE_MISMATCH,
            f"the user space has version {found or 'none'} ({place}), but the modules have {words}",
        )


def _version(image: ImageArchive, userspace: Userspace) -> tuple[str, str]:
    """Return the version of what is in the image, and what says so."""
    path = f"{FOLDER}/{userspace.version_file}"
    size, content = 0, None
    for file in image.files(FOLDER):
        size += file.size
        if size > userspace.size_limit:
            raise VerificationFailed(
                Reason.IMAGE_INVALID,
                f"the user space has more than the {userspace.size_limit} bytes of spec.userspace.sizeLimit: raise it, "
                "or leave out what no node needs",
            )
        if file.path == path:
            content = b"" if version_in_name(path) else file.read(_MAX_VERSION_FILE)
    if not size:
        raise VerificationFailed(
            Reason.IMAGE_INVALID, f"the image has no files below {FOLDER}: the template leaves out spec.userspace"
        )
    if not userspace.version_file and isinstance(userspace.content, UserspacePackages):
        return " and ".join(userspace.content.versions), userspace.words
    if content is None:
        raise VerificationFailed(
            Reason.USERSPACE_MISMATCH, f"the user space has no file {userspace.version_file} with its version"
        )
    text = content.decode(errors="replace").partition("\n")[0].strip()
    return version_in_name(path) or printable(text, _SHOWN), userspace.version_file
