"""Documents that a command is given: files or standard input, JSON or YAML."""

import json
import sys

import yaml

from nfd_worker.errors import ConfigurationError

STANDARD_INPUT = "-"


def shown(file: str) -> str:
    """Name a file in messages."""
    return "standard input" if file == STANDARD_INPUT else file


def read_text(file: str) -> str:
    """Read a whole file, or standard input for ``-``.

    Raises:
        ConfigurationError: when it cannot be read or is not UTF-8.
    """
    try:
        if file == STANDARD_INPUT:
            return sys.stdin.read()
        with open(file, encoding="utf-8") as opened:  # noqa: PTH123 - as everywhere in this package
            return opened.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(f"cannot read {shown(file)}: {reason}") from error


def parse_document(text: str, file: str) -> object:
    """Read JSON or YAML; JSON first, because features with a kernel's whole configuration take YAML seconds.

    Raises:
        ConfigurationError: when it is neither.
    """
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{file} is neither JSON nor YAML: {error}") from error
