"""The archive that ``doctor --report`` writes: its files, redacted and bounded. Pure."""

import gzip
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from driver_builder.base import check_result
from driver_builder.base.check_result import CheckResult, Status, summary
from driver_builder.checks.finding import Unread
from driver_builder.checks.redaction import Redact, redacted
from kube_api.timestamps import timestamp

MAX_FILE = 16 << 20
"""Bytes of one file; of a list, the objects that do not fit are counted."""
MAX_ARCHIVE = 128 << 20
"""Bytes of all files; those that do not fit are named in README.txt."""

_COLUMN, _CHECKS = max(len(status) for status in Status), len("definitions")
NAMES = {"check": "check", "status": "verdict", "message": "found", "remedy": "remedy"}
"""The fields of a finding, and how programs read them."""
_ABOUT = """\
Report of driver-builder doctor {version}, {time}.

It has no Secrets. Passwords, tokens and values of variables are replaced by ***; text that looks like one, too.
Read it before you send it: names of nodes, namespaces, images and hosts are in it.

"""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file of the archive."""

    name: str
    content: bytes


def document_file(name: str, data: Any, redact: Redact, *, hides_variables: bool = True) -> File:
    """Make a file of plain data; see :func:`redacted`."""
    return File(name=name, content=_json(redacted(data, redact, hides_variables=hides_variables)))


def list_file(name: str, items: Iterable[Any], redact: Redact) -> File:
    """Make a file of objects, as many as fit."""
    kept: list[bytes] = []
    size, every = 0, tuple(items)
    for item in every:
        text = _json(redacted(item, redact))
        size += len(text)
        if size > MAX_FILE:
            break
        kept.append(text)
    omitted = len(every) - len(kept)
    return File(name=name, content=b'{"omitted": %d, "items": [\n' % omitted + b",\n".join(kept) + b"\n]}\n")


def text_file(name: str, text: str, redact: Redact) -> File:
    """Make a file of lines, of which the last ones are kept."""
    content = "".join(f"{redact(line)}\n" for line in text.splitlines()).encode(errors="replace")
    return File(name=name, content=content[-MAX_FILE:])


def findings_files(findings: Iterable[CheckResult], redact: Redact) -> tuple[File, File]:
    """Make the files of the findings, for people and for programs."""
    every = tuple(findings)
    text = "\n".join((*(line for finding in every for line in lines(finding)), "", summary(every)))
    return (
        text_file("findings.txt", text, redact),
        document_file("findings.json", [finding.as_document(NAMES) for finding in every], redact),
    )


def lines(finding: CheckResult, width: int = 0) -> list[str]:
    """Write a finding for people; with a ``width`` folded to it."""
    head = f"{finding.status:<{_COLUMN}}  {finding.check:<{_CHECKS}}  "
    return check_result.lines(head, finding, width=width)


def archive(files: Iterable[File], unread: Mapping[str, Unread], *, version: str, now: float) -> bytes:
    """Pack files into a ``.tar.gz``, with a README.txt of what is in it and what could not be read."""
    time = timestamp(now)
    kept: list[File] = []
    size, about = 0, [_ABOUT.format(version=version, time=time)]
    for file in files:
        fits = size + len(file.content) <= MAX_ARCHIVE
        about.append(f"{file.name}: {len(file.content)} bytes{'' if fits else ', left out: the report is full'}\n")
        if fits:
            kept.append(file)
            size += len(file.content)
    about += [f"{name}: not read: {why.message}\n" for name, why in unread.items()]
    packed = io.BytesIO()
    folder = f"driverwright-report-{time.replace(':', '')}"
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for file in (File(name="README.txt", content="".join(about).encode(errors="replace")), *kept):
            entry = tarfile.TarInfo(f"{folder}/{file.name}")
            entry.size, entry.mode, entry.mtime = len(file.content), 0o600, int(now)
            tar.addfile(entry, io.BytesIO(file.content))
    return packed.getvalue()


def _json(data: Any) -> bytes:
    return json.dumps(data, indent=1, sort_keys=True, default=str).encode(errors="replace")
