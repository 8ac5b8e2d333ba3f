"""The first check, the DriverContainer itself, and what may stop the controller from the next step. Pure."""

from collections.abc import Mapping
from typing import Any

from driver_builder.api import unloading
from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.status import Trouble
from driver_builder.base.check_result import CheckResult, failed, ok
from driver_builder.base.errors import InvalidDriver
from driver_builder.base.reasons import Reason, remedy_of, without_remedy
from kube_api import names

_UNDECIDED = frozenset({Reason.INTERNAL_ERROR, Reason.NAMESPACE_FORBIDDEN})
"""Reasons for which nothing is decided for a driver."""


def driver_check(driver: DriverContainer) -> CheckResult:
    """Check whether the DriverContainer is valid."""
    if driver.deleting:
        return _deleted(driver)
    if isinstance(driver.spec, InvalidDriver):
        edit = f"kubectl -n {driver.namespace} edit drivercontainer {driver.name}"
        return failed("driver", f"its spec is invalid: {driver.spec}", edit)
    paused = ", and is paused: what is missing stays missing" if driver.paused else ""
    words = f"DriverContainer {driver.key} wants version {driver.spec.version}{paused}"
    trouble = trouble_of(driver)
    if trouble is not None:
        return ok("driver", f"{words}; {_named_trouble(trouble)}", remedy_of(trouble.reason))
    return ok("driver", words)


def paused_check(driver: DriverContainer) -> CheckResult:
    """Report that the driver is paused, so that waiting does not help."""
    return failed(
        "driver",
        f"DriverContainer {driver.key} is paused: nothing is built, rolled out or labelled",
        f"kubectl -n {driver.namespace} annotate drivercontainer {driver.name} {names.PAUSE_ANNOTATION}-",
    )


def trouble_of(driver: DriverContainer) -> Trouble | None:
    """Read from its status why the controller could decide nothing for a driver; None if it could."""
    for condition in driver.status.get("conditions") or ():
        is_degraded = (condition.get("type"), condition.get("status")) == ("Degraded", "True")
        if is_degraded and condition.get("reason") in _UNDECIDED:
            return Trouble(reason=Reason(condition["reason"]), message=_fact(condition))
    return None


def trouble_check(driver: DriverContainer, trouble: Trouble) -> CheckResult:
    """Report that nothing can be decided for a driver, so that waiting does not help."""
    words = f"DriverContainer {driver.key} is {_named_trouble(trouble)}; what it has stays as it is"
    return failed("driver", words, remedy_of(trouble.reason))


def controller_hint(driver: DriverContainer) -> str:
    """Return what to look at when the controller does not do the next step."""
    for condition in driver.status.get("conditions") or ():
        if condition.get("status") == "True" and condition.get("reason") == Reason.ACTION_REFUSED:
            return f"The API server refused the controller: {condition.get('message', '')}"
    if not driver.status:
        return f"No controller has seen it yet: check that one runs and watches namespace {driver.namespace}"
    return "Wait; if it lasts, check that the controller runs: kubectl get lease,deployments -A | grep driver-builder"


def _deleted(driver: DriverContainer) -> CheckResult:
    words, step = f"DriverContainer {driver.key} is being deleted", "Wait until it is gone, then create it again"
    for condition in driver.status.get("conditions") or ():
        if condition.get("type") == unloading.CONDITION:
            words = f"{words}; {condition.get('reason')}: {_fact(condition)}"
            step = "; ".join(filter(None, [remedy_of(str(condition.get("reason"))), step]))
    return failed("driver", words, step)


def _fact(condition: Mapping[str, Any]) -> str:
    """Return a condition's message without its remedy, which is the next step."""
    return without_remedy(str(condition.get("reason")), str(condition.get("message", "")))


def _named_trouble(trouble: Trouble) -> str:
    return f"Degraded: {trouble.reason}: {trouble.message}"
