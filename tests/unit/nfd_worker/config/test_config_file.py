"""The configuration file: upstream's files as they are, and errors that name the place."""

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nfd_worker.config.config_file import FILE_KEYS, IGNORED_KEYS, parse_file
from nfd_worker.config.file_text import read_file
from nfd_worker.errors import ConfigurationError
from nfd_worker.guarded_file import MAX_YAML_FILE


def values(text: str) -> dict[str, object]:
    """Read a text; without the notes when there are none."""
    read = parse_file(text, "f")
    return {name: value for name, value in read.items() if name != "notes" or value}


@pytest.mark.parametrize(
    ("text", "read"),
    [
        pytest.param("core: {noPublish: true}", {"no_publish": True}, id="boolean"),
        pytest.param("core: {noPublish: off}", {"no_publish": False}, id="boolean in YAML's other words"),
        pytest.param("CORE: {NoPublish: true}", {"no_publish": True}, id="letter case"),
        pytest.param("core: {sleepInterval: 90s}", {"sleep_interval": 90.0}, id="duration"),
        pytest.param("core: {sleepInterval: 0}", {"sleep_interval": float("inf")}, id="never"),
        pytest.param("resyncPeriod: 2h", {"resync_seconds": 7200.0}, id="key of the master"),
        pytest.param("core: {removalGrace: 5m}", {"removal_grace": 300.0}, id="grace"),
        pytest.param("core: {removalGrace: 0s}", {"removal_grace": 0.0}, id="no grace"),
        pytest.param("core: {labelWhiteList: a.b}", {"source_label_whitelist": "a.b"}, id="whitelist of sources"),
        pytest.param("labelWhiteList: a.b", {"label_whitelist": "a.b"}, id="whitelist of everything"),
        pytest.param("denyLabelNs: ['*.x', y.io]", {"deny_label_ns": ("*.x", "y.io")}, id="list"),
        pytest.param("restrictions: {disableLabels: true}", {"disable_labels": True}, id="restriction"),
        pytest.param("sources: {pci: {deviceClassWhitelist: ['03', 12, 0b4]}}",
                     {"pci.device_class_whitelist": ("03", "12", "0b4")}, id="number for a text"),
        pytest.param("sources: {cpu: {cpuid: {attributeBlacklist: []}}}", {"cpu.cpuid_blacklist": ()}, id="empty list"),
        pytest.param("sources: {gpu: {migStrategy: mixed}}", {"gpu.mig_strategy": "mixed"}, id="one of some words"),
        pytest.param("core: {upstreamHardwareLabels: true}", {"upstream_hardware_labels": True}, id="as upstream"),
        pytest.param("sources: {fake: {labels: {a: true}, attributeFeatures: {b: 10}}}",
                     {"fake.labels": {"a": "true"}, "fake.attribute_features": {"b": "10"}}, id="mapping of texts"),
        pytest.param("sources: {fake: {instanceFeatures: [{name: n, attributes: {a: 1}}, {attributes: {name: m}}]}}",
                     {"fake.instance_features": ({"a": "1", "name": "n"}, {"name": "m"})}, id="instances"),
        pytest.param("core: {<<: {noPublish: true}}", {"no_publish": True}, id="merged section"),
        pytest.param("core: {labelSources: [cpu], sources: [system]}", {"label_sources": ("system",)},
                     id="the old name of the label sources wins"),
        pytest.param("core: {noPublish: false}\nnoPublish: true", {"no_publish": True}, id="either noPublish"),
        pytest.param("core: {noPublish: true}\nnoPublish: false", {"no_publish": True}, id="or the other"),
        pytest.param("sources: {local: {}, system: , memory: {}, custom: }", {}, id="sections without keys"),
        pytest.param('{"core": {"noPublish": true}}', {"no_publish": True}, id="JSON"),
    ],
)  # fmt: skip
def test_values(text: str, read: dict[str, object]) -> None:
    """Each key sets its setting, with its type."""
    assert values(text) == read


@pytest.mark.parametrize("text", ["", "# nothing\n", "core:\n", "core:\nsources:\n  pci:\n", "---\n", "core: {klog: }"])
def test_empty_sections_set_nothing(text: str) -> None:
    """A file whose entries are all commented out is valid."""
    assert values(text) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "core:\n  sleepIntervall: 1s\n",
            "f:2: core.sleepIntervall is not a setting; did you mean core.sleepInterval?",
            id="misspelt key",
        ),
        pytest.param(
            "denyLabelN:\n  - a\n",
            "f:1: denyLabelN is not a setting; did you mean denyLabelNs?",
            id="the line is that of the key",
        ),
        pytest.param("sources:\n  pcie: {}\n", "f:2: sources.pcie is not a setting", id="misspelt source"),
        pytest.param("zzzz: 1\n", "f:1: zzzz is not a setting", id="nothing near"),
        pytest.param("core:\n  noPublish: 'yes'\n", "f:2: core.noPublish must be true or false", id="not a boolean"),
        pytest.param("core:\n  sleepInterval: 60\n", "f:2: core.sleepInterval '60' is not a duration", id="no unit"),
        pytest.param(
            "core:\n  sleepInterval: soon\n", "f:2: core.sleepInterval 'soon' is not a duration", id="bad duration"
        ),
        pytest.param(
            "core:\n  labelWhiteList: '('\n",
            "f:2: core.labelWhiteList '(' is not a regular expression",
            id="bad pattern",
        ),
        pytest.param(
            "sources:\n  pci:\n    deviceClassWhitelist: [03]\n",
            "f:3: sources.pci.deviceClassWhitelist[0] must be a string; put it",
            id="number that YAML changes",
        ),
        pytest.param(
            "denyLabelNs: [a, ]\nextraLabelNs: [~]", "f:2: extraLabelNs[0] must be a string", id="nothing in a list"
        ),
        pytest.param("denyLabelNs: a\n", "f:1: denyLabelNs must be a list", id="text for a list"),
        pytest.param("denyLabelNs: [[a]]\n", "f:1: denyLabelNs[0] must be a string", id="list in a list"),
        pytest.param(
            "sources: {gpu: {migStrategy: all}}",
            "f:1: sources.gpu.migStrategy 'all' is not one of none, single, mixed",
            id="unknown word",
        ),
        pytest.param(
            "sources: {fake: {instanceFeatures: [{nam: a}]}}",
            "instanceFeatures[0].nam there is no such field; did you mean name?",
            id="unknown field",
        ),
        pytest.param("core: [1]\n", "f:1: core must be a mapping", id="list for a section"),
        pytest.param("- 1\n", "f:1: the file must be a mapping", id="list for the file"),
        pytest.param("enableTaints: true\nenableTaints: false", "enableTaints is given twice", id="a key twice"),
        pytest.param("core: {\n", "f:2: is not YAML", id="not YAML"),
        pytest.param("core:\n---\nnoPublish: true", "f must be one document", id="two documents"),
        pytest.param("[" * 5000, "nested deeper than", id="too deep"),
        pytest.param("a" * (1 << 20) + "a", "longer than", id="too long"),
    ],
)
def test_a_mistake_names_file_line_and_key(text: str, message: str) -> None:
    """A message names the file, the line and the key of the mistake."""
    with pytest.raises(ConfigurationError) as caught:
        parse_file(text, "f")
    assert message in str(caught.value)


def test_what_has_no_effect_is_named_with_its_reason() -> None:
    """A setting without effect is noted with its reason, whatever its value."""
    text = "leaderElection: {leaseDuration: 15s}\ncore: {ownerRefs: [pod]}\nrestrictions: {allowOverwrite: false}"
    notes = parse_file(text, "f")["notes"]
    assert [note.partition(":")[2].partition(" has no effect: ")[0] for note in notes] == [
        " leaderElection", " core.ownerRefs", " restrictions.allowOverwrite",
    ]  # fmt: skip
    assert all(note.partition("has no effect: ")[2] for note in notes)


def test_every_key_of_upstream_is_known() -> None:
    """Those of both files, as its reference lists them."""
    worker = {
        "core.klog", "core.labelWhiteList", "core.noPublish", "core.noOwnerRefs", "core.ownerRefs",
        "core.featureSources", "core.labelSources", "core.sources", "core.noPublishFeatures", "core.sleepInterval",
    }  # fmt: skip
    master = {
        "denyLabelNs", "extraLabelNs", "labelWhiteList", "noPublish", "enableTaints", "resyncPeriod", "leaderElection",
        "nfdApiParallelism", "informerPageSize", "klog", "restrictions.nodeFeatureNamespaceSelector",
        "restrictions.disableLabels", "restrictions.disableExtendedResources", "restrictions.disableAnnotations",
        "restrictions.denyNodeFeatureLabels", "restrictions.allowOverwrite",
    }  # fmt: skip
    assert worker | master <= {*FILE_KEYS, *IGNORED_KEYS}


def test_rules_of_the_file_are_loaded_and_a_bad_one_fails_alone() -> None:
    """The worker starts, and the problem names the line."""
    text = """
sources:
  custom:
    - name: good
      labels: {x: "true"}
      matchFeatures:
        - feature: kernel.loadedmodule
          matchExpressions: {dummy: {op: Exists}}
    - name: bad
      matchFeatures:
        - feature: kernel.loadedmodule
          matchExpressions: {dummy: {op: Exist}}
"""
    read = values(text)
    rules, problems = read["custom_rules"], read["rule_problems"]
    assert isinstance(rules, tuple)
    assert isinstance(problems, tuple)
    assert [rule.name for rule in rules] == ["good"]
    assert [(problem.file, problem.line) for problem in problems] == [("f", 12)]


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """It may only be missing, and only at its default place."""
    with pytest.raises(ConfigurationError, match="cannot read the configuration file"):
        read_file(str(tmp_path), must_exist=False)
    with pytest.raises(ConfigurationError, match="there is no configuration file"):
        read_file(str(tmp_path / "none"), must_exist=True)
    assert read_file(str(tmp_path / "none"), must_exist=False) == {}
    (tmp_path / "latin").write_bytes(b"# \xe4")
    with pytest.raises(ConfigurationError, match="cannot read the configuration file"):
        read_file(str(tmp_path / "latin"), must_exist=False)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(
        ConfigurationError, match=r"cannot read the configuration file .*pipe: it is not a regular file"
    ):
        read_file(str(tmp_path / "pipe"), must_exist=True)
    (tmp_path / "long").write_bytes(b"#" * (MAX_YAML_FILE + 1))
    with pytest.raises(ConfigurationError, match="bytes, and 524288 is the most"):
        read_file(str(tmp_path / "long"), must_exist=True)


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n  # at all\n\n"], ids=["empty", "a blank line", "comments"])
def test_a_file_of_comments_sets_nothing(tmp_path: Path, text: str) -> None:
    """As YAML says of it, which is not asked."""
    (tmp_path / "file").write_text(text)
    assert read_file(str(tmp_path / "file"), must_exist=True) == {}
    assert parse_file(text, "f") == {"notes": ()}


def test_dev_null_sets_nothing() -> None:
    """It is how a command line says that there is no file."""
    assert read_file(os.devnull, must_exist=True) == {}


words = st.text(max_size=6) | st.sampled_from(
    [name for key in FILE_KEYS for name in key.split(".")] + [*IGNORED_KEYS, "custom", "all", "60s", "("]
)
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)
known_documents = st.fixed_dictionaries(
    {}, optional={"core": documents, "sources": st.dictionaries(words, documents), "restrictions": documents}
)


def check_text(text: str) -> None:
    """Read it; the only error is a ConfigurationError, and it comes at once."""
    start = time.thread_time()
    with suppress(ConfigurationError):
        assert isinstance(parse_file(text, "f")["notes"], tuple)
    assert time.thread_time() - start < 2


@given(st.text() | st.text(alphabet="{}[]:,-&*!<> \n\"'ab01"))
def test_any_text_is_read_or_refused_with_a_message(text: str) -> None:
    """No configuration file makes the worker crash."""
    check_text(text)


@given(documents | known_documents)
def test_any_document_is_read_or_refused_with_a_message(document: object) -> None:
    """Values of any type at any key are read, or refused with a message."""
    check_text(yaml.safe_dump(document))


ALIASES = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(ALIASES, id="aliases of aliases"),
        pytest.param("core: &c {<<: *c}", id="an alias of itself"),
        pytest.param("core: &c {klog: *c}", id="an alias of itself where it has no effect"),
        pytest.param("core: {sleepInterval: '" + "1" * 100_000 + "'}", id="a long number"),
        pytest.param("core: {sleepInterval: '" + "1h" * 50_000 + "x'}", id="a long duration"),
        pytest.param("core: {labelWhiteList: '(a{1000}){1000}'}", id="a greedy pattern"),
        pytest.param("core: {" + "x" * 100_000 + ": 1}", id="a long key"),
        pytest.param("sources: {fake: {labels: {a: " + "1" * 10_000 + "}}}", id="a long integer"),
    ],
)  # fmt: skip
def test_no_text_is_slow(text: str) -> None:
    """No configuration text takes long to read."""
    check_text(text)
