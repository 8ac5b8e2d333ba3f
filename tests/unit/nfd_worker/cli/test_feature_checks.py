"""Conditions that no node can meet: features, elements and values that no source makes."""

import re
from pathlib import Path

import pytest

from feature_rules.features import Features
from feature_rules.load import load_rules
from nfd_worker.cli.feature_checks import impossible_conditions, impossible_reference
from nfd_worker.cli.known_features import FREE, KNOWN
from nfd_worker.config.config import Settings
from nfd_worker.cycle import run_cycle
from nfd_worker.sources import SOURCES
from tests.support.nfd_worker.trees import RECORDED, recorded

EXAMPLES = Path(__file__).parents[4] / "examples" / "rules"


def problems(conditions: str) -> list[str]:
    """Check one rule with these ``matchFeatures``."""
    loaded = load_rules(f"[{{name: r, matchFeatures: [{conditions}]}}]", "f")
    assert not loaded.problems
    return [f"{one.field}: {one.message}" for rule in loaded.rules for one in impossible_conditions(rule)]


@pytest.mark.parametrize(
    ("conditions", "problem"),
    [
        pytest.param("{feature: pci.devices}", "no source makes the feature pci.devices; did you mean pci.device?",
                     id="feature"),
        pytest.param("{feature: kubernetes.label}", "kubernetes.label; nfd-worker scan --features lists", id="labels"),
        pytest.param("{feature: pci.device, matchExpressions: {vendorid: {op: Exists}}}",
                     "pci.device never has the attribute vendorid; did you mean vendor?", id="attribute"),
        pytest.param("{feature: pci.device, matchExpressions: {Vendor: {op: Exists}}}", "did you mean vendor?",
                     id="attribute in capitals"),
        pytest.param("{feature: pci.device, matchExpressions: {vendor: {op: In, value: ['0x10DE']}}}",
                     "vendor 0x10DE: it is 4 hexadecimal digits in lower case, without 0x; did you mean 10de?",
                     id="hexadecimal"),
        pytest.param("{feature: pci.device, matchExpressions: {vendor: {op: NotIn, value: ['10DE']}}}",
                     "did you mean 10de?", id="NotIn"),
        pytest.param("{feature: pci.device, matchExpressions: {class: {op: In, value: ['030200']}}}",
                     "did you mean 0302?", id="class with programming interface"),
        pytest.param("{feature: pci.device, matchExpressions: {vendor: {op: InRegexp, value: ['^0x10de$']}}}",
                     "did you mean 10de?", id="pattern that is a value"),
        pytest.param("{feature: pci.device, matchExpressions: {vendor: {op: Gt, value: ['1']}}}",
                     "vendor of pci.device is never a whole number", id="comparison"),
        pytest.param("{feature: usb.device, matchExpressions: {class: {op: In, value: ['0xEF']}}}", "did you mean ef?",
                     id="USB class"),
        pytest.param("{feature: kernel.config, matchExpressions: {CONFIG_NO_HZ: {op: In, value: ['y']}}}",
                     "did you mean NO_HZ?", id="option with CONFIG_"),
        pytest.param("{feature: kernel.config, matchExpressions: {NO_HZ: {op: In, value: ['n']}}}",
                     "an option that is off is not there: use DoesNotExist", id="option that is off"),
        pytest.param("{feature: kernel.config, matchExpressions: {NO_HZ: {op: IsTrue}}}",
                     "never has the NO_HZ true: it is y, m, a number or a text", id="option that is true"),
        pytest.param("{feature: kernel.loadedmodule, matchExpressions: {vfio-pci: {op: Exists}}}",
                     "never has the flag vfio-pci; did you mean vfio_pci?", id="loaded module by its file"),
        pytest.param("{feature: kernel.enabledmodule, matchExpressions: {vfio-pci.ko: {op: Exists}}}",
                     "did you mean vfio-pci?", id="file of a module"),
        pytest.param("{feature: kernel.version, matchExpressions: {full: {op: In, value: ['6.12.41+deb13-amd64']}}}",
                     "did you mean 6.12.41_deb13-amd64?", id="kernel release"),
        pytest.param("{feature: cpu.cpuid, matchExpressions: {avx512f: {op: Exists}}}",
                     "cpu.cpuid never has the flag avx512f; did you mean AVX512F?", id="flag in lower case"),
        pytest.param("{feature: cpu.cpuid, matchExpressions: {sse4_1: {op: DoesNotExist}}}", "did you mean SSE4?",
                     id="the kernel's name of a flag"),
        pytest.param("{feature: cpu.cpuid, matchExpressions: {AVX2: {op: In, value: ['true']}}}",
                     "cpu.cpuid has flags, which have no value: use Exists or DoesNotExist", id="value"),
        pytest.param("{feature: cpu.model, matchExpressions: {vendor_id: {op: In, value: ['GenuineIntel']}}}",
                     "did you mean Intel?", id="CPUID's name of a vendor"),
        pytest.param("{feature: cpu.security, matchExpressions: {sgx.enabled: {op: IsFalse}}}",
                     "use Exists or DoesNotExist", id="never false"),
        pytest.param("{feature: storage.block, matchExpressions: {rotational: {op: IsTrue}}}", "0 or 1", id="bit"),
        pytest.param("{feature: storage.block, matchExpressions: {type: {op: In, value: [Disk]}}}",
                     "did you mean disk?", id="word"),
        pytest.param("{feature: cpu.cpuid, matchName: {op: InRegexp, value: ['^avx']}}",
                     "matchFeatures[0].matchName: cpu.cpuid never has an element of such a name", id="names"),
        pytest.param("{feature: cpu.cpuid, matchName: {op: In, value: [avx2]}}", "did you mean AVX2?", id="name"),
    ],
)  # fmt: skip
def test_a_condition_that_no_node_meets_is_named_with_what_is_meant(conditions: str, problem: str) -> None:
    """Each makes a rule that never matches, and says nothing on a node."""
    (found,) = problems(conditions)
    assert problem in found


@pytest.mark.parametrize(
    "conditions",
    [
        pytest.param("{feature: local.feature, matchExpressions: {anything: {op: In, value: ['0x1']}}}", id="local"),
        pytest.param("{feature: rule.matched, matchExpressions: {any.thing: {op: IsTrue}}}", id="rules"),
        pytest.param("{feature: PCI.device, matchExpressions: {vendor: {op: In, value: ['10de']}}}", id="letter case"),
        pytest.param("{feature: pci.device, matchExpressions: {class: {op: InRegexp, value: ['^03', '0[23]']}}}",
                     id="patterns"),
        pytest.param("{feature: kernel.config, matchExpressions: {HZ: {op: Gt, value: ['250']}}}", id="number"),
        pytest.param("{feature: kernel.enabledmodule, matchExpressions: {vfio-pci: {op: Exists}, a_b: {op: Exists}}}",
                     id="both spellings"),
        pytest.param("{feature: cpu.cpuid, matchExpressions: {AVX10_VERSION: {op: Gt, value: ['1']}}}", id="level"),
        pytest.param("{feature: cpu.cpuid, matchName: {op: InRegexp, value: ['^AVX512']}}", id="names"),
        pytest.param("{feature: system.osRelease, matchExpressions: {VERSION_CODENAME: {op: In, value: [trixie]}}}",
                     id="os-release"),
        pytest.param("{feature: kernel.version, matchExpressions: {full: {op: Ge, type: version, value: ['5.10']}}}",
                     id="version"),
        pytest.param("{feature: memory.hugepages, matchExpressions: {hugepages-2Mi: {op: Gt, value: ['1']}}}",
                     id="huge pages"),
        pytest.param("{feature: gpu.device, matchExpressions: {family: {op: In, value: [hopper]}}}", id="GPU"),
    ],
)  # fmt: skip
def test_a_condition_that_some_node_meets_is_fine(conditions: str) -> None:
    """What files, settings and rules name is free, and so is what a kernel or a distribution names."""
    assert problems(conditions) == []


def test_alternatives_are_checked_as_well() -> None:
    """The field says which of them."""
    text = "[{name: r, matchAny: [{matchFeatures: [{feature: pci.device}]}, {matchFeatures: [{feature: pci.devise}]}]}]"
    (rule,) = load_rules(text, "f").rules
    assert [one.field for one in impossible_conditions(rule)] == ["matchAny[1].matchFeatures[0].feature"]


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        pytest.param("@kernel.version.major", None, id="attribute"),
        pytest.param("@system.osrelease.VERSION_ID.major", None, id="element with a dot"),
        pytest.param("@local.feature.anything", None, id="feature file"),
        pytest.param("@rule.matched.any.thing", None, id="rule"),
        pytest.param("@cpu.cpuid.AVX10_VERSION", None, id="the attribute of a feature of flags"),
        pytest.param("@kernel.version.majr", "did you mean major?", id="no such attribute"),
        pytest.param("@kernel.versions.major", "did you mean kernel.version?", id="no such feature"),
        pytest.param("@pci.device.vendor", "only attributes have one", id="instances"),
        pytest.param("@cpu.cpuid.AVX2", "only attributes have one", id="flag"),
    ],
)
def test_a_dynamic_value_names_what_some_node_has(reference: str, problem: str | None) -> None:
    """Other than a condition, it can name an attribute only."""
    found = impossible_reference(reference)
    assert found is None if problem is None else found is not None and problem in found


@pytest.mark.parametrize("name", RECORDED)
def test_all_that_a_recorded_host_has_is_known(name: str) -> None:
    """The table holds each feature, element and value that the sources find."""
    found = run_cycle(recorded(name), Settings(), {}).features
    unknown = [
        (feature, element, value)
        for feature, element, value in elements(found)
        if feature.partition(".")[0] not in FREE and not is_known(feature, element, value)
    ]
    assert unknown == []


def test_every_source_has_features_in_the_table() -> None:
    """But for those whose features others name."""
    assert {name.partition(".")[0] for name in KNOWN} | FREE == SOURCES.keys() | {"rule"}


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*[!s].yaml")), ids=lambda file: str(file.stem))
def test_the_examples_can_match(file: Path) -> None:
    """No example names what no source makes."""
    for rule in load_rules(file.read_text(), file.name).rules:
        assert list(impossible_conditions(rule)) == []


def elements(features: Features) -> list[tuple[str, str, str | None]]:
    """List all features with each of their elements, and its value if it has one."""
    flags = [(feature, name, None) for feature, names in features.flags.items() for name in names]
    attributes = [(feature, *pair) for feature, pairs in features.attributes.items() for pair in pairs.items()]
    instances = [
        (feature, *pair) for feature, several in features.instances.items() for one in several for pair in one.items()
    ]
    return [*flags, *attributes, *instances]


def is_known(feature: str, element: str, value: str | None) -> bool:
    """Ask the table."""
    known = KNOWN.get(feature)
    values = known.values_of(element) if known is not None else None
    return values is not None and (value is None or values.can_be(value))


def test_no_possible_value_is_called_impossible() -> None:
    """A value that is meant is itself a possible one."""
    for known in KNOWN.values():
        for values in known.elements.values():
            for text in ("0x10DE", "True", "GenuineIntel", "6.1+a", "030200", "yes", "", "Y"):
                meant = values.meant(text)
                assert meant is None or re.fullmatch(values.pattern, meant)
