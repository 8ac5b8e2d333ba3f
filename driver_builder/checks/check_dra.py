"""Checks of what plugins that are DRA drivers need: the API, the right to see it, and their accounts. Pure.

All of them are warnings: the drivers are loaded without.
"""

from collections.abc import Iterable, Iterator, Mapping, Set

from driver_builder.api.driver_container import DriverContainer
from driver_builder.base.check_result import CheckResult, ok, warning
from driver_builder.base.reasons import Reason, remedy_of
from driver_builder.checks.check_rights import Right, check_optional
from driver_builder.checks.finding import Unread, named, not_read

MANIFEST = "deploy/driver-builder/dra.yaml"
_RIGHTS, _SERVER = "rights", "server"


def with_dra(drivers: Iterable[DriverContainer]) -> tuple[DriverContainer, ...]:
    """Return the drivers whose plugin is a DRA driver."""
    return tuple(driver for driver in drivers if driver.dra_driver)


def check_api(drivers: Iterable[DriverContainer], unserved: str | Unread) -> CheckResult:
    """Report whether the API server has ResourceSlices; ``unserved`` says what it has in their place, empty if so."""
    keys = named(driver.key for driver in drivers)
    if isinstance(unserved, Unread):
        return not_read(_SERVER, "the API for dynamic resource allocation", unserved)
    if unserved:
        words = f"{unserved}, which stages.devicePlugin.dra of {keys} needs"
        return warning(_SERVER, words, remedy_of(Reason.DRA_NOT_SERVED))
    return ok(_SERVER, f"it has ResourceSlices, as stages.devicePlugin.dra of {keys} needs")


def check_rights_of_dra(
    answers: Mapping[Right, bool | Unread], who: str, drivers: Iterable[DriverContainer]
) -> CheckResult:
    """Report whether ``who`` may follow ResourceSlices."""
    keys = named(driver.key for driver in drivers)
    reason, lacks = f"stages.devicePlugin.dra of {keys} needs", f"{keys} get no label .plug"
    return check_optional(answers, who, "read ResourceSlices", reason=reason, lacks=lacks, manifest=MANIFEST)


def check_accounts(drivers: Iterable[DriverContainer], allowed: Set[str]) -> Iterator[CheckResult]:
    """Report accounts that the controller does not let DRA drivers have."""
    wrong = [driver for driver in drivers if driver.plugin_account not in allowed]
    if wrong:
        found = named(f"{driver.plugin_account} of {driver.key}" for driver in wrong)
        remedy = remedy_of(Reason.SERVICE_ACCOUNT_NOT_ALLOWED)
        yield warning(_RIGHTS, f"--dra-driver-accounts does not name {found}: the DRA driver is not started", remedy)
