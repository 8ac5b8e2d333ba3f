"""From a build request to what an engine builds: a Dockerfile, and the tar that holds it with everything it copies.

Place in the flow: builders call :func:`render` once, then :func:`build_context`; ``plan`` takes
:func:`template_versions` into the build key.

What a template must do (``dockerfiles/driver/NAME.Dockerfile.j2``): a stage ``build`` leaves ``/out``, the root of the
driver image, and ``/facts/Module.symvers`` and ``/facts/compiler``; the last stage is ``FROM scratch`` and copies
``/out``. A stage ``headers`` may come before it, with nothing of a driver: it is the kernel's toolchain, and its
``/facts`` also have ``vermagic``, that of an empty module, which says which kernel it is for.
Commands end with the codes that ``failures`` knows, after a line ``driverwright: ...`` that says why.
What templates have in common is in ``parts/NAME.j2`` beside them, which they include. The first line of a template has
its version, ``{# recipe: 1 #}``. A change of what the template and its parts make
of the same source takes the next number, in each template that includes a changed part. The number is in the build
key, the text is not: other words and comments rebuild no image (docs/decisions/0041-recipe-versions.md).

A template gets the variables of ``template_values``, a custom one (``spec.build.templateConfigMap``; docs/templates.md)
as well. That comes from the cluster: it is rendered in a sandbox and in its own process with limits
(``template_process``). It is one text, and includes nothing: our parts may change with every version.
"""

import io
import re
import sys
import tarfile
from collections.abc import Mapping
from enum import Enum
from pathlib import Path, PurePosixPath

import jinja2

from driver_builder.base.errors import BuildFailed, ConfigurationError
from driver_builder.base.reasons import Reason
from driver_builder.builds.templates.template_engine import TemplateInvalid, rendered
from driver_builder.builds.templates.template_process import render_own
from driver_builder.builds.templates.template_values import (
    EXTRA_SYMVERS,
    modules_text,
    source_files,
    template_name,
    template_values,
)
from driver_builder.model.build import BuildRequest, SourceFiles

SUFFIX = ".Dockerfile.j2"

BUILD_STAGE = "build"
HEADERS_STAGE = "headers"
FACTS_FOLDER = "/facts"
FACTS_VOLUME = "/driverwright-facts"
"""Where ``builds/job/build.sh`` mounts the folder that they are copied to."""
COPY_FACTS = f"RUN [ ! -d {FACTS_FOLDER} ] || cp -R {FACTS_FOLDER}/. {FACTS_VOLUME}/"

"""What a Job's Dockerfile ends the stage ``build`` with. An engine keeps that stage as an image, and the metadata is
read from it; buildah keeps no stage, so its files are copied to a volume. Our templates render the line
(``parts/copy_facts.j2``); :func:`with_facts_copied` adds it to a custom template.
"""

_FROM = re.compile(r"FROM\s", re.IGNORECASE)
_BUILD_STAGE = re.compile(rf"FROM\s.*\sAS\s+{BUILD_STAGE}\s*", re.IGNORECASE)

_VERSION_LINE = re.compile(r"\{#-?\s*recipe:\s*([1-9][0-9]{0,8})\s*-?#\}")


class Variant(Enum):
    """What a Dockerfile is rendered for."""

    ENGINE = "engine"
    JOB = "job"

    @property
    def values(self) -> dict[str, str | None]:
        """The variables of a template that depend on it."""
        return {"copy_facts": COPY_FACTS if self is Variant.JOB else None}


def shipped(folder: str) -> list[Path]:
    """Where a folder of templates of driverwright may be: in this checkout, then installed."""
    roots = (Path(__file__).parents[3], Path(sys.prefix, "share", "driverwright"))
    return [root / "dockerfiles" / folder for root in roots]


def templates_directory(given: Path | None = None) -> Path:
    """The folder of the templates: the one given, else that of this checkout, else the installed one.

    Raises:
        ConfigurationError: it does not exist; names the searched places.
    """
    candidates = [given] if given else shipped("driver")
    for candidate in candidates:
        if any(candidate.glob(f"*{SUFFIX}")):
            return candidate
    places = " and ".join(str(candidate) for candidate in candidates)
    raise ConfigurationError(f"there is no template NAME{SUFFIX} in {places}; set their folder with --templates")


def template_versions(given: Path | None = None) -> dict[str, str]:
    """Each template's name, with its version as build keys contain it: name and number.

    Raises:
        ConfigurationError: a template has no version.
    """
    found = sorted(templates_directory(given).glob(f"*{SUFFIX}"))
    return {(name := path.name.removesuffix(SUFFIX)): f"{name}:{_number(path)}" for path in found}


def _number(path: Path) -> int:
    with path.open(encoding="utf-8", errors="replace") as file:
        match = _VERSION_LINE.match(file.readline(80))
    if match is None:
        raise ConfigurationError(f"template {path} has no version: write {{# recipe: 1 #}} in its first line")
    return int(match[1])


def render(request: BuildRequest, directory: Path, variant: Variant = Variant.ENGINE) -> str:
    """The Dockerfile of a request, as an engine builds it or as a Job does.

    Raises:
        BuildFailed: TEMPLATE_INVALID, there is no such template, it has an error, or a value is not allowed in it.
            An error names the line.
        TemporaryError: no process can be started to render a custom template.
    """
    values = template_values(request) | variant.values
    dockerfile = (
        render_own(request.own_template, values) if request.own_template else _render_ours(request, directory, values)
    )
    return with_facts_copied(dockerfile) if variant is Variant.JOB else dockerfile


def _render_ours(request: BuildRequest, directory: Path, values: Mapping[str, object]) -> str:
    place = f"{template_name(request)}{SUFFIX}"
    if not directory.joinpath(place).is_file():
        known = ", ".join(sorted(found.name.removesuffix(SUFFIX) for found in directory.glob(f"*{SUFFIX}")))
        raise _invalid(f"there is no template {template_name(request)!r}; known: {known or 'none'}")
    try:
        return rendered(place, values, jinja2.FileSystemLoader(directory))
    except TemplateInvalid as error:
        raise _invalid(str(error)) from error


def with_facts_copied(dockerfile: str) -> str:
    """Add ``COPY_FACTS`` at the end of the stage ``build``, unless the template rendered it.

    Raises:
        BuildFailed: TEMPLATE_INVALID, when there is no such stage.
    """
    lines = dockerfile.splitlines()
    if COPY_FACTS in lines:
        return dockerfile
    begin = next((number for number, line in enumerate(lines) if _BUILD_STAGE.fullmatch(line)), None)
    if begin is None:
        raise BuildFailed(
            Reason.TEMPLATE_INVALID, f"the template has no stage {BUILD_STAGE!r}: write FROM ... AS {BUILD_STAGE}"
        )
    end = next((number for number in range(begin + 1, len(lines)) if _FROM.match(lines[number])), len(lines))
    return "\n".join([*lines[:end], COPY_FACTS, "", *lines[end:], ""])


def build_context(request: BuildRequest, dockerfile: str) -> bytes:
    """The tar that ``dockerfile`` is built from: itself, ``modules`` and the files below ``source/``.

    Equal requests give equal bytes, so the engine finds the earlier build in its cache.

    Raises:
        BuildFailed: TEMPLATE_INVALID, when a file or a parameter may not stand in it.
    """
    content = {
        "Dockerfile": dockerfile.encode(),
        "modules": modules_text(request.modules).encode(),
    }
    folders: set[str] = set()
    if request.depends:
        content[EXTRA_SYMVERS] = request.extra_symvers.encode()
        folders = _folders(EXTRA_SYMVERS)
    if isinstance(request.source, SourceFiles):
        source = {f"source/{path}": data for path, data in source_files(request.source).items()}
        folders = folders | {"source"}.union(*(_folders(path) for path in source))
        content |= source
    return _tar(content, folders)


def _folders(path: str) -> set[str]:
    return {str(parent) for parent in PurePosixPath(path).parents} - {"."}


def _tar(content: Mapping[str, bytes], folders: set[str]) -> bytes:
    """A tar that depends on names and contents only: sorted, of user 0, from 1970."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(folders | content.keys()):
            entry = tarfile.TarInfo(name)
            if name in folders:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
                continue
            entry.size, entry.mode = len(content[name]), 0o755 if name.endswith(".sh") else 0o644
            tar.addfile(entry, io.BytesIO(content[name]))
    return buffer.getvalue()


def _invalid(message: str) -> BuildFailed:
    return BuildFailed(Reason.TEMPLATE_INVALID, message)
