"""From a build request to what an engine builds: a Dockerfile, and the tar that holds it with everything it copies.

Place in the flow: builders call :func:`build_context`; ``plan`` takes :func:`recipe_digests` into the build key.

What a template must do (``dockerfiles/driver/NAME.Dockerfile.j2``): a stage ``build`` leaves ``/out``, the root of the
driver image, and ``/facts/Module.symvers`` and ``/facts/compiler``; the last stage is ``FROM scratch`` and copies
``/out``. Its commands end with the codes that ``failures`` knows, after a line ``driverwright: ...`` that says why.
No template includes another one: a recipe is one file, and its digest says all.

Variables: ``kernel_version os_id os_version architecture base_image rebuild driver version``, words;
``headers_mirror``, an address or empty; ``modules`` (names) and ``make_args`` (``NAME=value``), lists of words. Where
the source is, by what ``spec.source`` names:

==========  =============================================================================================
configMap   the files are in the context, below ``source/``
image       ``source_image`` (by digest), ``source_path`` (absolute)
git         ``source_git`` (URL), ``source_commit`` (full hash), ``source_path`` (relative, or empty)
archive     ``source_archive`` (URL), ``source_sha256``, ``source_path`` (relative, or empty)
package     ``source_package``, ``source_version`` (or None)
==========  =============================================================================================

Variables of other kinds are None. A template that does not mention ``source_git`` is not asked to build from git, and
so on: the build fails with a word about it before it starts. A tree with a ``dkms.conf`` is built by dkms.
"""

import hashlib
import io
import sys
import tarfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path, PurePosixPath

import jinja2
import jinja2.meta

from driver_builder.build import BuildRequest, SourceFiles
from driver_builder.errors import BuildFailed, BuildFailure, ConfigurationError
from driver_builder.template_values import modules_text, source_files, template_name, template_values

BUILD_STAGE = "build"
FACTS_FOLDER = "/facts"
SUFFIX = ".Dockerfile.j2"

_FOLDER = Path("dockerfiles", "driver")
_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.DictLoader({}),
    undefined=jinja2.StrictUndefined,
    autoescape=False,  # noqa: S701  # a Dockerfile is no HTML; template_values lets nothing through that needs escaping
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def templates_directory(given: Path | None = None) -> Path:
    """The folder of the templates: the one given, else that of this checkout, else the installed one.

    Raises:
        ConfigurationError: when there is none; names the places that were looked at.
    """
    checkout = Path(__file__).parent.parent / _FOLDER
    candidates = [given] if given else [checkout, Path(sys.prefix, "share", "driverwright", _FOLDER)]
    for candidate in candidates:
        if any(candidate.glob(f"*{SUFFIX}")):
            return candidate
    places = " and ".join(str(candidate) for candidate in candidates)
    raise ConfigurationError(f"there is no template NAME{SUFFIX} in {places}; give their folder with --templates")


def recipe_digests(given: Path | None = None) -> dict[str, str]:
    """Each template's name, with the digest of all that this program adds to a build: the template and the loader."""
    loader = _loader()
    return {
        path.name.removesuffix(SUFFIX): hashlib.sha256(path.read_bytes() + b"\0" + loader).hexdigest()
        for path in sorted(templates_directory(given).glob(f"*{SUFFIX}"))
    }


def render(request: BuildRequest, directory: Path) -> str:
    """The Dockerfile of a request.

    Raises:
        BuildFailed: TEMPLATE_INVALID, when there is no such template, it has an error, or a value may not stand in it.
    """
    name = template_name(request)
    values = template_values(request)
    path = directory / f"{name}{SUFFIX}"
    try:
        text = path.read_text()
        _check_source_is_known(values, _ENVIRONMENT.parse(text), path.name)
        return _ENVIRONMENT.from_string(text).render(values)
    except FileNotFoundError as error:
        known = ", ".join(sorted(found.name.removesuffix(SUFFIX) for found in directory.glob(f"*{SUFFIX}")))
        raise _invalid(f"there is no template {name!r}; known: {known or 'none'}") from error
    except (jinja2.TemplateError, TypeError, ValueError) as error:
        # An expression in a template may also fail as Python does, and a file may be no text.
        raise _invalid(f"template {path.name} cannot be rendered: {error}") from error


def _check_source_is_known(values: Mapping[str, object], template: jinja2.nodes.Template, file: str) -> None:
    """Refuse a template that would leave the source out, because it was written for sources of other kinds."""
    known = jinja2.meta.find_undeclared_variables(template)
    for name in ("source_git", "source_archive", "source_package"):
        if values[name] is not None and name not in known:
            kind = name.removeprefix("source_")
            raise _invalid(f"template {file} cannot build from spec.source.{kind}: it does not mention {name}")


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
