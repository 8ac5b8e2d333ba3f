"""Tests that build on each other end with the first one that fails."""

from collections.abc import Sequence

import pytest

from tests.support.chain import Chains

pytest_plugins = ("pytester",)

FOUR = """
import pytest

{mark}

def test_first():
    pass

def test_second():
    assert {second}

@pytest.fixture
def waits():
    raise AssertionError("it was waited for")

def test_third(waits):
    pass

def test_fourth():
    pass
"""
ALONE = "def test_of_another_file(): pass"


def reports(pytester: pytest.Pytester, *, mark: str, second: str) -> Sequence[tuple[str, str, str]]:
    """Run two files; returns name, outcome and words of each test that did not pass, or passed."""
    path = pytester.makepyfile(test_chain=FOUR.format(mark=mark, second=second))
    pytester.makepyfile(test_other=ALONE)
    assert path.exists()
    run = pytester.inline_run("-p", "no:hypothesispytest", "-p", "no:cacheprovider", plugins=[Chains()])
    return [
        (report.nodeid.partition("::")[2], report.outcome, getattr(report, "longreprtext", ""))
        for report in run.getreports("pytest_runtest_logreport")
        if report.when == "call" or not report.passed
    ]


def test_after_a_failure_the_later_ones_of_the_file_fail_without_being_run(pytester: pytest.Pytester) -> None:
    """No fixture of theirs is made; they name the one that failed; another file goes on."""
    first, second, third, fourth, other = reports(pytester, mark="pytestmark = pytest.mark.chain", second="False")
    assert [item[:2] for item in (first, second, other)] == [
        ("test_first", "passed"),
        ("test_second", "failed"),
        ("test_of_another_file", "passed"),
    ]
    why = "not run: it builds on test_chain.py::test_second, which failed"
    assert [third, fourth] == [("test_third", "failed", why), ("test_fourth", "failed", why)]


@pytest.mark.parametrize(
    ("mark", "second"),
    [
        pytest.param("", "False", id="no chain"),
        pytest.param("pytestmark = pytest.mark.chain", "True", id="nothing failed before"),
    ],
)
def test_otherwise_each_is_run(pytester: pytest.Pytester, mark: str, second: str) -> None:
    """The third one fails by its own fixture, and the fourth passes, unless the file is a chain that has failed."""
    _, _, third, *_ = reports(pytester, mark=mark, second=second)
    assert (third[0], "it was waited for" in third[2]) == ("test_third", True)
