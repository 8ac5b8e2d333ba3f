"""The definitions of ``deploy/crds``, judged by the server of custom resources of a newer Kubernetes (Debian sid's).

The testbed's own API server evaluates no rules (CEL), ignores unknown fields and does not ratchet. What parser and
description of the schema say of an example (``tests/contract``) is what this server says.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from demo.patient import PatientClient
from driver_builder.convert.kmm import Conversion, Known, convert
from kube_api import resources
from kube_api.client import Client
from kube_api.errors import Conflict, KubeApiError
from kube_api.resources import CUSTOM_RESOURCE_DEFINITIONS
from testbed.custom_resources import CustomResources
from testbed.newer_kubernetes import SOURCES, NewerKubernetes
from tests.contract.test_cel_rules import BAD, GOOD, MESSAGES
from tests.contract.test_spec_rules import FIELDS, FULL, INSTEAD, WIDER, samples, spec_with
from tests.recording import Say
from tests.support.crd_schema import allows
from tests.support.driver_builder import factories
from tests.support.driver_builder.model_world import World
from tests.support.real_parts import newer_server
from tests.support.real_parts.newer_server import DRIVERS, DRY, NAMESPACE, STRICT, Json, driver, refusal
from tests.support.yaml_files import read_documents
from tests.unit.driver_builder.convert.test_kmm import BY_KERNEL, DRA, K1, K2, PLUGIN, module

BESIDE_RULES = {"no source": ["Invalid value: 0: spec.source in body should have at least 1 properties"]}
"""What the schema says of an example beside its rules."""
FEW = 60
"""Of the samples of all fields each so manieth is sent in ``make test``."""
KINDS = {"ADDED", "MODIFIED", "DELETED"}


@pytest.fixture(scope="module")
def server(custom_resources: CustomResources) -> CustomResources:
    """A server that has the definitions, each of which it took with all of its fields."""
    for crd in newer_server.definitions():
        newer_server.define(custom_resources.api, crd)
    return custom_resources


@pytest.fixture
def client(server: CustomResources) -> Iterator[Client]:
    """The client of both programs; no driver is left."""
    made = PatientClient.from_environment(str(server.kubeconfig))
    yield made
    for obj in made.list(DRIVERS).items:
        made.delete(f"{DRIVERS}/{obj['metadata']['name']}")


@pytest.fixture(autouse=True)
def recorded(server: CustomResources, newer_kubernetes: NewerKubernetes, tested_on: Say) -> None:
    """Record which release it is, as the server tells it."""
    told = server.api.request("/version")["gitVersion"].removeprefix("v")
    tested_on("rules", rules="custom resources", Kubernetes=told, package=newer_kubernetes.versions[SOURCES[0]])


EXAMPLES = [obj for path in sorted((newer_server.ROOT / "examples").rglob("*.yaml"))
            for obj in read_documents(path.read_text()) if obj.get("apiVersion") in newer_server.OURS]  # fmt: skip


def test_definitions_draw_no_warning(server: CustomResources) -> None:
    """As when one applies them, with no field that the server does not know."""
    for crd in newer_server.definitions():
        path = CUSTOM_RESOURCE_DEFINITIONS.path(name=crd["metadata"]["name"])
        query = f"?fieldManager=test&force=true&{DRY}&{STRICT}"
        kind = "application/apply-patch+yaml"
        assert server.api.warnings(path + query, method="PATCH", body=crd, kind=kind) == []


@pytest.mark.parametrize("obj", EXAMPLES, ids=lambda obj: f"{obj['kind']} {obj['metadata']['name']}")
def test_examples_are_stored_without_a_warning(server: CustomResources, obj: Json) -> None:
    """Each object of our definitions below ``examples/``."""
    resource, metadata = resources.of(obj), {"name": obj["metadata"]["name"]}
    path = resource.path(namespace=NAMESPACE if resource.namespaced else None)
    written = {**obj, "metadata": metadata}
    assert server.api.warnings(f"{path}?{DRY}&{STRICT}", method="POST", body=written) == []


def stored(client: Client, spec: Json) -> bool:
    """Tell whether the server would store a spec."""
    try:
        client.create(f"{DRIVERS}?{DRY}", driver(spec))
    except KubeApiError as error:
        if error.status not in (400, 422):
            raise
        return False
    return True


@pytest.mark.parametrize("changes", GOOD.values(), ids=GOOD)
def test_what_the_code_takes_is_stored(server: CustomResources, changes: Json) -> None:
    """Every example, with no field that the definition does not know."""
    assert refusal(server.api, f"{DRIVERS}?{DRY}&{STRICT}", driver(factories.spec(**changes))) is None


@pytest.mark.parametrize("name", BAD)
def test_what_the_rules_refuse_is_refused_in_their_words(server: CustomResources, name: str) -> None:
    """By exactly the rules that are broken, as CEL's own library says, and by little else."""
    changes, messages = BAD[name]
    found = refusal(server.api, f"{DRIVERS}?{DRY}&{STRICT}", driver(factories.spec(**changes)))
    assert found
    assert found.status == 422
    said = {text: {message for message in MESSAGES if text.endswith(message)} for _, text in found.causes}
    assert set().union(*said.values()) == messages
    assert [text for text, of_rules in said.items() if not of_rules] == BESIDE_RULES.get(name, [])


ALL_FIELDS = {name or "all fields": {**FULL, **instead} for name, instead in {"": {}, **INSTEAD}.items()}
MODPROBE = {
    "moduleName": "edu",
    "modulesLoadingOrder": ["edu", "b"],
    "parameters": ["x=1"],
    "firmwarePath": "/firmware",
}
CONVERTED = {
    "an image": convert(module(), Known()),
    "images by kernel, modules in an order": convert(module(BY_KERNEL, modprobe=MODPROBE), Known(kernels=(K1, K2))),
    "a device plugin": convert(
        module(spec={"devicePlugin": {"container": PLUGIN}}), Known(resources={"drivers/edu": "example.com/edu"})
    ),
    "a DRA driver": convert(module(spec={"dra": {**DRA, "container": PLUGIN}}), Known()),
}


@pytest.mark.parametrize("spec", ALL_FIELDS.values(), ids=ALL_FIELDS)
def test_each_field_that_is_read_is_one_of_the_definition(server: CustomResources, spec: Json) -> None:
    """With all others that it does not exclude."""
    written = {name: value for name, value in spec.items() if value is not None}
    assert refusal(server.api, f"{DRIVERS}?{DRY}&{STRICT}", driver(written)) is None


@pytest.mark.parametrize("conversion", CONVERTED.values(), ids=CONVERTED)
def test_what_is_converted_from_kmm_is_stored(server: CustomResources, conversion: Conversion) -> None:
    """``driver-builder convert kmm`` writes no field that the definition does not know."""
    assert conversion.driver is not None
    assert refusal(server.api, f"{DRIVERS}?{DRY}&{STRICT}", driver(conversion.driver["spec"])) is None


def test_where_the_schema_is_wider_than_the_parser_the_server_is(client: Client) -> None:
    """What the parser alone refuses was stored before, and is: every other write of it would be refused."""
    specs = {field: spec_with(field, value) for field, (value, _) in WIDER.items()}
    assert [field for field, spec in specs.items() if not stored(client, spec)] == []


SAMPLES = [(field, value) for field, part in FIELDS.items() for value in samples(field, part)]


def disagreements(client: Client, chosen: list[tuple[str, Any]]) -> list[str]:
    """Name the samples of which the description of the schema does not say what the server says."""
    specs = [(field, value, spec_with(field, value)) for field, value in chosen]
    return [f"{field} = {value!r}" for field, value, spec in specs if stored(client, spec) != allows(spec)]


def test_the_description_of_the_schema_says_what_the_server_says(client: Client) -> None:
    """Parser and schema are compared by that description, field by field (``tests/contract/test_spec_rules.py``)."""
    assert disagreements(client, SAMPLES[::FEW]) == []


@pytest.mark.long
def test_it_says_so_of_every_sample(client: Client) -> None:
    """Good and bad values of each field, of each type, and at the limits."""
    assert disagreements(client, SAMPLES) == []


def test_unknown_fields_are_dropped_or_refused_as_one_asks(server: CustomResources, client: Client) -> None:
    """``kubectl apply`` asks for the latter."""
    body = driver(factories.spec(modul={"names": ["a"]}))
    found = refusal(server.api, f"{DRIVERS}?{DRY}&{STRICT}", body)
    assert found
    assert found.status == 400
    assert 'unknown field "spec.modul"' in found.message
    assert client.create(f"{DRIVERS}?{DRY}", body)["spec"] == factories.spec()


def test_the_status_that_the_controller_writes_is_stored_whole(server: CustomResources, client: Client) -> None:
    """While a driver is built, when it is ready, and when its spec is wrong: each field is in the definition."""
    world = World()
    world.add_node("node-a", factories.KERNEL)
    world.add_driver()
    world.reconcile()
    statuses = [world.status()]
    world.settle()
    statuses.append(world.status())
    client.create(DRIVERS, driver(factories.spec()))
    for status in statuses:
        path = f"{DRIVERS}/a/status"
        patch = {"status": status}
        kind = "application/merge-patch+json"
        assert refusal(server.api, f"{path}?{STRICT}", patch, method="PATCH", kind=kind) is None
        kept = client.get(f"{DRIVERS}/a")["status"]
        assert {name: kept.get(name) for name in status} == status


def test_two_managers_apply_one_driver(client: Client) -> None:
    """Each owns what it applies; a field of another's is a conflict that names its owner."""
    path = f"{DRIVERS}/a"
    client.apply(path, driver(factories.spec()), field_manager="admin", force=False)
    changed = client.apply(path, driver({"rollout": {"maxUnavailable": 2}}), field_manager="gitops", force=False)
    assert changed["spec"].pop("rollout")["maxUnavailable"] == 2
    assert changed["spec"] == factories.spec()
    with pytest.raises(Conflict) as found:
        client.apply(path, driver({"version": "2"}), field_manager="gitops", force=False)
    assert dict(found.value.owners) == {".spec.version": "admin"}
    assert client.apply(path, driver({"version": "2"}), field_manager="gitops")["spec"]["version"] == "2"
    assert "rollout" not in client.get(path)["spec"]


def test_conditions_of_two_managers_stand_side_by_side(client: Client) -> None:
    """They are a map by their type: neither writer removes the other's."""
    client.create(DRIVERS, driver(factories.spec()))
    times = {"lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Tried", "message": ""}
    for kind in ("Ready", "Other"):
        body = driver({})
        del body["spec"]
        body["status"] = {"conditions": [{"type": kind, "status": "True", **times}]}
        client.apply(f"{DRIVERS}/a/status", body, field_manager=kind, force=False)
    found = client.get(f"{DRIVERS}/a")["status"]["conditions"]
    assert sorted(item["type"] for item in found) == ["Other", "Ready"]


def test_a_watch_brings_every_change(client: Client) -> None:
    """From the version of a list on; another version of a driver, another generation."""
    listed = client.list(DRIVERS)
    events = client.watch(DRIVERS, resource_version=listed.resource_version, seconds=120)
    client.create(DRIVERS, driver(factories.spec()))
    client.patch(f"{DRIVERS}/a", {"spec": {"version": "2"}})
    client.delete(f"{DRIVERS}/a")
    seen = list(itertools.islice((event for event in events if event.kind in KINDS), 3))
    assert [(event.kind, event.object["metadata"]["generation"]) for event in seen] == [
        ("ADDED", 1),
        ("MODIFIED", 2),
        ("DELETED", 2),
    ]


GROUP = "ratchet.example.com"
OLD_DRIVERS = DRIVERS.replace("driverwright.io", GROUP, 1)


@pytest.fixture
def old_driver(server: CustomResources) -> Iterator[str]:
    """A driver that was stored before the definition had a rule that it breaks; its path."""
    (crd, *_) = newer_server.definitions()
    newer_server.define(server.api, newer_server.in_another_group(crd, GROUP, rules=False))
    changes, _ = BAD["two canaries"]
    body = {**driver(factories.spec(**changes)), "apiVersion": f"{GROUP}/v1alpha1"}
    # A definition whose rules were taken away is served by its old storage for a while.
    newer_server.until(lambda: refusal(server.api, f"{OLD_DRIVERS}?{DRY}", body) is None)
    server.api.create(OLD_DRIVERS, body)
    newer_server.define(server.api, newer_server.in_another_group(crd, GROUP, rules=True))
    other = {**body, "metadata": {**body["metadata"], "name": "b"}}
    newer_server.until(lambda: refusal(server.api, f"{OLD_DRIVERS}?{DRY}", other) is not None)
    yield f"{OLD_DRIVERS}/a"
    server.api.delete(f"{OLD_DRIVERS}/a")


@pytest.mark.parametrize(
    ("what", "patch", "is_stored"),
    [
        pytest.param("", {"metadata": {"labels": {"a": "b"}}}, True, id="a label"),
        pytest.param("", {"metadata": {"finalizers": ["driverwright.io/x"]}}, True, id="a finalizer"),
        pytest.param("/status", {"status": {"observedGeneration": 7}}, True, id="the status"),
        pytest.param("", {"spec": {"version": "2"}}, True, id="another field"),
        pytest.param("", {"spec": {"rollout": {"maxUnavailable": 2}}}, False, id="the part that breaks the rule"),
        pytest.param("", {"spec": {"rollout": {"canary": None}}}, True, id="its mending"),
    ],
)
def test_a_new_rule_does_not_bind_what_stays_as_it_was(
    server: CustomResources, old_driver: str, what: str, patch: Json, is_stored: bool
) -> None:
    """Else neither the state of a driver that was stored before could be told nor its finalizer go (ratcheting)."""
    kind = "application/merge-patch+json"
    found = refusal(server.api, f"{old_driver}{what}?{DRY}", patch, method="PATCH", kind=kind)
    assert (found is None) is is_stored, found
