"""From a build request to what an engine builds: a Dockerfile, and the tar that holds it with everything it copies.

Place in the flow: builders call :func:`build_context`; ``plan`` takes :func:`recipe_digests` into the build key.

What a template must do (``dockerfiles/driver/NAME.Dockerfile.j2``): a stage ``build`` leaves ``/out``, the root of the
driver image, and ``/facts/Module.symvers`` and ``/facts/compiler``; the last stage is ``FROM scratch`` and copies
``/out``. A stage ``headers`` may come before it, with nothing of a driver: its ``/facts``, with ``vermagic`` of an
empty module beside the others, tell whether modules of another kernel can be used, before anything is compiled.
Commands end with the codes that ``failures`` knows, after a line ``driverwright: ...`` that says why.
What templates have in common is in ``parts/NAME.j2`` beside them, which they include. A recipe is a template
with the parts and the loader, and its digest says all.

Variables: ``kernel_version os_id os_version architecture base_image rebuild driver version``, words;
``headers_mirror``, an address or empty; ``firmware_path``, an absolute path of stage ``build`` or empty: its files go
to ``/out/firmware``; ``modules`` (names) and ``make_args`` (``NAME=value``), lists of words. Where the source is, by
what ``spec.source`` names:

==========  =============================================================================================
configMap   the files are in the context, below ``source/``
image       ``source_image`` (by digest), ``source_path`` (absolute)
git         ``source_git`` (URL), ``source_commit`` (full hash), ``source_path`` (relative, or empty)
archive     ``source_archive`` (URL), ``source_sha256``, ``source_path`` (relative, or empty)
package     ``source_package``, ``source_version`` (or None)
==========  =============================================================================================

Variables of other kinds are None. A template that does not mention ``source_git`` is not asked to build from git, and
so on: the build fails with a word about it before it starts. A tree with a ``dkms.conf`` is built by dkms.

A template of the admin's own (``spec.build.templateConfigMap``; docs/templates.md) gets the same values. It is a text
out of the cluster: all templates are rendered in a sandbox, where an expression reaches neither files nor Python. It is
one text, and includes nothing: our parts may change with every version.
"""

import hashlib
import io
import re
import sys
import tarfile
import traceback
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from importlib.resources import files
from pathlib import Path, PurePosixPath

import jinja2
import jinja2.meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from driver_builder.building.template_values import modules_text, source_files, template_name, template_values
from driver_builder.errors import BuildFailed, BuildFailure, ConfigurationError
from driver_builder.model.build import BuildRequest, SourceFiles

BUILD_STAGE = "build"
HEADERS_STAGE = "headers"
FACTS_FOLDER = "/facts"
SUFFIX = ".Dockerfile.j2"
PARTS = "parts"
MAX_DOCKERFILE = 1 << 20
"""Characters."""

_HEADERS = re.compile(rf"^FROM \S+ AS {HEADERS_STAGE}$", re.MULTILINE | re.IGNORECASE)
_ENVIRONMENT = ImmutableSandboxedEnvironment(
    undefined=jinja2.StrictUndefined,
    autoescape=False,  # a Dockerfile is no HTML; template_values lets nothing through that needs escaping
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ERRORS = (
    jinja2.TemplateError,
    *(ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError),
)
"""What an expression in a template may fail with: Jinja's errors, and those of Python."""


def shipped(folder: str) -> list[Path]:
    """Where a folder of templates may be that driverwright brings: in this checkout, then installed."""
    roots = (Path(__file__).parents[2], Path(sys.prefix, "share", "driverwright"))
    return [root / "dockerfiles" / folder for root in roots]


def templates_directory(given: Path | None = None) -> Path:
    """The folder of the templates: the one given, else that of this checkout, else the installed one.

    Raises:
        ConfigurationError: when there is none; names the places that were looked at.
    """
    candidates = [given] if given else shipped("driver")
    for candidate in candidates:
        if any(candidate.glob(f"*{SUFFIX}")):
            return candidate
    places = " and ".join(str(candidate) for candidate in candidates)
    raise ConfigurationError(f"there is no template NAME{SUFFIX} in {places}; give their folder with --templates")


def recipe_digests(given: Path | None = None) -> dict[str, str]:
    """Each template's name, with the digest of all that this program adds to a build: template, parts and loader."""
    directory = templates_directory(given)
    common = [path.read_bytes() for path in sorted(directory.joinpath(PARTS).glob("*.j2"))] + [_loader()]
    return {
        path.name.removesuffix(SUFFIX): hashlib.sha256(b"\0".join([path.read_bytes(), *common])).hexdigest()
        for path in sorted(directory.glob(f"*{SUFFIX}"))
    }


def loader_digest() -> str:
    """The digest of what this program adds to a build besides a template."""
    return hashlib.sha256(_loader()).hexdigest()


def render(request: BuildRequest, directory: Path) -> str:
    """The Dockerfile of a request.

    Raises:
        BuildFailed: TEMPLATE_INVALID, when there is no such template, it has an error, or a value may not stand in it.
            An error names the line.
    """
    values = template_values(request)
    own = request.own_template
    place = own.place if own else f"{template_name(request)}{SUFFIX}"
    loader = jinja2.DictLoader({place: own.text}) if own else jinja2.FileSystemLoader(directory)
    environment = _ENVIRONMENT.overlay(loader=loader)
    try:
        text = loader.get_source(environment, place)[0]
        _check_all_is_used(values, _mentioned(environment, loader, text), place)
        return _limited(environment.from_string(text).generate(values), place)
    except _ERRORS as error:
        if isinstance(error, jinja2.TemplateNotFound) and error.name == place:
            known = ", ".join(sorted(found.name.removesuffix(SUFFIX) for found in directory.glob(f"*{SUFFIX}")))
            raise _invalid(f"there is no template {template_name(request)!r}; known: {known or 'none'}") from error
        raise _invalid(f"template {_where(error, place)} cannot be rendered: {_why(error, values)}") from error


def _mentioned(
    environment: jinja2.Environment, loader: jinja2.BaseLoader, text: str, name: str | None = None
) -> set[str]:
    """The variables in a template and in its parts; of a part that is not there, rendering tells the line."""
    tree = environment.parse(text, name)
    names = jinja2.meta.find_undeclared_variables(tree)
    for part in jinja2.meta.find_referenced_templates(tree):
        if part is not None:
            with suppress(jinja2.TemplateNotFound):
                names |= _mentioned(environment, loader, loader.get_source(environment, part)[0], part)
    return names


def _check_all_is_used(values: Mapping[str, object], mentioned: Set[str], place: str) -> None:
    """Refuse a template that would leave source or firmware out, because it was written without a thought of them."""
    for name in ("source_git", "source_archive", "source_package"):
        if values[name] is not None and name not in mentioned:
            kind = name.removeprefix("source_")
            raise _invalid(f"template {place} cannot build from spec.source.{kind}: it does not mention {name}")
    if values["firmware_path"] and "firmware_path" not in mentioned:
        raise _invalid(f"template {place} leaves out spec.module.firmwarePath: it does not mention firmware_path")


def _limited(parts: Iterable[str], place: str) -> str:
    text = ""
    for part in parts:
        text += part
        if len(text) > MAX_DOCKERFILE:
            raise _invalid(f"template {place} makes more than {MAX_DOCKERFILE} characters")
    return text


def _where(error: BaseException, place: str) -> str:
    """The template or part that an error is about, with its line as far as that is known."""
    if isinstance(error, jinja2.TemplateSyntaxError):
        return f"{error.name or place}:{error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename == "<template>":
            return f"{place}:{frame.lineno}"
        if frame.filename.endswith(".j2"):
            return f"{PARTS}/{Path(frame.filename).name}:{frame.lineno}"
    return place


def _why(error: BaseException, values: Mapping[str, object]) -> str:
    match error:
        case jinja2.UndefinedError():
            return f"{error}; there are {', '.join(sorted(values))}"
        case jinja2.TemplateNotFound():
            return f"it cannot take in {error.name!r}: ours have their parts, and what a ConfigMap gives is one text"
        case jinja2.TemplateSyntaxError():
            return error.message or "it is no template"
        case _:
            return str(error) or type(error).__name__


def has_headers_stage(dockerfile: str) -> bool:
    """Whether a Dockerfile has a stage that tells of the kernel alone."""
    return _HEADERS.search(dockerfile) is not None


def build_context(request: BuildRequest, directory: Path) -> bytes:
    """The tar an engine builds from: ``Dockerfile``, ``loader.sh``, ``modules`` and the files below ``source/``.

    Equal requests give equal bytes, so the engine finds in its cache what it has built before.

    Raises:
        BuildFailed: as :func:`render`.
    """
    content = {
        "Dockerfile": render(request, directory).encode(),
        "loader.sh": _loader(),
        "modules": modules_text(request.modules).encode(),
    }
    folders = set()
    if isinstance(request.source, SourceFiles):
        source = {f"source/{path}": data for path, data in source_files(request.source).items()}
        folders = {"source"}.union(*(_folders(path) for path in source))
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


def _loader() -> bytes:
    return files("driver_builder").joinpath("driver_image", "loader.sh").read_bytes()


def _invalid(message: str) -> BuildFailed:
    return BuildFailed(BuildFailure.TEMPLATE_INVALID, message)
