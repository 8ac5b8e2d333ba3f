"""The record of a validation on a Node, which the Node's kubelet may write too."""

import pytest

from driver_builder.objects import loaded, validated
from driver_builder.objects.validated import Validated

SUBJECT = "0123456789abcdef"


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(Validated(subject=SUBJECT, succeeded=True), id="succeeded"),
        pytest.param(
            Validated(subject=SUBJECT, failures=2, pod="a-b", failed_at=1_700_000_000, message='no "answer"'),
            id="failed",
        ),
        pytest.param(Validated(subject=SUBJECT, pod="a-b", failed_at=1, message="not started"), id="did not run"),
    ],
)
def test_a_record_is_read_as_it_was_written(record: Validated) -> None:
    """Within the limit of what is read."""
    assert validated.parse(validated.render(record)) == record


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "[]",
        "{}",
        '{"subject":1}',
        '{"subject":"../x"}',
        f'{{"subject":"{SUBJECT}","failures":-1}}',
        f'{{"subject":"{SUBJECT}","failures":true}}',
        f'{{"subject":"{SUBJECT}","failedAt":1e300}}',
        f'{{"subject":"{SUBJECT}","pod":"a b"}}',
        f'{{"subject":"{SUBJECT}","message":"{"x" * validated.MAX_BYTES}"}}',
        "[" * 100_000,
    ],
)
def test_what_cannot_be_read_is_no_record(text: str | None) -> None:
    """The command then runs again."""
    assert validated.parse(text) is None


def test_what_a_command_reports_is_bounded_and_printable() -> None:
    """The longest one still fits into what is read."""
    message = loaded.words("\x1b[31mé" * 1000)
    record = Validated(subject=SUBJECT, failures=1, pod="x" * 64, failed_at=1, message=message)
    assert len(message) <= loaded.MAX_WORDS
    assert "\x1b" not in message
    assert validated.parse(validated.render(record)) == record
