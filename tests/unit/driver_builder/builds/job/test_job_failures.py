"""What buildah printed when it gave up (1.28, recorded in a pod; ``no-from`` 1.43), and what is made of it."""

from pathlib import Path

import pytest

from driver_builder.base.reasons import Reason
from driver_builder.builds.build_output import BuildOutput
from driver_builder.builds.job.job_failures import build_failure

RECORDED = Path(__file__).parents[4] / "data" / "buildah"


def output(name: str) -> BuildOutput:
    """Add a recorded log as the job builder does."""
    taken = BuildOutput()
    for line in (RECORDED / f"{name}.log").read_text().splitlines():
        list(taken.take({"stream": f"{line}\n"}))
    return taken


@pytest.mark.parametrize(
    ("name", "exit_code", "reason", "words"),
    [
        pytest.param("headers-missing", 64, Reason.HEADERS_MISSING, "headers", id="headers missing"),
        pytest.param("compile-error", 65, Reason.COMPILE_ERROR, "x.c:3: bad", id="compile error"),
        pytest.param("killed", 1, Reason.OUT_OF_MEMORY, "out of memory", id="a command was killed"),
        pytest.param("compile-error", 137, Reason.OUT_OF_MEMORY, "out of memory", id="the container was killed"),
        pytest.param("disk-full", 1, Reason.DISK_FULL, "disk", id="disk full in a command"),
        pytest.param("no-room-for-base-image", 1, Reason.DISK_FULL, "disk", id="disk full before any command"),
        pytest.param("no-such-base-image", 125, Reason.BASE_IMAGE_MISSING, "manifest unknown", id="no such base image"),
        pytest.param("registry-away", 125, Reason.BASE_IMAGE_MISSING, "connection refused", id="registry away"),
        pytest.param("nothing-to-copy", 125, Reason.SOURCE_MISSING, "COPY source/", id="nothing to copy"),
        pytest.param("no-such-source-image", 125, Reason.SOURCE_MISSING, "source image", id="no such source image"),
        pytest.param(
            "unknown-instruction", 125, Reason.TEMPLATE_INVALID, "Unknown instruction", id="unknown instruction"
        ),
        pytest.param("no-from", 125, Reason.TEMPLATE_INVALID, "requires a FROM instruction", id="no FROM (1.43)"),
        pytest.param("seccomp", 1, Reason.BUILDER_UNAVAILABLE, "seccomp", id="no namespace: seccomp"),
        pytest.param("no-setfcap", 1, Reason.BUILDER_UNAVAILABLE, "capabilities", id="no namespace: capabilities"),
        pytest.param("unknown-command", 127, Reason.BUILD_ERROR, "command not found", id="unknown command"),
    ],
)
def test_each_end_has_its_reason(name: str, exit_code: int, reason: Reason, words: str) -> None:
    """The reason is that of the command that failed, or of buildah itself; the command's text is no cause."""
    failure = build_failure(exit_code, output(name))
    assert failure.reason is reason
    assert words in str(failure)
    assert failure.log_tail == output(name).tail


def test_a_node_without_user_namespaces_has_no_full_disk() -> None:
    """The kernel's words for a sysctl of 0 (user_namespaces(7)) are those for a disk without room."""
    taken = BuildOutput()
    list(taken.take({"stream": "Error during unshare(CLONE_NEWUSER): No space left on device\n"}))
    failure = build_failure(1, taken)
    assert failure.reason is Reason.BUILDER_UNAVAILABLE
    assert "user.max_user_namespaces" in str(failure)


def test_an_end_without_a_word_is_reported_by_its_code() -> None:
    """A log that was lost hides nothing."""
    failure = build_failure(2, BuildOutput())
    assert failure.reason is Reason.BUILD_ERROR
    assert "exit code 2" in str(failure)
