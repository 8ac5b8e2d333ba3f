"""Checks of the registries that drivers name: reachable, password accepted, push allowed. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import assert_never

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec, RegistrySettings
from driver_builder.base.check_result import CheckResult, failed, ok, unknown, warning
from driver_builder.base.reasons import remedy_of
from driver_builder.checks.finding import named
from driver_builder.model.image_state import Absent, ImageState, Invalid, NotAsked, Present, Unauthorized, Unreachable
from driver_builder.model.images import ImageRepository

MAX_REGISTRIES = 50
_CHECK = "registry"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryPlace:
    """A repository, with the settings that a namespace's drivers reach it by."""

    namespace: str
    repository: ImageRepository
    settings: RegistrySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a registry says: ``state`` of an image that need not exist, and the actions that its tokens grant.

    ``granted`` is None where no token says it.
    """

    state: ImageState
    granted: frozenset[str] | None = None


def places(drivers: Iterable[DriverContainer]) -> Mapping[RegistryPlace, tuple[str, ...]]:
    """Return the places of all drivers, each with the drivers that push there."""
    found: dict[RegistryPlace, list[str]] = {}
    for driver in drivers:
        if isinstance(driver.spec, DriverSpec):
            place = RegistryPlace(
                namespace=driver.namespace, repository=driver.spec.image, settings=driver.spec.registry
            )
            found.setdefault(place, []).append(driver.key)
    return {place: tuple(sorted(keys)) for place, keys in found.items()}


def check_registry(place: RegistryPlace, drivers: Iterable[str], answer: Answer) -> CheckResult:
    """Judge what a registry answered about the repository of these drivers."""
    whose = named(drivers)
    name = f"{place.repository}" + (f" ({whose})" if whose else "")
    match answer.state:
        case Present() | Absent():
            return _reached(place, name, answer.granted)
        case Unauthorized(message=message) | Invalid(message=message):
            return failed(_CHECK, f"{name}: {message}", remedy_of(answer.state.reason))
        case Unreachable(message=message):
            return failed(
                _CHECK, f"{name}: {message}", "Correct spec.image, or the network: the controller must reach it"
            )
        case NotAsked():
            return unknown(_CHECK, f"{name}: it was not asked")
        case _ as never:
            assert_never(never)


def _reached(place: RegistryPlace, name: str, granted: frozenset[str] | None) -> CheckResult:
    secret = place.settings.secret
    login = f"the password of Secret {place.namespace}/{secret} is accepted" if secret else "it asks for no password"
    if granted is None:
        return ok(_CHECK, f"{name}: reachable, {login}; push was not tried, and no token says whether it is allowed")
    if "push" in granted or "*" in granted:
        return ok(_CHECK, f"{name}: reachable, {login}, push is allowed")
    return failed(
        _CHECK,
        f"{name}: reachable, but its tokens allow {named(sorted(granted)) or 'nothing'}, not push",
        "Give the account of spec.registry.secretRef the right to push to this repository",
    )


def check_no_places(count: int) -> Iterator[CheckResult]:
    """Report that no registry was checked, or not all were."""
    if not count:
        yield unknown(
            _CHECK,
            "no DriverContainer names a registry",
            "Name the one that you will use: --registry HOST/REPOSITORY [--registry-secret NAME]",
        )
    elif count > MAX_REGISTRIES:
        yield warning(
            _CHECK,
            f"{count - MAX_REGISTRIES} more repositories were not checked",
            "Run doctor for fewer namespaces (-n)",
        )
