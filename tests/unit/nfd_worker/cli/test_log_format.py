"""What the log makes of a message."""

import logging

from nfd_worker.cli.log_format import LONGEST_MESSAGE, PrintableFormatter


def test_a_log_message_is_one_line_and_a_traceback_stays() -> None:
    """Nobody forges a second line, and nobody speaks to the terminal."""
    try:
        int("x")
    except ValueError as error:
        caught = (ValueError, error, error.__traceback__)
    record = logging.LogRecord("n", logging.WARNING, "f", 1, "a\nb\x1b[31m%s", ("c" * 2000,), caught)
    first, *rest = PrintableFormatter("%(levelname)s %(message)s").format(record).split("\n")
    assert first.startswith("WARNING a bccc")
    assert len(first) <= LONGEST_MESSAGE + len("WARNING ")
    assert rest[0].startswith("Traceback")
