"""Checks of the custom resource definitions: are they served, and are they those of this version? Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from driver_builder.base.check_result import CheckResult, failed, ok, warning
from driver_builder.checks.check_server import CEL_MINOR
from driver_builder.checks.finding import Unread, named, not_read
from kube_api.resources import Resource

Json = Mapping[str, Any]

_CHECK = "definitions"
_RULES = "x-kubernetes-validations"


def check_own(resource: Resource, found: Json | Unread | None, shipped: Json, minor: int | None) -> CheckResult:
    """Compare a definition of ours with the one that this version ships; ``minor`` is the server's version."""
    has_rules = minor is None or minor >= CEL_MINOR
    # Before that, kubectl refuses the rules as an unknown field.
    apply = f"kubectl apply {'' if has_rules else '--validate=false '}-f deploy/crds/{resource.plural}.yaml"
    name = _name(resource)
    if isinstance(found, Unread):
        return not_read(_CHECK, name, found)
    wrong = "is not installed" if found is None else _not_served(resource, found)
    if found is None or wrong:
        return failed(_CHECK, f"{name} {wrong}", apply)
    here, there = (_fields(_schema(resource, item)) for item in (shipped, found))
    lost, extra = _missing(here, there), _missing(there, here)
    changed = [
        field for field in here if not lost and _limits(here[field], has_rules) != _limits(there[field], has_rules)
    ]
    if lost:
        return failed(
            _CHECK,
            f"{name} is older than this program: the API server drops {named(lost)}",
            f"{apply} of the release that this program is from",
        )
    if extra or changed:
        words = (
            f"has {named(extra)}, which this program does not know" if extra else f"limits {named(changed)} otherwise"
        )
        return warning(
            _CHECK, f"{name} is of another version: it {words}", "Install program and definition of one release"
        )
    return ok(_CHECK, f"{name} {resource.version} is the one of this version")


def check_foreign(resource: Resource, found: Json | Unread | None, *, without: str, flag: str) -> CheckResult:
    """Check that a definition that other projects install as well is served; whose it is does not matter.

    ``without`` says what happens where it is not, and ``flag`` is for those to whom that is right.
    """
    name, apply = _name(resource), f"kubectl apply -f deploy/crds/{resource.plural}.yaml"
    if isinstance(found, Unread):
        return not_read(_CHECK, name, found)
    wrong = "is not installed" if found is None else _not_served(resource, found)
    if wrong:
        return warning(_CHECK, f"{name} {wrong}: {without}", f"{apply}, or run {flag}")
    return ok(_CHECK, f"{name} {resource.version} is served")


def _name(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}"


def _not_served(resource: Resource, found: Json) -> str:
    version = _version(resource, found)
    served = [str(item.get("name")) for item in found["spec"].get("versions") or () if item.get("served")]
    if version is None or not version.get("served"):
        return f"does not serve {resource.version}, only {named(served) or 'nothing'}"
    conditions = (found.get("status") or {}).get("conditions") or ()
    refused = [item for item in conditions if item.get("type") in ("Established", "NamesAccepted")]
    wrong = next((item for item in refused if item.get("status") != "True"), None)
    return f"is not {wrong['type']}: {wrong.get('message', '')}" if wrong else ""


def _version(resource: Resource, found: Json) -> Json | None:
    return next((item for item in found["spec"].get("versions") or () if item.get("name") == resource.version), None)


def _schema(resource: Resource, found: Json) -> Json:
    version = _version(resource, found) or {}
    schema: Json = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return schema


def _fields(schema: Json) -> Mapping[str, Json]:
    """Return every field of a schema with the way to it."""
    return dict(_parts(schema, ""))


def _parts(schema: Json, path: str) -> Iterator[tuple[str, Json]]:
    for name, part in (schema.get("properties") or {}).items():
        where = f"{path}.{name}" if path else name
        yield where, part
        yield from _parts(part, where)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), Mapping):
            yield f"{path}[]", schema[name]
            yield from _parts(schema[name], f"{path}[]")


def _missing(fields: Mapping[str, Json], others: Mapping[str, Json]) -> list[str]:
    """Return the fields that others do not have; of a field and those in it the former."""
    missing = [field for field in fields if field not in others]
    return [field for field in missing if not any(field.startswith((f"{outer}.", f"{outer}[")) for outer in missing)]


def _limits(part: Json, has_rules: bool) -> Json:
    """Return what a field itself demands: no words for people, and no rules where the server drops them."""
    ignored: Iterable[str] = {"description", "properties", "items", "additionalProperties"}
    return {key: value for key, value in part.items() if key not in ignored and (has_rules or key != _RULES)}
