"""What a newer Kubernetes' server of custom resources answers, and the definitions that it has of ours."""

import json
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

from kube_api.resources import CUSTOM_RESOURCE_DEFINITIONS, DRIVER_CONTAINERS
from testbed.api import Api, ApiError
from tests.support.crd_schema import RULES
from tests.support.real_parts.cluster_setup import documents

Json = dict[str, Any]

ROOT = Path(__file__).parents[3]
OURS = ("driverwright.io/v1alpha1", "nfd.k8s-sigs.io/v1alpha1")
PATIENCE = 240.0
"""Seconds until a definition has to be served."""
NAMESPACE = "default"
DRIVERS = DRIVER_CONTAINERS.path(namespace=NAMESPACE)
CRDS = ("drivercontainers", "nodefeaturerules", "nodefeatures")
DRY, STRICT = "dryRun=All", "fieldValidation=Strict"


class Refusal(NamedTuple):
    """Why something was not stored: the status, and what was said of which field."""

    status: int
    causes: tuple[tuple[str, str], ...]
    message: str


def driver(spec: Json, name: str = "a") -> Json:
    """Make a DriverContainer of a spec."""
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": DRIVER_CONTAINERS.api_version, "kind": "DriverContainer", "metadata": metadata, "spec": spec}


def refusal(api: Api, path: str, body: Json, *, method: str = "POST", kind: str = "application/json") -> Refusal | None:
    """Send an object; return why it was refused, or nothing when it was stored."""
    try:
        api.request(path, method=method, body=body, kind=kind)
    except ApiError as error:
        status: Json = json.loads(error.body)
        causes = (status.get("details") or {}).get("causes") or ()
        found = tuple((cause.get("field", ""), cause["message"]) for cause in causes)
        return Refusal(error.status, found, status["message"])
    return None


def definitions() -> list[Json]:
    """Read the definitions of ``deploy/crds``."""
    return [crd for name in CRDS for crd in documents(f"crds/{name}.yaml")]


def define(api: Api, crd: Json) -> None:
    """Create or change a definition, with no field that the server does not know, and wait until it is served."""
    path = CUSTOM_RESOURCE_DEFINITIONS.path(name=crd["metadata"]["name"])
    query = f"?fieldManager=test&force=true&{STRICT}"
    api.request(path + query, method="PATCH", body=crd, kind="application/apply-patch+yaml")
    until(lambda: _is_served(api, crd))


def until(is_so: Callable[[], bool]) -> None:
    """Wait for the server to have taken over a definition."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end, "the definition is not in force"
        time.sleep(0.1)


def _is_served(api: Api, crd: Json) -> bool:
    spec = crd["spec"]
    try:
        api.request(f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}")
    except ApiError as error:
        # 429: the storage of a definition that has just changed is made anew.
        if error.status not in (404, 429):
            raise
        return False
    return True


def in_another_group(crd: Json, group: str, *, rules: bool) -> Json:
    """Copy a definition, so that no other test sees what is done with it; without its rules (CEL) where it is to be."""
    made = deepcopy(crd)
    made["metadata"]["name"] = f"{made['spec']['names']['plural']}.{group}"
    made["metadata"].pop("annotations", None)
    made["spec"]["group"] = group
    return made if rules else _without_rules(made)


def _without_rules(part: Any) -> Any:
    if isinstance(part, dict):
        return {word: _without_rules(value) for word, value in part.items() if word != RULES}
    return [_without_rules(item) for item in part] if isinstance(part, list) else part
