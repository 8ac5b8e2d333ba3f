"""Which packages an image has, with their versions, licences and files: Debian's, and those of Python.

Formats: the status and the lists of files of dpkg, Debian's machine-readable copyright files 1.0 (DEP 5), and Python's
core metadata with ``RECORD``. An image without dpkg has packages in ``/var/lib/dpkg/status.d``, a file for each, as
distroless images have them.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from email.parser import HeaderParser
from enum import StrEnum
from posixpath import dirname, join, normpath

from driver_builder.archives.image_archive import ImageArchive

OS_RELEASE = "/usr/lib/os-release"
_STATUS = "/var/lib/dpkg/status"
_DOCUMENTS = re.compile(
    rf"{OS_RELEASE}|{_STATUS}|{_STATUS}\.d/[^/]+|/var/lib/dpkg/info/[^/]+\.list|/usr/share/doc/[^/]+/copyright"
    r"|/.+\.dist-info/(METADATA|RECORD)"
)
_REFERRED = re.compile(r"/usr/share/common-licenses/([A-Za-z0-9.+-]*[A-Za-z0-9+])")
_MERGED = re.compile(r"^/(?=(bin|sbin|lib|lib32|lib64|libx32)/)")


class Kind(StrEnum):
    """What a package is of, in the words of package URLs."""

    DEBIAN = "deb"
    PYTHON = "pypi"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """An installed package, with the ``source`` that it was built from.

    ``license_expression`` is SPDX's, where the package has one, ``licenses`` are words of its own.
    """

    kind: Kind
    name: str
    version: str
    architecture: str = ""
    source: str = ""
    license_expression: str = ""
    licenses: tuple[str, ...] = ()
    files: frozenset[str] = frozenset()


def read_documents(image: ImageArchive) -> dict[str, str]:
    """Read the files of an image that say what is installed, by their paths."""
    return {
        file.path: file.read().decode(errors="replace") for file in image.files("/") if _DOCUMENTS.fullmatch(file.path)
    }


def parse_packages(documents: Mapping[str, str]) -> tuple[Package, ...]:
    """Find the packages in the documents of an image, by kind and name. Pure."""
    found = (*_of_one_source(_debian(documents)), *_python(documents))
    return tuple(sorted(found, key=lambda package: (package.kind, package.name)))


def canonical(path: str) -> str:
    """Return the path of a file where ``/lib`` and the like are links into ``/usr``, as in Debian today. Pure."""
    return _MERGED.sub("/usr/", path)


def _debian(documents: Mapping[str, str]) -> Iterator[Package]:
    texts = [text for path, text in documents.items() if path == _STATUS or path.startswith(f"{_STATUS}.d/")]
    for fields in (fields for text in texts for fields in _paragraphs(text)):
        if not fields.get("Status", "").endswith(" installed"):
            continue
        name, architecture = fields["Package"], fields["Architecture"]
        lists = (documents.get(f"/var/lib/dpkg/info/{file}.list", "") for file in (name, f"{name}:{architecture}"))
        yield Package(
            kind=Kind.DEBIAN,
            name=name,
            version=fields["Version"],
            architecture=architecture,
            source=fields.get("Source", name).partition(" ")[0],
            licenses=parse_copyright(documents.get(f"/usr/share/doc/{name}/copyright", "")),
            files=frozenset(canonical(path) for text in lists for path in text.splitlines()),
        )


def _of_one_source(packages: Iterator[Package]) -> Iterator[Package]:
    """Give packages without licences those of their source: its documents may be links to another package's."""
    found = list(packages)
    of_source = {package.source: package.licenses for package in found if package.licenses}
    for package in found:
        yield replace(package, licenses=package.licenses or of_source.get(package.source, ()))


def parse_copyright(text: str) -> tuple[str, ...]:
    """Return the licences of a copyright file, each once: of one for people, those whose texts it refers to. Pure."""
    if not re.match(r"Format(-Specification)?:", text, re.IGNORECASE):
        return tuple(sorted(set(_REFERRED.findall(text))))
    words = (fields.get("License", "").strip() for fields in _paragraphs(text) if "Files" in fields)
    return tuple(sorted({word for word in words if word}))


def _paragraphs(text: str) -> Iterator[dict[str, str]]:
    """Read the first line of each field: what continues it is text for people, or a list."""
    for paragraph in re.split(r"\n\s*\n", text):
        fields = re.findall(r"^([A-Za-z][\w-]*):[ \t]*(.*)$", paragraph, re.MULTILINE)
        if fields:
            yield dict(fields)


def _python(documents: Mapping[str, str]) -> Iterator[Package]:
    for path, text in documents.items():
        if not path.endswith(".dist-info/METADATA"):
            continue
        fields = HeaderParser().parsestr(text)
        site = dirname(dirname(path))
        rows = csv.reader(documents.get(join(dirname(path), "RECORD"), "").splitlines())
        yield Package(
            kind=Kind.PYTHON,
            name=str(fields["Name"]),
            version=str(fields["Version"]),
            license_expression=str(fields.get("License-Expression", "")),
            licenses=_of_classifiers(fields.get_all("Classifier", [])) or _short(fields.get("License", "")),
            files=frozenset(normpath(join(site, row[0])) for row in rows if row),
        )


def _of_classifiers(classifiers: list[str]) -> tuple[str, ...]:
    found = [text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License :: ")]
    return tuple(text for text in found if text != "OSI Approved")


def _short(license_text: str) -> tuple[str, ...]:
    """Return the field's words, unless it has a whole licence."""
    words = license_text.strip()
    return (words,) if words and "\n" not in words and len(words) < 80 else ()
