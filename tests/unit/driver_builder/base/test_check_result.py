"""What a check answers: one value for all commands, with the names that each has for its fields."""

import pytest

from driver_builder.base.check_result import CheckResult, Status, failed, has_failed, lines, ok, summary, warning

RESULTS = (ok("a", "it is"), warning("b", "it is slow", "Wait"), failed("c", "it is not", "Write it"))


def test_programs_read_a_result_by_the_names_of_a_command() -> None:
    """And by its word for what failed."""
    names = {"check": "field", "status": "severity", "message": "message"}
    assert RESULTS[2].as_document(names, "error") == {"field": "c", "severity": "error", "message": "it is not"}
    assert RESULTS[1].as_document(names, "error")["severity"] == "warning"


def test_what_programs_read_is_plain() -> None:
    """YAML has no words for an enum."""
    assert {type(result.as_document({"status": "verdict"})["verdict"]) for result in RESULTS} == {str}


def test_a_summary_counts_each_status() -> None:
    """In their order, and without those that no result has."""
    assert summary(RESULTS) == "1 ok, 1 warning, 1 FAILED"
    assert [has_failed(RESULTS), has_failed(RESULTS[:2])] == [True, False]


@pytest.mark.parametrize(
    ("result", "advises", "expected"),
    [
        pytest.param(RESULTS[0], True, ["ok a  it is"], id="nothing to do"),
        pytest.param(RESULTS[2], True, ["ok a  it is not", "      next: Write it"], id="with its remedy"),
        pytest.param(RESULTS[2], False, ["ok a  it is not"], id="without advice"),
    ],
)
def test_people_read_the_remedy_below_the_message(result: CheckResult, advises: bool, expected: list[str]) -> None:
    """Both begin in one column."""
    assert lines("ok a  ", result, advises=advises) == expected


def test_long_messages_are_folded_to_a_terminal() -> None:
    """But not to a column too narrow to read."""
    result = CheckResult(check="a", status=Status.OK, message="one two " * 10)
    assert max(map(len, lines("ok  ", result, width=40))) <= 40
    assert len(lines("ok  ", result, width=20)) == 1
