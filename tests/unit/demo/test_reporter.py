"""What a person reads when something failed."""

import io

import pytest
from rich.console import Console

from demo import reporter
from demo.stage import NodeRow
from testbed.progress import Silent


def test_the_innermost_failed_step_is_remembered() -> None:
    """Not the one around it, and not those that went well."""
    steps = reporter.NamedSteps(Silent())
    with steps.step("well"):
        pass
    with pytest.raises(ValueError, match="x"), steps.step("outer"), steps.step("inner"):
        raise ValueError("x")
    assert steps.failed == "inner"


def test_a_failure_names_its_step_and_takes_brackets_for_text() -> None:
    """Words of other programs are no markup."""
    stream = io.StringIO()
    reporter.failure(Console(file=stream, width=200), "Build [all]", ValueError("make[1]: *** [x]"), 3)
    assert stream.getvalue() == 'demo failed after 3 s in step "Build [all]"\nmake[1]: *** [x]\n'


def test_the_final_table_fits_into_a_pipe() -> None:
    """One line for each node."""
    row = NodeRow(
        node="guest-a",
        kernel="6.12.94+deb12-cloud-amd64",
        image="127.0.0.1:21111/drivers/edu:1.0.0-6.12.94_deb12-cloud-amd64-debian12-amd64-0123456789abcdef0123",
        digest="sha256:" + 64 * "0",
        module="edudrv 4FD1C7E2A9B0C7D8E9F0A1B",
        device="0000:00:04.0",
        ready="1.0.0",
    )
    stream = io.StringIO()
    Console(file=stream, width=reporter.PIPE_WIDTH).print(reporter.drivers([row]))
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("│")]
    assert len(lines) == 1
