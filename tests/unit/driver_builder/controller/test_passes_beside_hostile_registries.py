"""The controller's own passes while twenty images are in registries that drip, drop packets or answer anything."""

from collections.abc import Callable

import pytest

from driver_builder.base.reasons import Reason
from tests.support.driver_builder.factories import NAMESPACE
from tests.support.driver_builder.hostile_registries import KINDS, fleet, hostile_registries

IMAGES = 20
PATIENCE = 120.0
"""Seconds that a question may take: far longer than the reconciles of which this is about."""
SHORT = 0.05
"""Seconds that it may take where each reconcile waits for it."""
ANSWERING = "other words each time"


@pytest.mark.parametrize(
    ("hosts", "namespace"),
    [
        pytest.param(IMAGES, "other", id="twenty hosts in another namespace"),
        pytest.param(len(KINDS), NAMESPACE, id="one host of each kind in the same namespace"),
    ],
)
def test_a_good_driver_gets_on_in_the_first_passes(
    hosts: int,
    namespace: str,
    record_property: Callable[[str, object], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is built, rolled out and ready while the hostile registries still keep callers waiting."""
    with hostile_registries(hosts) as names:
        with fleet(seconds=PATIENCE) as world:
            alone = world.passes()
        with fleet(seconds=SHORT, waits=True) as world:
            world.add_hostile(names, IMAGES, namespace)
            waiting = world.one_pass()
        with fleet(seconds=PATIENCE) as world:
            world.add_hostile(names, IMAGES, namespace)
            beside = world.passes()
            reasons = [world.reason(f"hostile-{number:02}", namespace) for number in range(IMAGES)]
    hanging = [reasons[number] for number in range(IMAGES) if KINDS[number % len(KINDS)] != ANSWERING]
    assert set(hanging) == {Reason.REGISTRY_NOT_ASKED}, "their answers are still open"
    figures = {
        "seconds per pass, good driver alone": alone,
        f"seconds of the first pass that waits {SHORT} s for each answer": [waiting],
        f"seconds per pass beside {IMAGES} hostile images": beside,
    }
    with capsys.disabled():
        for words, values in figures.items():
            shown = " ".join(f"{value:.3f}" for value in values)
            record_property(words, shown)
            print(f"\n  {words}: {shown}", end="")
