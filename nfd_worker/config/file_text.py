"""The configuration file before anybody knows YAML: reading it, and whether it says anything at all.

Between :mod:`nfd_worker.config.config` and :mod:`nfd_worker.config.config_file`, which is imported only for a file that
has settings: PyYAML costs the start of the worker as much CPU as all of its sources.
"""

import os

from nfd_worker.config.options import Values
from nfd_worker.errors import ConfigurationError, UnfitFileError
from nfd_worker.guarded_file import MAX_YAML_FILE, read_regular


def read_file(path: str, *, must_exist: bool) -> Values:
    """Read a configuration file; one that need not exist and does not sets nothing, and neither does /dev/null.

    Raises:
        ConfigurationError: as :func:`parse_text`, and when it cannot be read.
    """
    if path == os.devnull:
        return {}
    try:
        text = read_regular(path, MAX_YAML_FILE).decode()
    except FileNotFoundError as error:
        if must_exist:
            raise ConfigurationError(f"there is no configuration file {path}") from error
        return {}
    except (OSError, UnfitFileError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read the configuration file {path}: {error}") from error
    return parse_text(text, path)


def parse_text(text: str, path: str) -> Values:
    """Read the text of a configuration file, which may be nothing but comments; ``path`` is for messages.

    Raises:
        ConfigurationError: as :func:`nfd_worker.config.config_file.parse_file`.
    """
    if all(line.strip()[:1] in ("", "#") for line in text.split("\n")):
        return {}
    from nfd_worker.config.config_file import parse_file  # noqa: PLC0415 - see above

    return parse_file(text, path)
