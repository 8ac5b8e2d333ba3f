"""Stand-ins for modules that packages import for something that is not used here: they keep processes small."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def standing_in(name: str, **has: object) -> Iterator[None]:
    """Have those who import a module meanwhile get one with this alone, unless it is loaded already."""
    module = ModuleType(name)
    vars(module).update(has)
    was = sys.modules.setdefault(name, module)
    try:
        yield
    finally:
        if was is module:
            del sys.modules[name]
