"""Command line: commands, exit statuses, messages."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from nfd_worker.cli.documents import MAX_DOCUMENT
from nfd_worker.cli.main import run
from nfd_worker.config.arguments import build_parser
from nfd_worker.config.config import OPTIONS
from nfd_worker.config.options import with_command
from nfd_worker.guarded_file import MAX_YAML_FILE
from tests.support.nfd_worker.trees import HOSTS

INTEL = str(HOSTS / "intel-gpu-server")
PREFIX = "feature.node.kubernetes.io"

RULES = """\
apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: my-rules}
spec:
  rules:
    - name: gpu
      labels: {gpu: "true", kernel: "@kernel.version.major"}
      vars: {has-gpu: "yes"}
      annotations: {why: a GPU is here}
      extendedResources: {vendor.io/slots: "2"}
      taints: [{key: vendor.io/gpu, value: "1", effect: NoSchedule}]
      matchFeatures:
        - {feature: pci.device, matchExpressions: {vendor: {op: In, value: ["10de"]}}}
    - name: because of it
      labels: {follows: "true"}
      matchFeatures:
        - {feature: rule.matched, matchExpressions: {has-gpu: {op: Exists}}}
"""

BAD_RULES = """\
- name: refused
  labels:
    good: "1"
    kubernetes.io/x: "1"
    dynamic: "@kernel"
  extendedResources: {plenty: many}
  annotations: {"bad key": x}
  taints:
    - {key: unprefixed, effect: NoSchedule}
- name: broken
  matchFeatures:
    - {feature: pci.device, matchExpressions: {vendor: {op: Inn, value: ["10de"]}}}
"""

BAD_CUSTOM_RULES = """\
- name: refused
  labels:
    good: "1"
    kubernetes.io/x: "1"
- name: broken
  matchFeatures:
    - {feature: pci.device, matchExpressions: {vendor: {op: Inn, value: ["10de"]}}}
"""


def written(directory: Path, name: str, text: str) -> str:
    """Write a file; gives its path."""
    (directory / name).write_text(text)
    return str(directory / name)


def standard_input(text: str) -> io.TextIOWrapper:
    """Standard input with a text in it."""
    return io.TextIOWrapper(io.BytesIO(text.encode()))


def json_of(capsys: pytest.CaptureFixture[str]) -> Any:
    """Read what was printed."""
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ["run"]),
        (["--oneshot"], ["run", "--oneshot"]),
        (["run", "--port", "0"], ["run", "--port", "0"]),
        (["scan"], ["scan"]),
        (["rules", "eval"], ["rules", "eval"]),
        (["--version"], ["--version"]),
        (["--help"], ["--help"]),
    ],
)
def test_run_is_the_command_when_none_is_given(arguments: list[str], expected: list[str]) -> None:
    """Upstream's worker has no commands."""
    assert with_command(arguments) == expected


# --- scan -------------------------------------------------------------------------------------------------------------


def test_scan_shows_a_recorded_host(capsys: pytest.CaptureFixture[str]) -> None:
    """A scan of another root shows nothing of the machine that it runs on."""
    assert run(["scan", "--root", INTEL, "-o", "json"], {}) == 0
    assert json_of(capsys)["labels"][f"{PREFIX}/kernel-version.full"] == "6.8.0-45-generic"


def test_scan_can_look_at_some_sources_only(capsys: pytest.CaptureFixture[str]) -> None:
    """``--sources`` wins over the configuration file."""
    assert run(["scan", "--root", INTEL, "--sources", "pci"], {"NFD_WORKER_LABEL_SOURCES": "cpu"}) == 0
    assert capsys.readouterr().out.splitlines()[0] == "pci (3)"


def test_scan_of_a_host_that_cannot_be_read_says_so_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 1, and what could be found is still shown."""
    assert run(["scan", "--root", str(tmp_path)], {}) == 1
    assert "FAILED   kernel: cannot read" in capsys.readouterr().out


def test_scan_of_another_root_takes_its_configuration_and_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Configuration and rules are read below the given root."""
    directory = tmp_path / "etc/kubernetes/node-feature-discovery"
    (directory / "rules.d").mkdir(parents=True)
    (directory / "custom.d").mkdir()
    written(directory, "nfd-worker.conf", "core: {labelSources: [custom], featureSources: [fake]}")
    written(directory, "rules.d/a.yaml", "[{name: a, labels: {of-cluster: '1'}}]")
    written(directory, "custom.d/b", "[{name: b, labels: {of-node: '1'}}]")
    assert run(["scan", "--root", str(tmp_path), "-o", "json"], {}) == 0
    assert json_of(capsys)["labels"] == {f"{PREFIX}/of-cluster": "1", f"{PREFIX}/of-node": "1"}


def test_scan_of_another_root_reads_the_configuration_that_it_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of this machine, as it is named; the default name is no exception, and the hint names that of the root."""
    file = "/etc/kubernetes/node-feature-discovery/nfd-worker.conf"
    below = f"{tmp_path}{file}"
    Path(below).parent.mkdir(parents=True)
    Path(below).write_text("core: {labelSources: [], featureSources: [fake]}")
    assert run(["scan", "--root", str(tmp_path), "--config", below, "-o", "json"], {}) == 0
    assert json_of(capsys)["labels"] == {}
    assert run(["scan", "--root", str(tmp_path), "--config", file], {}) == 2
    assert capsys.readouterr().err == (
        f"nfd-worker: there is no configuration file {file}; to use that of the scanned host, give --config {below}\n"
    )


def test_scan_applies_rules_that_are_not_in_the_cluster_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rules of several files are applied in the order of the files."""
    first = written(tmp_path, "a", "[{name: a, labels: {x: '1', y: '1'}}]")
    second = written(tmp_path, "b", "[{name: b, labels: {x: '2'}}]")
    assert run(["scan", "--root", INTEL, "--rules", first, second, "-o", "yaml"], {}) == 0
    labels = yaml.safe_load(capsys.readouterr().out)["labels"]
    assert (labels[f"{PREFIX}/x"], labels[f"{PREFIX}/y"]) == ("2", "1")


def test_scan_with_a_wrong_rule_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 1, and the place of the mistake."""
    assert run(["scan", "--root", INTEL, "--rules", written(tmp_path, "bad", BAD_RULES)], {}) == 1
    assert f"PROBLEM  {tmp_path}/bad:12: " in capsys.readouterr().out


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_scan_reports_to_a_program_what_is_wrong_with_a_rule_of_the_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    """Exit status 1; the document names the bad rule by its file and line, and the label that was refused."""
    directory = tmp_path / "etc/kubernetes/node-feature-discovery"
    (directory / "custom.d").mkdir(parents=True)
    written(directory, "nfd-worker.conf", "core: {labelSources: [custom], featureSources: [fake]}")
    written(directory, "custom.d/bad", BAD_CUSTOM_RULES)
    assert run(["scan", "--root", str(tmp_path), "-o", output], {}) == 1
    document = yaml.safe_load(capsys.readouterr().out)
    file = "/etc/kubernetes/node-feature-discovery/custom.d/bad"
    [problem], [refusal] = document["problems"], document["refused"]
    assert document["labels"] == {f"{PREFIX}/good": "1"}
    assert (problem["file"], problem["line"], problem["rule"]) == (file, 7, f"rule {file}/broken")
    assert problem["field"] == "matchFeatures[0].matchExpressions.vendor.op"
    assert "there is no operator 'Inn'" in problem["message"]
    assert (refusal["origin"], refusal["kind"]) == (f"rule {file}/refused", "label")
    assert (refusal["key"], refusal["value"], refusal["reason"]) == ("kubernetes.io/x", "1", "ns-not-allowed")


# --- rules ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["json", "yaml"])
@pytest.mark.parametrize("has_all", [True, False], ids=["whole scan", "features alone"])
def test_a_scan_can_be_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str, has_all: bool
) -> None:
    """What rules make of the features of a scan is what they make on the node; taints are on."""
    run(["scan", "--root", INTEL, "--features", "-o", output], {})
    printed = capsys.readouterr().out
    features = printed if has_all else yaml.safe_dump(yaml.safe_load(printed)["features"])
    files = written(tmp_path, "r", RULES), written(tmp_path, "f", features)
    assert run(["rules", "eval", "--rules", files[0], "--features", files[1]], {}) == 0
    assert json_of(capsys) == {
        "labels": {f"{PREFIX}/follows": "true", f"{PREFIX}/gpu": "true", f"{PREFIX}/kernel": "6"},
        "annotations": {f"{PREFIX}/why": "a GPU is here"},
        "extendedResources": {"vendor.io/slots": "2"},
        "taints": [{"key": "vendor.io/gpu", "value": "1", "effect": "NoSchedule"}],
        "vars": {"has-gpu": "yes"},
        "matched": ["gpu", "because of it"],
        "errors": [],
    }


def test_what_was_left_out_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the rule and its field; the good rest stands."""
    monkeypatch.setattr("sys.stdin", standard_input("{}"))
    assert run(["rules", "eval", "--rules", written(tmp_path, "r", BAD_RULES), "--features", "-"], {}) == 1
    document = json_of(capsys)
    assert document["labels"] == {f"{PREFIX}/good": "1"}
    assert [(error["rule"], error["field"]) for error in document["errors"]] == [
        ("broken", "matchFeatures[0].matchExpressions.vendor.op"),
        ("refused", "annotations.bad key"),
        ("refused", "extendedResources.plenty"),
        ("refused", "labels.dynamic"),
        ("refused", "labels.kubernetes.io/x"),
        ("refused", "taints.unprefixed"),
    ]
    assert document["errors"][0]["message"].startswith(f"{tmp_path}/r:12: there is no operator 'Inn'")


def test_a_rule_that_fails_at_work_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It could be loaded, and its mistake shows with these features only."""
    rules = "[{name: r, matchFeatures: [{feature: a.b, matchExpressions: {c: {op: Gt, value: ['1']}}}]}]"
    files = written(tmp_path, "r", rules), written(tmp_path, "f", '{"attributes": {"a.b": {"c": "many"}}}')
    assert run(["rules", "eval", "--rules", files[0], "--features", files[1]], {}) == 1
    (error,) = json_of(capsys)["errors"]
    assert error["rule"] == "r"
    assert "many" in error["message"]


def test_evaluation_heeds_the_namespaces_of_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``rules eval --config`` applies the namespace settings as the node would."""
    config = written(tmp_path, "c", "extraLabelNs: [kubernetes.io]\ndenyLabelNs: [denied.io]")
    rules = written(tmp_path, "r", "[{name: r, labels: {kubernetes.io/x: '1', denied.io/y: '1'}}]")
    arguments = ["rules", "eval", "--rules", rules, "--features", written(tmp_path, "f", "{}"), "--config", config]
    assert run(arguments, {}) == 1
    document = json_of(capsys)
    assert document["labels"] == {"kubernetes.io/x": "1"}
    assert [error["field"] for error in document["errors"]] == ["labels.denied.io/y"]


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ("flags: {a.b: [1]}", "flags.a.b must be a list of strings"),
        ("colour: red", "colour is not one of flags, attributes, instances"),
        ("{", "is neither JSON nor YAML"),
        ('"\\UFFFFFFFF"', "is neither JSON nor YAML"),
    ],
    ids=["wrong type", "unknown kind", "no YAML", "an escape of no character"],
)
def test_features_that_are_none_are_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], features: str, message: str
) -> None:
    """Exit status 2: nothing could be evaluated."""
    files = written(tmp_path, "r", RULES), written(tmp_path, "f", features)
    assert run(["rules", "eval", "--rules", files[0], "--features", files[1]], {}) == 2
    assert message in capsys.readouterr().err


def test_mistakes_in_rules_are_reported_with_their_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line each, what a Node would refuse among them, in the order of the file."""
    assert run(["rules", "validate", written(tmp_path, "r", BAD_RULES)], {}) == 1
    lines = capsys.readouterr().out.splitlines()
    where = f"{tmp_path}/r:5: rule {tmp_path}/r/refused: labels.dynamic"
    assert lines[1] == f"{where}: '@kernel' names no element of a feature: write @<domain>.<feature>.<element>"
    assert [line.split(":")[1] for line in lines] == ["4", "5", "6", "7", "9", "12"]


def test_what_no_source_makes_is_reported_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A rule that can never match says nothing on a node; here it names what is meant, in the order of the file."""
    rules = written(
        tmp_path,
        "r",
        """\
apiVersion: nfd.k8s-sigs.io/v1alpha1
kind: NodeFeatureRule
metadata: {name: site}
spec:
  rules:
    - name: plural
      labels: {"example.com/x ": "@kernel.version.majr"}
      matchAny:
        - matchFeatures:
            - feature: pci.device
              matchExpressions:
                vendor: {op: In, value: ["8086"]}
                device: {op: In, value: ["0x1572"]}
            - feature: pci.devices
""",
    )
    assert run(["rules", "validate", rules], {}) == 1
    start, place = f"{rules}:%d: rule site/plural: ", "matchAny[0].matchFeatures"
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": rule ")[0] for line in lines] == [f"{rules}:{number}" for number in (7, 7, 13, 14)]
    assert lines[0].startswith(f"{start % 7}labels.'example.com/x ': '@kernel.version.majr' can have no value: ")
    assert lines[1].startswith(f"{start % 7}labels.'example.com/x ': ")
    assert lines[2].startswith(
        f"{start % 13}{place}[0].matchExpressions.device: pci.device never has the device 0x1572"
    )
    assert lines[3].startswith(f"{start % 14}{place}[1].feature: no source makes the feature pci.devices")


def test_good_rules_have_no_mistakes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dynamic value is good when it names an element, whatever that is on a node; ``-`` is standard input."""
    monkeypatch.setattr("sys.stdin", standard_input(RULES))
    assert run(["rules", "validate", written(tmp_path, "r", RULES), "-"], {}) == 0
    assert capsys.readouterr().out == ""


def test_rules_that_refer_to_themselves_are_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A YAML document that contains itself is reported, and not followed endlessly."""
    assert run(["rules", "validate", written(tmp_path, "r", "&a [*a]")], {}) == 1
    assert "nested deeper" in capsys.readouterr().out


def test_a_file_that_cannot_be_read_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unreadable file ends the command with the usage status and its name."""
    missing = tmp_path / "missing"
    assert run(["rules", "validate", str(missing)], {}) == 2
    assert capsys.readouterr().err == f"nfd-worker: cannot read {missing}: No such file or directory\n"


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["rules", "validate", "FILE"], id="rules validate"),
        pytest.param(["rules", "eval", "--rules", "FILE", "--features", "small"], id="rules of eval"),
        pytest.param(["rules", "eval", "--rules", "small", "--features", "FILE"], id="features of eval"),
        pytest.param(["labels", "validate", "FILE"], id="labels validate"),
    ],
)
@pytest.mark.parametrize("file", ["/dev/zero", "-"])
def test_what_has_no_end_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: list[str], file: str
) -> None:
    """It is read no further than its limit, and named."""
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "small", "{}")
    with Path("/dev/zero").open(encoding="utf-8") as endless:
        monkeypatch.setattr("sys.stdin", endless)
        assert run([file if word == "FILE" else word for word in command], {}) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"nfd-worker: cannot read {'standard input' if file == '-' else file}: it has more than ")


def test_a_document_may_be_as_long_as_its_limit(tmp_path: Path) -> None:
    """Features are longer than rules: a kernel's whole configuration may be among them."""
    features = json.dumps({"flags": {}}).ljust(MAX_DOCUMENT)
    files = written(tmp_path, "r", RULES.ljust(MAX_YAML_FILE, "#")), written(tmp_path, "f", features)
    assert run(["rules", "eval", "--rules", files[0], "--features", files[1]], {}) == 0


def test_a_document_may_come_out_of_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    """As a shell's <(...) is one."""
    read, write = os.pipe()
    os.write(write, RULES.encode())
    os.close(write)
    assert run(["rules", "validate", f"/proc/self/fd/{read}"], {}) == 0
    os.close(read)
    assert capsys.readouterr().out == ""


# --- labels -----------------------------------------------------------------------------------------------------------


def validated(tmp_path: Path, capsys: pytest.CaptureFixture[str], document: object, *more: str) -> tuple[int, Any]:
    """Validate a document; gives the exit status and what was printed."""
    file = written(tmp_path, "wanted.json", json.dumps(document))
    return run(["labels", "validate", file, "-o", "json", *more], {}), json_of(capsys)


def test_a_scan_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the worker would send is what it would send, the boot id of other namespaces among it."""
    run(["scan", "--root", INTEL, "--sources", "pci,kernel", "--features", "-o", "json"], {})
    scanned = json_of(capsys)
    status, document = validated(tmp_path, capsys, scanned)
    assert (status, document["refused"]) == (0, [])
    assert document["labels"] == scanned["labels"]


def test_refusals_are_reported_with_their_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of all four kinds; the rest is accepted, prefixed as on a node."""
    status, document = validated(tmp_path, capsys, {
        "labels": {"a": "b", "x.io/y": "bad value", "kubernetes.io/z": "1"},
        "annotations": {"x.io/long": "x" * 1025},
        "extendedResources": {"x.io/n": 4, "x.io/m": "many"},
        "taints": [{"key": "x.io/t", "effect": "NoSchedule"}, {"key": "x.io/u", "effect": "Never"}],
    })  # fmt: skip
    assert status == 1
    assert document["labels"] == {f"{PREFIX}/a": "b"}
    assert document["extendedResources"] == {"x.io/n": "4"}
    assert [taint["key"] for taint in document["taints"]] == ["x.io/t"]
    assert {(one["kind"], one["key"], one["reason"]) for one in document["refused"]} == {
        ("label", "x.io/y", "invalid-value"),
        ("label", "kubernetes.io/z", "ns-not-allowed"),
        ("annotation", "x.io/long", "too-long"),
        ("extended resource", "x.io/m", "invalid-value"),
        ("taint", "x.io/u", "invalid-effect"),
    }
    assert all(one["message"] for one in document["refused"])


def test_options_may_stand_in_the_file_or_in_a_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Options in the labels file win over those of the configuration."""
    wanted = {"labels": {"kubernetes.io/x": "1", "denied.io/y": "1"}}
    config = written(tmp_path, "c", "extraLabelNs: [kubernetes.io]\ndenyLabelNs: [denied.io]")
    _, by_config = validated(tmp_path, capsys, wanted, "--config", config)
    assert by_config["labels"] == {"kubernetes.io/x": "1"}
    _, by_both = validated(tmp_path, capsys, {**wanted, "options": {"denyLabelNs": []}}, "--config", config)
    assert set(by_both["labels"]) == {"kubernetes.io/x", "denied.io/y"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"labelWhiteList": "^b"}, {"not-whitelisted"}),
        ({"restrictions": {"disableLabels": True}}, {"disabled"}),
        ({"enableTaints": False}, {"not-enabled"}),
    ],
    ids=["whitelist", "restriction", "taints"],
)
def test_what_the_admin_leaves_out_is_refused_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: object, reason: set[str]
) -> None:
    """A node does it without a word; who asks wants to know."""
    wanted = {"labels": {"a": "1"}, "taints": [{"key": "x.io/t", "effect": "NoSchedule"}], "options": options}
    status, document = validated(tmp_path, capsys, wanted)
    assert (status, {one["reason"] for one in document["refused"]}) == (1, reason)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "must be a mapping"),
        ("colour: red", "colour is not one of labels"),
        ("labels: {a: true}", "labels.a must be a string; put True in quotes"),
        ("labels: []\nannotations: [a]", "annotations must be a mapping"),
        ("taints: {}\nextendedResources: {a: true}", "extendedResources.a must be a string"),
        ("taints: [key]", "taints[0] must be a mapping of key, value and effect"),
        ("taints: [{key: 1}]", "taints[0] must have strings for key, value and effect"),
        ("taints: {a: b}", "taints must be a list"),
        ("options: {denyLabelNS: []}\nlabels: {}", ""),
        ("options: {denyLabels: []}", "options:1: denyLabels is not a setting"),
    ],
)
def test_a_document_of_another_shape_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    """A document with a wrong structure is a usage error that names the field."""
    status = run(["labels", "validate", written(tmp_path, "w", text)], {})
    assert status == (2 if message else 0)
    assert message in capsys.readouterr().err


def test_labels_can_be_shown_as_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table lists refused labels last."""
    run(["labels", "validate", written(tmp_path, "w", "labels: {a: '1', kubernetes.io/b: '2'}")], {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["rules and feature files (1)", "  a  1"]
    assert lines[-1].startswith("REFUSED  label kubernetes.io/b=2: ")


# --- admission-policy -------------------------------------------------------------------------------------------------


def test_an_admission_policy_is_made_of_the_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of file, environment and flags, as for a run (tests/contract/test_admission_policies.py)."""
    file = written(tmp_path, "nfd-worker.conf", "extraLabelNs: [in-file.kubernetes.io]")
    environment = {"NFD_WORKER_DENY_LABEL_NS": "in-environment.example"}
    assert run(["admission-policy", "--config", file, "--label-whitelist=in-flag"], environment) == 0
    text = capsys.readouterr().out
    for part in ("in-file[.]kubernetes[.]io", "in-environment[.]example", "matches('in-flag')"):
        assert part in text


@pytest.mark.parametrize("account", ["nfd-worker", "a/b/c", "a/'", "/b"])
def test_a_policy_for_no_account_is_wrong_usage(account: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The name goes into an expression, so it has to be one."""
    assert run(["admission-policy", "--config", os.devnull, f"--service-account={account}"], {}) == 2
    assert "is not of the form NAMESPACE/NAME" in capsys.readouterr().err


# --- run and unpublish ------------------------------------------------------------------------------------------------


def test_wrong_configuration_is_status_2_and_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No traceback for a mistake of the operator."""
    missing = tmp_path / "missing"
    assert run(["scan", "--config", str(missing)], {}) == 2
    assert capsys.readouterr().err == f"nfd-worker: there is no configuration file {missing}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--oneshot"], "set --node-name or NODE_NAME, or use --no-publish"),
        (["unpublish"], "set --node-name or NODE_NAME"),
    ],
)
def test_publishing_needs_the_name_of_the_node(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    """Without a node name the message names the settings to use."""
    assert run(arguments, {}) == 2
    assert message in capsys.readouterr().err


def test_one_cycle_without_publishing_is_success() -> None:
    """With --oneshot --no-publish no API server is needed."""
    assert run(["run", "--oneshot", "--no-publish", "--root", INTEL], {}) == 0


def test_flags_are_taken_as_upstream_takes_them() -> None:
    """One dash, switches without a value, and flags without an effect."""
    assert run(["-oneshot", "-no-publish", "-v", "2", "-owner-refs=pod", "-root", INTEL], {}) == 0


def test_oneshot_that_cannot_publish_is_status_1(tmp_path: Path) -> None:
    """The exit status lets a Job try again."""
    arguments = ["--oneshot", "--node-name", "n", "--root", INTEL, "--kubeconfig", str(tmp_path / "none")]
    assert run(arguments, {}) == 1


def test_a_node_that_cannot_be_reached_is_not_unpublished(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the API server unpublish fails with the child's error."""
    assert run(["unpublish", "--kubeconfig", str(tmp_path / "none")], {"NODE_NAME": "n"}) == 1
    assert "nfd-worker: node n could not be cleaned up: " in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["scan", "--colour"], ["scan", "--feat"], ["rules"], ["rules", "eval"]])
def test_unknown_and_missing_arguments_are_status_2(arguments: list[str]) -> None:
    """Unknown arguments, and abbreviated flags, are wrong usage."""
    with pytest.raises(SystemExit, match="2"):
        run(arguments, {})


def test_version_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """--version prints the version and does nothing else."""
    with pytest.raises(SystemExit, match="0"):
        run(["--version"], {})
    assert capsys.readouterr().out.startswith("nfd-worker 0.")


def test_help_names_every_flag_and_variable(capsys: pytest.CaptureFixture[str]) -> None:
    """The help of run lists all flags and environment variables."""
    with pytest.raises(SystemExit):
        build_parser().parse_args(["run", "--help"])
    text = capsys.readouterr().out
    assert all(f"--{option.flag}" in text and option.environment in text for option in OPTIONS)


@pytest.mark.parametrize(
    "command", ["run", "scan", "rules eval", "rules validate", "labels validate", "unpublish", "admission-policy"]
)
def test_every_command_has_help_with_examples(capsys: pytest.CaptureFixture[str], command: str) -> None:
    """On standard output, with success."""
    with pytest.raises(SystemExit, match="0"):
        run([*command.split(), "--help"], {})
    words, _, examples = capsys.readouterr().out.partition("\nexamples:\n")
    assert words.startswith(f"usage: nfd-worker {command}")
    assert "nfd-worker" in examples
