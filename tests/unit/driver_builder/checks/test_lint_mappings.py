"""Mappings that are well-formed and still cannot be meant."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.api.mapping_settings import KernelMapping
from driver_builder.api.spec_parser import parse_spec
from driver_builder.base.check_result import Remark, Status
from driver_builder.base.errors import InvalidDriver
from driver_builder.checks.lint_mappings import covers, oddities, undrained, untrusted
from tests.support.driver_builder.factories import spec

IMAGE = "r.io/edu:1"


def mappings(*items: dict[str, Any]) -> tuple[KernelMapping, ...]:
    """Read kernel mappings."""
    return parse_spec(spec(kernelMappings=list(items))).kernel_mappings


def regexps(*texts: str) -> tuple[KernelMapping, ...]:
    """Read kernel mappings by regular expressions."""
    return mappings(*({"regexp": text} for text in texts))


@pytest.mark.parametrize(
    ("earlier", "later", "covered"),
    [
        pytest.param({"regexp": ".*"}, {"regexp": "6[.](1|2)"}, True, id="everything before alternatives"),
        pytest.param({"regexp": "6.*"}, {"regexp": "6[.](1|2)"}, False, id="alternatives are not looked into"),
        pytest.param({"regexp": ".*"}, {"regexp": "6[.].*"}, True, id="everything before something"),
        pytest.param({"regexp": r"6\..*"}, {"regexp": r"6[.]1[.]0-[0-9]+"}, True, id="prefix before longer prefix"),
        pytest.param({"regexp": "6.*"}, {"regexp": "6.1.*"}, True, id="dots that mean any character"),
        pytest.param({"regexp": "^6.1.*"}, {"regexp": r"6\.1\.0"}, True, id="anchored by hand"),
        pytest.param({"regexp": "6.1.*"}, {"regexp": "6.*"}, False, id="narrow before wide"),
        pytest.param({"regexp": "6.*"}, {"regexp": "5.*"}, False, id="another prefix"),
        pytest.param({"regexp": "66.*"}, {"regexp": "66?.*"}, False, id="character that may be missing"),
        pytest.param({"regexp": r"6\..*"}, {"regexp": "6..*"}, False, id="a dot before any character"),
        pytest.param({"regexp": r"6\..*-amd64"}, {"regexp": r"6\.1\..*"}, False, id="not every end"),
        pytest.param({"regexp": "[56].*"}, {"regexp": "[56].*"}, True, id="the same"),
        pytest.param({"regexp": "6|.*"}, {"regexp": "6.*"}, False, id="alternatives are not decided"),
        pytest.param({"regexp": "6.*"}, {"regexp": "6.1|5.*"}, False, id="alternative that begins otherwise"),
        pytest.param({"regexp": "[56].*"}, {"literal": "6.1.0"}, True, id="literal that matches"),
        pytest.param({"regexp": "5.*"}, {"literal": "6.1.0"}, False, id="literal that does not"),
        pytest.param({"literal": "6.1.0"}, {"literal": "6.1.0"}, True, id="literal twice"),
        pytest.param({"literal": "6.1.0"}, {"regexp": r"6\.1\.0"}, True, id="literal as an expression"),
        pytest.param({"literal": "6.1.0"}, {"regexp": r"6\.1.*"}, False, id="literal before a prefix"),
    ],
)
def test_a_mapping_covers_another(earlier: dict[str, str], later: dict[str, str], covered: bool) -> None:
    """Only what is certain is said."""
    assert covers(*mappings(earlier, later)) is covered


expressions = st.lists(
    st.sampled_from(["6", "5", ".", r"\.", "[.]", "1", "-", "*", "+", "?", ".*", "|", "(1|2)", "[0-9]", "^"]),
    max_size=6,
).map("".join)
kernels = st.text(alphabet="651.-2", max_size=6)


def compiles(text: str) -> bool:
    """Return whether a text is an expression that a mapping may have."""
    try:
        regexps(text)
    except InvalidDriver:
        return False
    return True


@given(st.tuples(expressions.filter(compiles), expressions.filter(compiles)), st.lists(kernels, min_size=5))
def test_what_is_said_to_be_covered_is(texts: tuple[str, str], releases: list[str]) -> None:
    """No kernel is found that only the later one matches."""
    earlier, later = regexps(*texts)
    if covers(earlier, later):
        assert not [
            release
            for release in releases
            if later.pattern.fullmatch(release) and not earlier.pattern.fullmatch(release)
        ]


def found(items: list[dict[str, Any]], releases: list[str] | None = None) -> list[Remark]:
    """Look for oddities."""
    return list(oddities(mappings(*items), releases))


def test_a_hidden_mapping_names_the_one_that_hides_it() -> None:
    """Which two, and what to do."""
    (oddity,) = found([{"regexp": "5.*"}, {"regexp": "6.*"}, {"literal": "6.1.0", "skip": True}])
    assert (oddity.path[-1], oddity.status is Status.FAILED) == (2, True)
    assert "kernelMappings[1] (regexp '6.*') comes first" in oddity.message


def test_a_hidden_mapping_is_not_said_to_match_nothing_as_well() -> None:
    """One finding for one mistake."""
    assert len(found([{"regexp": "6.*"}, {"literal": "6.1.0"}], ["6.1.0"])) == 1


def test_a_mapping_that_applies_to_no_kernel_is_reported() -> None:
    """Of each kernel the first mapping that matches counts; no error, for nodes come and go."""
    oddity, other = found([{"regexp": "[5-6].*"}, {"regexp": "[6-7].*"}, {"literal": "4.9.0"}], ["6.1.0", "5.15.0"])
    assert (oddity.path[-1], oddity.status is Status.FAILED, other.path[-1]) == (1, False, 2)
    assert "regexp '[6-7].*' matches no kernel" in oddity.message


def test_nothing_is_said_about_kernels_that_nobody_knows() -> None:
    """Without a list of kernels there is nothing to hold mappings against."""
    assert found([{"regexp": "[5-6].*"}, {"regexp": "[6-7].*"}]) == []


@pytest.mark.parametrize(
    ("items", "releases", "index", "is_error", "words"),
    [
        pytest.param(
            [{"literal": "6.1.0", "image": IMAGE}, {"literal": "6.2.0", "image": IMAGE}], None, 1, True,
            "is also that of kernelMappings[0]", id="two literals",
        ),
        pytest.param([{"regexp": "6.*", "image": IMAGE}], None, 0, False, "may match several kernels", id="expression"),
        pytest.param(
            [{"regexp": "6.*", "image": IMAGE}], ["6.1.0", "6.2.0", "5.15.0"], 0, True, "is for kernels 6.1.0, 6.2.0",
            id="expression that matches two",
        ),
    ],
)  # fmt: skip
def test_an_image_for_several_kernels_is_reported(
    items: list[dict[str, Any]], releases: list[str] | None, index: int, is_error: bool, words: str
) -> None:
    """A driver image is for one kernel."""
    (oddity,) = found(items, releases)
    assert (oddity.path[-1], oddity.status is Status.FAILED) == (index, is_error)
    assert words in oddity.message


@pytest.mark.parametrize("changes", [{"loader": "image"}, {"dirName": "/opt"}], ids=["program", "folder"])
def test_a_vendors_image_may_be_for_several_kernels(changes: dict[str, str]) -> None:
    """Its program compiles for the kernel that runs, or it has a folder of modules for each."""
    mappings = [{"literal": "6.1.0", "image": IMAGE, **changes}, {"regexp": "6.*", "image": IMAGE, **changes}]
    assert found(mappings, ["6.1.0", "6.2.0", "6.3.0"])[:1] == []


@pytest.mark.parametrize("is_trusted", [False, True])
def test_a_vendors_image_that_is_not_trusted_is_reported(is_trusted: bool) -> None:
    """It may be labelled, so this is no error."""
    items = [{"literal": "6.1.0", "image": IMAGE}, {"literal": "6.2.0", "image": IMAGE, "loader": "image"}]
    read = parse_spec(spec(kernelMappings=items, module={"names": ["edudrv"], "trustImage": is_trusted}))
    said = [(oddity.path[-1], oddity.status is Status.FAILED) for oddity in untrusted(read)]
    assert said == ([] if is_trusted else [(1, False)])


@pytest.mark.parametrize("drain", [None, {"podSelector": {"app": "edu"}}])
def test_a_program_that_may_unload_under_its_users_is_reported(drain: dict[str, Any] | None) -> None:
    """Unless what uses the driver is drained before; our loader refuses to unload what is in use."""
    items = [
        {"literal": "6.1.0", "image": IMAGE, "dirName": "/opt"},
        {"regexp": "6.*", "image": IMAGE, "loader": "image"},
    ]
    read = parse_spec(spec(kernelMappings=items, **({"rollout": {"drain": drain}} if drain else {})))
    said = [(oddity.path[-1], oddity.status is Status.FAILED) for oddity in undrained(read)]
    assert said == ([] if drain else [(1, False)])


def test_an_expression_that_matches_one_kernel_may_have_an_image() -> None:
    """As far as is known, all is well."""
    assert found([{"regexp": "6.*", "image": IMAGE}], ["6.1.0", "5.15.0"])[:1] == []
