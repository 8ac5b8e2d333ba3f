"""A template cannot hang a node or eat its memory, and it cannot change the data."""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from feature_rules.go_template import TemplateError, parse_template

TOO_MUCH = "the template does too much work"
TOO_DEEP = "nested too deeply"
DOUBLES = "{{$x := list 1}}{{range until 100}}{{$x = list $x $x}}{{end}}"
IN_ITSELF = "{{$d := dict}}{{$_ := set $d `a` $d}}"
MUCH = 100 << 20
"""Bytes of memory."""


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Let this process take no more than so much memory beside what it has; an allocation beyond that fails."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (has + MUCH, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        pytest.param("{{range 99999999999}}{{end}}", TOO_MUCH, id="endless loop"),
        pytest.param("{{range until 60000}}{{range until 60000}}{{end}}{{end}}", TOO_MUCH, id="loop in a loop"),
        pytest.param("{{until 9999999999999}}", TOO_MUCH, id="until"),
        pytest.param("{{untilStep -9223372036854775807 9223372036854775807 1}}", TOO_MUCH, id="widest untilStep"),
        pytest.param("{{seq 99999999999}}", TOO_MUCH, id="seq"),
        pytest.param("{{repeat 1000000000000 `abc`}}", TOO_MUCH, id="repeat"),
        pytest.param("{{indent 100000 (repeat 100000 `\n`)}}", TOO_MUCH, id="indent"),
        pytest.param("{{$s := repeat 100000 `a`}}{{replace `a` $s $s}}", TOO_MUCH, id="replace"),
        pytest.param("{{join (repeat 100000 `x`) (until 10000)}}", TOO_MUCH, id="join"),
        pytest.param("{{wrapWith 1 (repeat 100000 `-`) (repeat 100000 `a`)}}", TOO_MUCH, id="wrapWith"),
        pytest.param("{{printf `" + "%9999999d" * 3000 + "` 1}}", TOO_MUCH, id="printf of widths"),
        pytest.param("{{printf `%2000000d` 1}}", "the output is longer", id="one width"),
        pytest.param("{{range until 9999}}{{$_ := printf `%*d` 1000000 1}}{{end}}", TOO_MUCH, id="widths in a loop"),
        pytest.param("{{$s := `x`}}{{range until 60}}{{$s = cat $s $s}}{{end}}", TOO_MUCH, id="string that doubles"),
        pytest.param("{{repeat 1048577 `x`}}", "the output is longer than 1 MiB", id="output"),
        pytest.param(DOUBLES + "{{$x}}", TOO_MUCH, id="list that doubles, printed"),
        pytest.param(DOUBLES + "{{toJson $x}}", TOO_MUCH, id="list that doubles, as JSON"),
        pytest.param(DOUBLES + "{{deepEqual $x $x}}", TOO_MUCH, id="list that doubles, compared"),
        pytest.param(IN_ITSELF + "{{$d}}", TOO_MUCH, id="map in itself, printed"),
        pytest.param(IN_ITSELF + "{{toPrettyJson $d}}", TOO_MUCH, id="map in itself, as JSON"),
        pytest.param(IN_ITSELF + "{{deepCopy $d}}", TOO_MUCH, id="map in itself, copied"),
        pytest.param(IN_ITSELF + "{{has $d (list $d)}}", TOO_MUCH, id="map in itself, looked for"),
        pytest.param("{{$x := list}}{{range until 5000}}{{$x = list $x}}{{end}}{{$x}}", TOO_DEEP, id="deep list"),
        pytest.param("{{fromJson (repeat 90000 `[`)}}", TOO_DEEP, id="deep JSON"),
        pytest.param("{{define `a`}}{{template `a`}}{{end}}{{template `a`}}", "more than 100 deep", id="in itself"),
        pytest.param("{{regexReplaceAll `a` (repeat 9999 `a`) (repeat 9999 `$0`)}}", TOO_MUCH, id="replaced matches"),
        pytest.param(
            "{{range until 99999}}{{$_ := regexMatch (printf `%d(a|b){500}` .) `a`}}{{end}}", TOO_MUCH, id="patterns"
        ),
        pytest.param("{{semverCompare (repeat 60000 `>1,`) `1`}}", "256 characters at most", id="long constraint"),
        pytest.param("{{snakecase (repeat 700000 `aB1`)}}", TOO_MUCH, id="letter by letter"),
        pytest.param(
            "{{range until 50}}{{template `a`}}{{end}}"
            "{{define `a`}}{{range until 50}}{{template `b`}}{{end}}{{end}}"
            "{{define `b`}}{{range until 50}}{{template `c`}}{{end}}{{end}}{{define `c`}}{{end}}",
            TOO_MUCH,
            id="templates that fan out",
        ),
    ],
)
def test_ends_early(template: str, message: str) -> None:
    """What would run for long or need much memory is ended, soon and before the memory is taken."""
    parsed = parse_template(template)
    began = time.thread_time()
    with bounded_memory(), pytest.raises(TemplateError, match=message):
        parsed.expand({})
    assert time.thread_time() - began < 10, "more than ten times what any of them takes"


def test_what_takes_much_memory_is_seen_here() -> None:
    """The bound of the test above holds."""
    with bounded_memory(), pytest.raises(MemoryError):
        bytearray(2 * MUCH)


@pytest.mark.parametrize(
    "template",
    [
        pytest.param("{{range until 10000}}{{.}}{{end}}", id="ten thousand elements"),
        pytest.param("{{uniq (until 20000) | len}}", id="many different values"),
        pytest.param("{{repeat 1048576 `x`}}", id="one MiB"),
        pytest.param("{{if 0}}" + "{{else if 0}}" * 4000 + "{{end}}", id="many branches"),
        pytest.param("{{semverCompare `" + ">1        " * 20 + "<9` `2`}}", id="constraint with many spaces"),
    ],
)
def test_leaves_room(template: str) -> None:
    """Large output below the limit is written."""
    assert parse_template(template).expand({}) is not None


def test_leaves_the_data_alone() -> None:
    """Set changes a map of the template, never the worker's."""
    data = {"a": {"b": 1}}
    assert parse_template("{{$_ := set .a `b` 2}}{{.a.b}}").expand(data) == "2"
    assert data == {"a": {"b": 1}}


def test_can_be_used_again() -> None:
    """One parsed template serves each expansion afresh."""
    template = parse_template("{{$x := 1}}{{range .a.b}}{{$x = add $x .n}}{{end}}{{$x}}")
    assert [template.expand({"a": {"b": [{"n": "2"}] * count}}) for count in (1, 2, 1)] == ["3", "5", "3"]


def test_half_characters_in_the_output() -> None:
    """Halves that meet make the character again; one alone becomes U+FFFD."""
    assert parse_template('{{trunc 1 "é"}}{{trunc -1 "é"}}|{{trunc 1 "é"}}').expand({}) == "é|\ufffd"


def test_data_of_another_shape() -> None:
    """Any nested data can be written, with the types that JSON would have."""
    data = {"a": [1, "x", None, {"b": (True,)}]}
    assert parse_template("{{.a}} {{typeOf .a}} {{typeOf .}}").expand(data) == (
        "[1 x <nil> map[b:[true]]] []interface {} map[string]interface {}"
    )
