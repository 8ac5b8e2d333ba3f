"""Reads manifests with their line numbers, for ``lint``. No cluster, and no files other than those named."""

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, TextIO

import yaml

from driver_builder.api.spec_reader import Path, dotted
from driver_builder.base.check_result import CheckResult, Remark, Status
from driver_builder.base.errors import ConfigurationError

STDIN = "-"
SUFFIXES = frozenset({".json", ".yaml", ".yml"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FileResult(CheckResult):
    """What is wrong at a line of a file; ``driver`` and ``check``, its field, are empty for the file itself."""

    file: str
    line: int
    driver: str = ""

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.file}:{self.line}"

    @property
    def sentence(self) -> str:
        """The message, after the field."""
        return f"{self.check}: {self.message}" if self.check else self.message


def _unreadable(file: str, line: int, message: str) -> FileResult:
    """Report from where on a file is not YAML, or where it has a key twice."""
    return FileResult(file=file, line=line, check="", status=Status.FAILED, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One YAML document of a file: its value, and its tree, whose nodes have line numbers."""

    file: str
    value: Any
    node: yaml.Node

    def line(self, path: Path) -> int:
        """Return the line of a field, or of the nearest part above it that is written, counted from one."""
        node, line = self.node, self.node.start_mark.line
        for part in path:
            found = _step(node, part)
            if found is None:
                break
            node, line = found
        return int(line) + 1

    def result(self, place: Path, remark: Remark, driver: str) -> FileResult:
        """Return what is said of a field of the object at ``place``."""
        return FileResult(
            file=self.file,
            line=self.line((*place, *remark.path)),
            driver=driver,
            check=dotted(remark.path),
            status=remark.status,
            message=remark.message,
        )


MAX_SIZE = 16 << 20
"""Characters of a file."""
MAX_EXPANDED = 1_000_000
"""Values that one document may have once its aliases are written out."""


def read_documents(names: Iterable[str]) -> Iterator[Document | FileResult]:
    """Read files, all manifests of folders, and standard input by the name of ``-``.

    Raises:
        ConfigurationError: when a file or folder cannot be opened, or is too long.
    """
    for name in names:
        if name == STDIN:
            yield from parse_documents("<stdin>", _bounded("<stdin>", sys.stdin))
            continue
        for path in _files(FilePath(name)):
            yield from parse_documents(str(path), _read(path))


def parse_documents(file: str, text: str) -> Iterator[Document | FileResult]:
    """Read the documents of one text, up to the first place that is not YAML."""
    try:
        loader = yaml.SafeLoader(text)
        while loader.check_node():
            node = loader.get_node()
            if node is None:
                continue
            if _expanded(node, {}) > MAX_EXPANDED:
                line = node.start_mark.line + 1
                yield _unreadable(file, line, "is too large: its aliases stand for too many values")
                continue
            # Before it is constructed, for that resolves merge keys in place.
            yield from _repeated(file, node)
            yield Document(file=file, value=loader.construct_document(node), node=node)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        yield _unreadable(file, line, f"is not YAML: {error.problem}")
    # Of an escape that is too large a number, PyYAML lets the error of chr() pass.
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        yield _unreadable(file, 1, f"is not YAML: {error}")
    except RecursionError:
        yield _unreadable(file, 1, "is nested too deeply")


def _read(path: FilePath) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            return _bounded(str(path), file)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error


def _bounded(name: str, file: TextIO) -> str:
    text = file.read(MAX_SIZE + 1)
    if len(text) > MAX_SIZE:
        raise ConfigurationError(f"{name} has more than {MAX_SIZE} characters: split it")
    return text


def read_text(path: FilePath) -> str:
    """Read a file.

    Raises:
        ConfigurationError: when it cannot be read as UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error


def _files(path: FilePath) -> list[FilePath]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())


def _step(node: yaml.Node, part: str | int) -> tuple[yaml.Node, int] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(part):
                return value, key.start_mark.line
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part].start_mark.line
    return None


def _expanded(node: yaml.Node, known: dict[int, float]) -> float:
    """Count the values of a node with its aliases written out; one that contains itself has no end."""
    if id(node) not in known:
        known[id(node)] = math.inf
        parts = node.value if isinstance(node, yaml.SequenceNode) else ()
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in node.value for part in pair]
        known[id(node)] = 1 + sum(_expanded(part, known) for part in parts)
    return known[id(node)]


def _repeated(file: str, node: yaml.Node) -> Iterator[FileResult]:
    """Find keys that occur twice in an object; the parser would silently take the last."""
    waiting, visited = [node], set()
    while waiting:
        node = waiting.pop()
        if id(node) in visited:
            continue
        visited.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        if isinstance(node, yaml.MappingNode):
            known: set[str] = set()
            for key, value in node.value:
                waiting.append(value)
                if isinstance(key, yaml.ScalarNode) and key.value in known:
                    message = f"{key.value!r} is a duplicate key: remove one of the two"
                    yield _unreadable(file, key.start_mark.line + 1, message)
                known.add(str(key.value))
