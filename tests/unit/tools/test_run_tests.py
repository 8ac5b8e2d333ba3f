"""What ``make test`` prints of the time that it took."""

from tools import run_tests

STAT = """\
cpu  20130 2194 3554 25470 197 11 59 33 700 0
cpu0 10065 1097 1777 12735 98 5 29 16 350 0
intr 8
"""


def test_processors_work_but_where_they_idle_wait_for_a_disk_or_are_not_ours() -> None:
    """What virtual machines took is in the first number already; a tick is a hundredth of a second."""
    assert run_tests.worked(STAT) == (20130 + 2194 + 3554 + 11 + 59) / 100
