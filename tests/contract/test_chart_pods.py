"""What every rendering of the chart has to be: nothing that Kubernetes or Pod Security refuses."""

import itertools
import re

import pytest

from tests.contract.chart import (
    VALUES,
    Json,
    container,
    pod,
    rendered,
)
from tools.manifests import DEPLOY


@pytest.mark.parametrize("of", VALUES)
def test_no_object_is_there_twice_and_names_are_short(of: str) -> None:
    """Names fit into labels; labels into what Kubernetes allows."""
    names = [(item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]) for item in rendered(of)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name) for _, _, name in names)


PODS = [
    (of, item["metadata"]["name"])
    for of in VALUES
    for item in rendered(of)
    if item["kind"] in ("Deployment", "DaemonSet")
]


@pytest.mark.parametrize(("of", "name"), PODS, ids=lambda value: value.replace(" ", "-"))
def test_no_pod_lacks_what_a_cluster_expects(of: str, name: str) -> None:
    """Tolerations, priority, seccomp, probes, a limit of memory; privileges for GPUs without a runtime alone."""
    found, spec = container(rendered(of), name), pod(rendered(of), name)
    assert spec["tolerations"]
    assert spec["priorityClassName"].startswith("system-")
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert {"livenessProbe", "readinessProbe"} <= found.keys()
    # A start takes a while on a busy node, and is no reason to end the container.
    assert found["startupProbe"]["periodSeconds"] * found["startupProbe"]["failureThreshold"] >= 120
    assert found["resources"]["requests"].keys() == {"cpu", "memory"}
    assert found["resources"]["limits"]["memory"]
    context = found["securityContext"]
    assert context["readOnlyRootFilesystem"] is True
    if (of, name) == ("everything", "nfd-worker-gpu"):
        assert context["privileged"] is True
    else:
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["allowPrivilegeEscalation"] is False
        assert not context.get("privileged")


def level(spec: Json) -> str:
    """Return the Pod Security level that a pod's spec meets, of those fields that ours have."""
    contexts = [{**spec["securityContext"], **item["securityContext"]} for item in spec["containers"]]
    if any("hostPath" in volume for volume in spec["volumes"]) or any(item.get("privileged") for item in contexts):
        return "privileged"
    is_restricted = all(
        item.get("runAsNonRoot") is True
        and item["seccompProfile"] == {"type": "RuntimeDefault"}
        and item["allowPrivilegeEscalation"] is False
        and item["capabilities"] == {"drop": ["ALL"]}
        for item in contexts
    )
    return "restricted" if is_restricted else "baseline"


def test_the_page_says_which_level_of_pod_security_each_pod_meets() -> None:
    """The table of docs/install.md; the controller alone is stricter than the namespace."""
    page = (DEPLOY.parent / "docs/install.md").read_text()
    rows = dict(re.findall(r"^[|] ([^|]+) [|] `(\w+)` [|]", page, re.MULTILINE))
    of_engines = rows["driver-builder with the socket of a node's engine, or with an engine as a side car"]
    assert level(pod(rendered("defaults"), "driver-builder")) == rows["driver-builder"] == "restricted"
    assert {level(pod(rendered(of), "driver-builder")) for of in ("engine", "side car")} == {of_engines}
    assert level(pod(rendered("everything"), "driver-builder")) == rows["driver-builder"]  # an engine elsewhere
    found = rendered("everything")
    assert {level(pod(found, name)) for name in ("nfd-worker", "device-agent")} == {rows["nfd-worker, device-agent"]}
    assert level(pod(found, "nfd-worker-gpu")) == rows["nfd-worker-gpu without a RuntimeClass"]


@pytest.mark.parametrize("name", ["nfd-worker", "driver-builder", "device-agent"])
def test_an_image_runs_as_its_manifest_says(name: str) -> None:
    """Not as root, but for the agent, which writes to the kubelet's folder; docs/security.md has the same users."""
    users = re.findall(r"^USER (.*)$", (DEPLOY.parent / "dockerfiles" / name / "Dockerfile").read_text(), re.MULTILINE)
    found = rendered("everything")
    context = {**pod(found, name)["securityContext"], **container(found, name)["securityContext"]}
    assert (users or ["0:0"]) == [f"{context['runAsUser']}:{context['runAsGroup']}"]
    assert context.get("runAsNonRoot", False) is bool(users)
    page = (DEPLOY.parent / "docs/security.md").read_text()
    rows = dict(re.findall(r"^[|] ([\w-]+) [|] (65534|root) [|]", page, re.MULTILINE))
    assert rows[name] == ("65534" if users else "root")


def test_who_uses_a_socket_is_root() -> None:
    """Of a node's engine and of a side car's; nobody else is."""
    users = {
        of: pod(rendered(of), "driver-builder")["securityContext"]["runAsUser"] for of in VALUES if of != "worker only"
    }
    assert {of for of, user in users.items() if user == 0} == {"engine", "side car"}


def test_the_controller_leaves_a_node_that_does_not_respond() -> None:
    """It tolerates no taint that evicts, unlike the pods that belong to a node."""
    assert {item["effect"] for item in pod(rendered("defaults"), "driver-builder")["tolerations"]} == {"NoSchedule"}


@pytest.mark.parametrize("of", VALUES)
def test_every_object_is_in_the_namespace_of_the_release(of: str) -> None:
    """But for the Role for Events and those of further namespaces; no other name is left over."""
    elsewhere = [
        item for item in rendered(of, "elsewhere") if item["metadata"].get("namespace", "elsewhere") != "elsewhere"
    ]
    assert {(item["kind"], item["metadata"]["namespace"]) for item in elsewhere} <= {
        ("Role", "default"), ("RoleBinding", "default"),
        ("Role", "team"), ("RoleBinding", "team"), ("ServiceAccount", "team"),
        *itertools.product(("Role", "RoleBinding"), ("gpu-operator", "nfd")),
    }  # fmt: skip
    subjects = itertools.chain(*(item.get("subjects", ()) for item in rendered(of, "elsewhere")))
    assert {item["namespace"] for item in subjects} == {"elsewhere"}
