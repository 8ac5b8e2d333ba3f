"""An engine's stream as lines and an outcome."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.building.build_output import BuildOutput


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
    """The id comes aside."""
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
