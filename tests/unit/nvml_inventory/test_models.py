"""The tables of MIG profiles that tests build on agree with themselves."""

import pytest

from tests.nvml.models import A30, A100_40, H100, Model, Profile


@pytest.mark.parametrize(
    ("model", "profile"),
    [
        pytest.param(model, one, id=f"{model.name} {one.name}")
        for model in (A100_40, A30, H100)
        for one in model.profiles
    ],
)
def test_a_card_holds_as_many_instances_as_there_is_room_for(model: Model, profile: Profile) -> None:
    """Places do not overlap, and the memory of all is there. It has one set of media extensions."""
    ends = [0]
    for start in profile.starts:
        if start >= ends[-1]:
            ends.append(start + profile.size)
    assert profile.instances == (1 if "+me" in profile.name else len(ends) - 1)
    assert profile.instances * profile.memory_mib * 2**20 <= model.memory
