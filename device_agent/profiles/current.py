"""The profile that counts: of the key that is asked for, as the folder has it now."""

from typing import NamedTuple

from device_agent.errors import ConfigurationError, ProfileRefused
from device_agent.profiles.folder import DEFAULT_KEY, Texts, choose, read_profiles
from device_agent.profiles.parse import parse_profile
from device_agent.profiles.profile import Profile
from kube_api.text import printable


class Current(NamedTuple):
    """What is asked for. ``profile``: None where it cannot be had; ``error`` says why.

    ``keys``: those of the folder, where the error does not name them. ``before``: the profile that was in force before
    the agent started, if the folder still has a good one under its key.
    """

    key: str
    profile: Profile | None = None
    error: str = ""
    keys: tuple[str, ...] = ()
    before: "Current | None" = None


class ProfileFolder:
    """A folder of profiles. ``default``: the key that counts where none is asked for."""

    def __init__(self, folder: str, default: str = "") -> None:
        self.path = folder
        self._default = default
        self._text = ""
        self._parsed: Current | None = None

    def key_of(self, asked: str) -> str:
        """Return the key that counts, for messages."""
        return printable(asked or self._default or DEFAULT_KEY)

    def read(self, asked: str, before: str = "") -> Current:
        """Read the folder; a text is parsed once. It waits for the disk; in one thread at a time.

        ``before``: the key that was in force before the agent started; empty where that no longer matters.
        """
        try:
            texts = read_profiles(self.path)
        except ConfigurationError as error:
            return Current(self.key_of(asked), error=str(error))
        try:
            found = self._once(texts, choose(texts.keys, asked, self._default))
        except ProfileRefused as error:
            found = Current(self.key_of(asked), error=str(error))
        other = _parse(texts, before) if before != found.key and before in texts.keys else None
        return found._replace(before=other) if other and other.profile else found

    def _once(self, texts: Texts, key: str) -> Current:
        text = texts.good.get(key)
        if text is None or self._parsed is None or (self._parsed.key, self._text) != (key, text):
            self._text, self._parsed = text or "", _parse(texts, key)
        return self._parsed._replace(keys=texts.keys)


def _parse(texts: Texts, key: str) -> Current:
    try:
        return Current(key, parse_profile(texts.text(key), key))
    except ProfileRefused as error:
        return Current(key, error=str(error))
