"""The kubectl commands that README and docs print, read by the newest kubectl: no flag and no verb is gone.

That of Kubernetes 1.20 reads them too: ``tests/api/test_kubectl.py``.
"""

import shutil
from pathlib import Path

import pytest
import yaml

from tests.support.printed_commands import ROOT, all_printed, by_verb, commands
from tests.support.real_parts.kubectl import NEWEST, parses, run
from tests.support.yaml_files import read_yaml

PRINTED = by_verb(all_printed())
OVERLAY = ROOT / "examples" / "overlay"
BASES = {"deploy": "", "deploy/device-agent": "", "examples/overlay": "bases patchesStrategicMerge"}
"""Kustomization -> its deprecated fields, which that of kubectl 1.20 (2.0.3) has no others for."""


@pytest.mark.parametrize(("verb", "words"), PRINTED.items(), ids=PRINTED)
def test_the_newest_kubectl_knows_what_is_printed(verb: str, words: tuple[str, ...]) -> None:
    """All flags that any page prints with a verb, at once."""
    said = parses(NEWEST, verb, *words)
    assert (said.status, said.err) == (0, "")
    assert f"  kubectl {verb}" in said.out.partition("Usage:")[2]


@pytest.mark.parametrize(
    ("verb", "words", "complaint"),
    [
        pytest.param("get", ("pods", "--no-such-flag"), "unknown flag: --no-such-flag", id="flag"),
        pytest.param("get", ("-y",), "unknown shorthand flag: 'y'", id="short flag"),
        pytest.param("unget", (), 'unknown command "unget"', id="verb"),
        pytest.param("wait", ("--timeout=long",), 'invalid argument "long"', id="value"),
    ],
)
def test_what_kubectl_does_not_know_is_found(verb: str, words: tuple[str, ...], complaint: str) -> None:
    """Or the test above would show nothing."""
    said = parses(NEWEST, verb, *words)
    assert said.status != 0
    assert complaint in said.err


@pytest.mark.parametrize(("folder", "deprecated"), BASES.items(), ids=BASES)
def test_no_other_field_of_a_kustomization_is_deprecated(folder: str, deprecated: str) -> None:
    """The file itself says why it has them."""
    said = run(NEWEST, "kustomize", folder)
    assert said.status == 0
    warned = [line.split("'")[1] for line in said.err.splitlines() if line.startswith("# Warning:")]
    assert sorted(warned) == deprecated.split()
    text = (ROOT / folder / "kustomization.yaml").read_text()
    assert not [field for field in warned if f"`{field}`" not in text]


def test_the_overlay_in_newer_words_is_the_same(tmp_path: Path) -> None:
    """As its comment says, for whoever has no kubectl 1.20."""
    copied = tmp_path / "examples" / "overlay"
    shutil.copytree(OVERLAY, copied)
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    file = copied / "kustomization.yaml"
    newer = read_yaml(file.read_text())
    newer["resources"] = newer.pop("bases")
    newer["patches"] = [{"path": path} for path in newer.pop("patchesStrategicMerge")]
    file.write_text(yaml.safe_dump(newer))
    assert run(NEWEST, "kustomize", str(copied)) == (0, run(NEWEST, "kustomize", str(OVERLAY)).out, "")


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        pytest.param("Run `kubectl get\n  pods` now.", [("get", "pods")], id="a line break in a sentence"),
        pytest.param("kubectl 1.20 is enough", [], id="no code"),
        pytest.param("```\nkubectl get nodes | wc -l # all\n```", [("get", "nodes")], id="a pipe"),
        pytest.param("    a=$(kubectl get dc -o name)\n", [("get", "dc", "-o", "name")], id="in a shell's brackets"),
        pytest.param("```\nkubectl apply \\\n  -f a.yaml\n```", [("apply", "-f", "a.yaml")], id="two lines"),
        pytest.param("```\nkubectl get x -o 'a|b'\n```", [("get", "x", "-o", "a|b")], id="quotes"),
        pytest.param(
            "| `kubectl get a \\| kubectl apply -f -` |", [("get", "a"), ("apply", "-f", "-")], id="in a table"
        ),
        pytest.param("`kubectl taint node N a.<ns>.<b>-`", [("taint", "node", "N", "a.ns.b-")], id="placeholders"),
        pytest.param("see kubectl.kubernetes.io/x and `bin/kubectl get`", [], id="other words"),
    ],
)
def test_commands_are_found_in_pages(page: str, expected: list[tuple[str, ...]]) -> None:
    """In fences, indented code and code within sentences."""
    assert commands(page) == expected


def test_verbs_are_taken_together() -> None:
    """Whatever stands before the verb; what is for the container's program is not kubectl's."""
    printed = [("-n", "a", "exec", "p", "-c", "b", "--", "ls", "-l"), ("rollout", "status", "d"), ("exec", "-it", "q")]
    assert by_verb(printed) == {"exec": ("-n", "a", "p", "-c", "b", "-it", "q"), "rollout status": ("d",)}
