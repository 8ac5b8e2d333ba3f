"""The template language: fields, variables, blocks, pipelines, literals and spaces.

The expected texts are what Go 1.19's text/template with sprig 3.2.3 writes, which the reference behaviour is built on.
"""

import pytest

from feature_rules.go_template import parse_template
from tests.support.template_data import DATA


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param(
            "{{.pci.device}}", "[map[class:0300 vendor:10de] map[class:0200 vendor:8086]]", id="a field of a field"
        ),
        pytest.param("{{(index .pci.device 1).vendor}}", "8086", id="a field of a value in parentheses"),
        pytest.param('{{index .pci.device 0 "class"}}', "0300", id="several keys of index"),
        pytest.param(
            '{{index .pci "usb"}}{{len (index .pci "usb")}}', "[]0", id="a feature that is not there is empty"
        ),
        pytest.param(
            '{{index . "usb"}}{{index . "usb" "device"}}', "map[][]", id="a domain that is not there is empty"
        ),
        pytest.param('<{{index (index .pci.device 0) "serial"}}>', "<>", id="an attribute that is not there is empty"),
        pytest.param("{{range .pci.device}}{{len $.pci.device}}{{end}}", "22", id="the root inside a loop"),
        pytest.param('{{with "x"}}{{.}}{{end}}', "x", id="dot itself"),
        pytest.param("{{len $.kernel}}", "1", id="a dollar sign is the root"),
        pytest.param('{{index "abc" 1}}', "98", id="bytes of a string"),
    ],
)
def test_reads_data(template: str, expected: str) -> None:
    """Fields, chains and index reach into domains, features and elements."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param("{{range .pci.device}}{{.class}},{{end}}", "0300,0200,", id="elements"),
        pytest.param(
            "{{range $i, $e := .pci.device}}{{$i}}={{$e.vendor}} {{end}}", "0=10de 1=8086 ", id="number and element"
        ),
        pytest.param(
            "{{range $e := .pci.device}}{{$e.vendor}} {{end}}", "10de 8086 ", id="one variable is the element"
        ),
        pytest.param('{{range $k, $v := dict "b" 2 "a" 1 "c" 3}}{{$k}}{{$v}}{{end}}', "a1b2c3", id="map by key"),
        pytest.param("{{range $name, $features := .}}{{$name}} {{end}}", "kernel pci ", id="domains by name"),
        pytest.param("{{range .pci.none}}x{{else}}none{{end}}", "none", id="else of an empty list"),
        pytest.param("{{range first list}}x{{else}}none{{end}}", "none", id="nil is empty"),
        pytest.param("{{range list 1 2 3}}{{if eq . 2}}{{break}}{{end}}{{.}}{{end}}", "1", id="break"),
        pytest.param("{{range list 1 2 3}}{{if eq . 2}}{{continue}}{{end}}{{.}}{{end}}", "13", id="continue"),
        pytest.param(
            "{{range list 1 2}}{{range list 1 2}}{{break}}{{end}}x{{end}}", "xx", id="break leaves the inner loop only"
        ),
        pytest.param("{{range 3}}{{.}}{{end}}", "012", id="whole numbers count"),
        pytest.param("{{range $i := 2}}{{$i}},{{end}}", "0,1,", id="whole numbers with a variable"),
        pytest.param("{{range 0}}x{{else}}none{{end}}", "none", id="no number below one"),
        pytest.param(
            "{{$i := 9}}{{$e := 9}}{{range $i, $e = list 5 6}}{{end}}{{$i}}{{$e}}",
            "16",
            id="assigned loop variables keep their last value",
        ),
    ],
)
def test_ranges(template: str, expected: str) -> None:
    """A range goes through lists in order and through maps by key."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param("{{if .pci.device}}a{{end}}", "a", id="if"),
        pytest.param("{{if .pci.none}}a{{else}}b{{end}}", "b", id="else"),
        pytest.param('{{if 0}}a{{else if ""}}b{{else if 1}}c{{else}}d{{end}}', "c", id="else if"),
        pytest.param('{{if 0}}a{{else if ""}}b{{end}}', "", id="else if without any"),
        pytest.param("{{with .kernel}}{{len .version}}{{end}}", "2", id="with sets dot"),
        pytest.param("{{with 0}}a{{else}}{{len .pci}}{{end}}", "2", id="with keeps dot in else"),
        pytest.param('{{with $x := "v"}}{{$x}}{{.}}{{end}}', "vv", id="with a variable"),
        pytest.param('{{with 0}}a{{else with "b"}}{{.}}{{else}}c{{end}}', "b", id="else with"),
        pytest.param('{{with 0}}a{{else with ""}}{{.}}{{else}}c{{end}}', "c", id="else with, none true"),
        pytest.param("{{if dict}}a{{else}}b{{end}}", "b", id="empty map is false"),
        pytest.param(
            '{{range list 0 0.0 "" nil false (list)}}{{if .}}t{{else}}f{{end}}{{end}}',
            "ffffff",
            id="zero, empty string, nil and false are false",
        ),
    ],
)
def test_branches(template: str, expected: str) -> None:
    """An if or with takes the first true pipeline; with makes it dot."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param("{{$x := 1}}{{$x}}", "1", id="declared and used"),
        pytest.param("{{$x := 1}}{{if true}}{{$x = 2}}{{end}}{{$x}}", "2", id="set inside a block"),
        pytest.param("{{$x := 1}}{{if true}}{{$x := 2}}{{$x}}{{end}}{{$x}}", "21", id="shadowed inside a block"),
        pytest.param(
            '{{$x := list}}{{range .pci.device}}{{$x = append $x .vendor}}{{end}}{{join "-" $x}}',
            "10de-8086",
            id="gathers in a loop",
        ),
        pytest.param('a{{$x := "b"}}c', "ac", id="prints nothing when declared"),
        pytest.param("{{$x:=1}}{{$x}}", "1", id="without spaces"),
        pytest.param("{{if $x := 0}}a{{else}}{{$x}}{{end}}", "0", id="of an if reaches its else"),
        pytest.param("{{$d := index .pci.device 0}}{{$d.vendor}}", "10de", id="fields of a variable"),
    ],
)
def test_variables(template: str, expected: str) -> None:
    """Variables live to the end of their block; = sets an outer one, := makes a new one."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param("{{.pci.device | len}}", "2", id="one stage"),
        pytest.param('{{.pci.device | len | printf "%03d"}}', "002", id="three stages"),
        pytest.param('{{"a" | printf "%s-%s" "b"}}', "b-a", id="last argument"),
        pytest.param('{{printf "%d" (len .pci.device)}}', "2", id="parentheses inside"),
        pytest.param("num={{.pci.device | len}}", "num=2", id="documentation's example of a count"),
        pytest.param("{{(index .kernel.version 1).Value | quote}}", '"6"', id="documentation's example of a version"),
        pytest.param("{{list | len}}", "0", id="a function without arguments"),
    ],
)
def test_pipelines(template: str, expected: str) -> None:
    """The value before | is the last argument of the command behind it."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param("{{and 1 0 2}}", "0", id="and gives the first empty"),
        pytest.param('{{and 1 "a"}}', "a", id="and gives the last when all are true"),
        pytest.param('{{or 0 "" "z"}}', "z", id="or gives the first that is true"),
        pytest.param('{{or 0 ""}}', "", id="or gives the last when none is true"),
        pytest.param("{{and 0 .missing}}", "0", id="and stops"),
        pytest.param("{{or 1 .missing}}", "1", id="or stops"),
        pytest.param("{{1 | and 2}}{{0 | or 0}}", "10", id="piped"),
        pytest.param('{{not 0}} {{not "a"}}', "true false", id="not"),
    ],
)
def test_and_or_not(template: str, expected: str) -> None:
    """Both and and or give back an argument and leave the others unevaluated."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param("{{eq 1 1}} {{eq 1 2}}", "true false", id="eq of numbers"),
        pytest.param('{{eq 1 2 1}} {{eq "a" "b" "c"}}', "true false", id="eq with any of several"),
        pytest.param("{{ne 1 2}}", "true", id="ne"),
        pytest.param('{{lt 1 2}} {{le 2 2}} {{lt "B" "a"}}', "true true true", id="lt and le"),
        pytest.param('{{gt 2 1}} {{ge 1.5 1.5}} {{gt "b" "a"}}', "true true true", id="gt and ge"),
        pytest.param("{{eq (add 1 2) 3}}", "true", id="int and int64"),
        pytest.param('{{eq (index "a" 0) 97}}', "true", id="a byte and a number"),
        pytest.param('{{eq nil nil}} {{eq "a" nil}}', "true false", id="nil"),
    ],
)
def test_comparisons(template: str, expected: str) -> None:
    """Numbers of one kind, strings by bytes, and eq with several."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param('{{define "T"}}<{{.}}>{{end}}{{template "T" "x"}}', "<x>", id="define and template"),
        pytest.param('{{define "T"}}<{{.}}>{{end}}{{template "T"}}', "<<no value>>", id="template without a value"),
        pytest.param('{{template "T" 1}}{{define "T"}}{{.}}{{end}}', "1", id="used before it is defined"),
        pytest.param(
            ('{{template "x" .}}{{define "x"}}a{{template "y" .}}{{end}}{{define "y"}}{{len .pci}}{{end}}'),
            "a2",
            id="one uses another",
        ),
        pytest.param('{{block "B" .kernel}}{{len .version}}{{end}}', "2", id="block is defined and used"),
        pytest.param(
            '{{define "a"}}{{end}}{{define "a"}}y{{end}}{{template "a"}}', "y", id="an empty definition gives way"
        ),
        pytest.param('{{define "x"}}{{$}}{{end}}{{template "x" "d"}}', "d", id="dollar sign inside is its dot"),
    ],
)
def test_templates(template: str, expected: str) -> None:
    """define, template and block have their own dot and see no variable but $."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param(r'{{"a\tb\x41\u00e9\U0001F600\101\\\""}}', 'a\tbAé😀A\\"', id="strings with escapes"),
        pytest.param(r'{{`a\n"b"`}}', r'a\n"b"', id="raw string keeps backslashes"),
        pytest.param("{{'a'}} {{'\\n'}} {{'é'}} {{'\\''}} {{'\\x41'}}", "97 10 233 39 65", id="characters are numbers"),
        pytest.param(
            "{{0x1F}} {{0b11}} {{0o17}} {{017}} {{1_000}} {{-4}} {{+4}} {{0}}",
            "31 3 15 15 1000 -4 4 0",
            id="whole numbers",
        ),
        pytest.param(
            "{{1.5}} {{.5}} {{1.}} {{1e3}} {{1E-2}} {{0x1p-2}} {{1_0.5}}",
            "1.5 0.5 1 1000 0.01 0.25 10.5",
            id="fractions",
        ),
        pytest.param(
            "{{1e6}} {{123456.0}} {{1234567.0}} {{0.0001}} {{0.00001}} {{1e21}}",
            "1e+06 123456 1.234567e+06 0.0001 1e-05 1e+21",
            id="large and small fractions",
        ),
        pytest.param("{{until 2.0}}", "[0 1]", id="a whole fraction as a whole number"),
        pytest.param("{{true}} {{false}}", "true false", id="truth"),
        pytest.param("{{print nil}} {{list nil}}", "<nil> [<nil>]", id="nil printed"),
        pytest.param("{{first list}}", "<no value>", id="no value"),
    ],
)
def test_literals(template: str, expected: str) -> None:
    """Constants of Go, with Go's escapes, bases and underscores."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param('a \n {{- "b"}} c', "ab c", id="trim to the left"),
        pytest.param('a {{"b" -}} \n\tc', "a bc", id="trim to the right"),
        pytest.param('a {{- "b" -}} c', "abc", id="trim to both sides"),
        pytest.param("a {{-3}} b", "a -3 b", id="a minus without a space is a sign"),
        pytest.param('a{{/* no {{x}} " */}}b', "ab", id="a comment"),
        pytest.param("a {{- /* no */ -}} b", "ab", id="a comment trims"),
        pytest.param("{{range list 1 2 -}} {{.}} {{- end}}", "12", id="trims around blocks"),
        pytest.param("{{\n print\n 1 \n}}", "1", id="several lines"),
        pytest.param('{a} } {{"b"}} {', "{a} } b {", id="text with single braces"),
    ],
)
def test_spaces_and_comments(template: str, expected: str) -> None:
    """Trim markers take the white space on their side; comments leave nothing."""
    assert parse_template(template).expand(DATA) == expected
