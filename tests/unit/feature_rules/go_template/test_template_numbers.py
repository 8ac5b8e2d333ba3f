"""Sprig's arithmetic, rounding and conversions.

The expected texts are what Go 1.19's text/template with sprig 3.2.3 writes, which the reference behaviour is built on.
"""

import pytest

from feature_rules.go_template import parse_template
from tests.support.template_data import DATA


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param('{{add 1 2 3}} {{add}} {{add "5" "0x10"}} {{add 1.9 1}} {{add1 5}}', "6 0 21 2 6", id="add"),
        pytest.param("{{sub 5 3}} {{mul 2 3 4}} {{mul 5}}", "2 24 5", id="sub and mul"),
        pytest.param("{{div 7 2}} {{div -7 2}} {{div 7 -2}}", "3 -3 -3", id="div loses the fraction"),
        pytest.param("{{mod -7 2}} {{mod 7 -2}}", "-1 1", id="mod has the sign of the dividend"),
        pytest.param("{{max 1 5 3}} {{min 1 5 -3}} {{biggest 2 3}}", "5 -3 3", id="max and min"),
        pytest.param(
            ("{{add 9223372036854775807 1}} {{mul 9223372036854775807 2}} {{div -9223372036854775808 -1}}"),
            "-9223372036854775808 -2 -9223372036854775808",
            id="wraps around",
        ),
        pytest.param("{{len .pci.device | add 1}}", "3", id="in a label"),
    ],
)
def test_whole_numbers(template: str, expected: str) -> None:
    """64-bit arithmetic on what can be made a whole number."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param('{{floor 1.7}} {{floor -1.2}} {{floor "x"}}', "1 -2 0", id="floor"),
        pytest.param("{{ceil 1.2}} {{ceil -0.5}}", "2 -0", id="ceil"),
        pytest.param(
            (
                "{{round 123.555555 3}} {{round 123.5 0}} {{round -2.5 0}} {{round 2.5 0 0.6}} "
                '{{round "3.14159" 2}} {{round 1234.5 -2}}'
            ),
            "123.556 124 -3 2 3.14 1200",
            id="round",
        ),
        pytest.param(
            '{{round 1 400}} {{round 0 400}} {{round 1.5 -400}} {{floor (float64 "inf")}}',
            "NaN NaN NaN +Inf",
            id="round of extremes",
        ),
    ],
)
def test_rounding(template: str, expected: str) -> None:
    """The rounding functions return floating-point numbers."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param("{{addf 0.1 0.2}} {{addf}} {{add1f 1.5}}", "0.3 0 2.5", id="addf"),
        pytest.param("{{subf 1 0.9}} {{mulf 0.1 3}}", "0.1 0.3", id="subf and mulf"),
        pytest.param(
            "{{divf 10 3}} {{divf 2 3}} {{divf 0.0 -5}}", "3.3333333333333335 0.6666666666666667 0", id="divf"
        ),
        pytest.param("{{maxf 1 2.5}} {{minf 1 2.5 -1}}", "2.5 -1", id="maxf and minf"),
    ],
)
def test_decimals(template: str, expected: str) -> None:
    """Decimal arithmetic gives Sprig's results."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param(
            (
                '{{atoi "12"}} {{atoi "x"}} {{atoi "+5"}} {{atoi "0x1"}} {{atoi " 1"}} {{atoi '
                '"99999999999999999999"}} {{atoi "-99999999999999999999"}}'
            ),
            "12 0 5 0 0 9223372036854775807 -9223372036854775808",
            id="atoi",
        ),
        pytest.param(
            '{{int "12"}} {{int "0x1f"}} {{int "010"}} {{int "08"}} {{int "1_000"}}',
            "12 31 8 0 1000",
            id="int knows bases",
        ),
        pytest.param(
            ('{{int 3.9}} {{int -3.9}} {{int "1.0"}} {{int "1.5"}} {{int "10"}} {{int "-5.00"}} {{int 1e30}}'),
            "3 -3 1 0 10 -5 -9223372036854775808",
            id="int of fractions",
        ),
        pytest.param('{{int true}} {{int nil}} {{int (list)}} {{int64 "7"}}', "1 0 0 7", id="int of others"),
        pytest.param(
            (
                '{{float64 "1.5"}} {{float64 "x"}} {{float64 3}} {{float64 "1e3"}} {{float64 true}} '
                '{{float64 "0x1p3"}} {{float64 "1_0"}} {{float64 "1e999"}} {{float64 "."}}'
            ),
            "1.5 0 3 1000 1 8 10 0 0",
            id="float64",
        ),
        pytest.param(
            '{{float64 nil}} {{float64 (list)}} {{float64 "0x1p99999"}} {{float64 "-Infinity"}}',
            "0 0 0 -Inf",
            id="float64 of others",
        ),
        pytest.param(
            '{{$v := semver "18446744073709551615.2"}}{{add $v.Major 0}} {{add $v.Minor 1}}',
            "-1 3",
            id="int of a version's number",
        ),
        pytest.param(
            '{{toDecimal "777"}} {{toDecimal 755}} {{toDecimal "8"}} {{toDecimal "-17"}}',
            "511 493 0 -15",
            id="toDecimal",
        ),
    ],
)
def test_conversions(template: str, expected: str) -> None:
    """What is not a number becomes 0."""
    assert parse_template(template).expand(DATA) == expected
