"""How often Hypothesis tries a property whose single example takes long."""

import os

from hypothesis import settings

IS_FAST = os.environ.get("HYPOTHESIS_PROFILE", "ci") == "ci"
"""Whether tests look as hard as ``make test`` and ``make unit``, and not as hard as ``make test-long``."""


def few(examples: int) -> settings:
    """Try so few examples in ``make test`` and ``make unit``, and all of its profile's in ``make test-long``.

    The test is marked ``costly``, by which ``make test-long`` finds it.
    """
    return settings(max_examples=examples) if IS_FAST else settings()
