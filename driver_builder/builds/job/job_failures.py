"""Why buildah failed, from its last words and its exit code. Pure.

buildah ends with the exit code of the failed command, or with 125 for its own reasons. Its last line repeats the
whole command: ``failures`` gets the code of a command, or buildah's own words, and the lines without either.
"""

import re
from collections.abc import Sequence

from driver_builder.base.errors import BuildFailed
from driver_builder.base.reasons import Reason
from driver_builder.builds.build_output import BuildOutput
from driver_builder.builds.failures import KILLED, classify

_ERROR = re.compile(r"^Error: (?P<text>.*)")
_RUN_FAILED = re.compile(r'^Error: building at STEP "RUN .*: exit status (?P<code>\d+)$')
_KILLED = "subprocess exited on killed"
_OWN = re.compile(r'^(?:Error: |subprocess exited |time="\S+" level=(?:error|warning) )')
"""What buildah prints about the end of a command, which is not output of the command."""

_NO_NAMESPACE = re.compile(r"^Error.*(?:unshare\(CLONE_NEWUSER\)|/[ug]id_map: )")
_FULL = "the disk of the node that built is full"
"""Used instead of the engine's message: there is none."""


def build_failure(exit_code: int, output: BuildOutput) -> BuildFailed:
    """Make the error of a build that ended with ``exit_code``."""
    refused = next((line for line in output.lines if _NO_NAMESPACE.search(line)), None)
    if refused is not None:
        # Before all else: a node that forbids user namespaces reports "no space left".
        return BuildFailed(
            Reason.BUILDER_UNAVAILABLE,
            f"the node does not let buildah create a user namespace: {refused}; see sysctl user.max_user_namespaces,"
            " and what the namespace lets pods have of seccomp and capabilities",
            log_tail=output.tail,
        )
    code, error, lines = read_end(exit_code, tuple(output.lines))
    reason, message = classify(code, error, lines)
    return BuildFailed(reason, _FULL if reason is Reason.DISK_FULL else message, log_tail=output.tail)


def read_end(exit_code: int, lines: Sequence[str]) -> tuple[int | None, str, tuple[str, ...]]:
    """Return the exit code of the failed command (None: none failed), buildah's words, and the commands' output."""
    said = tuple(line for line in lines if not _OWN.match(line))
    if exit_code == KILLED or _KILLED in lines:
        return KILLED, "", said
    failed = next((match for line in reversed(lines) if (match := _ERROR.match(line))), None)
    if failed is None:
        return None, f"buildah ended with exit code {exit_code}", said
    if run := _RUN_FAILED.match(failed.string):
        return int(run["code"]), "", said
    return None, failed["text"], said
