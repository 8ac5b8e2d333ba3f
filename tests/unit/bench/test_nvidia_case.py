"""How the case of NVIDIA's modules finds the kernel update that broke them."""

import pytest

from bench.nvidia_case import break_between, of_oldest_series

KERNELS = [f"6.1.0-{abi}-amd64" for abi in (47, 50, 53, 54, 55, 56)]


@pytest.mark.parametrize("broken", range(1, len(KERNELS)), ids=KERNELS[1:])
def test_the_break_is_found_wherever_it_is(broken: int) -> None:
    """Between the last kernel that is well and the first that is not, without asking for all of them."""
    asked: list[str] = []

    def is_well(kernel: str) -> bool:
        asked.append(kernel)
        return KERNELS.index(kernel) < broken

    assert break_between(KERNELS, is_well) == (KERNELS[broken - 1], KERNELS[broken])
    assert len(asked) <= 3


def test_kernels_are_those_of_one_flavour_and_series() -> None:
    """The newer series of the backports is another machine's."""
    found = ["6.12.117+deb12-amd64", "6.1.0-56-amd64", "6.1.0-9-amd64", "6.1.0-56-cloud-amd64"]
    assert of_oldest_series(found, "amd64") == ["6.1.0-9-amd64", "6.1.0-56-amd64"]
    assert of_oldest_series(found, "rt-amd64") == []
