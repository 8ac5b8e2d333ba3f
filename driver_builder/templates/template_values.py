"""What a template may say: every value of a request, checked before it stands in a Dockerfile.

Place in the flow: ``templates`` renders what comes out of here. A Dockerfile is a program, so a value that could end a
word, a line or a quotation in it is refused, whoever wrote it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from driver_builder.errors import BuildFailed
from driver_builder.model.build import (
    BuildRequest,
    ModuleSpec,
    Source,
    SourceArchive,
    SourceFiles,
    SourceGit,
    SourceImage,
    SourcePackage,
)
from driver_builder.model.engine_images import is_reserved
from driver_builder.reasons import Reason

_HOST = r"[A-Za-z0-9]+(?:[.-][A-Za-z0-9]+)*(?::[0-9]{1,5})?"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_DIGEST = r"@sha256:[0-9a-f]{64}"
_NAME = rf"(?:{_HOST}/)?{_COMPONENT}(?:/{_COMPONENT})*"
_SEGMENT = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._+@-]+"
MIRROR_ARG = "HEADERS_MIRROR"
"""The one argument that is no word for make: the address of a package repository that a template looks into as well."""
_TAG = r":[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"


@dataclass(frozen=True, slots=True)
class _Rule:
    """What a field may hold: a pattern for all of it, and the same in words."""

    pattern: re.Pattern[str]
    words: str


_TEMPLATE = _Rule(re.compile(r"[a-z0-9-]+"), "lower case letters, digits and -")
_DRIVER = _Rule(re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*"), "letters, digits and . _ - /")
_VERSION = _Rule(re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]*"), "letters, digits and . _ + ~ -")
_REFERENCE = _Rule(re.compile(rf"{_NAME}(?:{_TAG})?(?:{_DIGEST})?"), "an image reference such as debian:bookworm-slim")
_PINNED = _Rule(
    re.compile(rf"{_NAME}(?:{_TAG})?{_DIGEST}"), "an image reference by digest, HOST/NAME@sha256:<64 hex digits>"
)
_PATH = _Rule(re.compile(rf"/(?:{_SEGMENT}/)*(?:{_SEGMENT})?"), "an absolute path of letters, digits and . _ + @ - /")
_FILE = _Rule(
    re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*"), "a relative path of letters, digits and . _ + @ - /, without .."
)
_URL_PATH = r"/[A-Za-z0-9._~/%+@:,=-]*(?:\?[A-Za-z0-9._~/%+@:,=&-]*)?"
_GIT_URL = _Rule(
    re.compile(rf"(?:https?|git)://{_HOST}{_URL_PATH}"),
    "https://HOST/PATH (or http, git) without a user, of letters, digits and . _ ~ / % + @ : , = - & ?",
)
_ARCHIVE_URL = _Rule(
    re.compile(rf"https?://{_HOST}{_URL_PATH}"),
    "https://HOST/PATH (or http) without a user, of letters, digits and . _ ~ / % + @ : , = - & ?",
)
_COMMIT = _Rule(re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}"), "the full hash of a commit, 40 or 64 hex digits")
_SHA256 = _Rule(re.compile(r"[0-9a-f]{64}"), "64 hex digits")
_PACKAGE = _Rule(re.compile(r"[a-z0-9][a-z0-9+.-]+"), "a package's name: lower case letters, digits and + . -")
_PACKAGE_VERSION = _Rule(re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~:_^-]*"), "letters, digits and . + ~ : _ ^ -")
_ARG = _Rule(re.compile(r"[A-Za-z_][A-Za-z0-9_]*"), "letters, digits and _, not beginning with a digit")
_ARG_VALUE = _Rule(re.compile(r"[A-Za-z0-9_./:=,@%+^-]*"), "letters, digits and . / : = , @ % + ^ _ -")
_URL = _Rule(
    re.compile(rf"https?://{_HOST}(?:/{_SEGMENT})*/?"),
    "an http or https address without query, such as https://HOST/PATH",
)
_MODULE = _Rule(re.compile(r"[A-Za-z0-9_-]+"), "letters, digits, _ and -")
_TOKEN = _Rule(re.compile(r"[0-9a-f.]+"), "hexadecimal digits and .")
_PARAMETER = _Rule(
    re.compile(r"[A-Za-z0-9_-]+(?:=[^\x00-\x20\x7f-\U0010ffff\"$'\\`]*)?"),
    "name=value in ASCII without blanks, quotes, $, ` and backslash",
)


SOURCE_VARIABLES = (
    *("source_image", "source_path"),
    *("source_git", "source_commit"),
    *("source_archive", "source_sha256"),
    *("source_package", "source_version"),
)
"""The variables that say where the source is; those of other kinds than the request's are None, all for files."""


def template_values(request: BuildRequest) -> dict[str, object]:
    """The variables of a template, each of them safe as one word of a Dockerfile or of a shell command in it.

    Raises:
        BuildFailed: TEMPLATE_INVALID, names the field, its value and what it may hold.
    """
    mirror = request.args.get(MIRROR_ARG)
    return {
        "kernel_version": request.target.kernel_version,
        "rebuild": _checked("rebuild", request.rebuild, _TOKEN) if request.rebuild else "",
        "os_id": request.target.os_id,
        "os_version": request.target.os_version,
        "architecture": request.target.architecture,
        "base_image": _image("baseImage", request.base_image, _REFERENCE),
        "make_args": _make_args(request.args),
        "headers_mirror": _checked(MIRROR_ARG, mirror, _URL) if mirror else "",
        "modules": [_checked("module name", module.name, _MODULE) for module in request.modules],
        "firmware_path": _checked("module.firmwarePath", request.firmware_path, _PATH) if request.firmware_path else "",
        **dict.fromkeys(SOURCE_VARIABLES),
        **_source_values(request.source),
        "driver": _checked("driver", request.driver, _DRIVER),
        "version": _checked("version", request.version, _VERSION),
    }


def _source_values(source: Source) -> dict[str, str | None]:
    match source:
        case SourceFiles():
            return {}
        case SourceImage():
            return {
                "source_image": _image("source image", source.reference, _PINNED),
                "source_path": _checked("source path", source.path, _PATH),
            }
        case SourceGit():
            return {
                "source_git": _checked("git url", source.url, _GIT_URL),
                "source_commit": _checked("git commit", source.commit, _COMMIT),
                "source_path": _folder("git path", source.path),
            }
        case SourceArchive():
            return {
                "source_archive": _checked("archive url", source.url, _ARCHIVE_URL),
                "source_sha256": _checked("archive sha256", source.sha256, _SHA256),
                "source_path": _folder("archive path", source.path),
            }
        case SourcePackage():
            return {
                "source_package": _checked("package name", source.name, _PACKAGE),
                "source_version": _checked("package version", source.version, _PACKAGE_VERSION)
                if source.version
                else None,
            }
        case _ as never:
            assert_never(never)


def _image(field: str, reference: str, rule: _Rule) -> str:
    """An image of a registry, and none that the builder keeps in the engine for itself."""
    if is_reserved(reference):
        raise BuildFailed(
            Reason.TEMPLATE_INVALID,
            f"{field} {reference!r} is a name that the builder keeps images of its own under;"
            " name an image of a registry",
        )
    return _checked(field, reference, rule)


def _folder(field: str, path: str) -> str:
    """A folder below a root, which is the root itself when empty."""
    return _checked(field, path, _FILE) if path else ""


def template_name(request: BuildRequest) -> str:
    """The template's name, safe as a part of a file name."""
    return _checked("template", request.template, _TEMPLATE)


def source_files(source: SourceFiles) -> dict[str, bytes]:
    """The files of a source, with paths that stay below the folder they are unpacked in."""
    return {_checked("source file", path, _FILE): content for path, content in source.files.items()}


def modules_text(modules: tuple[ModuleSpec, ...]) -> str:
    """What the loader reads: a line for each module in load order, its name and its parameters between blanks."""
    if not modules:
        raise _invalid("modules", "", "the name of at least one module")
    return "".join(f"{_module_line(module)}\n" for module in modules)


def _module_line(module: ModuleSpec) -> str:
    parameters = (_checked(f"parameter of {module.name}", parameter, _PARAMETER) for parameter in module.parameters)
    return " ".join((_checked("module name", module.name, _MODULE), *parameters))


def _make_args(args: Mapping[str, str]) -> list[str]:
    return [
        f"{_checked('argument name', name, _ARG)}={_checked(f'argument {name}', value, _ARG_VALUE)}"
        for name, value in sorted(args.items())
        if name != MIRROR_ARG
    ]


def _checked(field: str, value: str, rule: _Rule) -> str:
    """The value itself, when the rule allows it."""
    if not rule.pattern.fullmatch(value):
        raise _invalid(field, value, rule.words)
    return value


def _invalid(field: str, value: str, words: str) -> BuildFailed:
    return BuildFailed(Reason.TEMPLATE_INVALID, f"{field} {value!r} cannot stand in a Dockerfile; write {words}")
