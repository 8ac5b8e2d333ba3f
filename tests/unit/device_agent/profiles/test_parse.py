"""The text of a profile: NVIDIA's words are read, and every mistake is named."""

import re

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.config.yaml_file import plain_document
from device_agent.errors import ProfileRefused
from device_agent.profiles.fields import PROFILE_FIELDS
from device_agent.profiles.parse import LONGEST_PROFILE, parse_profile
from device_agent.profiles.profile import Naming, Profile, Shared
from device_resources.nvidia import AllocationPolicy, MigStrategy
from kube_api.text import printable

GPU = "nvidia.com/gpu"
ALL_FIELDS = """\
version: v1
flags:
  migStrategy: mixed
  failOnInitError: false
  plugin: {sharedDevicesAllocationPolicy: packed, deviceListStrategy: [envvar], nvidiaCTKPath: null}
  gfd: {sleepInterval: 60s}
resources:
  gpus: [{pattern: "NVIDIA L4*", name: nvidia.com/l4}, {pattern: "*", name: gpu}]
  mig: [{pattern: 1g.5gb, name: small}]
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
    - {name: gpu, devices: [0, "1", "0:1", GPU-5a/0], replicas: 4}
    - {name: nvidia.com/l4, rename: quarter, devices: 2, replicas: 4}
    - {name: example.com/card, devices: all, replicas: 1000}
"""


def sharing(entries: str, further: str = "") -> str:
    """Write a profile that shares."""
    return f"version: v1\nsharing: {{timeSlicing: {{{further}resources: [{entries}]}}}}\n"


def refusal(text: str) -> str:
    """Return why a text is refused."""
    with pytest.raises(ProfileRefused) as caught:
        parse_profile(text, "k")
    return str(caught.value)


def test_a_profile_is_read() -> None:
    """All that means something here, and the names of what means nothing."""
    assert parse_profile(ALL_FIELDS, "k") == Profile(
        mig_strategy=MigStrategy.MIXED,
        policy=AllocationPolicy.PACKED,
        gpus=(Naming(pattern="NVIDIA L4*", name="nvidia.com/l4"), Naming(pattern="*", name=GPU)),
        migs=(Naming(pattern="1g.5gb", name="nvidia.com/small"),),
        shared=(
            Shared(name=GPU, becomes=f"{GPU}.shared", devices=("0", "1", "0:1", "GPU-5a/0"), replicas=4),
            Shared(name="nvidia.com/l4", becomes="nvidia.com/quarter", devices=2, replicas=4),
            Shared(name="example.com/card", becomes="example.com/card.shared", replicas=1000),
        ),
        fails_greater_than_one=True,
        ignored=("flags.failOnInitError", "flags.plugin.deviceListStrategy", "flags.gfd.sleepInterval"),
    )


@pytest.mark.parametrize(
    ("text", "ignored"),
    [
        pytest.param("version: v1\nflags:\n  migStrategy: none\n  failOnInitError: true\n  nvidiaDriverRoot: /\n"
                     "  plugin:\n    passDeviceSpecs: false\n    deviceListStrategy: envvar\n"
                     "    deviceIDStrategy: uuid\n", 5, id="the example of its README"),
        pytest.param("version: v1\nflags:\n  migStrategy: mixed # Only used to configure MIG\n  failOnInitError: true\n"
                     "  plugin:\n    deviceListStrategy:\n    - envvar\n  gfd:\n    oneshot: false\n"
                     "    noTimestamp: false\n    outputFile: /etc/features.d/gfd\n    sleepInterval: 60s\n",
                     6, id="with those of GFD"),
        pytest.param("version: v1\nflags: {gdsEnabled: true, mofedEnabled: true, gdrcopyEnabled: true, mpsRoot: /run}",
                     4,
                     id="flags of later versions"),
    ],
)  # fmt: skip
def test_examples_of_nvidias_documentation_are_read(text: str, ignored: int) -> None:
    """What configures its program alone is named, and changes nothing."""
    profile = parse_profile(text, "k")
    assert len(profile.ignored) == ignored
    assert profile == Profile(mig_strategy=profile.mig_strategy, ignored=profile.ignored)


@pytest.mark.parametrize("text", ["version: v1", "version: v1\nflags:\nresources: {}\nsharing: {}\nimex:\n"])
def test_a_profile_may_be_empty(text: str) -> None:
    """Then config.yaml decides all."""
    assert parse_profile(text, "k") == Profile()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "profile k is empty: write at least version: v1", id="empty"),
        pytest.param("[]", "profile k: a list is not an object", id="a list"),
        pytest.param("{}", "version: is missing", id="no version"),
        pytest.param("version: 1", "version: 1 is unknown: use one of v1", id="another version"),
        pytest.param("version: [", "profile k:1: is not YAML", id="not YAML"),
        pytest.param("version: v1\n---\nversion: v1", "profile k must be one document", id="two documents"),
        pytest.param(f"version: v1 {'#' * LONGEST_PROFILE}", "profile k is longer than 32768 characters",
                     id="too long"),
        pytest.param("version: v1 # \udcff", "is not YAML", id="not UTF-8"),
        pytest.param("version: v1\nsharin: {}", "sharin: there is no such field; did you mean sharing?", id="misspelt"),
        pytest.param("version: v1\ntimeSlicing: {}", "timeSlicing: there is no such field here; it belongs to sharing",
                     id="misplaced"),
        pytest.param("version: v1\nflags: {sharedDevicesAllocationPolicy: packed}", "it belongs to flags.plugin",
                     id="a flag of the plugin among the common ones"),
        pytest.param("version: v1\nflags: {migStrategy: both}", "'both' is unknown: use one of none, single, mixed",
                     id="strategy"),
        pytest.param("version: v1\nsharing: {mps: {resources: []}}", "sharing.mps: is not supported", id="MPS"),
        pytest.param("version: v1\nimex: {channelIDs: []}", "imex: is not supported", id="IMEX"),
        pytest.param("version: v1\nsharing: {timeSlicing: {}}", "sharing.timeSlicing.resources: is missing",
                     id="time slices of nothing"),
        pytest.param(sharing("{name: gpu}"), "resources[0].replicas: is missing", id="no replicas"),
        pytest.param(sharing("{name: gpu, replicas: 0}"), "0 is not a whole number from 1 to 1000", id="no share"),
        pytest.param(sharing("{name: gpu, replicas: 1001}"), "1001 is not a whole number from 1 to 1000",
                     id="too many shares"),
        pytest.param(sharing("{name: gpu, replicas: true}"), "True is not a whole number", id="replicas are true"),
        pytest.param(sharing("{name: gpu, replicas: 2, rename: a.b/c}"), "is in another domain: write nvidia.com/",
                     id="renamed to another domain"),
        pytest.param(sharing("{name: a.b/c, replicas: 2, rename: c}"), "is in another domain: write a.b/N",
                     id="another resource renamed to NVIDIA's"),
        pytest.param(sharing("{name: a.b/c, replicas: 2, devices: [0]}"), "'a.b/c' has no indexes",
                     id="indexes of files"),
        pytest.param(sharing("{name: Gpu!, replicas: 2}"), "'nvidia.com/Gpu!' is not valid", id="no name"),
        pytest.param(sharing(f"{{name: {'a' * 60}, replicas: 2}}", "renameByDefault: true, "), "a.shared' is not valid",
                     id="a name that is too long once it is shared"),
        pytest.param(sharing("{name: gpu, replicas: 2, devices: some}"), "'some' is not valid: write all, a number, or",
                     id="devices: a word"),
        pytest.param(sharing("{name: gpu, replicas: 2, devices: []}"), "it has 0 entries", id="devices: none"),
        pytest.param(sharing("{name: gpu, replicas: 2, devices: 0}"), "0 is not a whole number from 1",
                     id="devices: 0"),
        pytest.param(sharing("{name: gpu, replicas: 2, devices: true}"), "True is not a whole number",
                     id="devices: true"),
        pytest.param(sharing("{name: gpu, replicas: 2, devices: [1:30]}"), "90 is not a device: write an "
                     "index such as 0, a MIG index such as '1:0' in quotes",
                     id="a MIG index without quotes is a number of YAML's"),
        pytest.param(sharing("{name: gpu, replicas: 2, devices: [0, '0']}"), "devices[1]: '0' is named twice",
                     id="a device twice"),
        pytest.param(sharing("{name: gpu, replicas: 2}, {name: nvidia.com/gpu, replicas: 3}"),
                     "resources[1]: devices of 'nvidia.com/gpu' are in two entries", id="all twice"),
        pytest.param(sharing("{name: gpu, replicas: 2, devices: [0]}, {name: gpu, replicas: 3}"), "are in two entries",
                     id="one, and all"),
        pytest.param(sharing("{name: gpu, replicas: 2, devices: 1}, {name: gpu, replicas: 3, devices: 2}"),
                     "are in two entries", id="the first one, and the first two"),
        pytest.param("version: v1\nresources: {gpus: [{pattern: '*', name: amd.com/gpu}]}",
                     "resources.gpus[0].name: 'amd.com/gpu' is not in nvidia.com/", id="a card in another domain"),
        pytest.param("version: v1\nresources: {gpus: [{name: gpu}]}", "gpus[0].pattern: is missing", id="no pattern"),
        pytest.param(f"version: v1\nresources: {{gpus: [{'{pattern: x, name: y}, ' * 65}]}}", "it has 65 entries",
                     id="too many patterns"),
        pytest.param("version: v1\nresources: {mig: [{pattern: x, name: y}], migs: [{pattern: x, name: y}]}",
                     "resources.migs: and mig are the same field", id="both words for MIG"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(text: str, message: str) -> None:
    """With its path, and what would be right."""
    assert message in refusal(text)


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        pytest.param(ALL_FIELDS, True, id="all fields"),
        pytest.param("version: v1", True, id="none"),
        pytest.param(sharing("{name: gpu, replicas: 0}"), False, id="no share"),
        pytest.param("version: v1\nsharing: {mps: {}}", False, id="MPS"),
    ],
)
def test_the_fields_are_a_schema_as_well(text: str, is_valid: bool) -> None:
    """It says the same of a profile as the parser, as far as a schema can."""
    validator = jsonschema.Draft202012Validator(PROFILE_FIELDS.schema())
    assert validator.is_valid(plain_document(text, "k")) is is_valid


@pytest.mark.parametrize("word", ["mig", "migs"])
def test_patterns_of_mig_have_two_names(word: str) -> None:
    """NVIDIA's code reads one, and people write the other."""
    profile = parse_profile(f"version: v1\nresources: {{{word}: [{{pattern: x, name: y}}]}}", "k")
    assert profile.migs == (Naming(pattern="x", name="nvidia.com/y"),)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        pytest.param("*", "", True, id="anything"),
        pytest.param("NVIDIA L4", "NVIDIA L4", True, id="the whole name"),
        pytest.param("NVIDIA L4", "NVIDIA L40S", False, id="not a part of it"),
        pytest.param("NVIDIA L4*", "NVIDIA L40S", True, id="a beginning"),
        pytest.param("*40GB", "NVIDIA A100-SXM4-40GB", True, id="an end"),
        pytest.param("*A100*40GB*", "NVIDIA A100-SXM4-40GB", True, id="parts in their order"),
        pytest.param("*40GB*A100*", "NVIDIA A100-SXM4-40GB", False, id="parts in another order"),
        pytest.param("ab*ba", "aba", False, id="parts that would overlap"),
        pytest.param("*nvidia*", "NVIDIA L4", False, id="capitals count"),
        pytest.param("NVIDIA L?", "NVIDIA L4", False, id="a question mark is one"),
        pytest.param("1g.5gb", "1g-5gb", False, id="a dot is one"),
    ],
)
def test_patterns(pattern: str, text: str, expected: bool) -> None:
    """``*`` is any text, and nothing else has a meaning."""
    assert Naming(pattern=pattern, name="nvidia.com/x").matches(text) is expected


@given(pattern=st.text("ab*", max_size=6), text=st.text("ab", max_size=8))
def test_patterns_match_as_expressions_do(pattern: str, text: str) -> None:
    """Python's own, with ``.*`` for each ``*``."""
    expected = re.fullmatch(pattern.replace("*", ".*"), text) is not None
    assert Naming(pattern=pattern, name="x").matches(text) is expected


WORDS = st.sampled_from([
    "version", "v1", "flags", "migStrategy", "plugin", "gfd", "resources", "gpus", "mig", "migs", "pattern", "name",
    "sharing", "timeSlicing", "mps", "imex", "renameByDefault", "devices", "replicas", "rename", "all", "gpu", "0:1",
    "*", "nvidia.com/gpu", "a.b/c", "GPU-1",
])  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers(-1, 1001) | WORDS | st.text(max_size=5)
PLAIN = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4))
ENTRY = st.fixed_dictionaries(
    {"name": WORDS, "replicas": st.integers(0, 5)}, optional={"devices": LEAVES | st.lists(LEAVES), "rename": WORDS}
)


def read_or_refused(text: str) -> str:
    """Return why a text is refused; empty if it is not."""
    try:
        parse_profile(text, "k")
    except ProfileRefused as error:
        return str(error)
    return ""


@given(st.text() | PLAIN.map(repr) | st.lists(ENTRY, max_size=3).map(lambda some: sharing(", ".join(map(repr, some)))))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No other error comes out, and a message is one line of bounded length."""
    message = read_or_refused(text)
    assert printable(message, 2000) == message
