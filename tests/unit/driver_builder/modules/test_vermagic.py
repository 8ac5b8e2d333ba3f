"""The words of a version magic."""

import pytest

from driver_builder.modules import vermagic
from tests.support.driver_builder.kernel_modules import MAGIC


def test_a_magic_is_a_release_and_words() -> None:
    """The blank at its end is the kernel's."""
    assert vermagic.release_of(MAGIC) == "6.1.0-55-cloud-amd64"
    assert vermagic.words_of(MAGIC) == ("SMP", "preempt", "mod_unload", "modversions")


@pytest.mark.parametrize(
    ("found", "expected", "difference"),
    [
        pytest.param("1 SMP modversions ", "2 SMP modversions", "", id="only the release"),
        pytest.param("1 SMP", "1 SMP modversions", "lacks modversions (CONFIG_MODVERSIONS)", id="lacks one"),
        pytest.param(
            "1 SMP preempt_rt RANDSTRUCT_ab",
            "1 preempt",
            "lacks preempt (CONFIG_PREEMPT_BUILD) and has SMP (CONFIG_SMP), preempt_rt (CONFIG_PREEMPT_RT),"
            " RANDSTRUCT_ab",
            id="both",
        ),
        pytest.param("1 SMP preempt", "1 preempt SMP", "has its words in another order (SMP preempt)", id="order"),
    ],
)
def test_a_difference_is_said_with_the_option_behind_it(found: str, expected: str, difference: str) -> None:
    """The admin looks for the option in the kernel's configuration."""
    assert vermagic.difference(found, expected) == difference
