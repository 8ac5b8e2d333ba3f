"""Pieces of shell on a kernel: how QEMU's own end is told from the guest's."""

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.errors import CommandError, OverdueError
from testbed.guest import script
from testbed.guest.script import Ran, run_script

CONSOLE = "[[one\r\nhello\r\none 0]]\r\n"
DIED = CommandError(["qemu"], "ended with status -11", "")
OVERDUE = OverdueError(["qemu"], 600, CONSOLE)


@pytest.fixture
def boot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Ran]:
    """Return a function that boots where QEMU prints or raises these, one after the other."""

    def boot(*outcomes: str | CommandError) -> Ran:
        left = list(outcomes)

        def run(_argv: object, *, timeout: float) -> str:
            assert timeout
            outcome = left.pop(0)
            if isinstance(outcome, CommandError):
                raise outcome
            return outcome

        monkeypatch.setattr(script, "run", run)
        ran = run_script(Path("vmlinuz"), [], {"one": "echo hello"}, tmp_path)
        assert left == []
        return ran

    return boot


@pytest.mark.parametrize(
    "outcomes",
    [
        pytest.param((CONSOLE,), id="ends"),
        pytest.param((OVERDUE,), id="hangs after its work"),
        pytest.param((DIED, CONSOLE), id="QEMU dies once"),
    ],
)
def test_what_the_guest_printed_is_read(boot: Callable[..., Ran], outcomes: tuple[str | CommandError, ...]) -> None:
    """An emulator that dies says nothing of the kernel: it boots once more."""
    assert boot(*outcomes).sections["one"].output == "hello\n"


def test_a_qemu_that_cannot_run_is_an_error(boot: Callable[..., Ran]) -> None:
    """With its own words, not as a kernel that printed nothing."""
    with pytest.raises(CommandError, match="ended with status -11"):
        boot(DIED, DIED)
