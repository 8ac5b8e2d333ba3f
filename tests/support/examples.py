"""How often Hypothesis tries a property whose single example takes long."""

import os

from hypothesis import settings


def few(examples: int) -> settings:
    """Try so few examples in ``make test`` and ``make unit``, and all of its profile's in ``make test-long``.

    The test is marked ``costly``, by which ``make test-long`` finds it.
    """
    is_fast = os.environ.get("HYPOTHESIS_PROFILE", "ci") == "ci"
    return settings(max_examples=examples) if is_fast else settings()
