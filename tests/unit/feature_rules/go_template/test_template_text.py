"""Sprig's functions on strings.

The expected texts are what Go 1.19's text/template with sprig 3.2.3 writes, which the reference behaviour is built on.
"""

import pytest

from feature_rules.go_template import parse_template
from tests.support.template_data import DATA


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param(r'[{{trim "  a b \n"}}]', "[a b]", id="trim"),
        pytest.param('{{trimAll "$" "$5.00$"}} {{trimAll "" "a"}} {{trimall "ab" "abcba"}}', "5.00 a c", id="trimAll"),
        pytest.param('{{trimSuffix "-" "a--"}}', "a-", id="trimSuffix takes one"),
        pytest.param('{{trimPrefix "-" "--a"}}', "-a", id="trimPrefix takes one"),
        pytest.param(r'{{nospace "a b\tc\n"}}', "abc", id="nospace"),
    ],
)
def test_trims(template: str, expected: str) -> None:
    """Trimming takes white space, characters, a prefix or a suffix."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param(
            '{{trunc 3 "hello"}} {{trunc -3 "hello"}} {{trunc 9 "a"}} {{trunc -9 "a"}}', "hel llo a a", id="trunc"
        ),
        pytest.param(
            ('{{substr 0 5 "hello world"}} {{substr -1 3 "hello"}} {{substr 2 -1 "hello"}} {{substr 2 99 "hello"}}'),
            "hello hel llo llo",
            id="substr",
        ),
        pytest.param(
            '{{abbrev 5 "hello world"}} {{abbrev 3 "hello"}} {{abbrev 20 "hello"}}', "he... hello hello", id="abbrev"
        ),
        pytest.param(
            (
                '{{abbrevboth 5 10 "1234 5678 9123"}} {{abbrevboth 5 8 "hello world foo bar baz"}} '
                '{{abbrevboth 99 8 "hello world foo"}}'
            ),
            "...5678... ... w... ...d foo",
            id="abbrevboth",
        ),
        pytest.param(r'{{initials "First Try"}} {{initials " a  b\tc"}}', "FT abc", id="initials"),
    ],
)
def test_cuts(template: str, expected: str) -> None:
    """Cuts count bytes and are forgiving at the end."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param(
            '{{contains "a" "cat"}} {{contains "x" "cat"}} {{contains "" "cat"}}', "true false true", id="contains"
        ),
        pytest.param('{{hasPrefix "c" "cat"}} {{"cat" | hasPrefix "a"}}', "true false", id="hasPrefix"),
        pytest.param('{{hasSuffix "t" "cat"}}', "true", id="hasSuffix"),
    ],
)
def test_searches(template: str, expected: str) -> None:
    """Search functions take the searched part as the first argument."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param('{{upper "aß é"}} {{lower "ÀÉΣ"}}', "Aß É àéσ", id="upper and lower"),
        pytest.param('{{title "hello wORLD foo-bar_baz a1b"}}', "Hello WORLD Foo-Bar_baz A1b", id="title"),
        pytest.param('{{untitle "Hello World"}}', "hello world", id="untitle"),
        pytest.param('{{swapcase "This Is A.Test"}}', "tHIS iS a.tEST", id="swapcase"),
        pytest.param(
            (
                '{{range list "FirstName" "HTTPServer" "NoHTTPS" "GO_PATH" "GO PATH" "http2xx" '
                '"HTTP20xOK" "Duration2m3s" "Bld4Floor3rd"}}{{snakecase .}} {{end}}'
            ),
            ("first_name http_server no_https go_path go_path http_2xx http_20x_ok duration_2m3s bld4_floor_3rd "),
            id="snakecase",
        ),
        pytest.param(
            ('{{range list "_a__B-" "a1B" "1a2B3c" "a.b.C" "aBC12Def" ".-é_" "é1Éa$x"}}{{snakecase .}} {{end}}'),
            "_a__b_ a1_b 1a2_b_3c a.b.c a_bc12_def .-é_ é1_éa_$_x ",
            id="snakecase of odd names",
        ),
        pytest.param('{{kebabcase "FirstName"}} {{kebabcase "GO PATH_x"}}', "first-name go-path-x", id="kebabcase"),
        pytest.param(
            (
                '{{range list "http_server" "_complex__case_" "some words" "HTTP_server" "a" '
                '"no_https" "-a--b"}}{{camelcase .}} {{end}}'
            ),
            "HttpServer _Complex_Case_ SomeWords HttpServer A NoHttps -A-B ",
            id="camelcase",
        ),
    ],
)
def test_cases(template: str, expected: str) -> None:
    """Letters change one by one; words begin after what is no letter."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(("text", "expected"), [("0x1F", "0x1f"), ("http_2XX", "Http2xx"), ("GPU2X_B3C", "Gpu2xB3c")])
def test_camelcase_makes_capitals_behind_digits_small(text: str, expected: str) -> None:
    """As the function's documentation says; upstream's library keeps some of them."""
    assert parse_template(f'{{{{camelcase "{text}"}}}}').expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param('{{repeat 3 "ab"}}{{repeat 0 "a"}}', "ababab", id="repeat"),
        pytest.param('{{replace "a" "b" "banana"}} {{replace "" "-" "abc"}}', "bbnbnb -a-b-c-", id="replace"),
        pytest.param(r'{{quote "a" 1 nil "b\"c"}}', r'"a" "1" "b\"c"', id="quote leaves nil out"),
        pytest.param('{{squote "a" 1 nil}}', "'a' '1'", id="squote"),
        pytest.param('{{cat "a" 1 nil "b" true}}|{{cat}}|{{cat "a" "" "b"}}', "a 1 b true||a  b", id="cat"),
        pytest.param(r'{{indent 2 "a\nb"}}', "  a\n  b", id="indent"),
        pytest.param(r'{{nindent 2 "a\nb"}}', "\n  a\n  b", id="nindent"),
        pytest.param('{{plural "one" "many" 1}} {{len .pci.device | plural "one" "many"}}', "one many", id="plural"),
        pytest.param(
            '{{wrap 5 "hello world foo bar"}}|{{wrap 3 "abcdef g"}}|{{wrap 0 "a b"}}',
            "hello\nworld\nfoo\nbar|abcdef\ng|a\nb",
            id="wrap",
        ),
        pytest.param(
            '[{{wrap 5 "    hello"}}]|{{wrap 2 "a bcdefg"}}|[{{wrap 3 ""}}]',
            "[hello]|a\nbcdefg|[]",
            id="wrap of leading spaces and a long last word",
        ),
        pytest.param(
            (r'{{wrapWith 5 "\t" "Hello World"}}|{{wrapWith 3 "-" "abcdefgh"}}|{{wrapWith 4 "," "a ' 'bcdef gh "}}'),
            "Hello\tWorld|abc-def-gh|a,bcde,f gh,",
            id="wrapWith",
        ),
        pytest.param("{{toString 1.5}} {{toString nil}} {{toString (list 1)}}", "1.5 <nil> [1]", id="toString"),
    ],
)
def test_makes(template: str, expected: str) -> None:
    """Repeat, replace, quote and indent functions give Sprig's results."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param(
            '{{join "," (list 1 "a" nil true)}} {{join "-" "a"}} {{join "," 5}} {{join "," nil}}',
            "1,a,true a 5 ",
            id="join",
        ),
        pytest.param(
            '{{splitList "," "a,b,,c"}} {{splitList "" "aé"}} {{len (splitList "," "")}}',
            "[a b  c] [a é] 1",
            id="splitList",
        ),
        pytest.param('{{(split "," "a,b")._1}} {{split "," "a,b"}}', "b map[_0:a _1:b]", id="split"),
        pytest.param(
            '{{splitn "," 2 "a,b,c"}} {{splitn "," 0 "a"}} {{splitn "" 2 "abc"}}',
            "map[_0:a _1:b,c] map[] map[_0:a _1:bc]",
            id="splitn",
        ),
        pytest.param(
            '{{splitn "" 9 "abc"}} {{splitn "" -1 "ab"}}',
            "map[_0:a _1:b _2:c] map[_0:a _1:b]",
            id="splitn into characters",
        ),
        pytest.param('{{sortAlpha (list "b" "a" 3 nil "é" "z")}} {{sortAlpha "x"}}', "[3 a b z é] [x]", id="sortAlpha"),
        pytest.param('{{toStrings (list 1 nil "a")}} {{toStrings 1}}', "[1 a] [1]", id="toStrings"),
        pytest.param(
            '{{$p := splitList "." (index .kernel.version 0).Value}}{{index $p 0}}.{{index $p 1}}',
            "6.1",
            id="kernel version",
        ),
    ],
)
def test_joins_and_splits(template: str, expected: str) -> None:
    """Functions make strings from lists and lists from strings as Sprig does."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param('{{base "/a/b"}} {{base ""}} {{base "/"}} {{base "a/"}}', "b . / a", id="base"),
        pytest.param('{{dir "/a/b"}} {{dir "a"}} {{dir ""}} {{dir "/"}} {{dir "a/b/"}}', "/a . . / a/b", id="dir"),
        pytest.param('{{clean "a//b/../c"}} {{clean ""}} {{clean "//a"}} {{clean "/.."}}', "a/c . /a /", id="clean"),
        pytest.param('{{ext "a.b.c"}} {{ext "a"}} {{ext "a.b/c"}}', ".c  ", id="ext"),
        pytest.param('{{isAbs "/a"}} {{isAbs "a"}}', "true false", id="isAbs"),
    ],
)
def test_paths(template: str, expected: str) -> None:
    """Path functions split slash-separated paths as in Go."""
    assert parse_template(template).expand(DATA) == expected
