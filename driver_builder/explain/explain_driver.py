"""The first link, the DriverContainer itself, and what may keep the controller from doing what is next. Pure."""

from collections.abc import Mapping

from driver_builder.errors import InvalidDriver
from driver_builder.explain.explanation import Step, broken, ok
from driver_builder.planning import unloading
from driver_builder.planning.status import Reason, Trouble
from driver_builder.spec.driver_container import DriverContainer
from kube_api import names

BUG = (
    "the log of whoever says so, the controller or this command, has the traceback: please report it with what"
    " driver-builder snapshot writes; until then, take the last change of what the message names back"
)

_REMEDIES: Mapping[Reason, str] = {
    Reason.INTERNAL_ERROR: BUG,
    Reason.NAMESPACE_FORBIDDEN: "give whoever may not read it, the controller or you, its Role in that namespace"
    " (deploy/driver-builder), or take the namespace from --namespace",
}
"""What to do about a driver for which nothing could be decided."""

_UNLOADING: Mapping[str, str] = {
    Reason.IN_USE: "end what uses the module there: it is tried until --unload-deadline-seconds, and then stays loaded"
    " until the node boots again",
    Reason.STAYS_LOADED: "boot the nodes that it names when it suits you",
}


def driver_link(driver: DriverContainer) -> Step:
    """Say whether the DriverContainer can be acted on at all."""
    if driver.deleting:
        return _deleted(driver)
    if isinstance(driver.spec, InvalidDriver):
        edit = f"kubectl -n {driver.namespace} edit drivercontainer {driver.name}"
        return broken("driver", f"its spec cannot be acted on: {driver.spec}", edit)
    paused = ", and is paused: what is missing stays missing" if driver.paused else ""
    words = f"DriverContainer {driver.key} wants version {driver.spec.version}{paused}"
    trouble = trouble_of(driver)
    if trouble is not None:
        return ok("driver", f"{words}; {_words(trouble)}", _REMEDIES[trouble.reason])
    return ok("driver", words)


def paused_link(driver: DriverContainer) -> Step:
    """Say that nothing that is waited for will come."""
    return broken(
        "driver",
        f"DriverContainer {driver.key} is paused: nothing is built, rolled out or labelled",
        f"kubectl -n {driver.namespace} annotate drivercontainer {driver.name} {names.PAUSE_ANNOTATION}-",
    )


def trouble_of(driver: DriverContainer) -> Trouble | None:
    """Read from its status why the controller could decide nothing for a driver; None where it could."""
    for condition in driver.status.get("conditions") or ():
        is_degraded = (condition.get("type"), condition.get("status")) == ("Degraded", "True")
        if is_degraded and condition.get("reason") in set(_REMEDIES):
            return Trouble(reason=Reason(condition["reason"]), message=str(condition.get("message", "")))
    return None


def trouble_link(driver: DriverContainer, trouble: Trouble) -> Step:
    """Say that nothing is decided for a driver, so that nothing that is waited for will come."""
    words = f"DriverContainer {driver.key} is {_words(trouble)}; what it has stays as it is"
    return broken("driver", words, _REMEDIES[trouble.reason])


def controller_hint(driver: DriverContainer) -> str:
    """Say what to look at when the controller does not do what is next."""
    for condition in driver.status.get("conditions") or ():
        if condition.get("status") == "True" and condition.get("reason") == Reason.ACTION_REFUSED:
            return f"the API server refused the controller: {condition.get('message', '')}"
    if not driver.status:
        return f"no controller has looked at it yet: does one run that watches namespace {driver.namespace}?"
    return "wait; if it stays so, see that the controller runs: kubectl get lease,deployments -A | grep driver-builder"


def _deleted(driver: DriverContainer) -> Step:
    words, mend = f"DriverContainer {driver.key} is being deleted", "wait until it is gone; make it anew"
    for condition in driver.status.get("conditions") or ():
        if condition.get("type") == unloading.CONDITION:
            words = f"{words}; {condition.get('reason')}: {condition.get('message')}"
            mend = "; ".join(filter(None, [_UNLOADING.get(str(condition.get("reason"))), mend]))
    return broken("driver", words, mend)


def _words(trouble: Trouble) -> str:
    return f"Degraded: {trouble.reason}: {trouble.message}"
