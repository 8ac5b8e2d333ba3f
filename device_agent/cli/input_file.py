"""Reads the files that commands are given."""

from device_agent.errors import ConfigurationError
from device_agent.regular_file import read_regular


def read_input(path: str, most: int) -> str:
    """Read a file of at most so many bytes; what is no UTF-8 in it is for its parser to refuse.

    Raises:
        ConfigurationError: it cannot be read.
    """
    try:
        return read_regular(path, most).decode(errors="surrogateescape")
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error
