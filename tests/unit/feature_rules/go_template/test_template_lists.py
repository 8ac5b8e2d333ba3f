"""Sprig's functions on lists and maps, and on what is empty.

The expected texts are what Go 1.19's text/template with sprig 3.2.3 writes, which the reference behaviour is built on.
"""

import pytest

from feature_rules.go_template import parse_template
from tests.support.template_data import DATA


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param("{{first (list 1 2)}} {{last (list 1 2)}}", "1 2", id="first and last"),
        pytest.param(
            "{{first list}} {{last list}} {{rest list}} {{initial list}}",
            "<no value> <no value> [] []",
            id="of an empty list",
        ),
        pytest.param("{{rest (list 1 2 3)}} {{initial (list 1 2 3)}}", "[2 3] [1 2]", id="rest and initial"),
        pytest.param(
            "{{$x := list 1}}{{append $x 2}} {{prepend $x 0}} {{$x}}", "[1 2] [0 1] [1]", id="append and prepend"
        ),
        pytest.param('{{concat (list 1) (splitList "," "x,y") (list)}} {{concat}}', "[1 x y] []", id="concat"),
        pytest.param("{{reverse (list 1 2 3)}}", "[3 2 1]", id="reverse"),
        pytest.param(
            '{{uniq (list 1 1 "1" 1.0 (list 1) (list 1) nil nil)}}', "[1 1 1 [1] <nil>]", id="uniq knows types"
        ),
        pytest.param("{{without (list 1 2 3 (list)) 2 (list)}}", "[1 3]", id="without"),
        pytest.param(
            ('{{has 2 (list 1 2)}} {{has 2 (list (add 1 1))}} {{has "a" nil}} {{has (list 1) (list (list 1))}}'),
            "true false false true",
            id="has knows types",
        ),
        pytest.param('{{compact (list 0 1 "" "a" nil false)}}', "[1 a]", id="compact"),
        pytest.param(
            "{{slice (list 1 2 3) 1 2}} {{slice (list 1 2 3) 1}} {{slice (list 1)}} {{slice list}}",
            "[2] [2 3] [1] <no value>",
            id="slice",
        ),
        pytest.param("{{chunk 2 (list 1 2 3)}} {{chunk 2 list}}", "[[1 2] [3]] []", id="chunk"),
        pytest.param('{{index (list "a" (list "b" "c")) 1 0}}', "b", id="elements by index"),
    ],
)
def test_lists(template: str, expected: str) -> None:
    """Lists are read at both ends and made anew, never changed."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param("{{until 5}} {{until -3}} {{until 0}}", "[0 1 2 3 4] [0 -1 -2] []", id="until"),
        pytest.param(
            ("{{untilStep 3 6 2}} {{untilStep 6 3 -2}} {{untilStep 3 6 -1}} {{untilStep 3 3 1}} {{untilStep 3 6 0}}"),
            "[3 5] [6 4] [] [] []",
            id="untilStep",
        ),
        pytest.param(
            ("{{seq 5}}|{{seq -3}}|{{seq 0 2}}|{{seq 2 -2}}|{{seq 0 2 10}}|{{seq 0 -2 -5}}|{{seq}}|{{seq 5 1 2}}"),
            "1 2 3 4 5|1 0 -1 -2 -3|0 1 2|2 1 0 -1 -2|0 2 4 6 8 10|0 -2 -4||",
            id="seq",
        ),
    ],
)
def test_counts(template: str, expected: str) -> None:
    """Functions that generate numbers give Sprig's results."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param('{{dict "a" 1 "b"}} {{dict 1 2}}', "map[a:1 b:] map[1:2]", id="dict"),
        pytest.param('{{$d := dict "a" 1}}{{get $d "a"}}[{{get $d "x"}}]', "1[]", id="get"),
        pytest.param(
            '{{$d := dict "a" 1}}{{$_ := set $d "b" 2}}{{$d}}{{unset $d "a"}}',
            "map[a:1 b:2]map[b:2]",
            id="set and unset",
        ),
        pytest.param('{{$d := dict "a" nil}}{{hasKey $d "a"}} {{hasKey $d "b"}}', "true false", id="hasKey"),
        pytest.param('{{pluck "a" (dict "a" 1) (dict "b" 2) (dict "a" 3)}}', "[1 3]", id="pluck"),
        pytest.param(
            '{{keys (dict "b" 2 "a" 1) (dict "c" 3)}} {{values (dict "b" 2 "a" 1)}}',
            "[a b c] [1 2]",
            id="keys and values",
        ),
        pytest.param(
            '{{pick (dict "a" 1 "b" 2) "a" "x"}} {{omit (dict "a" 1 "b" 2) "a"}}',
            "map[a:1] map[b:2]",
            id="pick and omit",
        ),
        pytest.param(
            (
                '{{dig "a" "b" "def" (dict "a" (dict "b" 1))}} {{dig "a" "x" "def" (dict "a" '
                '(dict))}} {{dig "x" "y" "def" (dict)}}'
            ),
            "1 def def",
            id="dig",
        ),
        pytest.param(
            ('{{merge (dict "a" 1 "b" (dict "x" 1) "e" "") (dict "a" 2 "c" 3 "b" (dict "x" 2 "y" 3) "e" "z")}}'),
            "map[a:1 b:map[x:1 y:3] c:3 e:z]",
            id="merge fills what is empty",
        ),
        pytest.param(
            '{{mergeOverwrite (dict "a" 1 "b" (dict "x" 1)) (dict "a" 2 "b" (dict "x" 2 "y" 3))}}',
            "map[a:2 b:map[x:2 y:3]]",
            id="mergeOverwrite",
        ),
        pytest.param(
            (
                '{{merge (dict "a" 5) (dict "a" (dict "x" 1))}} {{mergeOverwrite (dict "a" (dict "x" '
                '1)) (dict "a" 5)}} {{mergeOverwrite (dict "a" 1) (dict "a" nil)}}'
            ),
            "map[a:5] map[a:5] map[a:<nil>]",
            id="merges of odd pairs",
        ),
        pytest.param(
            ('{{$d := dict "a" (dict "b" 1)}}{{$c := deepCopy $d}}{{$_ := set $c.a "b" 2}}{{$d}}{{$c}}'),
            "map[a:map[b:1]]map[a:map[b:2]]",
            id="deepCopy",
        ),
        pytest.param(
            (
                '{{deepEqual (list 1) (list 1)}} {{deepEqual 1 1.0}} {{deepEqual (dict "a" 1) (dict '
                '"a" 1)}} {{deepEqual (splitList "," "a") (list "a")}}'
            ),
            "true false true false",
            id="deepEqual",
        ),
        pytest.param('{{$d := dict "a" 1}}{{merge $d $d}}', "map[a:1]", id="merge with itself"),
        pytest.param(
            (
                '{{merge (dict "a" (list 1)) (dict "a" (list 2) "b" nil "c" (list))}} '
                '{{mergeOverwrite (dict "a" (list 1)) (dict "a" (list))}}'
            ),
            "map[a:[1] c:[]] map[a:[]]",
            id="merge of nil and lists",
        ),
    ],
)
def test_maps(template: str, expected: str) -> None:
    """Maps by key; set, unset and merges change their first map."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param(
            '{{default "d" ""}} {{default "d" "x"}} {{default "d"}} {{0 | default 5}}', "d x d 5", id="default"
        ),
        pytest.param(
            '{{range list "" "a" 0 1 nil (list) (dict) false}}{{empty .}} {{end}}',
            "true false true false true true true true ",
            id="empty",
        ),
        pytest.param('{{coalesce 0 "" "a" 2}} {{coalesce 0}}', "a <no value>", id="coalesce"),
        pytest.param(
            '{{all 1 "a"}} {{all 1 0}} {{all}} {{any 0 1}} {{any}}', "true false true true false", id="all and any"
        ),
        pytest.param('{{ternary "a" "b" true}} {{eq 1 2 | ternary "a" "b"}}', "a b", id="ternary"),
    ],
)
def test_defaults(template: str, expected: str) -> None:
    """Empty is nil, zero, false, and what has no elements."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param(
            (
                '{{kindOf 1}} {{kindOf "a"}} {{kindOf (list)}} {{kindOf (dict)}} {{kindOf 1.5}} '
                '{{kindOf true}} {{kindOf nil}} {{kindOf (add 1)}} {{kindOf (index "abc" 0)}} '
                '{{kindOf (semver "1.2.3")}}'
            ),
            "int string slice map float64 bool invalid int64 uint8 ptr",
            id="kindOf",
        ),
        pytest.param(
            '{{typeOf 1}} {{typeOf (list)}} {{typeOf (dict)}} {{typeOf nil}} {{typeOf (semver "1")}}',
            "int []interface {} map[string]interface {} <nil> *semver.Version",
            id="typeOf",
        ),
        pytest.param(
            '{{deepEqual (semver "1") (semver "1")}} {{uniq (list (semver "1") (semver "1")) | len}}',
            "true 1",
            id="versions and lists",
        ),
        pytest.param(
            ('{{kindIs "int" 1}} {{typeIs "string" "a"}} {{typeIsLike "semver.Version" (semver "1.2.3")}}'),
            "true true true",
            id="questions",
        ),
        pytest.param(
            ("{{typeOf .pci.device}} {{typeOf (first .pci.device)}} {{typeOf (first .pci.device).class}}"),
            "[]nodefeaturerule.MatchedElement nodefeaturerule.MatchedElement string",
            id="types of the data",
        ),
    ],
)
def test_kinds(template: str, expected: str) -> None:
    """kindOf, typeOf and their like return Go's names of kinds and types."""
    assert parse_template(template).expand(DATA) == expected
