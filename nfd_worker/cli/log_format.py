"""The worker's log: each message on one line of printable characters, whatever a file or a device says."""

import logging

from kube_api.text import printable

LONGEST_MESSAGE = 1000
"""Characters of one message, here and in the table of a scan; what it quotes is cut where it is quoted."""


class PrintableFormatter(logging.Formatter):
    """Makes the message printable; a traceback stays as it is."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name that logging calls
        """Format the line that stands before a traceback."""
        record.message = printable(record.message, LONGEST_MESSAGE)
        return super().formatMessage(record)
