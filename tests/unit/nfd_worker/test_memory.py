"""Memory is given back, and nothing that is in use goes with it."""

import gc
import weakref

from nfd_worker import memory


class Loop:
    """An object that only the collector can free."""

    def __init__(self) -> None:
        self.me = self


def test_what_starting_left_behind_is_freed_and_the_rest_is_set_aside() -> None:
    """After the start garbage is freed, and the collector skips what remains."""
    garbage = weakref.ref(Loop())
    before = gc.get_freeze_count()
    memory.settle()
    assert garbage() is None
    assert gc.get_freeze_count() > before


def test_garbage_is_freed() -> None:
    """Memory that a cycle no longer needs is freed, also in later cycles."""
    garbage = weakref.ref(Loop())
    memory.give_back()
    assert garbage() is None
