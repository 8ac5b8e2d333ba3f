"""Sprig's encodings, sums, JSON, regular expressions and semantic versions.

The expected texts are what Go 1.19's text/template with sprig 3.2.3 writes, which the reference behaviour is built on.
"""

import pytest

from feature_rules.go_template import parse_template
from tests.support.template_data import DATA


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param(
            r'{{b64enc "héllo"}} {{b64dec "aMOpbGxv"}} {{b64dec "aGVs\nbG8="}} [{{b64dec ""}}]',
            "aMOpbGxv héllo hello []",
            id="b64enc and b64dec",
        ),
        pytest.param('{{b32enc "hello"}} {{b32dec "NBSWY3DP"}}', "NBSWY3DP hello", id="b32enc and b32dec"),
        pytest.param(
            '{{sha1sum "a"}} {{sha256sum "a"}} {{adler32sum "Hello"}}',
            (
                "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8 "
                "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb 93061621"
            ),
            id="sums",
        ),
        pytest.param(
            '{{b64dec "a"}} {{b64dec "a==="}} {{b64dec "a b="}} {{b32dec "1"}}',
            "illegal base64 data illegal base64 data illegal base64 data illegal base32 data",
            id="what does not decode is reported",
        ),
        pytest.param('{{sha512sum "a" | trunc 16}}', "1f40fc92da241694", id="sha512sum"),
    ],
)
def test_encodings(template: str, expected: str) -> None:
    """Base64, base32 and checksum functions give Sprig's results."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param(
            '{{toJson (dict "b" 1 "a" (list 1 "<&>" nil true 1.5 1e21 1e-7 100000000.0))}}',
            r'{"a":[1,"\u003c\u0026\u003e",null,true,1.5,1e+21,1e-7,100000000],"b":1}',
            id="toJson",
        ),
        pytest.param(r'{{toJson "é\u2028\x01\n\t\"\\"}}', r'"é\u2028\u0001\n\t\"\\"', id="toJson of strings"),
        pytest.param(
            "{{toJson .pci}}",
            ('{"device":[{"class":"0300","vendor":"10de"},{"class":"0200","vendor":"8086"}],"none":[]}'),
            id="toJson of the data",
        ),
        pytest.param('{{toRawJson "<a>"}}', '"<a>"', id="toRawJson"),
        pytest.param(
            "{{toJson (list 1.5e-9 1e100 -0.0 0.0 123456789.0)}}",
            "[1.5e-9,1e+100,-0,0,123456789]",
            id="toJson of characters",
        ),
        pytest.param(
            '{{toPrettyJson (dict "a" (list 1 (dict)) "b" (list))}}',
            '{\n  "a": [\n    1,\n    {}\n  ],\n  "b": []\n}',
            id="toPrettyJson",
        ),
        pytest.param(
            (r'{{fromJson "{\"a\": [1, 2.5, \"x\", null, true]}"}} {{(fromJson "{\"a\": {\"b\": 3}}' '").a.b}}'),
            "map[a:[1 2.5 x <nil> true]] 3",
            id="fromJson",
        ),
        pytest.param(
            '{{range list "bad" "1e999" "NaN" "[1" "" "01"}}{{fromJson . | empty}}{{end}}',
            "truetruetruetruetruetrue",
            id="fromJson of no JSON is nil",
        ),
        pytest.param(
            r'{{fromJson "\"\\ud800\""}} {{fromJson "\"\\ud83d\\ude00\""}}', "� 😀", id="fromJson of half a character"
        ),
    ],
)
def test_json(template: str, expected: str) -> None:
    """JSON as Go writes it: sorted keys, < > & escaped."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param(
            '{{regexMatch "^a.*b$" "acb"}} {{regexMatch "x" "acb"}} {{regexMatch "(" "a"}}',
            "true false false",
            id="regexMatch",
        ),
        pytest.param('{{regexFind "[a-z]+" "12abc3"}} [{{regexFind "x" "a"}}]', "abc []", id="regexFind"),
        pytest.param(
            (
                '{{regexFindAll "[2,4,6,8]" "123456789" -1}} {{regexFindAll "a" "aaa" 2}} {{len '
                '(regexFindAll "a*" "baaac" -1)}} {{regexFindAll "x" "a" -1}}'
            ),
            "[2 4 6 8] [a a] 3 []",
            id="regexFindAll",
        ),
        pytest.param(
            (
                '{{regexReplaceAll "a(x*)b" "-ab-axxb-" "${1}W"}} {{regexReplaceAll "a(x*)b" '
                '"-ab-axxb-" "$1W"}} {{regexReplaceAll "a(?P<n>x*)b" "-axxb-" "<$n>"}} '
                '{{regexReplaceAll "a" "banana" "$$"}} {{regexReplaceAll "x*" "abc" "-"}} '
                '{{regexReplaceAll "(a)|b" "ab" "[$1]"}}'
            ),
            "-W-xxW- --- -<xx>- b$n$n$ -a-b-c- [a][]",
            id="regexReplaceAll",
        ),
        pytest.param(
            '{{regexReplaceAllLiteral "a(x*)b" "-ab-axxb-" "${1}"}}', "-${1}-${1}-", id="regexReplaceAllLiteral"
        ),
        pytest.param(
            (
                '{{regexSplit "z+" "pizza" -1}} {{regexSplit "z" "pizza" 2}} {{regexSplit "" "abc" '
                '-1}} {{regexSplit "a" "aba" -1 | len}} {{regexSplit "b*" "abbc" 2}} {{regexSplit '
                '"z" "pizza" 0}}'
            ),
            "[pi a] [pi za] [a b c] 3 [a c] []",
            id="regexSplit",
        ),
        pytest.param('{{regexQuoteMeta "a.b*c[x]"}}', r"a\.b\*c\[x\]", id="regexQuoteMeta"),
        pytest.param(
            (r'{{regexFindAll "\\b" "ab cd" -1 | len}} {{regexFindAll "^" "ab" -1 | len}} ' '{{regexFind "." "é"}}'),
            "4 1 é",
            id="words and characters",
        ),
    ],
)
def test_regular_expressions(template: str, expected: str) -> None:
    """RE2's syntax; matches as Go finds them."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param('{{semver "1.2.3-beta+x"}} {{semver "v1"}}', "1.2.3-beta+x 1.0.0", id="semver"),
        pytest.param(
            (
                '{{$v := semver "v1.2.3-b.1+m"}}{{$v.Major}} {{$v.Minor}} {{$v.Patch}} '
                "{{$v.Prerelease}} {{$v.Metadata}} {{$v.Original}}"
            ),
            "1 2 3 b.1 m v1.2.3-b.1+m",
            id="parts",
        ),
        pytest.param(
            ('{{semverCompare "1.2.3" "v1.2.3"}} {{semverCompare "=1.2" "1.2.9"}} {{semverCompare "1.2.x" "1.3.0"}}'),
            "true true false",
            id="equal",
        ),
        pytest.param(
            (
                '{{semverCompare ">1.2" "1.2.5"}} {{semverCompare ">1.2.3" "1.2.5"}} {{semverCompare '
                '">=5.15" "6.1.0"}} {{semverCompare "<2" "1.99"}} {{semverCompare "<=1.2" "1.2.9"}}'
            ),
            "false true true true true",
            id="above and below",
        ),
        pytest.param(
            ('{{semverCompare "!=1.2.3" "1.2.3"}} {{semverCompare "!=1.2" "1.2.3"}} {{semverCompare "!=1.2" "1.3"}}'),
            "false false true",
            id="not equal",
        ),
        pytest.param(
            ('{{semverCompare "~1.2.3" "1.2.9"}} {{semverCompare "~1.2.3" "1.3.0"}} {{semverCompare "~1" "1.9"}}'),
            "true false true",
            id="tilde",
        ),
        pytest.param(
            (
                '{{semverCompare "^1.2.3" "1.9"}} {{semverCompare "^0.2.3" "0.3"}} {{semverCompare '
                '"^0.0.3" "0.0.4"}} {{semverCompare "^1.2" "2"}}'
            ),
            "true false false false",
            id="caret",
        ),
        pytest.param(
            '{{semverCompare "1.2 - 1.4.5" "1.4.6"}} {{semverCompare "1.2 - 1.4.5" "1.3"}}', "false true", id="range"
        ),
        pytest.param(
            '{{semverCompare ">=1.2, <1.4" "1.3"}} {{semverCompare ">=1.2 <1.4 !=1.3.1" "1.3.1"}}',
            "true false",
            id="all of several",
        ),
        pytest.param(
            '{{semverCompare "<1 || >=2" "2.1"}} {{semverCompare "<1 || >=2" "1.5"}}', "true false", id="one of several"
        ),
        pytest.param(
            (
                '{{semverCompare ">=1.2" "1.3.0-rc1"}} {{semverCompare ">=1.2-0" "1.3.0-rc1"}} '
                '{{semverCompare "*" "1.0.0"}}'
            ),
            "false true true",
            id="a pre-release needs one",
        ),
        pytest.param(
            (
                '{{semverCompare ">1.0.0-a.2" "1.0.0-a.10"}} {{semverCompare ">1.0.0-a.2" '
                '"1.0.0-a"}} {{semverCompare ">1.0.0-1" "1.0.0-a"}} {{semverCompare ">1.0.0-a" '
                '"1.0.0"}}'
            ),
            "true false true true",
            id="order of pre-releases",
        ),
    ],
)
def test_versions(template: str, expected: str) -> None:
    """Versions may be short; constraints may be combined."""
    assert parse_template(template).expand(DATA) == expected
