"""Manifests, overlays and printed commands, read by the oldest kubectl that is supported (1.20) and by the newest.

The newest alone, without a cluster: ``tests/contract/test_printed_commands.py``.
"""

from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from testbed.testbed import Testbed
from tests.recording import Say
from tests.support.printed_commands import all_printed, by_verb
from tests.support.real_parts.cluster_setup import admin, install
from tests.support.real_parts.kubectl import NEWEST, parses, run, version
from tests.support.yaml_files import read_documents

Json = dict[str, Any]

KUSTOMIZATIONS = ("deploy", "deploy/device-agent", "examples/overlay")
YOUNGER = {"get": {"--show-managed-fields"}}
"""Flags that kubectl 1.20 does not have; the page that prints one says so."""
PRINTED = by_verb(all_printed())


@pytest.fixture(params=["1.20", "newest"])
def kubectl(request: pytest.FixtureRequest, control_plane_ground: Testbed, tested_on: Say) -> Path:
    """One kubectl after the other; the testbed's is of the release of its API server."""
    program = NEWEST if request.param == "newest" else control_plane_ground.binaries.path("kubectl")
    if not program.exists():
        pytest.skip(f"there is no {program}")
    tested_on("kubectl", kubectl=version(program))
    return program


def objects(text: str) -> dict[tuple[str, str], Json]:
    """Return objects by kind and name; variables are in no order, since none is made of another."""
    found = {(obj["kind"], obj["metadata"]["name"]): obj for obj in read_documents(text)}
    pods = [obj["spec"]["template"]["spec"] for obj in found.values() if obj["kind"] in ("DaemonSet", "Deployment")]
    for container in (item for pod in pods for item in pod["containers"]):
        container.get("env", []).sort(key=itemgetter("name"))
    return found


@pytest.mark.parametrize(("verb", "words"), PRINTED.items(), ids=PRINTED)
def test_the_oldest_kubectl_knows_what_is_printed(
    control_plane_ground: Testbed, verb: str, words: tuple[str, ...]
) -> None:
    """But for what a page says that it lacks."""
    program = control_plane_ground.binaries.path("kubectl")
    known = [word for word in words if word not in YOUNGER.get(verb, ())]
    said = parses(program, verb, *known)
    assert (said.status, said.err) == (0, "")


@pytest.mark.parametrize("folder", KUSTOMIZATIONS)
def test_both_build_the_same_from_a_kustomization(control_plane_ground: Testbed, folder: str) -> None:
    """Each object with each of its fields."""
    built = [run(program, "kustomize", folder) for program in (control_plane_ground.binaries.path("kubectl"), NEWEST)]
    assert [said.status for said in built] == [0, 0]
    old, new = (objects(said.out) for said in built)
    assert old == new


@pytest.mark.parametrize("folder", KUSTOMIZATIONS)
def test_a_dry_run_accepts_all_manifests(control_plane_ground: Testbed, kubectl: Path, folder: str) -> None:
    """As README says it for an API server before 1.25, which knows no rules (CEL) in a definition."""
    install(admin(control_plane_ground))
    connection = ("--kubeconfig", str(control_plane_ground.kubeconfig))
    built = objects(run(kubectl, "kustomize", folder).out)
    # Newer ones cannot compare a definition on their own side that was applied by the server ("received a nil").
    for where in ("client", "server") if version(kubectl).startswith("1.20.") else ("server",):
        applied = run(kubectl, *connection, "apply", "--validate=false", f"--dry-run={where}", "-k", folder)
        assert applied.status == 0, applied.err
        assert len(applied.out.splitlines()) == len(built)
