"""An engine's stream as lines and an outcome."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.base.errors import BuildFailed
from driver_builder.builds import build_output
from driver_builder.builds.build_output import KEPT_CHARACTERS, MAX_LINE, BuildOutput


def taken(*items: dict[str, Any]) -> tuple[BuildOutput, list[str]]:
    """What came of these objects."""
    output = BuildOutput()
    lines = [line for item in items for line in output.take(item)]
    return output, [*lines, *output.end()]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        pytest.param([{"stream": "Step 1/2 : FROM x"}, {"stream": "\n"}], ["Step 1/2 : FROM x"], id="a line in pieces"),
        pytest.param([{"stream": "a\nb\n"}], ["a", "b"], id="two lines at once"),
        pytest.param([{"stream": "10%\r20%\r\ndone"}], ["10%", "20%", "done"], id="carriage returns, no end"),
        pytest.param(
            [{"stream": "\x1b[91mE\x1b[0m"}, {"stream": "\x1b[91m: no\n\x1b[0m"}], ["E: no"], id="red standard error"
        ),
        pytest.param(
            [
                {"stream": "\x1b[91mcurl: (6) \x1b[0m"},
                {"stream": "driverwright: package x is in"},
                {"stream": "\x1b[91mno such host\n\x1b[0m"},
                {"stream": " none of these places\n"},
            ],
            ["curl: (6) no such host", "driverwright: package x is in none of these places"],
            id="standard error in the middle of a line",
        ),
        pytest.param(
            [{"stream": "out"}, {"stream": "\x1b[91merr\x1b[0m"}, {"stream": "Step 2/2 : RUN x"}, {"stream": "\n"}],
            ["out", "err", "Step 2/2 : RUN x"],
            id="a command's last lines without an end",
        ),
        pytest.param([{"stream": " \n\n"}], [], id="empty lines"),
        pytest.param(
            [{"status": "Pulling from base", "id": "1"}, {"status": "Downloading", "progressDetail": {"current": 1}}],
            ["1: Pulling from base"],
            id="pulling, without its progress",
        ),
        pytest.param([{"aux": {"ID": "sha256:1"}}, {}], [], id="nothing to say"),
    ],
)
def test_output_comes_line_by_line(items: list[dict[str, Any]], expected: list[str]) -> None:
    """Whatever pieces the engine sends."""
    output, lines = taken(*items)
    assert lines == expected == list(output.lines)


def test_a_finished_build_has_an_image() -> None:
    """The image id of a finished build comes from the aux message."""
    output, _ = taken({"stream": "Step"}, {"aux": {"ID": "sha256:1"}}, {"stream": "Successfully built\n"})
    assert (output.image_id, output.error, output.exit_code) == ("sha256:1", "", None)


def test_a_failed_command_has_an_exit_code() -> None:
    """It is an object of the stream, not an HTTP status."""
    error = "The command '/bin/sh -c make' returned a non-zero code: 65"
    output, _ = taken({"errorDetail": {"code": 65, "message": error}, "error": error})
    assert (output.image_id, output.error, output.exit_code) == (None, error, 65)


def test_an_error_of_the_engine_has_no_exit_code() -> None:
    """Such as an image that cannot be pulled."""
    output, _ = taken({"errorDetail": {"message": "manifest unknown"}, "error": "manifest unknown"})
    assert (output.error, output.exit_code) == ("manifest unknown", None)


@given(st.lists(st.text("ab \n")))
def test_no_output_is_lost_or_doubled(pieces: list[str]) -> None:
    """The lines are those of the whole text, however it was cut."""
    _, lines = taken(*({"stream": piece} for piece in pieces))
    assert lines == [line.rstrip() for line in "".join(pieces).split("\n") if line.strip()]


def test_a_line_without_an_end_is_cut_in_its_middle() -> None:
    """Megabytes of it cost no more than their own length; its end says how a command ended."""
    output, lines = taken(*[{"stream": "Error: x" + "y" * 16384}] * 500, {"stream": ": exit status 65"})
    (line,) = lines
    assert len(line) <= MAX_LINE
    assert line.startswith("Error: xyyy")
    assert line.endswith("yyy: exit status 65")
    assert list(output.lines) == lines


@given(st.lists(st.text(alphabet="ab\r\n", max_size=40)))
def test_where_pieces_end_changes_no_line(pieces: list[str]) -> None:
    """Lines are those of the whole text."""
    _, lines = taken(*({"stream": piece} for piece in pieces))
    assert lines == [line for line in "".join(pieces).splitlines() if line]


def test_kept_lines_are_bounded_together() -> None:
    """Many long lines: the last ones stay."""
    output, _ = taken(*({"stream": f"{number:04}" + "x" * 7000 + "\n"} for number in range(1000)))
    assert sum(map(len, output.lines)) <= KEPT_CHARACTERS
    assert output.lines[-1].startswith("0999")


def test_a_build_that_prints_without_end_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it fills the controller's own log."""
    monkeypatch.setattr(build_output, "MAX_OUTPUT", 1000)
    with pytest.raises(BuildFailed, match="printed more than 1000 characters") as caught:
        taken(*[{"stream": "said\n"}] * 1000)
    assert caught.value.log_tail[-1] == "said"


@pytest.mark.parametrize(
    ("said", "plain"),
    [
        pytest.param("a\x1b]0;pwned\x07b", "ab", id="the terminal's title"),
        pytest.param("a\x1b]8;;http://x\x1b\\b", "ab", id="a link"),
        pytest.param("\x1b[?1049h\x08\x08x", "x", id="another screen, backspaces"),
        pytest.param("a\u202eb\u2066c", "abc", id="direction of text"),
        pytest.param("a\ud800b\x9bc", "abc", id="what UTF-8 lacks, eight-bit controls"),
        pytest.param("\t12 |  \u00e4", "\t12 |  \u00e4", id="indentation and letters stay"),
    ],
)
def test_no_line_speaks_to_a_terminal(said: str, plain: str) -> None:
    """Neither a line of the output nor the engine's error, which become log, status and Event."""
    output, lines = taken({"stream": f"{said}\n"}, {"error": said})
    assert (lines, output.error) == ([plain], plain)
