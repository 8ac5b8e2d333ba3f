"""A mounted folder of profiles: each file is a key. Which key counts is decided by :func:`choose`, which is pure."""

import errno
import os
import re
import stat
from collections.abc import Collection, Mapping
from typing import NamedTuple

from device_agent.errors import ConfigurationError, ProfileRefused
from device_agent.regular_file import read_regular
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
_GONE = os.strerror(errno.ENOENT)
_LONGEST_CONFIG_MAP = 1 << 20
"""Bytes of all keys. The parser has a smaller limit for each, which it names."""


class Texts(NamedTuple):
    """What a folder has by key: texts, and why one cannot be read."""

    good: Mapping[str, str]
    bad: Mapping[str, str]

    @property
    def keys(self) -> tuple[str, ...]:
        """Return all keys, sorted."""
        return tuple(sorted((*self.good, *self.bad)))

    def text(self, key: str) -> str:
        """Return the text of a key that is there.

        Raises:
            ProfileRefused: it cannot be read.
        """
        if key in self.bad:
            raise ProfileRefused(f"profile {key} cannot be read: {self.bad[key]}")
        return self.good[key]


def read_profiles(folder: str) -> Texts:
    """Read the text of each key.

    Raises:
        ConfigurationError: the folder cannot be read, or has too many keys.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            texts = _read(folder)
        except OSError as error:
            if error.errno != errno.ENOENT or not tries_left:
                raise ConfigurationError(f"cannot read the profiles in {folder}: {error.strerror}") from error
        else:
            # The kubelet removes the folder of a version as soon as there is the next one.
            if _GONE not in texts.bad.values() or not tries_left:
                return texts
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


def _read(folder: str) -> Texts:
    data = os.path.join(folder, _DATA)  # noqa: PTH118 - pathlib would cost the resident process 1 MiB
    place = os.path.realpath(data) if os.path.lexists(data) else folder
    names = sorted(name for name in os.listdir(place) if _KEY.fullmatch(name))  # noqa: PTH208 - as above
    if len(names) > MOST_PROFILES:
        raise ConfigurationError(f"{folder} has {len(names)} files: at most {MOST_PROFILES} profiles are read")
    good: dict[str, str] = {}
    bad: dict[str, str] = {}
    left = _LONGEST_CONFIG_MAP
    for name in names:
        path = os.path.join(place, name)  # noqa: PTH118 - as above
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - as above
                continue
            content = read_regular(path, left)
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise ConfigurationError(
                    f"the profiles in {folder} are longer than {_LONGEST_CONFIG_MAP} bytes"
                ) from error
            bad[name] = error.strerror or str(error)
        else:
            left -= len(content)
            # What is not UTF-8 is not YAML either, and the parser says so of this key alone.
            good[name] = content.decode(errors="surrogateescape")
    return Texts(good, bad)
