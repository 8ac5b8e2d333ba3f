"""What is made of NVML's lists of processes and of its samples: pure values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nvml_inventory.processes import Sample, mean_busy, merge_processes, with_busy
from nvml_inventory.values import Process


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param([], (), id="none"),
        pytest.param([(7, 100), (7, 300)], (Process(7, 300),), id="in both lists, more in the second"),
        pytest.param([(7, 300), (7, 100)], (Process(7, 300),), id="in both lists, more in the first"),
        pytest.param([(7, None), (7, 100)], (Process(7, 100),), id="known in one of the lists"),
        pytest.param([(7, 100), (7, None)], (Process(7, 100),), id="known in the other list"),
        pytest.param([(7, None)], (Process(7),), id="memory is not known"),
        pytest.param([(7, None), (8, 0), (9, 5)], (Process(9, 5), Process(8, 0), Process(7)), id="most memory first"),
        pytest.param([(0, 5), (2**22 + 1, 5), (1, 5)], (Process(1, 5),), id="no PID of the kernel's"),
    ],
)
def test_a_process_counts_once(found: list[tuple[int, int | None]], expected: tuple[Process, ...]) -> None:
    """With the larger memory, and never under a number that is none."""
    assert merge_processes(found) == expected


@given(st.lists(st.tuples(st.integers(-1, 2**23), st.none() | st.integers(0, 2**40))))
def test_lists_become_few_processes_with_most_memory_first(found: list[tuple[int, int | None]]) -> None:
    """Whatever NVML says."""
    merged = merge_processes(found)
    memory = [-1 if one.memory is None else one.memory for one in merged]
    assert memory == sorted(memory, reverse=True)
    assert len({one.pid for one in merged}) == len(merged)
    for one in merged:
        assert one.memory == max((size for pid, size in found if pid == one.pid and size is not None), default=None)


def test_of_too_many_processes_those_with_most_memory_are_kept() -> None:
    """1024 of a GPU."""
    merged = merge_processes([(pid, pid) for pid in range(1, 2000)])
    assert [one.pid for one in merged] == list(range(1999, 1999 - 1024, -1))


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        pytest.param([], {}, id="none"),
        pytest.param([Sample(7, 10, 1), Sample(8, 50, 1), Sample(7, 20, 2)], {7: 15.0, 8: 50.0}, id="the mean"),
        pytest.param([Sample(7, None, 1), Sample(7, 20, 2)], {7: 20.0}, id="one makes no sense"),
        pytest.param([Sample(7, None, 1)], {7: None}, id="none makes sense"),
    ],
)
def test_samples_of_a_process_have_a_mean(samples: list[Sample], expected: dict[int, float | None]) -> None:
    """A sample that makes no sense is no 0."""
    assert mean_busy(samples) == expected


@given(st.lists(st.builds(Sample, st.integers(1, 4), st.none() | st.floats(0, 100), st.integers(0))))
def test_a_mean_lies_between_the_samples(samples: list[Sample]) -> None:
    """And there is one for each process that has a sample."""
    means = mean_busy(samples)
    assert means.keys() == {sample.pid for sample in samples}
    for pid, mean in means.items():
        percents = [sample.percent for sample in samples if sample.pid == pid and sample.percent is not None]
        assert (mean is None) == (not percents)
        assert mean is None or min(percents) - 1e-9 <= mean <= max(percents) + 1e-9


@pytest.mark.parametrize(
    ("busy", "expected"),
    [
        pytest.param({7: 37.0}, [37.0, 0.0], id="one has a sample"),
        pytest.param({7: None}, [None, 0.0], id="one has a sample that makes no sense"),
        pytest.param(None, [None, None], id="not supported"),
    ],
)
def test_a_process_without_a_sample_is_idle(busy: dict[int, float | None] | None, expected: list[float | None]) -> None:
    """Where the GPU has samples; otherwise nothing is known."""
    assert [one.busy for one in with_busy([Process(7), Process(8)], busy)] == expected
