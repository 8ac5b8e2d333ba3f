"""Renders one template: text and checked values in, a Dockerfile or an error out. Pure.

Place in the flow: ``templates`` calls :func:`rendered` for our own templates. For a custom template,
``template_process`` runs this file as a program: it limits itself, reads one JSON object and writes one. It imports
nothing of ours, so that the program starts fast, and it gets neither an environment nor an open file.

All templates are rendered in a sandbox, where an expression reaches neither files nor Python. The sandbox bounds the
output only: time and memory are bounded by the limits of the program.
"""

import json
import re
import resource
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

import jinja2
import jinja2.meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_DOCKERFILE = 1 << 20
"""Characters. Our largest template makes about 10,000."""
PARTS = "parts"
MAX_KEPT = 64
"""Texts that are parsed and compiled only once; of ours there are about thirty."""

_SURROGATE = re.compile("[\ud800-\udfff]")


class _Sandbox(ImmutableSandboxedEnvironment):
    """Compiles each text once: a driver is rendered for many targets."""

    def compile(self, source: Any, name: str | None = None, filename: str | None = None, **_: Any) -> CodeType:  # type: ignore[override]
        return _compiled(source, name, filename)


_ENVIRONMENT = _Sandbox(
    undefined=jinja2.StrictUndefined,
    autoescape=False,  # a Dockerfile is not HTML; template_values lets nothing through that needs escaping
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ERRORS = (
    jinja2.TemplateError,
    *(ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError),
)
"""What an expression in a template may raise: Jinja's errors, and those of Python."""


@lru_cache(maxsize=MAX_KEPT)
def _compiled(text: str, name: str | None, filename: str | None) -> CodeType:
    return ImmutableSandboxedEnvironment.compile(_ENVIRONMENT, text, name, filename)


class TemplateInvalid(Exception):
    """A template cannot be rendered. The message names the template, and the line if it is known."""


def rendered(place: str, values: Mapping[str, object], loader: jinja2.BaseLoader) -> str:
    """The Dockerfile of the template that ``loader`` knows as ``place``.

    Raises:
        TemplateInvalid: the template has an error, leaves out what the spec has, or makes too much.
    """
    environment = _ENVIRONMENT.overlay(loader=loader)
    try:
        text = loader.get_source(environment, place)[0]
        _check_all_is_used(values, _mentioned(environment, loader, text), place)
        return _limited(environment.from_string(text).generate(values), place)
    except _ERRORS as error:
        raise TemplateInvalid(f"template {_where(error, place)} cannot be rendered: {_why(error, values)}") from error


def mentioned(text: str) -> Set[str]:
    """The variables in a custom template.

    Raises:
        TemplateInvalid: it does not parse.
    """
    try:
        return _parsed(text, None)[0]
    except _ERRORS as error:
        raise TemplateInvalid(str(error)) from error


def _mentioned(
    environment: jinja2.Environment, loader: jinja2.BaseLoader, text: str, name: str | None = None
) -> Set[str]:
    """The variables in a template and in its parts; a missing part is reported by rendering, with its line."""
    found, parts = _parsed(text, name)
    for part in parts:
        with suppress(jinja2.TemplateNotFound):
            found |= _mentioned(environment, loader, loader.get_source(environment, part)[0], part)
    return found


@lru_cache(maxsize=MAX_KEPT)
def _parsed(text: str, name: str | None) -> tuple[Set[str], Sequence[str]]:
    """The variables in one text, and the parts that it includes."""
    tree = _ENVIRONMENT.parse(text, name)
    parts = [part for part in jinja2.meta.find_referenced_templates(tree) if part is not None]
    return frozenset(jinja2.meta.find_undeclared_variables(tree)), parts


def _check_all_is_used(values: Mapping[str, object], mentioned: Set[str], place: str) -> None:
    """Refuse a template that would silently leave out source, packages, firmware or user space."""
    for name in ("source_git", "source_archive", "source_package"):
        if values[name] is not None and name not in mentioned:
            kind = name.removeprefix("source_")
            raise TemplateInvalid(f"template {place} cannot build from spec.source.{kind}: it does not mention {name}")
    for name in ("userspace_archive", "userspace_packages"):
        if values[name] is not None and name not in mentioned:
            raise TemplateInvalid(f"template {place} leaves out spec.userspace: it does not mention {name}")
    if values["build_packages"] and "build_packages" not in mentioned:
        raise TemplateInvalid(f"template {place} leaves out spec.build.packages: it does not mention build_packages")
    if values["firmware_path"] and "firmware_path" not in mentioned:
        raise TemplateInvalid(
            f"template {place} leaves out spec.module.firmwarePath: it does not mention firmware_path"
        )


def _limited(parts: Iterable[str], place: str) -> str:
    kept, size = [], 0
    for part in parts:
        kept.append(part)
        size += len(part)
        if size > MAX_DOCKERFILE:
            raise TemplateInvalid(f"template {place} renders to more than {MAX_DOCKERFILE} characters")
    text = "".join(kept)
    if _SURROGATE.search(text):
        raise TemplateInvalid(f"template {place} renders to a character that is not valid in UTF-8")
    return text


def _where(error: BaseException, place: str) -> str:
    """The template or part of an error, with its line if it is known."""
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
            return (
                f"it cannot include {error.name!r}: built-in templates include their own parts only, and others nothing"
            )
        case jinja2.TemplateSyntaxError():
            return error.message or "it is not a template"
        case MemoryError():
            return "it exceeds the memory limit of templates"
        case _:
            return str(error) or type(error).__name__


def _main(cpu_seconds: int, memory: int) -> None:
    """Render what is on standard input, under limits that nothing in this process can raise again."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    asked = json.load(sys.stdin)
    place = asked["place"]
    try:
        answer = {"text": rendered(place, asked["values"], jinja2.DictLoader({place: asked["text"]}))}
    except TemplateInvalid as error:
        answer = {"error": str(error)}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]))
