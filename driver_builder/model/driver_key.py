"""The key of a driver: the namespace and the name of its DriverContainer. Pure."""

from functools import lru_cache

_KEPT = 4096


class DriverKey(str):
    """``namespace/name``; made by :func:`driver_key` of both, by :func:`parse_driver_key` of a text from outside.

    A ``str``, since labels, JSON and messages have it as it is, and since drivers have the order of their texts
    (``a-b/x`` comes before ``a/x``). A NamedTuple would be a new text at each of these places, and ``json`` would
    silently write a list.
    """

    __slots__ = ()

    @property
    def namespace(self) -> str:
        """The namespace of the DriverContainer."""
        return self.partition("/")[0]

    @property
    def name(self) -> str:
        """Its name there."""
        return self.partition("/")[2]


NOBODY = DriverKey()
"""The key of no driver: of a record that cannot be read, or that names none."""


@lru_cache(maxsize=_KEPT)
def driver_key(namespace: str, name: str) -> DriverKey:
    """Return the key, mostly the same object for the same driver: thousands of pods have it."""
    return DriverKey(f"{namespace}/{name}")


def parse_driver_key(text: object) -> DriverKey | None:
    """Read a text that came from outside; None without a namespace or a name."""
    if not isinstance(text, str):
        return None
    namespace, _, name = text.partition("/")
    return driver_key(namespace, name) if namespace and name else None
