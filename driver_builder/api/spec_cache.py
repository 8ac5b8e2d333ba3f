"""Specs that were already read: reading one may compile megabytes of expressions, and most never change.

Place in the flow: ``observe`` keeps one between reconciles and passes it to ``driver_container.parse``.
"""

from collections.abc import Callable, Iterable

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.base.errors import InvalidDriver


class SpecCache:
    """The result of reading an object's spec, valid or not, by the object's uid and generation."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, DriverSpec | InvalidDriver]] = {}

    def read(
        self, uid: str, generation: int, read: Callable[[], DriverSpec | InvalidDriver]
    ) -> DriverSpec | InvalidDriver:
        """Return the result for this generation, or read it now."""
        known = self._known.get(uid)
        if known is None or known[0] != generation:
            known = self._known[uid] = (generation, read())
        return known[1]

    def keep(self, uids: Iterable[str]) -> None:
        """Forget all other objects: they no longer exist."""
        there = frozenset(uids)
        # Of a copy: a watch's thread may read another one meanwhile.
        self._known = {uid: known for uid, known in self._known.copy().items() if uid in there}
