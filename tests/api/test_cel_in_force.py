"""The rules (CEL) in DriverContainer's schema on the testbed's own API server, which evaluates them from 1.25 on.

The same examples as in ``tests/contract/test_cel_rules.py``, each refused in its words.
"""

import json

import pytest

from kube_api.resources import DRIVER_CONTAINERS
from testbed.api import Api, ApiError
from testbed.testbed import Testbed
from tests.contract.test_cel_rules import BAD, GOOD, MESSAGES
from tests.support.driver_builder import factories
from tests.support.real_parts.cluster_setup import Json, admin, install

NAMESPACE = "driverwright"
STRICTLY = f"{DRIVER_CONTAINERS.path(namespace=NAMESPACE)}?dryRun=All&fieldValidation=Strict"
WITH_RULES = 25


@pytest.fixture(scope="module")
def server(control_plane_ground: Testbed) -> Api:
    """Install the definitions."""
    if control_plane_ground.binaries.minor < WITH_RULES:
        pytest.skip(f"Kubernetes {control_plane_ground.binaries.release} evaluates no rules: they came with 1.25")
    install(admin(control_plane_ground))
    return control_plane_ground.api


def said(server: Api, changes: Json) -> list[str]:
    """Return why a driver with these changes of its spec would not be stored; nothing when it would."""
    body = factories.driver_object("by-rules", spec_changes=changes, finalizer=False)
    del body["metadata"]["uid"]
    try:
        server.request(STRICTLY, method="POST", body=body)
    except ApiError as error:
        return [cause["message"] for cause in json.loads(error.body)["details"]["causes"]]
    return []


def test_what_the_rules_allow_is_stored(server: Api) -> None:
    """Without an unknown field, too."""
    assert {name: found for name, changes in GOOD.items() if (found := said(server, changes))} == {}


def test_what_the_rules_refuse_is_refused_in_their_words(server: Api) -> None:
    """By each rule that is broken and by no other."""
    found = {name: said(server, changes) for name, (changes, _) in BAD.items()}
    read = {name: {one for text in texts for one in MESSAGES if text.endswith(one)} for name, texts in found.items()}
    wrong = {name: found[name] for name, (_, messages) in BAD.items() if read[name] != messages}
    assert wrong == {}
