"""A mounted folder of profiles: each file is a key. Which key counts is decided by :func:`choose`, which is pure."""

import errno
import os
import re
import stat
from collections.abc import Collection

from device_agent.config.yaml_file import read_regular
from device_agent.errors import ConfigurationError, ProfileRefused
from kube_api.text import first_few, quoted

MOST_PROFILES = 64
DEFAULT_KEY = "default"
LABEL = "nvidia.com/device-plugin.config"

_KEY = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,252}")
"""As keys of ConfigMaps are; names with a dot in front are the kubelet's own."""
_DATA = "..data"
"""A link of the kubelet's: to the folder with all keys of one version."""
_MOST_NAMED = 20
_TRIES = 3
_LONGEST_CONFIG_MAP = 1 << 20
"""Bytes of all keys. The parser has a smaller limit for each, which it names."""


def read_profiles(folder: str) -> dict[str, str]:
    """Read the text of each key.

    Raises:
        ConfigurationError: the folder cannot be read, or has too many keys.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            return _read(folder)
        except OSError as error:
            # The kubelet removes the folder of a version as soon as there is the next one.
            if error.errno != errno.ENOENT or not tries_left:
                raise ConfigurationError(f"cannot read the profiles in {folder}: {error.strerror}") from error
    raise AssertionError


def choose(keys: Collection[str], asked: str, default: str = "") -> str:
    """Return the key that counts: that of the label, else of ``--default-profile``, else ``default``.

    Raises:
        ProfileRefused: there is no such key; the message names those that there are.
    """
    wishes = ((f"by the label {LABEL}", asked), ("by --default-profile", default), ("by default", DEFAULT_KEY))
    by, key = next((by, key) for by, key in wishes if key)
    if key in keys:
        return key
    there = first_few(sorted(keys), _MOST_NAMED) or "none"
    raise ProfileRefused(f"there is no profile {quoted(key, 100)}, which is asked for {by}: there are {there}")


def _read(folder: str) -> dict[str, str]:
    data = os.path.join(folder, _DATA)  # noqa: PTH118 - pathlib would cost the resident process 1 MiB
    place = os.path.realpath(data) if os.path.lexists(data) else folder
    names = sorted(name for name in os.listdir(place) if _KEY.fullmatch(name))  # noqa: PTH208 - as above
    if len(names) > MOST_PROFILES:
        raise ConfigurationError(f"{folder} has {len(names)} files: at most {MOST_PROFILES} profiles are read")
    paths = {name: os.path.join(place, name) for name in names}  # noqa: PTH118 - as above
    found = {path: os.stat(path) for path in paths.values()}  # noqa: PTH116 - as above
    files = {name: path for name, path in paths.items() if stat.S_ISREG(found[path].st_mode)}
    if sum(found[path].st_size for path in files.values()) > _LONGEST_CONFIG_MAP:
        raise ConfigurationError(f"the profiles in {folder} are longer than {_LONGEST_CONFIG_MAP} bytes")
    return {name: _text(path) for name, path in files.items()}


def _text(path: str) -> str:
    """Read a key. What is not UTF-8 is not YAML either, and the parser says so of this key alone."""
    return read_regular(path, _LONGEST_CONFIG_MAP).decode(errors="surrogateescape")
