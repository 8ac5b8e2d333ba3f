"""The configuration file: every mistake is named, and nothing is read that was not written."""

import os
from pathlib import Path

import pytest

from device_agent.config.config_file import Description, parse_description, read_description
from device_agent.errors import ConfigurationError
from device_resources.exporter import OTHER_LABELS, ExporterSettings
from device_resources.nvidia import MigStrategy, NvidiaSettings

EDU = "- name: driverwright.io/edu\n  groups:\n  - paths: [{path: /dev/edu*}]\n"


def test_resources_are_read() -> None:
    """A list of descriptions."""
    (resource,) = parse_description(f"resources:\n{EDU}", "f").resources
    assert resource.name == "driverwright.io/edu"


@pytest.mark.parametrize("text", ["resources: []", "resources:\n", "resources: ~"])
def test_no_resources(text: str) -> None:
    """An agent without any waits."""
    assert parse_description(text, "f") == Description()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "f: the file is empty: write resources: and a list below it", id="empty"),
        pytest.param("{}", "f: resources: is missing", id="without resources"),
        pytest.param("resource: []", "resource: there is no such field; did you mean resources?", id="misspelt"),
        pytest.param(EDU, "the file is a list", id="a list"),
        pytest.param("name: a.b/c", "name: there is no such field here; it belongs to an entry", id="misplaced"),
        pytest.param("resources: {}", "resources: an object is not a list", id="an object"),
        pytest.param(f"resources:\n{EDU}  nam: x\n", "resources[0].nam: there is no such field", id="in a resource"),
        pytest.param(f"resources:\n{EDU}{EDU}", "'driverwright.io/edu' is described twice", id="twice"),
        pytest.param("resources: []\nresources: []", "f:2: resources: is given twice", id="key given twice"),
        pytest.param("resources: [", "f:1: is not YAML", id="not YAML"),
        pytest.param("resources: []\n---\n{}", "must be one document", id="two documents"),
        pytest.param(f"resources: [{'{}, ' * 65}]", "it has 65 entries: write at most 64", id="too many"),
        pytest.param(f"resources: {'[' * 200}{']' * 200}", "nested deeper than 100 levels", id="too deep"),
        pytest.param("resources: !!python/object:os.system {}", "an object is not a list", id="a tag of Python"),
        pytest.param("resources: !!bool x", "'x' is not a value", id="no boolean"),
        pytest.param("resources: !!int ''", "'' is not a value", id="no number"),
        pytest.param("resources: !!timestamp x", "'x' is not a value", id="no time"),
        pytest.param("? !!map x\n: []", "'x' is not a value", id="a key that is an object"),
        pytest.param("resources: 2001-99-99", "'2001-99-99' is not a value", id="no date"),
        pytest.param(f"resources: {'9' * 5000}", "is not a value", id="a number that is too long"),
        pytest.param("a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,"
                     "*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]",
                     "more than 50000 entries", id="aliases of aliases"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(text: str, message: str) -> None:
    """With its place, and what would be right."""
    with pytest.raises(ConfigurationError) as caught:
        parse_description(text, "f")
    assert message in str(caught.value)


def test_gpus_are_asked_for() -> None:
    """With or without other resources; the defaults are NVIDIA's own."""
    assert parse_description("nvidia: {}", "f") == Description(nvidia=NvidiaSettings())
    both = parse_description(f"resources:\n{EDU}nvidia: {{migStrategy: mixed, health: {{holdSeconds: 60}}}}", "f")
    assert [resource.name for resource in both.resources] == ["driverwright.io/edu"]
    assert both.nvidia == NvidiaSettings(mig_strategy=MigStrategy.MIXED, hold_seconds=60)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("nvidia:", "f: nvidia: is empty: write {} for the defaults, or remove it", id="empty"),
        pytest.param("nvidia: [gpu]", "f: nvidia: a list is not an object", id="a list"),
        pytest.param("nvida: {}", "f: nvida: there is no such field; did you mean nvidia?", id="misspelt"),
        pytest.param("nvidia: {}\nmigStrategy: none", "migStrategy: there is no such field here; it belongs to nvidia",
                     id="misplaced"),
        pytest.param("nvidia: {migStrategy: Mixed}", "nvidia.migStrategy: 'Mixed' is unknown: use one of none, single,",
                     id="a word in capitals"),
        pytest.param(f"resources:\n{EDU.replace('driverwright.io', 'nvidia.com')}nvidia: {{}}",
                     "resources: 'nvidia.com/edu' is in a domain whose names nvidia: offers", id="a name of NVIDIA's"),
    ],
)  # fmt: skip
def test_a_mistake_about_gpus_is_named(text: str, message: str) -> None:
    """With its place, and what would be right."""
    with pytest.raises(ConfigurationError) as caught:
        parse_description(text, "f")
    assert message in str(caught.value)


def test_an_exporter_is_asked_for() -> None:
    """Without a field it is off; the port is that of NVIDIA's own."""
    text = "resources: []\nexporter:"
    assert parse_description(f"{text} {{}}", "f").exporter == ExporterSettings(enabled=False, port=9400)
    asked = "{enabled: true, port: 9401, perPod: true, hostnameLabel: node}"
    expected = ExporterSettings(enabled=True, port=9401, per_pod=True, hostname_label="node")
    assert parse_description(f"{text} {asked}", "f").exporter == expected
    assert parse_description("resources: []", "f").exporter is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("exporter:", "f: exporter: None is not an object: write fields below it", id="empty"),
        pytest.param("exporter: {enable: true}", "exporter.enable: there is no such field; did you mean enabled?",
                     id="misspelt"),
        pytest.param("exporter: {port: 0}", "exporter.port: 0 is not a whole number from 1 to 65535", id="no port"),
        pytest.param("exporter: {enabled: 'yes'}", "exporter.enabled: 'yes' is neither true nor false", id="a string"),
        pytest.param("exporter: {hostnameLabel: a-b}", "exporter.hostnameLabel: 'a-b' is not valid", id="no label"),
        pytest.param("exporter: {hostnameLabel: UUID}", "exporter.hostnameLabel: 'UUID' is another label of the same",
                     id="another label"),
        pytest.param("enabled: true", "f: enabled: there is no such field here; it belongs to exporter",
                     id="misplaced"),
        pytest.param("perPod: true", "f: perPod: there is no such field here; it belongs to exporter", id="per pod"),
        pytest.param("exporters: {}", "f: exporters: there is no such field; did you mean exporter?", id="in plural"),
        pytest.param("x: {}", "f: x: there is no such field; there are resources, nvidia, exporter", id="unknown"),
    ],
)  # fmt: skip
def test_a_mistake_about_the_exporter_is_named(text: str, message: str) -> None:
    """With its place, and what would be right."""
    with pytest.raises(ConfigurationError) as caught:
        parse_description(f"resources: []\n{text}", "f")
    assert message in str(caught.value)


@pytest.mark.parametrize("label", sorted(OTHER_LABELS))
def test_the_label_of_the_node_is_no_other_label(label: str) -> None:
    """A series with one label twice would not be read."""
    with pytest.raises(ConfigurationError, match="is another label of the same series"):
        parse_description(f"resources: []\nexporter: {{hostnameLabel: {label}}}", "f")


@pytest.mark.parametrize("content", [None, b"\xff", b"#" * (1 << 18) + b"#"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    """Missing, not text, or too long."""
    path = tmp_path / "config.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"cannot read the configuration file .*config\.yaml: "):
        read_description(str(path))


def test_a_pipe_is_not_opened_for_ever(tmp_path: Path) -> None:
    """Only a regular file is read."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(ConfigurationError, match="it is not a regular file"):
        read_description(str(path))
