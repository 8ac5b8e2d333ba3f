"""What lint says about files, where it says it, and how it ends."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from driver_builder.base.errors import ConfigurationError
from driver_builder.cli import main
from driver_builder.cli.commands import lint_command
from tests.support.driver_builder.factories import KERNEL, OTHER_KERNEL, driver_object, node_labels
from tests.support.driver_builder.snapshot_files import file_of, node_object

GOOD = """\
apiVersion: driverwright.io/v1alpha1
kind: DriverContainer
metadata:
  name: edu
  namespace: driverwright
spec:
  version: "1.0.0"
  nodeSelector: {pool: edu}
  image: registry.example.com/drivers/edu
  source:
    configMap: {name: edu-source}
  kernelMappings:
    - regexp: '6\\..*'
  module:
    names: [edudrv]
"""


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Return a good manifest that a test may spoil."""
    path = tmp_path / "driver.yaml"
    path.write_text(GOOD)
    return path


def linted(*words: str) -> int:
    """Run the command; returns its exit code."""
    return main.main(["lint", *words])


def findings(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, object]]:
    """Run the command and give what it found."""
    linted(*words, "-o", "json")
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def spoil(path: Path, old: str, new: str) -> str:
    """Change a good manifest; returns its name."""
    assert old in GOOD
    path.write_text(GOOD.replace(old, new))
    return str(path)


def test_a_good_driver_passes(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0, and a line that says how much was checked."""
    assert linted(str(manifest)) == 0
    assert capsys.readouterr().out == "1 DriverContainer checked, no problems\n"


@pytest.mark.parametrize(
    ("change", "place", "words"),
    [
        pytest.param(('"1.0.0"', "1.0"), (7, "spec.version"), "put it in quotes", id="number"),
        pytest.param(("driverwright.io/v1alpha1", "v1"), (1, "apiVersion"), "driverwright.io/v1alpha1", id="version"),
        pytest.param(("drivers/edu", "drivers/edu:1"), (9, "spec.image"), "without a tag", id="image"),
        pytest.param(("  nodeSelector", "  nodeselector"), (8, "spec.nodeselector"), "misspelling", id="unknown"),
        pytest.param(("kind:", "extra: 1\nkind:"), (2, "extra"), "misspelling", id="unknown at the top"),
        pytest.param(("  name: edu\n", ""), (3, "metadata.name"), "is missing", id="no name"),
        pytest.param(("name: edu\n", f"name: {'e' * 50}\n"), (4, "metadata.name"), "shorter names", id="long names"),
        pytest.param(("'6\\..*'", "'6.('"), (13, "spec.kernelMappings[0].regexp"), "RE2", id="expression"),
        pytest.param(
            ("    - regexp: '6\\..*'", "    - {regexp: '6.*'}\n    - skip: true"), (14, "spec.kernelMappings[1]"),
            "exactly one of literal, regexp", id="second mapping",
        ),
        pytest.param(
            ("    - regexp: '6\\..*'", "    - {regexp: '6.*'}\n    - {literal: 6.1.0}"), (14, "spec.kernelMappings[1]"),
            "never applies", id="hidden mapping",
        ),
        pytest.param(("{name: edu-source}", "{}"), (11, "spec.source.configMap.name"), "is missing", id="not written"),
        pytest.param(("[edudrv]", "[edudrv]\n    names: [other]"), (16, ""), "duplicate key", id="key twice"),
        pytest.param(("[edudrv]", "[edudrv, edudrv]"), (15, "spec.module.names[1]"), "'edudrv' is the same module as "
                     "'edudrv'", id="module twice"),
        pytest.param(("[edudrv]", "[edu-drv, other, edu_drv]"), (15, "spec.module.names[2]"), "'edu_drv' is the same "
                     "module as 'edu-drv'", id="module twice, in two spellings"),
        pytest.param(("[edudrv]", "[edudrv"), (16, ""), "is not YAML", id="no YAML"),
        pytest.param(("[edudrv]", "[\x01]"), (1, ""), "is not YAML", id="control character"),
        pytest.param(("[edudrv]", '["\\UFFFFFFFF"]'), (1, ""), "is not YAML", id="no character"),
    ],
)  # fmt: skip
def test_an_error_is_said_with_its_line(
    manifest: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], place: tuple[int, str], words: str
) -> None:
    """File, line, field and remedy; exit code 1."""
    name = spoil(manifest, *change)
    assert linted(name, "-o", "json") == 1
    (found,) = (item for item in json.loads(capsys.readouterr().out) if item["severity"] == "error")
    assert (found["file"], (found["line"], found["field"])) == (name, place)
    assert words in found["message"]


@pytest.mark.parametrize(
    ("written", "words"),
    [
        pytest.param("", "every node gets the driver", id="missing"),
        pytest.param("  nodeSelector:\n", "every node gets the driver", id="null"),
        pytest.param("  nodeSelector: {}\n", "", id="meant"),
        pytest.param('  nodeSelector: {node-role.kubernetes.io/worker: ""}\n', "", id="label without a value"),
    ],
)
def test_a_driver_for_every_node_is_said(
    manifest: Path, capsys: pytest.CaptureFixture[str], written: str, words: str
) -> None:
    """A warning; an object without labels says that it is meant."""
    found = findings(capsys, spoil(manifest, "  nodeSelector: {pool: edu}\n", written))
    assert [(item["severity"], item["field"]) for item in found] == [("warning", "spec.nodeSelector")] * bool(words)
    assert all(words in str(item["message"]) for item in found)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        pytest.param(
            "retention: {versions: 2}",
            "spec.retention: is deprecated, and ignored since 0.2: remove it",
            id="deprecated",
        ),
        pytest.param(
            "build: {reuseAcrossKernels: true}",
            "spec.build.reuseAcrossKernels: is deprecated, and ignored since 0.2: remove it",
            id="the default of 0.1",
        ),
        pytest.param(
            "validation: {command: [/test]}",
            "spec.validation.command: is not acted on without spec.validation.image: name the image that the command "
            "runs in",
            id="a command without an image",
        ),
    ],
)
def test_a_field_that_nothing_acts_on_is_a_warning(
    manifest: Path, capsys: pytest.CaptureFixture[str], field: str, message: str
) -> None:
    """It does no harm, but the admin has to know that it does nothing: exit code 0."""
    name = spoil(manifest, "  module:", f"  {field}\n  module:")
    assert linted(name) == 0
    where, severity, driver, *what = capsys.readouterr().out.splitlines()[1].split()
    assert (where, severity, driver) == (f"{name}:14", "warning", "edu")
    assert " ".join(what) == message


def test_all_drivers_of_all_files_are_checked(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Folders, several documents, lists, and what is no DriverContainer."""
    other = manifest.with_name("other.yml")
    bad = driver_object(spec_changes={"version": "?"})
    listed = {"apiVersion": "v1", "kind": "List", "items": [bad, {"kind": "ConfigMap"}, "x"]}
    other.write_text(f"kind: ConfigMap\n---\n---\n{GOOD}---\n{yaml.safe_dump(listed)}")
    manifest.with_name("notes.txt").write_text("a: [")
    assert linted(str(manifest.parent)) == 1
    assert "3 DriverContainers checked" in capsys.readouterr().out
    assert {item["field"] for item in findings(capsys, str(other))} == {"spec.version"}


def test_standard_input_is_a_file(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """``kustomize build | driver-builder lint -``."""
    monkeypatch.setattr("sys.stdin", io.StringIO(GOOD.replace("drivers/edu", "EDU")))
    (found,) = findings(capsys, "-")
    assert (found["file"], found["line"]) == ("<stdin>", 9)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(None, "cannot be read", id="not there"),
        pytest.param(b"\xff\xfe\x00", "cannot be read", id="no text"),
        pytest.param(b"kind: ConfigMap", "no DriverContainer in", id="nothing to check"),
        pytest.param(b"", "no DriverContainer in", id="empty"),
    ],
)
def test_nothing_to_check_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, words: str
) -> None:
    """A check that looked at nothing must not pass."""
    path = tmp_path / "a.yaml"
    if content is not None:
        path.write_bytes(content)
    assert linted(str(path)) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kernels", "count"), [pytest.param("5.15.0,5.10.0", 1, id="none"), pytest.param("5.15.0, 6.1.0", 0, id="one")]
)
def test_mappings_are_held_against_given_kernels(
    manifest: Path, capsys: pytest.CaptureFixture[str], kernels: str, count: int
) -> None:
    """A mapping that matches no kernel is a warning."""
    found = findings(capsys, str(manifest), "--kernels", kernels)
    assert [item["severity"] for item in found] == ["warning"] * count


@pytest.mark.parametrize("kubectl", [pytest.param(True, id="kubectl"), pytest.param(False, id="snapshot")])
def test_mappings_are_held_against_the_nodes_of_a_snapshot(
    manifest: Path, capsys: pytest.CaptureFixture[str], kubectl: bool
) -> None:
    """Only the nodes that a driver selects count."""
    spoil(manifest, "regexp: '6\\..*'", f"literal: {KERNEL}")
    other = {"name": "b", "labels": {**node_labels(OTHER_KERNEL), "pool": "edu"}}
    here = {"name": "a", "labels": {**node_labels(KERNEL), "pool": "another"}}
    nodes: list[dict[str, Any]] = [here, other]
    file = manifest.with_name("nodes.json")
    listed = [node_object(**item) for item in nodes]
    file.write_text(json.dumps({"items": listed} if kubectl else file_of(*listed, driver_object())))
    (found,) = findings(capsys, str(manifest), "--snapshot", str(file))
    assert "matches no kernel" in str(found["message"])
    here["labels"] = {**node_labels(KERNEL), "pool": "edu"}
    file.write_text(json.dumps({"items": [{"metadata": item} for item in nodes]}))
    assert findings(capsys, str(manifest), "--snapshot", str(file)) == []


def test_a_label_that_a_snapshot_does_not_hold_says_nothing(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A snapshot has the labels that its own drivers select by, and no others."""
    spoil(manifest, "{pool: edu}", "{device: edu}")
    file = manifest.with_name("nodes.json")
    file.write_text(json.dumps(file_of(node_object(labels={**node_labels("5.15.0"), "device": "edu"}))))
    assert findings(capsys, str(manifest), "--snapshot", str(file)) == []


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "{items: [1]}", "{items: {a: b}}", "{items: [{}]}", "{items: 1", "{", '"\\UFFFFFFFF"']
)
def test_a_snapshot_without_nodes_is_wrong_usage(text: str) -> None:
    """The message says what can be given."""
    with pytest.raises(ConfigurationError, match="kubectl get nodes -o json"):
        lint_command.parse_fleet("s.json", text)


def test_findings_can_be_read_by_programs(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``lint -o yaml`` prints the findings as YAML."""
    linted(spoil(manifest, "drivers/edu", "EDU"), "-o", "yaml")
    (found,) = yaml.safe_load(capsys.readouterr().out)
    assert found.keys() == {"file", "line", "severity", "driver", "field", "message"}
    assert (found["severity"], found["field"], found["driver"]) == ("error", "spec.image", "edu")


@pytest.mark.parametrize(
    ("pool", "is_told"), [pytest.param("edu", True, id="one pool"), pytest.param("web", False, id="other nodes")]
)
def test_a_module_of_another_driver_is_a_warning(
    manifest: Path, capsys: pytest.CaptureFixture[str], pool: str, is_told: bool
) -> None:
    """Said where both drivers select a node of the snapshot: only one of them gets the module."""
    other = GOOD.replace("name: edu\n", "name: other\n").replace("{pool: edu}", f"{{pool: {pool}}}")
    second = manifest.with_name("other.yaml")
    second.write_text(other)
    file = manifest.with_name("nodes.json")
    nodes = [{"name": name, "labels": {**node_labels(KERNEL), "pool": name}} for name in ("edu", "web")]
    file.write_text(json.dumps({"items": [{"metadata": item} for item in nodes]}))
    found = findings(capsys, str(manifest), str(second), "--snapshot", str(file))
    words = "module edudrv is also named by driver driverwright/other on 1 node: edu; only one of them may load it"
    assert (words in [item["message"] for item in found]) is is_told
    assert len(found) == (2 if is_told else 0)


_VENDOR = "{image: r.io/plugin:1, resourceName: nvidia.com/mig-1g.5gb}"


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        pytest.param(
            _VENDOR, _VENDOR, "resource nvidia.com/mig-1g.5gb is also offered by driver driverwright/other", id="one"
        ),
        pytest.param(
            "{nvidia: {}}", _VENDOR, "resource nvidia.com/mig-1g.5gb is also offered by driver driverwright/other",
            id="one of a domain",
        ),
        pytest.param(
            "{nvidia: {}}", "{nvidia: {}}", "resources in nvidia.com/ are also offered by driver driverwright/other",
            id="a domain",
        ),
    ],
)  # fmt: skip
def test_a_resource_of_another_driver_is_a_warning(
    manifest: Path, capsys: pytest.CaptureFixture[str], ours: str, theirs: str, words: str
) -> None:
    """Said where both drivers select a node: only one of them gets its plugin there."""
    plugin, of_other = (f"  stages: {{devicePlugin: {item}}}\n" for item in (ours, theirs))
    other = GOOD.replace("name: edu\n", "name: other\n").replace("edudrv", "otherdrv")
    manifest.write_text(GOOD.replace("spec:\n", f"spec:\n{plugin}"))
    second = manifest.with_name("other.yaml")
    second.write_text(other.replace("spec:\n", f"spec:\n{of_other}"))
    file = manifest.with_name("nodes.json")
    file.write_text(json.dumps({"items": [node_object("edu")]}))
    found = findings(capsys, str(manifest), str(second), "--snapshot", str(file))
    said = [item for item in found if f"{words} on 1 node: edu; only one of them may offer" in str(item["message"])]
    assert [item["field"] for item in said] == ["spec.stages.devicePlugin"]


def test_a_module_of_a_driver_in_the_snapshot_is_a_warning(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What runs in the cluster counts as well; a driver is not held against itself."""
    file = manifest.with_name("snapshot.json")
    file.write_text(json.dumps(file_of(node_object(), driver_object(), driver_object("other"))))
    (found,) = findings(capsys, str(manifest), "--snapshot", str(file))
    assert "driver driverwright/other on 1 node: node-a" in str(found["message"])
    assert found["severity"] == "warning"


@pytest.mark.parametrize(
    ("theirs", "severity", "words"),
    [
        pytest.param(
            "  dependsOn: [{name: edu}]\n",
            "error",
            "spec.dependsOn has a cycle: driverwright/edu depends on driverwright/other depends on driverwright/edu",
            id="a cycle",
        ),
        pytest.param("", "", "", id="there"),
        pytest.param(
            None, "warning", "driver driverwright/other, which spec.dependsOn names, does not exist", id="missing"
        ),
    ],
)
def test_a_dependency_that_cannot_be_met_is_found(
    manifest: Path, capsys: pytest.CaptureFixture[str], theirs: str | None, severity: str, words: str
) -> None:
    """A cycle is an error; a driver that is in no file may be applied from elsewhere."""
    manifest.write_text(GOOD.rstrip("\n") + "\n  dependsOn: [{name: other}]\n")
    files = [str(manifest)]
    if theirs is not None:
        second = manifest.with_name("other.yaml")
        second.write_text(GOOD.replace("name: edu\n", "name: other\n").rstrip("\n") + f"\n{theirs}")
        files.append(str(second))
    found = [(item["severity"], item["message"]) for item in findings(capsys, *files) if item["driver"] == "edu"]
    assert found == ([(severity, words)] if words else [])


def test_what_the_controller_would_not_allow_is_found(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the settings of the controller, at the line of the field; fields of mappings as well."""
    rule = "    - regexp: '6\\..*'\n      image: evil.example/x:1\n"
    manifest.write_text(GOOD.replace("    - regexp: '6\\..*'\n", rule))
    flags = ("--allowed-registries", "r.io/*", "--allowed-node-labels", "pool=edu", "--allowed-prebuilt-images", "none")
    found = [item for item in findings(capsys, str(manifest), *flags) if item["severity"] == "error"]
    assert [(item["line"], item["field"], item["message"]) for item in found] == [
        (
            9,
            "spec.image",
            "'registry.example.com/drivers/edu' is not allowed by --allowed-registries of driver-builder",
        ),
        (
            14,
            "spec.kernelMappings[0].image",
            "'evil.example/x:1' is not allowed by --allowed-prebuilt-images of driver-builder",
        ),
    ]


def test_a_secret_of_another_driver_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Among the files, as the controller would find it among the drivers of the namespace."""
    build = {"builder": "job", "secrets": [{"name": "push"}]}
    objects = [
        driver_object(spec_changes={"build": build}),
        driver_object("other", spec_changes={"registry": {"secretRef": {"name": "push"}}}),
    ]
    path = tmp_path / "drivers.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    assert not [item for item in findings(capsys, str(path)) if item["severity"] == "error"]
    (found,) = [item for item in findings(capsys, str(path), "--protect-secrets") if item["severity"] == "error"]
    assert (found["driver"], found["field"]) == ("edu", "spec.build.secrets[0]")
    assert "spec.registry.secretRef of driverwright/other" in str(found["message"])


TOOLS = """\
  build: {toolsImage: mirror.example/debian:12, templateConfigMap: {name: mine, key: Dockerfile}}
"""
TEMPLATE = """\
---
apiVersion: v1
kind: ConfigMap
metadata: {name: NAME, namespace: driverwright}
data: {Dockerfile: "TEXT"}
"""


@pytest.mark.parametrize(
    ("name", "text", "is_wrong"),
    [
        pytest.param("mine", "FROM {{ base_image }} AS build", True, id="it does not mention it"),
        pytest.param("mine", "FROM {{ tools_image }} AS build", False, id="it does"),
        pytest.param("mine", "FROM {{", False, id="it does not parse: the build says where"),
        pytest.param("another", "FROM {{ base_image }} AS build", False, id="not among the files"),
    ],
)
def test_tools_that_a_custom_template_leaves_out_are_refused(
    manifest: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, is_wrong: bool
) -> None:
    """The image would be in the build key, and no build would use it."""
    manifest.write_text(GOOD + TOOLS + TEMPLATE.replace("NAME", name).replace("TEXT", text))
    found = [(item["field"], item["message"]) for item in findings(capsys, str(manifest))]
    words = "has no effect: the template in ConfigMap mine does not mention tools_image"
    assert found == ([("spec.build.toolsImage", words)] if is_wrong else [])
