"""Reads YAML of ours by libyaml, where PyYAML has it: ten times as fast, and some files are long."""

from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(text: str) -> Any:
    """Read the only document of a text."""
    return yaml.load(text, _LOADER)  # noqa: S506 - a safe one


def read_documents(text: str) -> list[Any]:
    """Read all documents of a text that are not empty."""
    return [document for document in yaml.load_all(text, _LOADER) if document]
