"""The mounted file with MIG layouts: what it asks for under one key. What is wrong with it is an error text."""

import errno
import os

from device_agent.errors import ConfigurationError
from device_agent.mig.parse import LONGEST_FILE, parse_layouts
from device_agent.mig.values import Layouts
from device_agent.regular_file import read_regular

FILE_NAME = "config.yaml"
"""As the ConfigMap of NVIDIA's MIG manager has it."""

_TRIES = 3


def read_layouts(folder: str, key: str) -> Layouts:
    """Read what the file in a folder asks for under a key; empty: there is no folder. It waits for the disk."""
    if not folder:
        return Layouts(key=key, error="there is no file of MIG layouts: set --mig-config")
    path = os.path.join(folder, FILE_NAME)  # noqa: PTH118 - pathlib would cost the resident process 1 MiB
    try:
        return Layouts(key=key, entries=parse_layouts(_read(path), path, key))
    except ConfigurationError as error:
        return Layouts(key=key, error=str(error))


def _read(path: str) -> str:
    """Read the file.

    Raises:
        ConfigurationError: it cannot be read.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            # What is not UTF-8 is not YAML either, and the parser says so.
            return read_regular(path, LONGEST_FILE).decode(errors="surrogateescape")
        except OSError as error:
            # The kubelet removes the folder of a version as soon as there is the next one.
            if error.errno != errno.ENOENT or not tries_left:
                why = error.strerror if error.errno != errno.ENOENT else "it does not exist; is the ConfigMap there?"
                raise ConfigurationError(f"cannot read {path}: {why}") from error
    raise AssertionError
