"""examples/nvidia, and the pages that walk through it: files, names and fields agree; no cluster is needed."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kubernetes_validate import utils as schemas

from device_agent.cli.arguments import parse
from device_agent.cli.main import run as agent_cli
from device_agent.mig.parse import parse_layouts
from device_agent.profiles.apply import apply
from device_agent.profiles.parse import parse_profile
from device_agent.profiles.strategy import Sorted
from device_resources.nvidia import MigStrategy
from driver_builder.cli.main import main as builder_cli
from driver_builder.objects import plugin
from tests.contract.chart import objects, one
from tests.contract.test_manifest_schemas import NEWEST, OLDEST
from tests.support.console import ROOT, alike, blocks, session
from tests.support.driver_builder.factories import driver, spec_of
from tests.support.yaml_files import read_documents, read_yaml
from tests.unit.device_agent.nvidia.states import card, split

Json = dict[str, Any]

EXAMPLES = ROOT / "examples/nvidia"
PAGE, AUTOSCALING = "docs/nvidia-from-zero.md", "docs/autoscaling.md"
GPU = "nvidia.com/gpu"
ALONE = re.compile("device-agent (profiles|mig) ")
"""Commands that need no cluster."""
FILES = sorted(path for path in EXAMPLES.rglob("*") if path.is_file())
OUR_KINDS = ("DriverContainer", "NodePool", "NodeOverlay")
WITHOUT_KIND = ("values.yaml", "mig-layouts.yaml", "cluster-autoscaler-tags.yaml")
(DRIVER,) = read_documents((EXAMPLES / "driver-container.yaml").read_text())
MANIFESTS = [
    item
    for path in FILES
    if path.suffix == ".yaml" and path.name not in WITHOUT_KIND
    for item in read_documents(path.read_text())
]
PROFILES = {path.name: path.read_text() for path in FILES if path.parent.name == "profiles"}


def named(kind: str) -> list[Json]:
    """Return the objects of a kind."""
    return [item for item in MANIFESTS if item["kind"] == kind]


def text(page: str) -> str:
    """Return a page."""
    return (ROOT / page).read_text()


# ---------------------------------------------------------------- files and commands


def test_the_pages_name_each_file_and_no_other() -> None:
    """By its path, or its folder by that."""
    both = text(PAGE) + text(AUTOSCALING)
    mentioned = set(re.findall(r"examples/nvidia[\w./-]*\w", both))
    assert {name for name in mentioned if not (ROOT / name).exists()} == set()
    paths = {str(path.relative_to(ROOT)) for path in FILES}
    assert {path for path in paths if not any(path == name or str(Path(path).parent) == name
            for name in mentioned - {"examples/nvidia"})} == set()  # fmt: skip


@pytest.mark.parametrize(
    ("command", "printed"),
    [pytest.param(*said, id=said.command) for said in session(PAGE) if ALONE.match(said.command)],
)
def test_commands_without_a_cluster_print_what_the_page_says(
    command: str, printed: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the root of a checkout."""
    monkeypatch.chdir(ROOT)
    assert agent_cli(shlex.split(command)[1:], {}) == 0
    assert alike(capsys.readouterr().out) == alike(printed)


def test_commands_that_are_not_run_name_what_there_is() -> None:
    """Programs of ours, the plugin's DaemonSet and container, and metrics."""
    shell, query = "\n".join(blocks(PAGE, "sh")), "\n".join(blocks(PAGE, "promql"))
    (asked,) = re.findall(r"-- device-agent (\w+)$", shell, re.MULTILINE)
    assert parse([asked]).command == "who"
    container = driver(DRIVER["metadata"]["name"], spec_changes={"stages": DRIVER["spec"]["stages"]})
    assert f"exec daemonset/{plugin.name_of(container)} -c device-plugin" in shell
    for metric in re.findall(r"\b(?:DCGM|device_agent)_\w+", query):
        assert f"| `{metric}` |" in text("docs/gpu-metrics.md")


def test_the_driver_is_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    """Without an error and without a warning."""
    assert builder_cli(["lint", str(EXAMPLES / "driver-container.yaml")]) == 0
    assert capsys.readouterr().out == "1 DriverContainer checked, no problems\n"


def test_the_build_knows_the_archives_components() -> None:
    """The base image's Dockerfile adds them to Debian's list as it is in the image that it begins with."""
    listed = "".join(
        f"Types: deb\nURIs: http://deb.debian.org/{name}\nSuites: {suites}\nComponents: main\n\n"
        for name, suites in (("debian", "bookworm bookworm-updates"), ("debian-security", "bookworm-security"))
    )
    (expression,) = re.findall(r"sed -i '(.+)'", (EXAMPLES / "base/Dockerfile").read_text())
    done = subprocess.run(["sed", expression], input=listed, capture_output=True, text=True, check=True)
    assert done.stdout.count("Components: main contrib non-free non-free-firmware\n") == 2
    assert DRIVER["spec"]["build"]["baseImage"].endswith("/debian-nonfree:bookworm")
    assert "docker build -t $REGISTRY/debian-nonfree:bookworm examples/nvidia/base" in text(PAGE)


@pytest.mark.parametrize("minor", [OLDEST, NEWEST])
def test_kubernetes_knows_every_field(minor: int) -> None:
    """Of each object that is Kubernetes' own."""
    own = [item for item in MANIFESTS if item["kind"] not in OUR_KINDS]
    assert len(own) > 20
    for item in own:
        assert schemas.validate(item, f"1.{minor}", strict=True) == f"1.{minor}"


# ---------------------------------------------------------------- one name for one thing


def test_the_account_is_one() -> None:
    """In the driver, the chart's values, and the commands of the page; the chart lets it be read."""
    namespace = DRIVER["metadata"]["namespace"]
    name = DRIVER["spec"]["stages"]["devicePlugin"]["nvidia"]["serviceAccountName"]
    values = read_yaml((EXAMPLES / "values.yaml").read_text())
    assert values["driverBuilder"]["deviceAgentAccounts"] == [f"{namespace}/{name}"]
    assert f"kubectl -n {namespace} create serviceaccount {name}" in text(PAGE)
    assert f"device-agent admission-policy --account {namespace}/{name} --memory-limits" in text(PAGE)
    made = objects(values)
    assert [rule["resourceNames"] for item in made if item["kind"] == "Role" for rule in item["rules"]
            if rule["resources"] == ["serviceaccounts"]] == [[name]]  # fmt: skip
    assert one(made, "PodMonitor", "driverwright-exporter")


def test_the_default_profile_is_there() -> None:
    """In the folder that becomes the ConfigMap of the driver."""
    nvidia = DRIVER["spec"]["stages"]["devicePlugin"]["nvidia"]
    assert nvidia["defaultProfile"] in PROFILES
    folder = f"create configmap {nvidia['profiles']['configMap']} --from-file=examples/nvidia/profiles"
    assert folder in text(PAGE)


def test_the_versions_agree() -> None:
    """Modules, libraries and firmware: one version of Debian's."""
    spec = DRIVER["spec"]
    packages = [spec["source"]["package"], *spec["userspace"]["packages"]]
    assert {package["version"] for package in packages} == {f"{spec['version']}-1"}
    assert spec["stages"]["devicePlugin"]["nvidia"]["libraries"]["path"] == spec["userspace"]["hostPath"]
    assert spec_of(driver(spec_changes=spec)).userspace is not None


# ---------------------------------------------------------------- quotas, tolerations


def offered() -> set[str]:
    """Return every name that a profile of the examples, or a layout, can offer on cards of any model."""
    default = MigStrategy(DRIVER["spec"]["stages"]["devicePlugin"]["nvidia"]["migStrategy"])
    file = EXAMPLES / "mig-layouts.yaml"
    keys = read_yaml(file.read_text())["mig-configs"]
    devices = sorted({str(device) for key in keys for entry in parse_layouts(file.read_text(), str(file), key)
                      for device in entry.layout.devices})  # fmt: skip
    cards = Sorted((card(0), card(1, name="NVIDIA L4"), split(2, *devices)))
    texts = {**PROFILES, **shifts()}
    return {one.resource for key, said in texts.items() for one in apply(parse_profile(said, key), cards, default)}


def shifts() -> dict[str, str]:
    """Return what the CronJobs write into the profile ``shift``."""
    found = {}
    for job in named("CronJob"):
        (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        (patch,) = container["args"]
        ((key, said),) = read_yaml(patch)["data"].items()
        assert key == "shift"
        found[job["metadata"]["name"]] = said
    return found


def test_each_quota_has_every_name_that_can_be_offered() -> None:
    """One that is missing would be without a limit; with CPU and memory."""
    found = [item for item in named("ResourceQuota") if item["metadata"]["name"] == "gpu"]
    namespaces = {item["metadata"]["name"] for item in named("Namespace")}
    assert {item["metadata"]["namespace"] for item in found} == namespaces
    wanted = {f"requests.{name}" for name in offered()}
    assert wanted >= {"requests.nvidia.com/gpu", "requests.nvidia.com/gpu.shared", "requests.nvidia.com/mig-1g.5gb"}
    of_machines = {f"{kind}.{name}" for kind in ("requests", "limits") for name in ("cpu", "memory")}
    for item in found:
        assert set(item["spec"]["hard"]) == wanted | of_machines
        assert any(str(most) == "0" for most in item["spec"]["hard"].values())


def pods() -> dict[str, Json]:
    """Return the specs of the pods of examples that request a device: by the object's name."""
    found = {item["metadata"]["name"]: item["spec"] for item in named("Pod")}
    return {**found, **{item["metadata"]["name"]: item["spec"]["template"]["spec"]
                        for kind in ("Job", "Deployment") for item in named(kind)}}  # fmt: skip


@pytest.mark.parametrize("name", pods())
def test_who_requests_another_name_carries_the_toleration(name: str) -> None:
    """The admission plugin tolerates the requested name alone."""
    spec = pods()[name]
    requested = {key for one in spec["containers"] for key in one["resources"]["limits"] if "/" in key}
    assert len(requested) == 1
    assert requested <= offered()
    taint = {"key": GPU, "operator": "Exists", "effect": "NoSchedule"}
    assert (taint in spec.get("tolerations", [])) or requested == {GPU}
    (shown,) = blocks(PAGE, "yaml")
    assert read_yaml(shown)["tolerations"] == [taint]


# ---------------------------------------------------------------- slices by the clock


def test_by_day_and_night_the_profiles_are_those_of_the_page() -> None:
    """As ``slices`` and ``whole`` say; until then as by night."""
    read = {key: parse_profile(said, "shift") for key, said in (*shifts().items(), *PROFILES.items())}
    assert read["gpu-day"] == parse_profile(PROFILES["slices"], "shift")
    assert read["gpu-night"] == read["shift"] == parse_profile(PROFILES["whole"], "shift")


def test_the_account_of_shifts_may_patch_one_config_map() -> None:
    """By a Role; its token is in the pods of the CronJobs alone, which may do nothing on their node."""
    account = DRIVER["spec"]["stages"]["devicePlugin"]["nvidia"]["profiles"]["configMap"]
    (role,) = named("Role")
    rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [account], "verbs": ["get", "patch"]}
    assert role["rules"] == [rule]
    assert {item["metadata"]["namespace"] for item in named("CronJob")} == {DRIVER["metadata"]["namespace"]}
    (made,) = named("ServiceAccount")
    assert made["automountServiceAccountToken"] is False
    for job in named("CronJob"):
        spec = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        assert spec["serviceAccountName"] == made["metadata"]["name"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip


# ---------------------------------------------------------------- roles


def test_no_team_may_change_what_divides_the_gpus() -> None:
    """Roles of the teams are bound in their namespace, and name no verb for all, no Node, quota to write, or Secret."""
    assert named("ClusterRoleBinding") == []
    writes = {"create", "patch", "update", "delete", "deletecollection", "*"}
    for role in named("ClusterRole"):
        for rule in role["rules"]:
            written = set(rule["resources"]) if writes & set(rule["verbs"]) else set()
            assert "*" not in [*rule["resources"], *rule["verbs"], *rule["apiGroups"]]
            assert written <= {"pods", "services", "configmaps", "jobs", "deployments", "deployments/scale"}
            assert not {"nodes", "secrets"} & set(rule["resources"])
    bound = {(item["metadata"]["namespace"], item["subjects"][0]["name"]) for item in named("RoleBinding")}
    assert bound - {("driverwright", "gpu-shift")} == {("training", "training"), ("inference", "inference")}
