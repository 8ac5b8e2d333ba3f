"""What each field of a DriverContainer's ``spec`` may hold: JSON to a :class:`DriverSpec`, or to problems. Pure.

Place in the flow: ``driver_container`` parses what the API server returns, ``lint`` what an admin is about to apply.
Both read by the rows of ``driver_spec``, of which the CRD's schema is written as well. API servers before 1.25 do not
evaluate its rules, and it cannot express every rule.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from driver_builder.api.driver_spec import SPEC, DriverSpec, ValidationSettings
from driver_builder.api.spec_reader import Notes, Path, Problem, Reader
from driver_builder.base.errors import InvalidDriver

DEPRECATED: Mapping[str, tuple[object, ...]] = {
    "spec.build.reuseAcrossKernels": (True,),
    "spec.retention": (),
}
"""Fields that are ignored since 0.2, each with the values that only lint reports.

The definition of 0.1 wrote ``reuseAcrossKernels: true`` into every driver with a ``build``: nobody asked for it.
"""

MAX_LISTED = 5
"""Problems that one message lists at most."""
_OF_A_COMMAND = ("command", "timeout", "retries", "privileged")
"""Fields of a validation that mean nothing without an image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The content of a spec. ``spec`` is None if there are ``problems``; ``unknown`` are fields without a meaning."""

    spec: DriverSpec | None
    problems: tuple[Problem, ...]
    unknown: tuple[Path, ...]


def parse_spec(spec: object) -> DriverSpec:
    """Check a spec and make it a value.

    Raises:
        InvalidDriver: naming each wrong field, its value and the remedy.
    """
    reading = read_spec(spec)
    if reading.spec is None:
        listed = [str(problem) for problem in reading.problems[:MAX_LISTED]]
        more = len(reading.problems) - len(listed)
        raise InvalidDriver("; ".join((*listed, f"and {more} more problems") if more else listed))
    return reading.spec


def read_spec(spec: object) -> Reading:
    """Check a spec and find all its problems."""
    notes = Notes()
    reader = Reader(spec, ("spec",), notes)
    made = SPEC.of(reader)
    problems = tuple(notes.problems)
    unused = (*_unused_validation(reader, made.validation), *_unused(spec))
    return Reading(spec=None if problems else replace(made, unused=unused), problems=problems, unknown=notes.unknown)


def deprecated(spec: object) -> dict[str, object]:
    """Return the ignored fields that a spec sets, with their values."""
    found: dict[str, object] = {}
    for field in DEPRECATED:
        value = spec
        for name in field.split(".")[1:]:
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is not None:
            found[field] = value
    return found


def _unused(spec: object) -> tuple[str, ...]:
    return tuple(field for field, value in deprecated(spec).items() if value not in DEPRECATED[field])


def _unused_validation(spec: Reader, validation: ValidationSettings) -> tuple[str, ...]:
    given = spec.given.get("validation")
    if validation.has_command or not isinstance(given, Mapping):
        return ()
    return tuple(f"spec.validation.{name}" for name in _OF_A_COMMAND if given.get(name) is not None)
