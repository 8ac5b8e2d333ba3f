"""Sprig's functions on slash-separated paths."""

import posixpath

from feature_rules.go_template.functions.registry import Registry

REGISTRY = Registry()


def _clean(path: str) -> str:
    cleaned = posixpath.normpath(path)
    return "/" + cleaned.lstrip("/") if cleaned.startswith("//") else cleaned


def _base(path: str) -> str:
    if not path:
        return "."
    return path.rstrip("/").rpartition("/")[2] or "/"


def _directory(path: str) -> str:
    head, slash, _ = path.rpartition("/")
    return _clean(head + slash)


def _extension(path: str) -> str:
    name = path.rpartition("/")[2]
    return name[name.rfind(".") :] if "." in name else ""


REGISTRY.add("base osBase(string)", _base)
REGISTRY.add("dir osDir(string)", _directory)
REGISTRY.add("clean osClean(string)", _clean)
REGISTRY.add("ext osExt(string)", _extension)
REGISTRY.add("isAbs osIsAbs(string)", lambda path: path.startswith("/"))
