"""How long registries are left alone: by what they answer, and how often in a row they do not."""

import pytest

from driver_builder.model.image_state import Absent, ImageState, Unreachable
from driver_builder.registry.registry_pauses import Pauses

SILENT = Unreachable(message="no answer", is_silent=True)
ASKED = Unreachable(message="too many requests", retry_after=30.0)


@pytest.mark.parametrize(
    ("answers", "pauses"),
    [
        pytest.param([SILENT] * 7, [5.0, 10.0, 20.0, 40.0, 60.0, 60.0, 60.0], id="silent each time"),
        pytest.param([SILENT, SILENT, Absent(), SILENT], [5.0, 10.0, 0.0, 5.0], id="an answer ends it"),
        pytest.param([SILENT, SILENT, ASKED, SILENT], [5.0, 10.0, 30.0, 5.0], id="a pause it asks for"),
        pytest.param([SILENT, Unreachable(message="503"), SILENT], [5.0, 0.0, 5.0], id="an error is an answer"),
    ],
)
def test_the_pause_after_each_answer(answers: list[ImageState], pauses: list[float]) -> None:
    """Each answer comes as the pause before it ends; the registry is asked again as this one ends, and no earlier."""
    now = [0.0]
    paused = Pauses(lambda: now[0])
    for answer, seconds in zip(answers, pauses, strict=True):
        paused.saw("account", answer)
        if seconds:
            now[0] += seconds - 0.1
            assert paused.of("account") is not None
            now[0] += 0.1
        assert paused.of("account") is None


def test_of_several_questions_at_the_same_moment_the_first_counts() -> None:
    """Ten silent answers at once are one."""
    now = [0.0]
    paused = Pauses(lambda: now[0])
    for _ in range(10):
        paused.saw("account", SILENT)
    now[0] += 5.0
    assert paused.of("account") is None
