"""What the examples of properties depend on."""

import pytest
from hypothesis.internal.conjecture.providers import HypothesisProvider

from tests.support.examples import IS_FAST


@pytest.mark.skipif(not IS_FAST, reason="a longer search tries constants of our modules, too")
def test_examples_do_not_depend_on_the_modules_that_are_imported() -> None:
    """Properties try no constants of them, so a test fails or passes in whichever process it is run."""
    assert not [*HypothesisProvider(None)._local_constants]
