"""From a build request to what an engine builds: a Dockerfile, and the tar that holds it with everything it copies.

Place in the flow: builders call :func:`render` once, then :func:`build_context`; ``plan`` takes
:func:`recipe_versions` into the build key.

What a template must do (``dockerfiles/driver/NAME.Dockerfile.j2``): a stage ``build`` leaves ``/out``, the root of the
driver image, and ``/facts/Module.symvers`` and ``/facts/compiler``; the last stage is ``FROM scratch`` and copies
``/out``. A stage ``headers`` may come before it, with nothing of a driver: its ``/facts``, with ``vermagic`` of an
empty module beside the others, tell whether modules of another kernel can be used, before anything is compiled.
Commands end with the codes that ``failures`` knows, after a line ``driverwright: ...`` that says why.
What templates have in common is in ``parts/NAME.j2`` beside them, which they include. A recipe is a template with its
parts. The first line of a template has the recipe's version, ``{# recipe: 1 #}``: whoever changes what a recipe makes
of the same source writes the next number, in each template that includes a changed part. The number is in the build
key, the text is not: other words and comments build no image again (docs/decisions/0041-recipe-versions.md).

Variables: ``kernel_version os_id os_version architecture base_image rebuild driver version``, words;
``headers_mirror``, an address or empty; ``firmware_path``, an absolute path of stage ``build`` or empty: its files go
to ``/out/firmware``; ``modules`` (names) and ``make_args`` (``NAME=value``), lists of words;
``copy_facts``, in a Job the command that ends stage ``build``, else None (``stages``). Where the source is, by
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
out of the cluster: it is rendered in a sandbox and in a process of its own with limits (``template_process``). It is
one text, and includes nothing: our parts may change with every version.
"""

import io
import re
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import jinja2

from driver_builder.errors import BuildFailed, ConfigurationError
from driver_builder.model.build import BuildRequest, SourceFiles
from driver_builder.reasons import Reason
from driver_builder.templates.stages import Variant, with_facts_copied
from driver_builder.templates.template_engine import TemplateInvalid, rendered
from driver_builder.templates.template_process import render_own
from driver_builder.templates.template_values import modules_text, source_files, template_name, template_values

SUFFIX = ".Dockerfile.j2"

_RECIPE = re.compile(r"\{#-?\s*recipe:\s*([1-9][0-9]{0,8})\s*-?#\}")


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
    raise ConfigurationError(f"there is no template NAME{SUFFIX} in {places}; set their folder with --templates")


def recipe_versions(given: Path | None = None) -> dict[str, str]:
    """Each template's name, with the version of its recipe as build keys have it: name and number.

    Raises:
        ConfigurationError: when a template does not say its number.
    """
    found = sorted(templates_directory(given).glob(f"*{SUFFIX}"))
    return {(name := path.name.removesuffix(SUFFIX)): f"{name}:{_recipe_number(path)}" for path in found}


def _recipe_number(path: Path) -> int:
    with path.open(encoding="utf-8", errors="replace") as file:
        match = _RECIPE.match(file.readline(80))
    if match is None:
        raise ConfigurationError(f"template {path} has no version: write {{# recipe: 1 #}} in its first line")
    return int(match[1])


def render(request: BuildRequest, directory: Path, variant: Variant = Variant.ENGINE) -> str:
    """The Dockerfile of a request, as an engine builds it or as a Job does.

    Raises:
        BuildFailed: TEMPLATE_INVALID, when there is no such template, it has an error, or a value may not stand in it.
            An error names the line.
        TemporaryError: no process can be started to render a template of the admin's own.
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


def build_context(request: BuildRequest, dockerfile: str) -> bytes:
    """The tar that ``dockerfile`` is built from: itself, ``modules`` and the files below ``source/``.

    Equal requests give equal bytes, so the engine finds in its cache what it has built before.

    Raises:
        BuildFailed: TEMPLATE_INVALID, when a file or a parameter may not stand in it.
    """
    content = {
        "Dockerfile": dockerfile.encode(),
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


def _invalid(message: str) -> BuildFailed:
    return BuildFailed(Reason.TEMPLATE_INVALID, message)
