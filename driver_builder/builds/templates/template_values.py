"""The variables of a template: every value of a request, checked before it is written to a Dockerfile.

Place in the flow: ``templates`` renders the result. A Dockerfile is a program, so a value that could end a
word, a line or a quotation in it is refused, whatever its origin. The rules are those that the spec is read by
(``spec_rules``); only a commit may be fetched over http here, because its hash pins it.

Variables: ``kernel_version os_id os_version architecture base_image tools_image rebuild driver version``, words;
``headers_mirror``, an address or empty; ``firmware_path``, an absolute path of stage ``build`` or empty: its files go
to ``/out/firmware``; ``extra_symvers``, a file of the context with the symbols of the drivers that this one depends on,
or empty: make gets it in ``KBUILD_EXTRA_SYMBOLS``; ``modules`` (names), ``make_args`` (``NAME=value``) and
``build_packages`` (further packages, to be installed in stage ``build``), lists of words; ``copy_facts``, in a Job the
command that ends stage ``build``, else None. Where the source is, by what ``spec.source`` names:

==========  =============================================================================================
configMap   the files are in the context, below ``source/``
image       ``source_image`` (by digest), ``source_path`` (absolute)
git         ``source_git`` (URL), ``source_commit`` (full hash), ``source_path`` (relative, or empty)
archive     ``source_archive`` (URL), ``source_sha256``, ``source_path`` (relative, or empty)
package     ``source_package``, ``source_version`` (or None)
==========  =============================================================================================

Where the user space is, which goes to ``/userspace`` of the last stage: ``userspace_archive`` (URL),
``userspace_sha256`` and ``userspace_path`` (relative, or empty), or ``userspace_packages`` (``NAME=VERSION``). A
``firmware_path`` below ``/userspace/`` is a folder of it, and goes to ``/firmware``.

Variables of other kinds are None. A template without ``source_git`` cannot build from git, and so on: the build fails
with a message about it before it starts. A tree with a ``dkms.conf`` is built by dkms.
"""

import re
from collections.abc import Mapping
from typing import assert_never

from driver_builder.api import spec_rules as rules
from driver_builder.api.spec_rules import Rule
from driver_builder.base.errors import BuildFailed
from driver_builder.base.reasons import Reason
from driver_builder.model.build import (
    MIRROR_ARG,
    TOOLS_IMAGE,
    BuildRequest,
    ModuleSpec,
    Source,
    SourceArchive,
    SourceFiles,
    SourceGit,
    SourceImage,
    SourcePackage,
)
from driver_builder.model.userspace import Userspace, UserspaceArchive, UserspacePackages

_DRIVER = Rule(re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*"), "is not a driver: write namespace/name")
_TOKEN = Rule(re.compile(r"[0-9a-f.]+"), "is not a rebuild token: it has hexadecimal digits and '.'")
EXTRA_SYMVERS = "symvers/Module.symvers"
"""Where the context has the symbols of the drivers that the driver depends on."""
SOURCE_VARIABLES = (
    *("source_image", "source_path"),
    *("source_git", "source_commit"),
    *("source_archive", "source_sha256"),
    *("source_package", "source_version"),
)
"""The variables for the source; those of other kinds than the request's are None, all for files."""
USERSPACE_VARIABLES = (
    *("userspace_archive", "userspace_sha256", "userspace_path"),
    "userspace_packages",
)
"""The variables for ``spec.userspace``, all None without one."""


def template_values(request: BuildRequest) -> dict[str, object]:
    """The variables of a template, each safe as one word of a Dockerfile or of a shell command in it.

    Raises:
        BuildFailed: TEMPLATE_INVALID, names the field, its value and what it may hold.
    """
    mirror, firmware = request.args.get(MIRROR_ARG), request.firmware_path
    return {
        "kernel_version": request.target.kernel_version,
        "rebuild": _checked("rebuild", request.rebuild, _TOKEN) if request.rebuild else "",
        "os_id": request.target.os_id,
        "os_version": request.target.os_version,
        "architecture": request.target.architecture,
        "base_image": _checked("baseImage", request.base_image, rules.BASE_IMAGE),
        "tools_image": _checked("toolsImage", request.tools_image or TOOLS_IMAGE, rules.BASE_IMAGE),
        "make_args": _make_args(request.args),
        "headers_mirror": _checked(MIRROR_ARG, mirror, rules.MIRROR) if mirror else "",
        "modules": [_checked("module name", module.name, rules.MODULE) for module in request.modules],
        "firmware_path": _checked("module.firmwarePath", firmware, rules.ABSOLUTE_PATH) if firmware else "",
        "extra_symvers": EXTRA_SYMVERS if request.depends else "",
        "build_packages": [_checked("build package", name, rules.PACKAGE) for name in request.packages],
        **dict.fromkeys(SOURCE_VARIABLES),
        **_source_values(request.source),
        **_userspace_values(request.userspace),
        "driver": _checked("driver", request.driver, _DRIVER),
        "version": _checked("version", request.version, rules.VERSION),
    }


def _source_values(source: Source) -> dict[str, str | None]:
    match source:
        case SourceFiles():
            return {}
        case SourceImage():
            return {
                "source_image": _checked("source image", source.reference, rules.PINNED_IMAGE),
                "source_path": _checked("source path", source.path, rules.ABSOLUTE_PATH),
            }
        case SourceGit():
            return {
                "source_git": _checked("git url", source.url, rules.ARCHIVE_URL),
                "source_commit": _checked("git commit", source.commit, rules.COMMIT),
                "source_path": _folder("git path", source.path),
            }
        case SourceArchive():
            return {
                "source_archive": _checked("archive url", source.url, rules.ARCHIVE_URL),
                "source_sha256": _checked("archive sha256", source.sha256, rules.SHA256),
                "source_path": _folder("archive path", source.path),
            }
        case SourcePackage():
            return {
                "source_package": _checked("package name", source.name, rules.PACKAGE),
                "source_version": _checked("package version", source.version, rules.PACKAGE_VERSION)
                if source.version
                else None,
            }
        case _ as never:
            assert_never(never)


def _userspace_values(userspace: Userspace | None) -> dict[str, object]:
    values: dict[str, object] = dict.fromkeys(USERSPACE_VARIABLES)
    match userspace.content if userspace else None:
        case UserspaceArchive() as archive:
            values |= {
                "userspace_archive": _checked("userspace archive url", archive.url, rules.ARCHIVE_URL),
                "userspace_sha256": _checked("userspace archive sha256", archive.sha256, rules.SHA256),
                "userspace_path": _folder("userspace archive path", archive.path),
            }
        case UserspacePackages() as packages:
            values["userspace_packages"] = [_pin(name, version) for name, version in packages.pins]
        case None:
            pass
        case _ as never:
            assert_never(never)
    return values


def _pin(name: str, version: str) -> str:
    version = _checked("userspace package version", version, rules.PACKAGE_VERSION)
    return f"{_checked('userspace package', name, rules.PACKAGE)}={version}"


def _folder(field: str, path: str) -> str:
    """A folder below a root; empty is the root itself."""
    return _checked(field, path, rules.RELATIVE_PATH) if path else ""


def template_name(request: BuildRequest) -> str:
    """The template's name, safe as a part of a file name."""
    return _checked("template", request.template, rules.TEMPLATE)


def source_files(source: SourceFiles) -> dict[str, bytes]:
    """The files of a source, with paths that stay below the folder they are unpacked in."""
    return {_checked("source file", path, rules.RELATIVE_PATH): content for path, content in source.files.items()}


def modules_text(modules: tuple[ModuleSpec, ...]) -> str:
    """What the loader reads: a line for each module in load order, its name and its parameters between blanks."""
    if not modules:
        raise _invalid("modules", "", "needs the name of at least one module")
    return "".join(f"{_module_line(module)}\n" for module in modules)


def _module_line(module: ModuleSpec) -> str:
    parameters = (
        _checked(f"parameter of {module.name}", parameter, rules.PARAMETER) for parameter in module.parameters
    )
    return " ".join((_checked("module name", module.name, rules.MODULE), *parameters))


def _make_args(args: Mapping[str, str]) -> list[str]:
    return [
        f"{_checked('argument name', name, rules.ARG)}={_checked(f'argument {name}', value, rules.ARG_VALUE)}"
        for name, value in sorted(args.items())
        if name != MIRROR_ARG
    ]


def _checked(field: str, value: str, rule: Rule) -> str:
    """The value, if the rule allows it."""
    if words := rule.wrong_with(value):
        raise _invalid(field, value, words)
    return value


def _invalid(field: str, value: str, words: str) -> BuildFailed:
    return BuildFailed(Reason.TEMPLATE_INVALID, f"{field} {value!r} cannot be written to a Dockerfile: it {words}")
