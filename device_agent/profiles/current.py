"""The profile that counts: of the key that is asked for, as the folder has it now."""

from typing import NamedTuple

from device_agent.errors import ConfigurationError, ProfileRefused
from device_agent.profiles.folder import DEFAULT_KEY, choose, read_profiles
from device_agent.profiles.parse import parse_profile
from device_agent.profiles.profile import Profile
from kube_api.text import printable


class Current(NamedTuple):
    """What is asked for. ``profile``: None where it cannot be had; ``error`` says why."""

    key: str
    profile: Profile | None = None
    error: str = ""


class ProfileFolder:
    """A folder of profiles. ``default``: the key that counts where none is asked for."""

    def __init__(self, folder: str, default: str) -> None:
        self._folder = folder
        self._default = default
        self._text = ""
        self._parsed: Current | None = None

    def read(self, asked: str) -> Current:
        """Read the folder; a text is parsed once. It waits for the disk; in one thread at a time."""
        key = printable(asked or self._default or DEFAULT_KEY)
        try:
            texts = read_profiles(self._folder)
            key = choose(texts, asked, self._default)
        except (ConfigurationError, ProfileRefused) as error:
            return Current(key, error=str(error))
        if self._parsed is None or (self._parsed.key, self._text) != (key, texts[key]):
            self._text, self._parsed = texts[key], _parse(key, texts[key])
        return self._parsed


def _parse(key: str, text: str) -> Current:
    try:
        return Current(key, parse_profile(text, key))
    except ProfileRefused as error:
        return Current(key, error=str(error))
