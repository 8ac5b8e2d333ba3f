"""The manifests of ``deploy/`` fit each other, and they fit the code."""

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from driver_builder import driver_container, events, plan, status
from driver_builder.driver_container import parse_spec
from driver_builder.errors import InvalidDriver
from driver_builder.rebuild import Rebuilds
from driver_builder.status import TargetState
from kube_api import names, resources
from kube_api.resources import DRIVER_CONTAINERS
from tests.unit.driver_builder import factories

Json = dict[str, Any]

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "deploy").rglob("*.yaml"))
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))
DOCUMENTS = [(path, item) for path in FILES for item in yaml.safe_load_all(path.read_text()) if item]
WORKLOADS = [item for _, item in DOCUMENTS if item["kind"] in ("Deployment", "DaemonSet")]


def objects(kind: str) -> list[Json]:
    """Give all manifests of a kind."""
    return [item for _, item in DOCUMENTS if item["kind"] == kind]


def named(obj: Json) -> tuple[str, str, str]:
    """Give kind, namespace and name."""
    metadata = obj["metadata"]
    return obj["kind"], metadata.get("namespace", ""), metadata["name"]


EVERYTHING = {named(item) for _, item in DOCUMENTS}


def crd() -> Json:
    """Give the only version of DriverContainer's CRD."""
    (found,) = [item for item in objects("CustomResourceDefinition") if item["spec"]["group"] == "driverwright.io"]
    (version,) = found["spec"]["versions"]
    return {**version, "spec": found["spec"]}


def schema(*path: str) -> Json:
    """Give the part of the CRD's schema at a path; ``[]`` goes into a list."""
    part: Json = crd()["schema"]["openAPIV3Schema"]
    for word in path:
        part = part["items"] if word == "[]" else part["properties"][word]
    return part


@pytest.mark.parametrize(("path", "obj"), DOCUMENTS, ids=lambda value: value.name if isinstance(value, Path) else "")
def test_every_manifest_is_of_a_kind_we_know(path: Path, obj: Json) -> None:
    """Whoever applies them with our own client can."""
    resource = resources.of(obj)
    assert resource.namespaced is ("namespace" in obj["metadata"]), path


def test_no_object_is_there_twice() -> None:
    """One manifest for each object."""
    assert len(EVERYTHING) == len(DOCUMENTS)


@pytest.mark.parametrize("kind", ["RoleBinding", "ClusterRoleBinding"])
def test_bindings_bind_what_is_there(kind: str) -> None:
    """Role and service account of each binding exist under these names."""
    for binding in objects(kind):
        role = binding["roleRef"]
        namespace = binding["metadata"].get("namespace", "") if role["kind"] == "Role" else ""
        assert (role["kind"], namespace, role["name"]) in EVERYTHING
        for subject in binding["subjects"]:
            assert (subject["kind"], subject["namespace"], subject["name"]) in EVERYTHING


def test_every_role_is_bound() -> None:
    """A role that nobody has is a mistake."""
    bound = {binding["roleRef"]["name"] for kind in ("RoleBinding", "ClusterRoleBinding") for binding in objects(kind)}
    assert {role["metadata"]["name"] for kind in ("Role", "ClusterRole") for role in objects(kind)} == bound


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload["metadata"]["name"])
def test_workloads_refer_to_what_is_there(workload: Json) -> None:
    """Service account and ConfigMaps exist; the selector finds the workload's own pods; the namespace exists."""
    template, namespace = workload["spec"]["template"], workload["metadata"]["namespace"]
    assert ("Namespace", "", namespace) in EVERYTHING
    assert ("ServiceAccount", namespace, template["spec"]["serviceAccountName"]) in EVERYTHING
    assert workload["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    volumes = {volume["name"]: volume for volume in template["spec"].get("volumes", [])}
    for volume in volumes.values():
        if "configMap" in volume and not volume["configMap"].get("optional"):
            assert ("ConfigMap", namespace, volume["configMap"]["name"]) in EVERYTHING
    for container in template["spec"]["containers"]:
        assert {mount["name"] for mount in container.get("volumeMounts", [])} <= set(volumes)


def test_rules_name_resources_that_exist() -> None:
    """A misspelt group or resource would grant nothing, silently."""
    known = {(resource.group, resource.plural) for resource in resources._ALL}
    verbs = {"create", "delete", "get", "list", "patch", "update", "watch"}
    for role in objects("Role") + objects("ClusterRole"):
        for rule in role["rules"]:
            for resource in rule["resources"]:
                assert (rule["apiGroups"][0], resource.partition("/")[0]) in known, role["metadata"]["name"]
            assert set(rule["verbs"]) <= verbs


# ---------------------------------------------------------------- the CRD and the code


def test_the_crd_is_the_resource_that_the_code_asks_for() -> None:
    """Group, version, plural and kind."""
    found = crd()
    assert (found["spec"]["group"], found["name"]) == (DRIVER_CONTAINERS.group, DRIVER_CONTAINERS.version)
    spoken = found["spec"]["names"]
    assert (spoken["plural"], spoken["kind"]) == (DRIVER_CONTAINERS.plural, DRIVER_CONTAINERS.kind)
    assert found["subresources"] == {"status": {}}


def test_the_states_of_the_schema_are_those_of_the_code() -> None:
    """A state the schema does not know could not be written."""
    assert schema("status", "targets", "[]", "state")["enum"] == [state.value for state in TargetState]


def properties(part: Json, prefix: str = "") -> set[str]:
    """Name every field of a schema by its path."""
    found: set[str] = set()
    for name, inner in part.get("properties", {}).items():
        found |= {prefix + name} | properties(inner, f"{prefix}{name}.")
    return found | (properties(part["items"], prefix.rstrip(".") + "[].") if "items" in part else set())


def test_every_field_of_the_schema_is_read_by_the_code() -> None:
    """No field of the spec is an empty promise, and the code reads none that the API server would prune."""
    read = {
        node.value
        for node in ast.walk(ast.parse(inspect.getsource(driver_container)))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch("[a-z][A-Za-z]*", node.value)
    }
    promised = {path.rpartition(".")[2].removesuffix("[]") for path in properties(schema("spec"))}
    assert promised <= read
    asked = _words_asked_for(driver_container)
    assert asked - promised <= {"metadata", "spec", "status", "annotations", "namespace", "uid", "generation",
                                "finalizers", "host", "repository"}  # fmt: skip


def _words_asked_for(module: object) -> set[str]:
    """Name the constants in ``x.get("word")`` and ``x["word"]``."""
    found = set()
    for node in ast.walk(ast.parse(inspect.getsource(module))):  # type: ignore[arg-type]
        match node:
            case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(word)), *_]):
                found.add(word)
            case ast.Subscript(slice=ast.Constant(value=str(word))):
                found.add(word)
    return found


def test_every_field_of_a_status_is_in_the_schema() -> None:
    """What the API server does not know it prunes, and the status would be written again and again."""
    before = factories.with_images(factories.snapshot())
    failed = plan.plan(before, factories.SETTINGS).drivers[0]
    entry = failed.targets[0]
    full = [
        status.TargetStatus(**{
            **{field: getattr(entry, field) for field in entry.__dataclass_fields__},
            "digest": "sha256:0", "key": "k", "failures": 1, "last_failure": 1.0,
        })
    ]  # fmt: skip
    rebuilds = Rebuilds(requests={"DriverContainer": "1"}, tokens={"*": "t"})
    written = status.render(factories.driver(), full, rebuilds=rebuilds, unknown={}, now=1.0)
    _assert_known(written, schema("status"), "status")


def _assert_known(value: Any, part: Json, where: str) -> None:
    if isinstance(value, dict):
        if "additionalProperties" in part:
            return
        assert set(value) <= set(part["properties"]), where
        for name, inner in value.items():
            _assert_known(inner, part["properties"][name], f"{where}.{name}")
    elif isinstance(value, list):
        for inner in value:
            _assert_known(inner, part["items"], f"{where}[]")


def test_printer_columns_show_fields_that_exist() -> None:
    """A column's path leads into the schema."""
    for column in crd()["additionalPrinterColumns"]:
        path = re.sub(r"\[\?.*?\]", ".[]", column["jsonPath"])
        words = [word for word in path.split(".") if word]
        if words[0] != "metadata":
            schema(*words)


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        pytest.param(("spec", "version"), ["1", "1.0-rc_1"], ["", "-1", "1 0"], id="version"),
        pytest.param(("spec", "image"), ["r.io/a", "r:5000/a/b-c"], ["a", "r.io/A", "r.io/a:1"], id="image"),
        pytest.param(("spec", "module", "names", "[]"), ["edudrv", "a-b_c"], ["", "a b", "a" * 56], id="module"),
    ],
)
def test_schema_and_code_agree(pattern: tuple[str, ...], good: list[str], bad: list[str]) -> None:
    """What the API server lets through the code understands, and what it refuses is refused by the code as well."""
    expression = schema(*pattern)["pattern"]
    for value in (*good, *bad):
        allowed = re.search(expression, value) is not None
        field = pattern[1]
        change = {"module": {"names": [value]}} if field == "module" else {field: value}
        try:
            parse_spec(factories.spec(**change))
        except InvalidDriver:
            assert not allowed, value
        else:
            assert allowed, value


# ---------------------------------------------------------------- examples


DRIVERS = [
    (path, item)
    for path in (*EXAMPLES, *FILES)
    for item in yaml.safe_load_all(path.read_text())
    if item and item.get("kind") == DRIVER_CONTAINERS.kind
]


@pytest.mark.parametrize(
    ("path", "obj"), DRIVERS, ids=lambda value: value.parent.name if isinstance(value, Path) else ""
)
def test_every_example_is_a_good_driver(path: Path, obj: Json) -> None:
    """The examples can be applied: no unknown field, and a spec that can be acted on."""
    assert obj["apiVersion"] == DRIVER_CONTAINERS.api_version, path
    _assert_known(obj["spec"], schema("spec"), "spec")
    parse_spec(obj["spec"])


def test_there_is_an_example() -> None:
    """The list above is not empty."""
    assert DRIVERS


def test_events_come_from_the_program_by_its_name() -> None:
    """The component of Events is the name of the Deployment."""
    assert events.COMPONENT in {item["metadata"]["name"] for item in objects("Deployment")}
    assert DRIVER_CONTAINERS.group == names.GROUP
