"""Any text parses or is refused with a line, and what parses expands or is refused, both in bounded time."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_rules.go_template import TemplateError, parse_template
from feature_rules.go_template.data.numbers import cast_float64, cast_int64, parse_float, parse_int64
from feature_rules.go_template.functions.table import FUNCTIONS
from tests.support.examples import few

DATA = {
    "pci": {"device": [{"class": "0300", "vendor": "10de"}, {"class": "0200", "vendor": "é"}], "none": []},
    "kernel": {"version": [{"Name": "full", "Value": "6.1.0-31-amd64"}]},
}
PIECES = (
    "{{", "}}", "{{- ", " -}}", " ", "\n", "if ", "else ", "end", "range ", "with ", "define ", "template ", "block ",
    "break", "continue", "nil", "true", ".", "$", ".pci", ".pci.device", "$x", "$x := ", "$x = ", "$i, $x := ", "1",
    "1.5", "0x1f", "'a'", '"s"', "`r`", "|", "(", ")", ",", "{{/* c */}}", "{{end}}", "{{if 1}}", "{{else}}", "é", "-",
    "{{range .pci.device}}", "{{with .pci}}", "{{.}}", '{{define "T"}}', '{{template "T" .}}', "{{$x := 1}}", "{{$x}}",
)  # fmt: skip
ARGUMENTS = st.recursive(
    st.sampled_from(
        ('"a"', '""', '"é\\xff,b"', '"1.2.3"', '"$1{}"', "0", "1", "-3", "7", "9999999", "1.5", "-0.0", "1e300", "nil",
         "true", ".", ".pci", ".pci.device", ".pci.none", '(float64 "inf")', '(float64 "nan")', "(add 2 3)")
    ),
    lambda inner: st.builds("(list {} {})".format, inner, inner) | st.builds('(dict "a" {})'.format, inner),
    max_leaves=4,
)  # fmt: skip


def expands_or_refuses(text: str) -> None:
    """Parse and expand; only TemplateError may come of it, with a line, and soon."""
    began = time.thread_time()
    try:
        outcome = parse_template(text).expand(DATA)
    except TemplateError as error:
        outcome = f"refused: {error}"
    assert outcome.encode().decode() == outcome
    assert not outcome.startswith("refused: ") or outcome.startswith("refused: line ")
    assert time.thread_time() - began < 5


@given(st.text() | st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_any_text(text: str) -> None:
    """Text, and pieces of the language in any order."""
    expands_or_refuses(text)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
@pytest.mark.costly
@few(5)  # There are more than a hundred functions.
@given(st.data())
def test_any_arguments(name: str, data: st.DataObject) -> None:
    """Each function with arguments of any type and number."""
    function = FUNCTIONS[name]
    count = len(function.parameters) + (data.draw(st.integers(0, 2)) if function.rest else 0)
    arguments = [data.draw(ARGUMENTS) for _ in range(count)]
    expands_or_refuses(f"{{{{{' '.join((name, *arguments))}}}}}")


@given(st.text(alphabet="%#0+- *.[]123vTtdboOxXcqUeEfFgGsp!é", max_size=12), st.lists(ARGUMENTS, max_size=3))
def test_any_format(template: str, arguments: list[str]) -> None:
    """Any format string with any values gives text or our error."""
    expands_or_refuses(f"{{{{printf `{template}` {' '.join(arguments)}}}}}")


@given(st.text(alphabet="0123456789_.xXbBoOaAfFeEpP+-", max_size=14))
def test_any_number(text: str) -> None:
    """What a number constant is, and what a cast makes of the same text, agree."""
    integer, fraction = parse_int64(text), parse_float(text)
    assert cast_float64(text) == (fraction or 0.0)
    assert integer is None or cast_int64(text) == integer


@given(st.text())
def test_text_without_actions(text: str) -> None:
    """Text without braces is written as it is."""
    plain = text.replace("{", "(")
    assert parse_template(plain).expand({}) == plain


@given(st.text())
def test_quotes_and_reads_back(text: str) -> None:
    """What ``quote`` writes is a constant with the same value."""
    quoted = parse_template("{{index . `a` | quote}}").expand({"a": text})
    assert parse_template(f"{{{{{quoted}}}}}").expand({}) == text
