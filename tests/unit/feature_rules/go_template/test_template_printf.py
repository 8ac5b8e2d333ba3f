"""print, println and printf: Go's verbs, flags, widths, precisions and its texts for what does not fit.

The expected texts are what Go 1.19's text/template with sprig 3.2.3 writes, which the reference behaviour is built on.
"""

import pytest

from feature_rules.go_template import parse_template
from tests.support.template_data import DATA


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param('{{print 1 2 "a" "b" 3 4 true nil}}', "1 2ab3 4 true <nil>", id="print"),
        pytest.param('{{println 1 "a" "b"}}', "1 a b\n", id="println"),
        pytest.param('{{print (list 1 "a" nil) (dict "b" 1 "a" 2)}}', "[1 a <nil>] map[a:2 b:1]", id="list and map"),
        pytest.param("{{.pci.device}}", "[map[class:0300 vendor:10de] map[class:0200 vendor:8086]]", id="elements"),
    ],
)
def test_print(template: str, expected: str) -> None:
    """A print puts a space between two that are no strings; println between all."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param('{{printf "%d %b %o %O %x %X" 42 5 8 8 255 255}}', "42 101 10 0o10 ff FF", id="bases"),
        pytest.param('{{printf "%#b %#o %#x %#X" 5 8 255 255}}', "0b101 010 0xff 0XFF", id="alternate forms"),
        pytest.param('{{printf "[%5d] [%-5d] [%05d]" 42 42 42}}', "[   42] [42   ] [00042]", id="width"),
        pytest.param('{{printf "%+d % d %+05d" 42 42 42}}', "+42  42 +0042", id="sign"),
        pytest.param('{{printf "%x %05d %-5d|" -42 -42 -42}}', "-2a -0042 -42  |", id="negative"),
        pytest.param('{{printf "%.3d|%8.3d|%-8.3d|%.0d|" 5 5 5 0}}', "005|     005|005     ||", id="precision"),
        pytest.param('{{printf "%c %q %U %#U" 233 233 233 233}}', "é 'é' U+00E9 U+00E9 'é'", id="characters"),
        pytest.param('{{printf "%c %q" -1 0x110000}}', "� '�'", id="no character"),
        pytest.param('{{printf "%*d|%-*d|" 5 1 5 1}}', "    1|1    |", id="width from an argument"),
    ],
)
def test_printf_whole_numbers(template: str, expected: str) -> None:
    """Whole numbers are formatted with bases, signs, zeros and widths as in Go."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param(
            '{{printf "%f %.2f %8.3f|%-8.1f|%08.2f" 3.14159 3.14159 3.14159 3.14159 3.14159}}',
            "3.141590 3.14    3.142|3.1     |00003.14",
            id="f",
        ),
        pytest.param(
            '{{printf "%e %E %.2e" 12345.678 12345.678 0.00012}}', "1.234568e+04 1.234568E+04 1.20e-04", id="e"
        ),
        pytest.param('{{printf "%g %G %.3g %g" 1e21 1e-7 123456.0 100000.0}}', "1e+21 1E-07 1.23e+05 100000", id="g"),
        pytest.param('{{printf "%#g %#.3g %#.0f" 1.0 1.0 1.0}}', "1.00000 1.00 1.", id="sharp"),
        pytest.param('{{printf "%+.1f % .1f %+08.2f" 3.14 3.14 3.14}}', "+3.1  3.1 +0003.14", id="sign"),
        pytest.param(
            '{{printf "%x %X %b %.2x" 1.5 1.5 1.5 1.999}}',
            "0x1.8p+00 0X1.8P+00 6755399441055744p-52 0x1.00p+01",
            id="x and b",
        ),
        pytest.param('{{printf "%.*f" 2 3.14159}}', "3.14", id="precision from an argument"),
        pytest.param(
            ('{{printf "%v %f %05.1f %+v" (float64 "inf") (float64 "-inf") (float64 "nan") (float64 "inf")}}'),
            "+Inf -Inf   NaN +Inf",
            id="infinite",
        ),
    ],
)
def test_printf_fractions(template: str, expected: str) -> None:
    """Fractions are formatted with exponents, precisions and padding as in Go."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param('{{printf "%s|%5s|%-5s|%.2s|%05s" "ab" "ab" "ab" "abc" "ab"}}', "ab|   ab|ab   |ab|000ab", id="s"),
        pytest.param(r'{{printf "%q %+q %#q %#q" "a\"é\n" "é" "ab" "a`"}}', r'"a\"é\n" "\u00e9" `ab` "a`"', id="q"),
        pytest.param(
            '{{printf "%x %X % x %#x %# X" "hi" "hi" "hi" "hi" "hi"}}', "6869 6869 68 69 0x6869 0X68 0X69", id="x"
        ),
        pytest.param('{{printf "%4s|" "éé"}}', "  éé|", id="a width counts characters"),
    ],
)
def test_printf_strings(template: str, expected: str) -> None:
    """Strings are formatted with quotes, bytes, widths and precisions as in Go."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param(
            '{{printf "%v %v %v %v" nil (list 1 "a" nil) (dict "b" 1) 1.5}}', "<nil> [1 a <nil>] map[b:1] 1.5", id="v"
        ),
        pytest.param(
            '{{printf "%#v %#v %#v %#v" "a" 1 (list 1 "a" nil) (dict "a" 1)}}',
            '"a" 1 []interface {}{1, "a", interface {}(nil)} map[string]interface {}{"a":1}',
            id="Go syntax",
        ),
        pytest.param(
            '{{printf "%T %T %T %T %T %T %T" 1 "a" 1.5 true (list) (dict) nil}}',
            "int string float64 bool []interface {} map[string]interface {} <nil>",
            id="types",
        ),
        pytest.param(
            '{{printf "%T %T %T %T" (add 1 2) (until 1) (splitList "," "a") (split "," "a")}}',
            "int64 []int []string map[string]string",
            id="types of functions' values",
        ),
        pytest.param('{{printf "%t|%6t|%-6t|" true false true}}', "true| false|true  |", id="truth"),
        pytest.param(
            '{{printf "%q %03d %5v|" (list "a" "b") (list 1 2) (list 1 2)}}',
            '["a" "b"] [001 002] [    1     2]|',
            id="verbs go to the elements",
        ),
        pytest.param('{{printf "100%%"}}', "100%", id="percent sign"),
        pytest.param(
            '{{printf "%v %s %q" (semver "1.2") (semver "1.2") (semver "1.2")}}', '1.2.0 1.2.0 "1.2.0"', id="a version"
        ),
        pytest.param(
            '{{printf "%x %b %g %e %.3x" 0.0 0.0 0.0 0.0 1.0}}',
            "0x0p+00 0p-1074 0 0.000000e+00 0x1.000p+00",
            id="negative zero and zero",
        ),
    ],
)
def test_printf_values(template: str, expected: str) -> None:
    """%v, %T and %t format any value as Go does."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param('{{printf "%d %s %z" "a" 1 1}}', "%!d(string=a) %!s(int=1) %!z(int=1)", id="wrong verb"),
        pytest.param('{{printf "%d" nil}}', "%!d(<nil>)", id="wrong verb for nil"),
        pytest.param('{{printf "%d %d" 1}}', "1 %!d(MISSING)", id="missing"),
        pytest.param('{{printf "%d" 1 "x" nil}}', "1%!(EXTRA string=x, <nil>)", id="too many"),
        pytest.param('{{printf "%"}}', "%!(NOVERB)", id="no verb"),
        pytest.param('{{printf "%*d" "a" 1}}', "%!(BADWIDTH)1", id="bad width"),
        pytest.param('{{printf "%.*d" -1 1}}', "%!(BADPREC)1", id="bad precision"),
        pytest.param(
            '{{printf "%[2]d %[1]d" 1 2}} {{printf "%[3]d" 1}} {{printf "%[x]d" 1}}',
            "2 1 %!d(BADINDEX) %!d(BADINDEX)",
            id="chosen arguments",
        ),
        pytest.param(
            '{{printf "%[2]*[1]d|%[3]*.[2]*[1]f|" 12 6 2}} {{printf "%[1]5d|%.[1]d|%[5]5d|%[1" 1}}',
            "    12|%!f(int=000012)| %!d(BADINDEX)|1|%!d(BADINDEX)|%!(NOVERB)",
            id="chosen widths",
        ),
        pytest.param(
            '{{printf "%*d|" -5 1}} {{printf "%-05d|% +d" 7 7}} {{printf "%.*d %*d" nil 1 nil 2}}',
            "1    | 7    |+7 %!(BADPREC)1 %!(BADWIDTH)2",
            id="negative width from an argument",
        ),
        pytest.param(
            '{{printf "%99999999d" 1}} {{printf "%*d" 9999999 1}}',
            "%!(NOVERB)%!(EXTRA int=1) %!(BADWIDTH)1",
            id="too large a width",
        ),
    ],
)
def test_printf_mistakes(template: str, expected: str) -> None:
    """What does not fit is reported inside the text."""
    assert parse_template(template).expand(DATA) == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param('{{html "<a href=\'x\'>&\\"" 1 2}}', "&lt;a href=&#39;x&#39;&gt;&amp;&#34;1 2", id="html"),
        pytest.param("{{html nil}}", "&lt;no value&gt;", id="html of nil"),
        pytest.param('{{html (list "<" 1)}}', "[&lt; 1]", id="html of a list"),
        pytest.param(r'{{js "\x01\u00a0\U000e0001"}}', r"\u0001\u00A0\uE0001", id="js of characters that do not print"),
        pytest.param('{{js "<é\\n\'\\"=\\\\"}}', "\\u003Cé\\u000A\\'\\\"\\u003D\\\\", id="js"),
        pytest.param('{{urlquery "a b&é/~"}}', "a+b%26%C3%A9%2F~", id="urlquery"),
    ],
)
def test_escapes(template: str, expected: str) -> None:
    """html, js and urlquery escape as in Go."""
    assert parse_template(template).expand(DATA) == expected
