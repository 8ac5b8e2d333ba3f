"""What can be set of the container ``nvml``, by flags or by environment variables: defaults < environment < flags."""

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from device_agent.config import DEFAULT_NVML_SOCKET
from device_agent.errors import ConfigurationError
from device_agent.nvml_container.log import FORMATS, LEVELS
from kube_api.text import printable

FLAGS = {
    "socket": ("DEVICE_AGENT_NVML_SOCKET", "FILE", f"Unix socket of the state (default: {DEFAULT_NVML_SOCKET})"),
    "root": ("HOST_ROOT", "DIR", "where the node's / is mounted (default: /)"),
    "ends-processes": ("DEVICE_AGENT_ENDS_PROCESSES", "true|false",
                       "end processes that the agent names, for limits of memory (default: false)"),
    "changes-mig": ("DEVICE_AGENT_CHANGES_MIG", "true|false",
                    "change MIG mode and instances as the agent asks (default: false)"),
    "log-level": ("DEVICE_AGENT_LOG_LEVEL", "LEVEL", "debug, info, warning or error (default: info)"),
    "log-format": ("DEVICE_AGENT_LOG_FORMAT", "FORMAT", "text or json (default: text)"),
}  # fmt: skip
"""Flag -> its environment variable, its placeholder and its help."""

_LONGEST_SOCKET = 107
"""Bytes of the path of a Unix socket."""


class Timing(NamedTuple):
    """Seconds.

    ``look``: from one inventory to the next. ``silence``: without a line of the child, until it is killed.
    ``patience``: from its kill until the state says that it cannot be killed.
    ``use``: from one sample of the use of cards to the next, while it is followed.
    ``first_pause``, ``longest_pause``: from a failure to the next start. ``absent_pause``: without a driver, where the
    module is loaded; ``unloaded_pause``: where it is not. ``reopen``: until NVML is started anew where a card is lost.
    ``sign_of_life``: until a state is sent again. ``idle``: of a client that asks nothing, or does not read.
    ``end``: how long the supervisor's end waits for that of the child. ``late``: after its time, from when on the
    supervisor takes it that all processes of the container were stopped.
    """

    look: float = 10.0
    use: float = 3.0
    silence: float = 30.0
    patience: float = 2.0
    first_pause: float = 1.0
    longest_pause: float = 30.0
    absent_pause: float = 10.0
    unloaded_pause: float = 60.0
    reopen: float = 60.0
    sign_of_life: float = 10.0
    idle: float = 30.0
    end: float = 1.0
    late: float = 5.0


class Places(NamedTuple):
    """Where files are.

    ``root``: what stands for the node's ``/``. ``proc_root``: the folder of a ``/proc`` that is the node's;
    ``/proc/devices`` and ``/proc/driver`` are in each container's. ``dev``: the node's ``/dev``.
    ``library``: the one path of NVML's library; empty for the usual places.
    """

    root: str = "/"
    proc_root: str = "/"
    dev: str = "/dev"
    library: str = ""

    @property
    def proc(self) -> str:
        """Return the node's ``/proc``."""
        return f"{self.proc_root.rstrip('/')}/proc"


class Settings(NamedTuple):
    """What was set. ``ends_processes``: a request to end a process of a pod is not refused.

    ``changes_mig``: neither is one to change MIG.
    """

    socket: str = DEFAULT_NVML_SOCKET
    log_level: str = "info"
    log_format: str = "text"
    places: Places = Places()
    timing: Timing = Timing()
    ends_processes: bool = False
    changes_mig: bool = False


def read_flags(arguments: Sequence[str]) -> dict[str, str | None] | None:
    """Read flags, each as ``--flag=value``; None for anything that needs argparse, also to refuse it."""
    flags: dict[str, str | None] = {}
    for argument in arguments:
        name, has_value, value = argument.partition("=")
        if not name.startswith("--") or not has_value or name[2:] not in FLAGS:
            return None
        flags[name[2:]] = value
    return flags


def build_settings(flags: Mapping[str, str | None], environment: Mapping[str, str]) -> Settings:
    """Put the layers together.

    Raises:
        ConfigurationError: names the setting and what is wrong.
    """
    values: dict[str, str | None] = {}
    for flag, (variable, _, _) in FLAGS.items():
        given = flags.get(flag)
        values[flag] = environment.get(variable) if given is None else given
    settings = Settings(
        socket=os.path.abspath(values["socket"] or DEFAULT_NVML_SOCKET),  # noqa: PTH100 - pathlib costs 1 MiB
        log_level=_known("log-level", values["log-level"] or "info", LEVELS),
        log_format=_known("log-format", values["log-format"] or "text", FORMATS),
        places=Places(root=os.path.abspath(values["root"] or "/")),  # noqa: PTH100 - see above
        ends_processes=_is_true("ends-processes", values),
        changes_mig=_is_true("changes-mig", values),
    )
    if len(os.fsencode(settings.socket)) > _LONGEST_SOCKET:
        raise ConfigurationError(f"--socket: {printable(settings.socket, 200)} is too long for a Unix socket")
    return settings


def _is_true(flag: str, values: Mapping[str, str | None]) -> bool:
    return _known(flag, values[flag] or "false", ("true", "false")) == "true"


def _known(flag: str, word: str, known: Sequence[str]) -> str:
    if word.lower() not in known:
        raise ConfigurationError(f"--{flag}: {printable(word, 40)!r} is not one of {', '.join(known)}")
    return word.lower()
