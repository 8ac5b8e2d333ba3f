"""What was tested: records of the parts that tests ran on, as those parts told them, and the tables made from these.

A test that passes leaves what it ran on in its JUnit file (``tests.recording``). ``make records`` merges the files of
the last run into ``tests/data/tested.yaml``, and writes the tables of the pages between marks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import yaml

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests/data/tested.yaml"
PROPERTY = "tested on "
"""What the names of properties in a JUnit file begin with; the part follows. The value is YAML."""

_HEAD = """\
# What tests ran on, as the running parts told it, and when each file of tests passed on it last.
# Written by make records from the results of test runs: not by hand.
"""
_MARKS = re.compile(r"(<!-- tested: ([\w ]+), by make records -->\n).*?(<!-- end -->)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Found:
    """A part that tests ran on: its kind, and what it told of itself, by field."""

    part: str
    told: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, part: str, told: Mapping[str, str]) -> Found:
        """Make it of fields by name, in their order."""
        return cls(part, tuple(told.items()))

    def __getitem__(self, field: str) -> str:
        """Return what it told of a field; empty if nothing."""
        return dict(self.told).get(field, "")

    @property
    def line(self) -> tuple[str, ...]:
        """The release line that it is of: two parts of one line differ in what comes after the minor version."""
        return (self.part, *(f"{name} {minor(text)}" for name, text in self.told))


Records = dict[Found, dict[str, str]]
"""Part -> file of tests -> date (ISO 8601) on which it passed there last."""


def minor(text: str) -> str:
    """Cut each version in a text behind its minor number: ``containerd 1.6.20`` is of ``containerd 1.6``."""
    return re.sub(r"(?<![\w.])(\d+\.\d+)[\w.+~-]*", r"\1", text)


def parse(text: str) -> Records:
    """Read what `dump` wrote."""
    return {Found.of(one["part"], one["found"]): dict(one["shown"]) for one in yaml.safe_load(text) or []}


def dump(records: Records) -> str:
    """Write records, in an order that does not depend on theirs."""
    listed = [
        {"part": found.part, "found": dict(found.told), "shown": dict(sorted(shown.items()))}
        for found, shown in sorted(records.items(), key=lambda item: (item[0].part, item[0].told))
    ]
    return _HEAD + yaml.safe_dump(listed, sort_keys=False, width=120, allow_unicode=True)


def of_junit(text: str) -> Records:
    """Read what the tests of a JUnit file ran on.

    A file of tests in which anything failed shows nothing, and neither does a test that was skipped.
    """
    records: Records = defaultdict(dict)
    for suite in ElementTree.fromstring(text).iter("testsuite"):  # noqa: S314 - our own file
        date = suite.get("timestamp", "")[:10]
        cases = [(f"{case.get('classname', '').replace('.', '/')}.py", case) for case in suite.iter("testcase")]
        failed = {file for file, case in cases if {"failure", "error"} & {child.tag for child in case}}
        for file, case in cases:
            for part, value in _properties(case):
                if file not in failed:
                    records[Found.of(part, yaml.safe_load(value))][file] = date
    return dict(records)


def _properties(case: ElementTree.Element) -> Iterator[tuple[str, str]]:
    for one in case.iter("property"):
        name = one.get("name", "")
        if name.startswith(PROPERTY):
            yield name.removeprefix(PROPERTY), one.get("value", "")


def merge(old: Records, new: Records) -> Records:
    """Add the records of a run: of a file and a release line only the parts of its last run remain."""
    again = {(found.line, file) for found, shown in new.items() for file in shown}
    merged: Records = defaultdict(dict)
    for found, shown in old.items():
        merged[found] |= {file: date for file, date in shown.items() if (found.line, file) not in again}
    for found, shown in new.items():
        merged[found] |= shown
    return {found: shown for found, shown in merged.items() if shown}


# ------------------------------------------------------------------ tables

SUMMARY = "summary"
TABLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "API servers": ("API server", ("Kubernetes",)),
    "nodes": ("node", ("Kubernetes", "system", "kernel", "runtime")),
    "kernels": ("kernel", ("kernel",)),
    "engines": ("engine", ("engine", "API", "storage")),
    "builders": ("builder", ("builder", "base")),
    "newer rules": ("rules", ("rules", "Kubernetes", "package")),
    "kubectls": ("kubectl", ("kubectl",)),
    "machines": ("machine", ("system", "kernel", "control groups")),
}
"""Table -> the part that it has a row of for each record, and its columns: fields of that part."""

_SUMMARY = (
    ("API server", "API server", "Kubernetes", "Kubernetes "),
    ("node", "node", "system", ""),
    ("node's kernel", "node", "kernel", ""),
    ("node's runtime", "node", "runtime", ""),
    ("kernel without a node", "kernel", "kernel", ""),
    ("engine", "engine", "engine", ""),
    ("builder in Jobs", "builder", "builder", ""),
    ("machine around", "machine", "system", ""),
)
"""Rows of the summary: what is written, part, field, and what stands before its versions."""


def table(records: Records, name: str) -> str:
    """Return a table of the pages: a row for each part, the newest versions first.

    Raises:
        KeyError: there is no such table.
    """
    if name == SUMMARY:
        return _lines(("what", "recorded", "last"), list(_summary(records)))
    part, columns = TABLES[name]
    of_part = [(found, shown) for found, shown in records.items() if found.part == part]
    rows = [(*(found[column] or "-" for column in columns), *_shown(shown)) for found, shown in of_part]
    rows.sort(key=lambda row: [version_key(cell) for cell in row], reverse=True)
    return _lines((*columns, "shown by", "last"), rows)


def _summary(records: Records) -> Iterator[tuple[str, ...]]:
    for what, part, field, before in _SUMMARY:
        of_part = [(found, shown) for found, shown in records.items() if found.part == part and found[field]]
        texts = {found[field] if part == "API server" else minor(found[field]) for found, _ in of_part}
        if texts:
            last = max(date for _, shown in of_part for date in shown.values())
            yield what, before + ", ".join(sorted(texts, key=version_key, reverse=True)), last


def _lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def _shown(shown: Mapping[str, str]) -> tuple[str, str]:
    files = f"`{min(shown)}`" if len(shown) == 1 else f"{len(shown)} files of tests"
    return files, max(shown.values())


def version_key(text: str) -> list[tuple[int, str]]:
    """Order texts by the numbers in them: 6.2 comes before 6.12."""
    return [(int(word), "") if word.isdigit() else (-1, word) for word in re.findall(r"\d+|\D+", text)]


def with_tables(page: str, records: Records) -> str:
    """Return a page with each of its tables made anew."""
    return _MARKS.sub(lambda match: f"{match[1]}{table(records, match[2])}\n{match[3]}", page)


# ------------------------------------------------------------------ claims

_LISTED = r"((?:\d+\.\d+(?:, | and )?)+)"
_CLAIMS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "Kubernetes": (("API server", "Kubernetes", r"\b(\d+\.\d+(?:\.\d+)?)\b"),),
    "nodes": (("node", "system", r"\bDebian (\d+)\b"), ("node", "kernel", r"\b(\d+\.\d+)\b")),
    "builders": (
        ("builder", "builder", rf"\bbuildah {_LISTED}"),
        ("engine", "engine", rf"\bDocker Engine {_LISTED}"),
    ),
}
"""Row of a table -> (part, field, what a version looks like in its cell, or several of them)."""


def unproven(row: str, cell: str, records: Records) -> list[str]:
    """Return the versions that a cell names and no record has, as ``part field version``."""
    claims = [
        (part, field, version)
        for part, field, pattern in _CLAIMS[row]
        for text in re.findall(pattern, cell)
        for version in re.findall(r"\d+(?:\.\d+)*", text)
    ]
    return [f"{part} {field} {text}" for part, field, text in claims if not _has(records, part, field, text)]


def _has(records: Iterable[Found], part: str, field: str, version: str) -> bool:
    whole = re.compile(rf"(?<![\d.]){re.escape(version)}(?!\d)")
    return any(whole.search(found[field]) for found in records if found.part == part)
