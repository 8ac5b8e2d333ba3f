"""The file of what survives the agent: read once, written when it has changed, whole at any moment."""

import logging
from contextlib import suppress

from device_agent.errors import FileInvalid, StateInvalid
from device_agent.kept_file import read_kept, set_aside, write_kept
from device_agent.sources.nvidia.memory import LONGEST_FILE, Memory, parse_memory

log = logging.getLogger(__name__)

NAME = "verdicts.json"


def read_memory(folder: str) -> Memory:
    """Read what has survived; a file that is not one is set aside, and nothing is known then."""
    path = f"{folder}/{NAME}"
    try:
        return parse_memory(read_kept(path, LONGEST_FILE))
    except FileNotFoundError:
        return Memory()
    except (FileInvalid, StateInvalid) as error:
        log.error(  # noqa: TRY400 - no traceback: the message is for the operator
            "%s is not valid: %s; it is %s.broken now, and errors of GPUs that it had are forgotten", path, error, path
        )
        with suppress(OSError):
            set_aside(path)
    except OSError as error:
        log.error("cannot read %s: %s: errors of GPUs that it has do not count", path, error.strerror or error)  # noqa: TRY400 - as above
    return Memory()


def write_memory(folder: str, content: bytes) -> str:
    """Write what has to survive; returns why that was not possible, nothing if it was."""
    path = f"{folder}/{NAME}"
    try:
        write_kept(path, content)
    except OSError as error:
        return f"cannot write {path}: {error.strerror or error}"
    return ""
