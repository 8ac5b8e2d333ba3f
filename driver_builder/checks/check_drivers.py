"""Checks of the DriverContainers themselves: a spec that cannot be read stops its driver alone. Pure."""

from collections.abc import Iterable, Iterator

from driver_builder.api.driver_container import DriverContainer
from driver_builder.base.check_result import CheckResult, failed, ok
from driver_builder.base.errors import InvalidDriver
from driver_builder.base.reasons import Reason, remedy_of
from driver_builder.checks.finding import counted
from kube_api.text import printable

_CHECK = "drivers"


def check_drivers(drivers: Iterable[DriverContainer]) -> Iterator[CheckResult]:
    """Report each driver whose spec is invalid, and how many are well."""
    every = tuple(drivers)
    wrong = [driver for driver in every if isinstance(driver.spec, InvalidDriver)]
    for driver in wrong:
        yield failed(_CHECK, printable(f"{driver.key}: {driver.spec}"), remedy_of(Reason.INVALID_SPEC))
    if not wrong:
        yield ok(
            _CHECK, f"{counted(len(every), 'DriverContainer')}, with valid specs" if every else "no DriverContainer yet"
        )
