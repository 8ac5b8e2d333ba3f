"""The manifests of ``deploy/`` fit each other, and they fit the code."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from device_agent.config.config_file import Description, parse_description
from device_agent.config.options import DEFAULT_FILE, DEFAULT_PLUGIN_DIR
from driver_builder.api import spec_parser, status
from driver_builder.api.build_settings import SOURCE
from driver_builder.api.driver_spec import SPEC
from driver_builder.api.rebuild_status import Rebuilds
from driver_builder.api.spec_parser import parse_spec
from driver_builder.api.spec_reader import Notes, Reader
from driver_builder.base.reasons import Reason, TargetState, remedy_of
from driver_builder.checks import check_dra, check_rights, deployed
from driver_builder.cli.examination import manifests
from driver_builder.controller import events
from driver_builder.plan import plan
from driver_builder.rollout import drain
from kube_api import names, resources
from kube_api.resources import DRIVER_CONTAINERS, RESOURCE_SLICES
from tests.support.driver_builder import factories
from tests.support.yaml_files import read_documents, read_yaml
from tools import product_images

Json = dict[str, Any]

ROOT = Path(__file__).parents[2]
PATCHES = sorted((ROOT / "deploy" / "patches").glob("*.yaml"))
BASE = ROOT / "deploy" / "kustomization.yaml"
OVERLAY = ROOT / "examples" / "overlay" / "kustomization.yaml"
# Not in the base: older API servers refuse them (test_admission_policies.py).
ADMISSION = sorted((ROOT / "deploy" / "admission").glob("*.yaml"))
# Not in the base: whoever drains nodes applies it.
DRAIN = ROOT / "deploy" / "driver-builder" / "drain.yaml"
# Not in the base: whoever lets a vendor's DRA driver be a plugin applies it.
DRA = DRAIN.with_name("dra.yaml")
# Not in the base: clusters whose pods need no devices go without it. A base of its own.
AGENT = sorted((ROOT / "deploy" / "device-agent").glob("*.yaml"))
# What they are rendered from: test_chart.py.
CHART = (ROOT / "deploy" / "chart").rglob("*.yaml")
NOT_IN_THE_BASE = (*PATCHES, *ADMISSION, *AGENT, DRAIN, DRA, BASE, *CHART)
FILES = [path for path in sorted((ROOT / "deploy").rglob("*.yaml")) if path not in NOT_IN_THE_BASE]
EXAMPLES = sorted((ROOT / "examples").rglob("*.yaml"))
# By libyaml, where PyYAML has it: each process of the tests reads them.
DOCUMENTS = [(path, item) for path in FILES for item in read_documents(path.read_text())]
WORKLOADS = [item for _, item in DOCUMENTS if item["kind"] in ("Deployment", "DaemonSet")]


def objects(kind: str) -> list[Json]:
    """Return all manifests of a kind."""
    return [item for _, item in DOCUMENTS if item["kind"] == kind]


def named(obj: Json) -> tuple[str, str, str]:
    """Return kind, namespace and name."""
    metadata = obj["metadata"]
    return obj["kind"], metadata.get("namespace", ""), metadata["name"]


EVERYTHING = {named(item) for _, item in DOCUMENTS}


def crd() -> Json:
    """Return the only version of DriverContainer's CRD."""
    (found,) = [item for item in objects("CustomResourceDefinition") if item["spec"]["group"] == "driverwright.io"]
    (version,) = found["spec"]["versions"]
    return {**version, "spec": found["spec"]}


def schema(*path: str) -> Json:
    """Return the part of the CRD's schema at a path; ``[]`` goes into a list."""
    part: Json = crd()["schema"]["openAPIV3Schema"]
    for word in path:
        part = part["items"] if word == "[]" else part["properties"][word]
    return part


def test_the_base_names_every_manifest() -> None:
    """``kubectl apply -k deploy`` applies all files of ``deploy/`` but those that are optional, each once."""
    resources_named = read_yaml(BASE.read_text())["resources"]
    assert sorted(resources_named) == [str(path.relative_to(BASE.parent)) for path in FILES]


@pytest.mark.parametrize("path", [BASE, OVERLAY], ids=lambda path: path.parent.name)
def test_kustomizations_use_fields_of_kustomize_2(path: Path) -> None:
    """The kustomize inside kubectl 1.20 is 2.0.3, and refuses fields that it does not know."""
    known = {"apiVersion", "kind", "resources", "bases", "images", "patchesStrategicMerge"}
    assert read_yaml(path.read_text()).keys() <= known


@pytest.mark.parametrize("path", PATCHES, ids=lambda path: path.stem)
def test_patches_delete_no_item_of_a_list(path: Path) -> None:
    """That kustomize forgets ``$patch`` where a patch before it, such as the overlay's, is of the same object."""
    assert "$patch" not in path.read_text()


def test_the_overlay_replaces_every_image_of_ours() -> None:
    """Both programs' images, and those that driver-builder puts into the pods it creates."""
    overlay = read_yaml(OVERLAY.read_text())
    assert [(OVERLAY.parent / base).resolve() for base in overlay["bases"]] == [BASE.parent]
    images = {container["image"] for item in WORKLOADS for container in item["spec"]["template"]["spec"]["containers"]}
    assert {f"{image['name']}:latest": f"{image['newName']}:latest" for image in overlay["images"]} == {
        image: f"registry.example.com/team/{image}" for image in images
    }
    (patch,) = [read_yaml((OVERLAY.parent / name).read_text()) for name in overlay["patchesStrategicMerge"]]
    (deployed,) = [item for item in objects(patch["kind"]) if named(item) == named(patch)]
    replaced, before = (_image_variables(item) for item in (patch, deployed))
    assert replaced == {name: f"registry.example.com/team/{image}" for name, image in before.items()}


def test_the_deployment_names_every_image_of_ours() -> None:
    """Those that driver-builder puts into pods are settings of its Deployment, also that of the device agent."""
    containers = [item for work in WORKLOADS for item in work["spec"]["template"]["spec"]["containers"]]
    variables = [value for work in WORKLOADS for value in _image_variables(work).values()]
    named_images = {*variables, *(container["image"] for container in containers)}
    assert named_images == {f"driverwright/{name}:latest" for name in product_images.EVERY if name != "edu-workload"}


def _image_variables(workload: Json) -> dict[str, str]:
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    return {item["name"]: item["value"] for item in container.get("env", ()) if item["name"].endswith("_IMAGE")}


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


def test_the_controllers_working_space_is_bounded() -> None:
    """Its root is read-only, and /tmp has a limit: images in passing do not fill the node's disk."""
    (pod,) = [item["spec"]["template"]["spec"] for item in objects("Deployment")]
    (container,) = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    (name,) = [mount["name"] for mount in container["volumeMounts"] if mount["mountPath"] == "/tmp"]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == name]
    assert re.fullmatch(r"[1-9][0-9]*[MG]i", volume["emptyDir"]["sizeLimit"])


def test_doctor_knows_where_each_role_is_needed() -> None:
    """In each namespace of drivers, in that of the workers, or in the one that it names."""
    roles = [role["metadata"] for role in manifests.roles() if role["kind"] == "Role"]
    assert {(role["name"], role["namespace"]) for role in roles} == {
        (check_rights.DRIVERS_ROLE, "driverwright"),
        (check_rights.RULES_ROLE, "driverwright"),
        (check_rights.NODE_FEATURES_ROLE, "driverwright"),
        ("driverwright-driver-builder-events", "default"),
    }


def test_the_package_installs_the_manifests_that_doctor_compares_with() -> None:
    """And the images' wheel is made of them."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["data-files"]
    patterns = [pattern for folder, found in data.items() if "/deploy/" in folder for pattern in found]
    installed = {path for pattern in patterns for path in ROOT.glob(pattern)}
    assert installed == {*(ROOT / "deploy" / "crds").iterdir(), DRAIN.with_name("rbac.yaml"), DRAIN, DRA}
    assert all(any(path.is_relative_to(ROOT / part) for part in product_images._SOURCE) for path in installed)


def test_doctor_looks_for_what_is_deployed() -> None:
    """Names of the workloads, and the label of their pods."""
    found = {item["metadata"]["name"]: item["spec"]["template"]["metadata"]["labels"] for item in WORKLOADS}
    assert {name: labels[deployed.NAME_LABEL] for name, labels in found.items()} == {
        name: name for name in (deployed.DEPLOYMENT, deployed.WORKERS)
    }


def test_rules_name_resources_that_exist() -> None:
    """A misspelt group or resource would grant nothing, silently."""
    known = {(resource.group, resource.plural) for resource in resources._ALL}
    verbs = {"create", "delete", "get", "list", "patch", "update", "watch"}
    for role in objects("Role") + objects("ClusterRole"):
        for rule in role["rules"]:
            for resource in rule["resources"]:
                assert (rule["apiGroups"][0], resource.partition("/")[0]) in known, role["metadata"]["name"]
            assert set(rule["verbs"]) <= verbs


def test_nothing_more_is_granted_for_all_namespaces() -> None:
    """RBAC cannot name Nodes that come and go; what else is known by its name is granted by it, in the Roles.

    The rest is for the admission policies (docs/security.md).
    """
    granted = {
        role["metadata"]["name"]: {name: rule["verbs"] for rule in role["rules"] for name in rule["resources"]}
        for role in objects("ClusterRole")
    }
    assert granted == {
        "driverwright-nfd-worker": {"nodes": ["get", "patch"], "nodes/status": ["patch"]},
        "driverwright-driver-builder": {"nodes": ["list", "watch", "patch"], "nodefeaturerules": ["list", "watch"]},
    }
    by_name = {
        (resource, *rule["resourceNames"]): rule["verbs"]
        for role in objects("Role")
        for rule in role["rules"]
        for resource in rule["resources"]
        if "resourceNames" in rule
    }
    assert by_name == {
        ("configmaps", "driver-builder-images"): ["patch"],
        ("configmaps", "nfd-worker-rules"): ["get", "patch"],
        ("leases", "driver-builder"): ["get", "update"],
    }


def test_the_device_agent_has_no_rights() -> None:
    """Its base names all files beside it, which grant nothing; its pods have no token and write to one folder."""
    documents = [item for path in AGENT for item in read_documents(path.read_text())]
    (base,) = [item for item in documents if item["kind"] == "Kustomization"]
    assert sorted(base["resources"]) == [path.name for path in AGENT if path.name != "kustomization.yaml"]
    assert {item["kind"] for item in documents} == {"ConfigMap", "DaemonSet", "Kustomization", "ServiceAccount"}
    (account,) = [item for item in documents if item["kind"] == "ServiceAccount"]
    (pod,) = [item["spec"]["template"]["spec"] for item in documents if item["kind"] == "DaemonSet"]
    assert not account["automountServiceAccountToken"]
    assert not pod["automountServiceAccountToken"]
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    (container,) = pod["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    writable = [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
    assert writable == [DEFAULT_PLUGIN_DIR]
    (settings,) = [item["data"] for item in documents if item["kind"] == "ConfigMap"]
    assert parse_description(settings[Path(DEFAULT_FILE).name], "f") == Description()


def test_the_rights_to_drain_are_three_and_are_asked_for_by_name() -> None:
    """Pods are listed and evicted, never deleted, and their claims are read; the status names the manifest."""
    role, binding = read_documents(DRAIN.read_text())
    granted = {name: rule["verbs"] for rule in role["rules"] for name in rule["resources"]}
    assert granted == {"pods": ["list"], "pods/eviction": ["create"], "resourceclaims": ["get"]}
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [named(item)[1:] for item in objects("ServiceAccount")].count(
        (binding["subjects"][0]["namespace"], binding["subjects"][0]["name"])
    ) == 1
    assert ROOT / drain.MANIFEST == DRAIN


def test_the_right_to_slices_is_to_see_them_and_is_asked_for_by_name() -> None:
    """They are listed and watched, never written; the status and doctor name the manifest."""
    role, binding = read_documents(DRA.read_text())
    (rule,) = role["rules"]
    assert (rule["apiGroups"], rule["resources"]) == ([RESOURCE_SLICES.group], [RESOURCE_SLICES.plural])
    assert rule["verbs"] == ["list", "watch"]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert (binding["subjects"][0]["namespace"], binding["subjects"][0]["name"]) in [
        named(item)[1:] for item in objects("ServiceAccount")
    ]
    assert ROOT / check_dra.MANIFEST == DRA
    assert check_dra.MANIFEST in remedy_of(Reason.RESOURCE_SLICES_NOT_READ)


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


def properties(part: Json, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Json]]:
    """Return every field of a schema with the way to it; the fields of a list's items as those of the list."""
    for name, inner in part.get("properties", {}).items():
        yield (*path, name), inner
        yield from properties(inner, (*path, name))
    if "items" in part:
        yield from properties(part["items"], path)


def everything(part: Json) -> Any:
    """Write an object in which each field of a schema is set to something."""
    if part.get("type") == "object":
        return {name: everything(inner) for name, inner in part.get("properties", {}).items()}
    return [everything(part["items"])] if part.get("type") == "array" else "x"


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind) for kind in SOURCE.rows])
def test_the_schema_has_the_fields_that_the_code_reads(kind: str) -> None:
    """No field of the spec is an empty promise, and the code reads none that the API server would prune."""
    spec = everything(schema("spec"))
    spec["source"] = {kind: spec["source"][kind]}
    notes = Notes()
    SPEC.of(Reader(spec, ("spec",), notes))
    assert notes.unknown == ()
    asked = {
        (*(word for word in reader.path if isinstance(word, str)), name)
        for reader in notes.readers
        for name in reader.asked
        if reader.path[-1] != "parameters"  # whose keys are the names of modules
    }
    assert asked <= {("spec", *path) for path, _ in properties(schema("spec"))}


def test_the_schema_knows_every_kind_of_source() -> None:
    """The schema has one field for each kind of source."""
    assert set(schema("spec", "source")["properties"]) == set(SOURCE.rows)


def test_the_schema_says_which_fields_are_ignored() -> None:
    """Their descriptions begin with the same word, and no other's does."""
    said = {
        ".".join(("spec", *path))
        for path, part in properties(schema("spec"))
        if part.get("description", "").startswith("Deprecated: ignored since 0.2.")
    }
    assert said == set(spec_parser.DEPRECATED)


def test_every_field_is_described() -> None:
    """What ``kubectl explain`` shows; a name and a key are described by what they are of."""
    bare = [path for path, part in properties(schema("spec")) if "description" not in part]
    assert {path[-1] for path in bare} <= {"name", "requests", "limits"}


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
    container = factories.driver(spec_changes={"retention": {"versions": 1}})
    written = status.render(container, full, rebuilds=rebuilds, unknown={}, now=1.0)
    _assert_known(written, schema("status"), "status")


def _assert_known(value: Any, part: Json, where: str) -> None:
    if isinstance(value, dict):
        if "additionalProperties" in part or part.get("x-kubernetes-preserve-unknown-fields"):
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


# ---------------------------------------------------------------- examples


DRIVERS = [
    (path, item)
    for path in (*EXAMPLES, *FILES)
    for item in read_documents(path.read_text())
    if item.get("kind") == DRIVER_CONTAINERS.kind
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
