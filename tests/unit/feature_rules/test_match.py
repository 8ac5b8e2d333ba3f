"""Rules over features: lookup, kinds, combination, and the elements that templates see."""

from typing import Any

import pytest

from feature_rules.errors import MatchError
from feature_rules.features import Features
from feature_rules.match import (
    Data,
    Elements,
    Match,
    is_feature_name,
    match_expressions,
    match_feature,
    match_features,
    match_name,
    match_rule,
)
from feature_rules.model import FeatureMatcher, MatchExpression, Rule

EXISTS = MatchExpression("Exists")
ABSENT = MatchExpression("DoesNotExist")
ANY = MatchExpression("")
GPU = {"class": "0300", "vendor": "10de"}
NIC = {"class": "0200", "vendor": "8086"}
FEATURES = Features(
    flags={"cpu.cpuid": frozenset({"ADX", "AVX2"}), "cpu.empty": frozenset()},
    attributes={"kernel.version": {"full": "6.1.0-31-amd64", "major": "6"}},
    instances={"pci.device": (GPU, NIC), "usb.device": ()},
)


def one_of(*values: str) -> MatchExpression:
    """Make the condition In."""
    return MatchExpression("In", values)


def matcher(feature: str, name: MatchExpression | None = None, **expressions: MatchExpression) -> FeatureMatcher:
    """Make a matcher; without expressions it has none, not an empty set."""
    return FeatureMatcher(feature, expressions or None, name)


@pytest.mark.parametrize(
    ("name", "valid"),
    [("pci.device", True), ("a.b.c", True), ("pci", False), ("", False), (".device", False), ("pci.", False)],
)
def test_a_feature_name_has_a_domain_and_a_feature(name: str, valid: bool) -> None:
    """A name needs a dot; any text may follow the first one."""
    assert is_feature_name(name) == valid


@pytest.mark.parametrize(
    ("feature", "elements"),
    [
        pytest.param("pci.device", [], id="there"),
        pytest.param("PCI.Device", [], id="in another case"),
        pytest.param("usb.device", [], id="looked for and empty"),
        pytest.param("cpu.empty", [], id="no flags"),
        pytest.param("pci.nothing", None, id="never looked for"),
    ],
)
def test_a_matcher_without_conditions_asks_for_the_feature(feature: str, elements: list[Any] | None) -> None:
    """The feature must be there, even with nothing in it."""
    assert match_feature(matcher(feature), FEATURES) == elements


@pytest.mark.parametrize("feature", ["pci.nothing", "nothing"])
def test_a_missing_feature_matches_nothing_without_an_error(feature: str) -> None:
    """Not even DoesNotExist, and bad conditions do not matter."""
    assert match_feature(matcher(feature, x=ABSENT), FEATURES) is None
    assert match_feature(matcher(feature, x=MatchExpression("nonsense")), FEATURES) is None


@pytest.mark.parametrize(
    ("elements", "matched"),
    [
        pytest.param(Elements(flags=frozenset()), [], id="no flags"),
        pytest.param(Elements(attributes={}), [], id="no attributes"),
        pytest.param(Elements(instances=()), None, id="no instances"),
        pytest.param(Elements(instances=(GPU, NIC)), [GPU, NIC], id="instances"),
    ],
)
def test_an_empty_set_of_expressions(elements: Elements, matched: list[Any] | None) -> None:
    """It matches names that are none, and every instance, but needs one."""
    assert match_expressions({}, elements) == matched


def test_flags_and_attributes_are_one_set_of_names() -> None:
    """Each expression may hold on either side; elements are sorted by name."""
    both = Elements(flags=frozenset({"z", "b"}), attributes={"b": "1", "a": "2"})
    assert match_expressions({"z": EXISTS, "a": one_of("2"), "b": EXISTS}, both) == [
        {"Name": "a", "Value": "2"},
        {"Name": "b"},
        {"Name": "b", "Value": "1"},
        {"Name": "z"},
    ]


def test_what_shall_not_exist_must_be_missing_from_both() -> None:
    """A flag of that name is enough to refuse, and so is an attribute."""
    both = Elements(flags=frozenset({"flag"}), attributes={"attribute": "1"})
    assert match_expressions({"flag": ABSENT}, both) is None
    assert match_expressions({"attribute": ABSENT}, both) is None
    assert match_expressions({"neither": ABSENT}, both) == [{"Name": "neither"}, {"Name": "neither", "Value": ""}]


def test_an_attribute_without_a_value_is_there() -> None:
    """An attribute with an empty value exists."""
    assert match_expressions({"x": one_of("")}, Elements(attributes={"x": ""})) == [{"Name": "x", "Value": ""}]


def test_one_instance_must_meet_all_expressions() -> None:
    """Two instances that meet one each do not make a match."""
    pci = Elements(instances=(GPU, NIC))
    assert match_expressions({"class": one_of("0300"), "vendor": one_of("10de")}, pci) == [GPU]
    assert match_expressions({"class": one_of("0300"), "vendor": one_of("8086")}, pci) is None
    assert match_expressions({"class": one_of("0200", "0300")}, pci) == [GPU, NIC]


def test_instances_may_match_where_names_do_not() -> None:
    """Names and instances are alternatives; the names that matched on the way do not count."""
    mixed = Elements(flags=frozenset({"class"}), instances=(GPU,))
    assert match_expressions({"class": EXISTS, "vendor": EXISTS}, mixed) == [GPU]


def test_an_error_on_one_instance_is_an_error() -> None:
    """An error on one instance fails the match, even when another instance matches."""
    with pytest.raises(MatchError, match="'n/a' is not an integer"):
        match_expressions({"n": MatchExpression("Gt", ("1",))}, Elements(instances=({"n": "2"}, {"n": "n/a"})))


@pytest.mark.parametrize(
    ("condition", "matched"),
    [
        pytest.param(one_of("a"), [{"Name": "a"}, {"Name": "a", "Value": "1"}, {"a": "x"}], id="In"),
        pytest.param(one_of("c"), None, id="no such name"),
        pytest.param(
            MatchExpression("NotIn", ("a",)), [{"Name": "b"}, {"Name": "d", "Value": "2"}, {"e": "y"}], id="NotIn"
        ),
        pytest.param(MatchExpression("InRegexp", ("^[d-e]$",)), [{"Name": "d", "Value": "2"}, {"e": "y"}], id="regexp"),
        pytest.param(ABSENT, None, id="all names are there"),
    ],
)
def test_a_condition_on_names(condition: MatchExpression, matched: list[Any] | None) -> None:
    """The name is the value; elements are sorted by name, then come instances by the names of their attributes."""
    found = Elements(flags=frozenset("ba"), attributes={"d": "2", "a": "1"}, instances=({"a": "x"}, {"e": "y"}))
    assert match_name(condition, found) == matched


@pytest.mark.parametrize("condition", [EXISTS, ANY], ids=["Exists", "any"])
def test_exists_holds_for_every_name(condition: MatchExpression) -> None:
    """As matchName, Exists matches all elements, if there is one."""
    assert match_name(condition, Elements(flags=frozenset({"a"}))) == [{"Name": "a"}]
    assert match_name(condition, Elements(flags=frozenset(), attributes={}, instances=({},))) is None


def test_an_error_for_any_name_is_an_error() -> None:
    """An error for one name fails the match, whatever the order of the names."""
    with pytest.raises(MatchError):
        match_name(MatchExpression("Gt", ("1",)), Elements(instances=({"2": "", "x": ""},)))


def test_expressions_and_name_must_both_match() -> None:
    """Elements of both follow each other, twice where both match."""
    both = FeatureMatcher("cpu.cpuid", {"ADX": EXISTS}, MatchExpression("InRegexp", ("^A",)))
    assert match_feature(both, FEATURES) == [{"Name": "ADX"}, {"Name": "ADX"}, {"Name": "AVX2"}]
    assert match_feature(both._replace(name=one_of("SSE")), FEATURES) is None


def test_data_is_by_domain_and_feature_as_the_rule_writes_it() -> None:
    """Matchers of one feature follow each other; the name keeps its case, and splits at the first dot."""
    matchers = [
        matcher("cpu.cpuid", ADX=EXISTS),
        matcher("cpu.cpuid", AVX2=EXISTS),
        matcher("CPU.cpuid", ADX=EXISTS),
        matcher("usb.device"),
    ]
    assert match_features(matchers, FEATURES) == {
        "cpu": {"cpuid": [{"Name": "ADX"}, {"Name": "AVX2"}]},
        "CPU": {"cpuid": [{"Name": "ADX"}]},
        "usb": {"device": []},
    }


def test_all_matchers_must_match() -> None:
    """One matcher that does not match makes all of matchFeatures fail."""
    assert match_features([matcher("cpu.cpuid"), matcher("cpu.nothing")], FEATURES) is None


HAS_ADX = (matcher("cpu.cpuid", ADX=EXISTS),)
HAS_GPU = (matcher("pci.device", vendor=one_of("10de")),)
HAS_TPM = (matcher("tpm.device"),)


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        pytest.param(Rule("r"), True, id="no condition"),
        pytest.param(Rule("r", match_features=(), match_any=()), True, id="empty conditions"),
        pytest.param(Rule("r", match_features=HAS_ADX), True, id="all"),
        pytest.param(Rule("r", match_features=HAS_TPM), False, id="not all"),
        pytest.param(Rule("r", match_any=(HAS_TPM, HAS_ADX)), True, id="one of"),
        pytest.param(Rule("r", match_any=(HAS_TPM,)), False, id="none of"),
        pytest.param(Rule("r", match_features=HAS_ADX, match_any=(HAS_GPU,)), True, id="both"),
        pytest.param(Rule("r", match_features=HAS_TPM, match_any=(HAS_GPU,)), False, id="only any"),
        pytest.param(Rule("r", match_features=HAS_ADX, match_any=(HAS_TPM,)), False, id="only all"),
    ],
)
def test_when_a_rule_matches(rule: Rule, matches: bool) -> None:
    """All of matchFeatures and one of matchAny, as far as they are given."""
    assert (match_rule(rule, FEATURES) is not None) == matches


def test_without_templates_the_first_alternative_is_enough() -> None:
    """Later ones are not looked at, so what is wrong with them does no harm."""
    bad = (matcher("cpu.cpuid", ADX=MatchExpression("nonsense")),)
    assert match_rule(Rule("r", match_any=(HAS_ADX, bad)), FEATURES) == Match(({"cpu": {"cpuid": [{"Name": "ADX"}]}},))


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(Rule("r", labels_template=object()), id="labels"),
        pytest.param(Rule("r", vars_template=object()), id="vars"),
    ],
)
def test_with_a_template_every_matching_alternative_gives_data(rule: Rule) -> None:
    """Each alternative by itself, in order, then matchFeatures."""
    rule = rule._replace(match_any=(HAS_GPU, HAS_TPM, HAS_ADX), match_features=HAS_ADX)
    adx: Data = {"cpu": {"cpuid": [{"Name": "ADX"}]}}
    assert match_rule(rule, FEATURES) == Match(({"pci": {"device": [GPU]}}, adx, adx))
