"""What is wrong with a template is reported with its line: when it is parsed, or when it meets the data."""

import pytest

from feature_rules.errors import FeatureRulesError
from feature_rules.go_template import TemplateError, parse_template

DATA = {"pci": {"device": [{"class": "0300"}], "none": []}}


@pytest.mark.parametrize(
    ("template", "message"),
    [
        pytest.param("{{nope}}", "line 1: function 'nope' is not defined", id="unknown function"),
        pytest.param("{{trimm .}}", "did you mean trim?", id="nearest function"),
        pytest.param("{{hasprefix .}}", "did you mean hasPrefix?", id="nearest function but for case"),
        pytest.param('{{env "HOME"}}', "function env is refused: it reads the worker's environment", id="environment"),
        pytest.param('{{getHostByName "a"}}', "is refused: it asks the network", id="network"),
        pytest.param("{{now}}", "is refused: it depends on the moment", id="moment"),
        pytest.param("{{uuidv4}}", "is refused: it gives another result each time", id="chance"),
        pytest.param("{{call .x}}", "function call is refused", id="call"),
        pytest.param("a\n{{$x}}", "line 2: $x is not defined here", id="unknown variable"),
        pytest.param("{{if $x := 1}}{{end}}{{$x}}", "$x is not defined here", id="variable out of its block"),
        pytest.param('{{$x := 1}}{{define "t"}}{{$x}}{{end}}', "$x is not defined here", id="variable in define"),
        pytest.param("\n\n{{if 1}}", "line 3: this {{if}} has no {{end}}", id="block without end"),
        pytest.param("{{end}}", "line 1: {{end}} closes nothing", id="end without block"),
        pytest.param("{{else}}", "{{else}} closes nothing", id="else without block"),
        pytest.param("{{if 1}}{{else}}{{else}}{{end}}", "where {{end}} of {{if}} is expected", id="two elses"),
        pytest.param("{{range list}}{{else if 1}}{{end}}", "unexpected 'if'", id="else if of range"),
        pytest.param("{{if}}{{end}}", "a value is missing in if", id="if without value"),
        pytest.param("{{}}", "a value is missing in command", id="empty action"),
        pytest.param("{{1 | 2}}", "2 cannot take the value before the |", id="constant behind a pipe"),
        pytest.param("{{| len}}", "unexpected '|'", id="pipe without a value"),
        pytest.param("{{(1}}", "a parenthesis is not closed", id="open parenthesis"),
        pytest.param("{{1)}}", "this ) closes nothing", id="closed parenthesis"),
        pytest.param("{{print ()}}", "a value is missing in parentheses", id="empty parentheses"),
        pytest.param("{{break}}", "{{break}} outside {{range}}", id="break outside"),
        pytest.param(
            '{{range list}}{{block "b" .}}{{continue}}{{end}}{{end}}', "outside {{range}}", id="continue in block"
        ),
        pytest.param("{{break 1}}", "unexpected '1' in break", id="break with a value"),
        pytest.param('{{if 1}}{{define "a"}}{{end}}{{end}}', "may not stand inside another block", id="define inside"),
        pytest.param(
            '{{define "a"}}x{{end}}{{define "a"}}y{{end}}', "template 'a' is defined twice", id="defined twice"
        ),
        pytest.param("{{define a}}{{end}}", "unexpected 'a' in define", id="define without quotes"),
        pytest.param("{{template}}", "unexpected '}}' in template", id="template without name"),
        pytest.param("{{$a, $b := 1}}", "too many variables in command", id="two variables"),
        pytest.param("{{range $a, $b, $c := list}}{{end}}", "too many variables in range", id="three variables"),
        pytest.param("{{range $a, .}}{{end}}", "comes a second variable", id="range without second variable"),
        pytest.param("a\n{{1\n2", "the action that begins in line 2 has no end }}", id="action without end"),
        pytest.param('{{"a}}', 'this quoted string has no end "', id="string without end"),
        pytest.param("{{`a}}", "this raw quoted string has no end `", id="raw string without end"),
        pytest.param("{{'a}}", "this character constant has no end '", id="character without end"),
        pytest.param("{{'ab'}}", "'ab' is not one character", id="two characters"),
        pytest.param(r'{{"\q"}}', r'"\q" has a wrong \ escape', id="wrong escape"),
        pytest.param(r"{{'\777'}}", r"'\777' is not one character", id="octal that is no byte"),
        pytest.param(r'{{"\U00110000"}}', "has a wrong \\ escape", id="beyond Unicode"),
        pytest.param("{{print 1(2)}}", "unexpected '(' in operand", id="call with parentheses"),
        pytest.param("{{if 1}}{{else}}", "this {{if}} has no {{end}}", id="else without end"),
        pytest.param('{{template "t" 1 end}}', "unexpected 'end' in", id="keyword as value"),
        pytest.param(r'{{"\ud800"}}', "has a wrong \\ escape", id="half a character"),
        pytest.param("{{/* a", "this comment has no end */", id="comment without end"),
        pytest.param("{{/* a */ }}", "must be followed by }}", id="space behind a comment"),
        pytest.param("{{08}}", "08 is not a number", id="not octal"),
        pytest.param("{{1__0}}", "1__0 is not a number", id="two underscores"),
        pytest.param("{{99999999999999999999}}", "is too large", id="large number"),
        pytest.param("{{1i}}", "1i is not a number", id="imaginary number"),
        pytest.param("{{$x=1}}", "cannot follow $x; a space may be missing", id="missing space"),
        pytest.param("{{.a:b}}", ": must be followed by =", id="colon"),
        pytest.param("{{.a!}}", "'!' cannot follow .a", id="stray character"),
        pytest.param("{{ ! }}", "'!' has no meaning in an action", id="character without meaning"),
        pytest.param('{{"a".b}}', '"a" has no fields', id="field of a constant"),
        pytest.param(
            "{{" + "(" * 200 + "1" + ")" * 200 + "}}",
            "parentheses are nested more than 100 deep",
            id="deep parentheses",
        ),
        pytest.param("{{if 1}}" * 200, "blocks are nested more than 100 deep", id="deep blocks"),
        pytest.param("x" * 65537, "the template has 65537 bytes; at most 65536 are allowed", id="too long"),
        pytest.param("é" * 32769, "the template has 65538 bytes", id="too long in bytes"),
    ],
)
def test_refuses_to_parse(template: str, message: str) -> None:
    """The message has the line and what is wrong there."""
    with pytest.raises(TemplateError) as caught:
        parse_template(template)
    assert str(caught.value).startswith("line ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        pytest.param("a\n{{.usb}}", 'line 2: map has no entry for key "usb"; index . "usb" gives', id="missing domain"),
        pytest.param("{{(first .pci.device).serial}}", 'no entry for key "serial"', id="missing attribute"),
        pytest.param("{{.pci.device.class}}", "has no field class", id="field of a list"),
        pytest.param("{{(first list).x}}", "nil has no field x", id="field of nil"),
        pytest.param("{{(semver `1`).Nope}}", "a *semver.Version has no field Nope", id="field of a version"),
        pytest.param("{{index .pci.device 1}}", "index: index out of range: 1 of 1 elements", id="index out of range"),
        pytest.param('{{index .pci.device "a"}}', "the index of a list is an integer; got string", id="index by name"),
        pytest.param("{{index .pci 1}}", "the key of a map is a string; got int", id="key by number"),
        pytest.param("{{index nil 1}}", "index of untyped nil", id="index of nil"),
        pytest.param("{{index 5 1}}", "can't index item of type int", id="index of a number"),
        pytest.param("{{len 3}}", "len: len of type int", id="len of a number"),
        pytest.param("{{range 1.5}}{{end}}", "range can't iterate over a float64", id="range over a fraction"),
        pytest.param("{{range $i, $e := 3}}{{end}}", "has one variable at most", id="two variables over a number"),
        pytest.param('{{template "t"}}', "template 't' is not defined", id="unknown template"),
        pytest.param("{{$x = 1}}", "$x is not defined; := defines a variable", id="unknown variable set"),
        pytest.param(
            "{{if 0}}{{$x := 1}}{{else}}{{$x}}{{end}}", "$x is not defined here", id="variable of another branch"
        ),
        pytest.param("{{1 2}}", "1 is not a function, so it takes no argument", id="number with argument"),
        pytest.param("{{.pci 1}}", ".pci is not a function", id="field with argument"),
        pytest.param("{{1 | .pci.device}}", ".pci.device is not a function", id="field behind a pipe"),
        pytest.param("{{nil}}", "nil is not a command", id="nil alone"),
        pytest.param("{{$x := 1}}{{$x 1}}", "$x is not a function", id="variable with argument"),
        pytest.param('{{"a" 1}}', '"a" is not a function', id="string with argument"),
        pytest.param("{{true 1}}", "true is not a function", id="truth with argument"),
        pytest.param("{{. 1}}", ". is not a function", id="dot with argument"),
        pytest.param("{{(list) 1}}", "a value that is here is not a function", id="parentheses with argument"),
        pytest.param("{{trim}}", "trim takes 1 arguments; it got 0", id="too few arguments"),
        pytest.param('{{trim "a" "b"}}', "trim takes 1 arguments; it got 2", id="too many arguments"),
        pytest.param("{{printf}}", "printf takes at least 1 arguments; it got 0", id="too few for at least"),
        pytest.param("{{trim 5}}", "expected string; found 5", id="number where string is wanted"),
        pytest.param("{{trim nil}}", "nil where a string is expected", id="nil where string is wanted"),
        pytest.param("{{trim true}}", "expected string; found true", id="truth where string is wanted"),
        pytest.param(
            "{{.pci | upper}}", "expected string; got nodefeaturerule.domainMatchedFeatures", id="map as string"
        ),
        pytest.param("{{until 1.5}}", "expected int; found 1.5", id="fraction where int is wanted"),
        pytest.param('{{until "3"}}', 'expected int; found "3"', id="string where int is wanted"),
        pytest.param(
            "{{until (add 1 2)}}", "expected int; got int64 (int converts it)", id="int64 where int is wanted"
        ),
        pytest.param("{{18446744073709551615}}", "overflows int", id="unsigned number"),
        pytest.param("{{keys .pci}}", "expected map[string]interface {}; got nodefeaturerule", id="data as dict"),
        pytest.param("{{eq 1 1.0}}", "incompatible types for comparison: int and float64", id="int and fraction"),
        pytest.param("{{eq list list}}", "cannot be compared", id="two lists"),
        pytest.param("{{eq 1}}", "missing argument for comparison", id="nothing to compare with"),
        pytest.param(
            '{{lt 1 "a"}}', "incompatible types for comparison: int and string", id="order of number and string"
        ),
        pytest.param("{{eq (semver `1`) list}}", "cannot be compared", id="version and list"),
        pytest.param("{{index (dict `a` nil) `a` `b`}}", "index of nil", id="index of nil inside"),
        pytest.param("{{dig 1 `b` `d` dict}}", "a key of dig is a string; got int", id="dig by number"),
        pytest.param("{{mergeOverwrite (dict `a` (first .pci.device)) (dict `a` (dict `b` 1))}}", "merged", id="merge"),
        pytest.param("{{addf (float64 `nan`) 1}}", "are not decimal numbers", id="decimals of NaN"),
        pytest.param("{{semver `99999999999999999999`}}", "is too large", id="large number of a version"),
        pytest.param("{{semverCompare `1|2` `1`}}", "improper constraint", id="constraint with one bar"),
        pytest.param("{{lt true false}}", "invalid type for comparison", id="order of truths"),
        pytest.param("{{lt nil 1}}", "invalid type for comparison", id="order of nil"),
        pytest.param("{{div 1 0}}", "div: integer divide by zero", id="division by zero"),
        pytest.param("{{mod 1 0}}", "mod: integer divide by zero", id="rest of division by zero"),
        pytest.param("{{divf 1 0}}", "decimal division by 0", id="decimal division by zero"),
        pytest.param('{{substr 3 2 "hello"}}', "slice bounds out of range: 3 to 2", id="substr backwards"),
        pytest.param('{{substr -1 9 "hello"}}', "slice bounds out of range", id="substr too far"),
        pytest.param('{{slice "abc" 1}}', "cannot slice on type string; expected a list", id="slice of a string"),
        pytest.param("{{slice (list 1) 2}}", "slice bounds out of range: 2 to 1 of 1 elements", id="slice too far"),
        pytest.param('{{repeat -1 "a"}}', "negative repeat count -1", id="repeat below zero"),
        pytest.param("{{first nil}}", "cannot find first on type nil", id="first of nil"),
        pytest.param("{{concat 1}}", "cannot concat on type int", id="concat of a number"),
        pytest.param("{{chunk 0 list}}", "the size of a chunk is 1 or more", id="chunk of nothing"),
        pytest.param("{{ternary 1 2 3}}", "expected bool; found 3", id="number as truth"),
        pytest.param('{{dig "a" "b" "d" (dict "a" 1)}}', "dig looks into map", id="dig into a number"),
        pytest.param('{{dig "a" dict}}', "dig needs at least three arguments", id="dig without default"),
        pytest.param("{{deepCopy nil}}", "nil cannot be copied", id="copy of nil"),
        pytest.param('{{regexFind "(" "a"}}', "'(' is not a regular expression", id="wrong pattern"),
        pytest.param('{{mustRegexMatch "(" "a"}}', "is not a regular expression", id="wrong pattern, strictly"),
        pytest.param('{{mustFromJson "x"}}', "invalid JSON", id="wrong JSON, strictly"),
        pytest.param('{{toJson (float64 "inf")}}', "unsupported value: +Inf", id="infinity as JSON"),
        pytest.param('{{semver "1.2.3.4"}}', "'1.2.3.4' is not a semantic version", id="four numbers"),
        pytest.param('{{semver "1.2.3-01"}}', "begins with 0", id="zero before a number"),
        pytest.param('{{semverCompare "=>a" "1"}}', "improper constraint", id="wrong constraint"),
        pytest.param('{{fail "no such device"}}', "line 1: fail: no such device", id="fail"),
    ],
)
def test_refuses_to_expand(template: str, message: str) -> None:
    """The message has the line, the function and what is wrong."""
    parsed = parse_template(template)
    with pytest.raises(TemplateError) as caught:
        parsed.expand(DATA)
    assert str(caught.value).startswith("line ")
    assert message in str(caught.value)


def test_names_the_line_inside_a_block() -> None:
    """The line is that of the action, not of the block around it."""
    with pytest.raises(TemplateError, match=r"^line 3: "):
        parse_template("{{range .pci.device}}\nx\n{{.serial}}\n{{end}}").expand(DATA)


def test_template_errors_are_the_workers() -> None:
    """Errors of templates are errors of the worker."""
    assert issubclass(TemplateError, FeatureRulesError)


def test_an_error_can_be_encoded() -> None:
    """Bytes that are no UTF-8, in what a function refuses, do not stop the log."""
    with pytest.raises(TemplateError) as caught:
        parse_template('{{semverCompare "\\xff,b" "a"}}').expand({})
    assert str(caught.value).encode()
