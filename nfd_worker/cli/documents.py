"""Documents that a command is given: files or standard input, JSON or YAML, none of them longer than its limit.

Who runs a command names the file: unlike what lies on a node it may be a pipe, as ``<(...)`` of a shell is one.
"""

import json
import sys

import yaml

from nfd_worker.errors import ConfigurationError
from nfd_worker.guarded_file import read_descriptor

STANDARD_INPUT = "-"
MAX_DOCUMENT = 1 << 22
"""Bytes of features or labels; what ``nfd-worker scan --features`` prints has some 100 KiB."""


def shown(file: str) -> str:
    """Name a file in messages."""
    return "standard input" if file == STANDARD_INPUT else file


def read_text(file: str, max_bytes: int) -> str:
    """Read a whole file, or standard input for ``-``.

    Raises:
        ConfigurationError: when it cannot be read, is not UTF-8, or has more than ``max_bytes``.
    """
    try:
        content = _read(file, max_bytes)
        if len(content) > max_bytes:
            raise ConfigurationError(f"cannot read {shown(file)}: it has more than {max_bytes} bytes; split it")
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(f"cannot read {shown(file)}: {reason}") from error


def _read(file: str, max_bytes: int) -> bytes:
    """Read to the end, or somewhat beyond ``max_bytes``."""
    if file == STANDARD_INPUT:
        return sys.stdin.buffer.read(max_bytes + 1)
    with open(file, "rb") as opened:  # noqa: PTH123 - as everywhere in this package
        return read_descriptor(opened.fileno(), max_bytes)


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
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise ConfigurationError(f"{file} is neither JSON nor YAML: {error}") from error
