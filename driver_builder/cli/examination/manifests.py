"""The manifests of ``deploy/`` that this version ships: what a cluster is compared with."""

import sys
from pathlib import Path
from typing import Any

import yaml

from driver_builder.base.errors import ConfigurationError
from kube_api.resources import Resource

Json = dict[str, Any]

# By libyaml, where PyYAML has it: the definition takes half a second without.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def definition(resource: Resource) -> Json:
    """Read the custom resource definition of a resource."""
    return _read(f"crds/{resource.plural}.yaml")[0]


def roles() -> list[Json]:
    """Read the manifest of the controller's permissions."""
    return _read("driver-builder/rbac.yaml")


def drain_roles() -> list[Json]:
    """Read the manifest of the permissions to drain nodes."""
    return _read("driver-builder/drain.yaml")


def dra_roles() -> list[Json]:
    """Read the manifest of the permissions for plugins that are DRA drivers."""
    return _read("driver-builder/dra.yaml")


def _read(name: str) -> list[Json]:
    """Read a file of this checkout, else the installed one.

    Raises:
        ConfigurationError: it is not there; names the searched places.
    """
    roots = (Path(__file__).parents[3], Path(sys.prefix, "share", "driverwright"))
    places = [root / "deploy" / name for root in roots]
    place = next((place for place in places if place.is_file()), None)
    if place is None:
        raise ConfigurationError(f"there is no {' or '.join(map(str, places))}; install driverwright again")
    return [item for item in yaml.load_all(place.read_text(encoding="utf-8"), _LOADER) if item]
