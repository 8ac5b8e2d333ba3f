"""The command ``device-agent nvml``. It loads little: no asyncio, no argparse, no logging."""

import gc
import os
import signal
import sys
from collections.abc import Mapping, Sequence

from device_agent.boot import read_boot_id
from device_agent.errors import ConfigurationError, SocketUnusable
from device_agent.nvml_container.child_process import Wanted
from device_agent.nvml_container.listen import listening
from device_agent.nvml_container.log import Log
from device_agent.nvml_container.settings import Settings, build_settings, read_flags
from device_agent.nvml_container.supervisor import Supervisor, new_state
from device_agent.stand_in import standing_in


def run_nvml(arguments: Sequence[str], environment: Mapping[str, str]) -> int | None:
    """Run the command until it is stopped; returns its exit status, or None for arguments that need argparse.

    Exit status: 0 stopped, 1 the socket cannot be had, 2 a setting is wrong.
    """
    end_on_sigterm()
    flags = read_flags(arguments)
    return None if flags is None else run_with_flags(flags, environment)


def run_with_flags(flags: Mapping[str, str | None], environment: Mapping[str, str]) -> int:
    """Run the command with these flags; see :func:`run_nvml`."""
    end_on_sigterm()
    try:
        return supervise(build_settings(flags, environment))
    except ConfigurationError as error:
        sys.stderr.write(f"device-agent: {error}\n")
        return 2


def end_on_sigterm() -> None:
    """Obey SIGTERM until the supervisor follows it: the kernel ignores it for the first process of a container."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))


def supervise(settings: Settings) -> int:
    """Serve until SIGTERM; returns the exit status."""
    # Imported once before all children, which share it: one that imports it itself costs 2 MiB more. This process asks
    # NVML nothing, and does not load the driver's library.
    # ctypes.util loads subprocess, tempfile and others, 1.3 MiB in two processes; pynvml uses it on Windows alone.
    with standing_in("ctypes.util", find_library=None):
        from device_agent.nvml_container.asking import Asking, ChangeMig  # noqa: PLC0415 - see above

    change_mig: ChangeMig | None = None
    if settings.changes_mig:
        from device_agent.nvml_container import mig_changing  # noqa: PLC0415 - as above, if at all

        change_mig = mig_changing.change_mig

    # Pages with what is loaded by now are shared with children until one of both writes there, as a collection does.
    gc.freeze()
    log = Log(settings.log_level, settings.log_format)
    log.follow_signals()

    def work(requests: int, lines: int, wanted: Wanted) -> int:
        return Asking(
            settings=settings, log=log, requests=requests, lines=lines, wanted=wanted, change_mig=change_mig
        ).run()

    state = new_state(read_boot_id(settings.places.proc_root))
    supervisor = Supervisor(work=work, state=state, root=settings.places.root, timing=settings.timing, log=log)
    try:
        with listening(settings.socket) as made:
            log.info(f"listening on {settings.socket}")
            supervisor.run(made)
    except SocketUnusable as error:
        sys.stderr.write(f"device-agent: {error}\n")
        return 1
    log.info("stopped")
    return 0
