"""Asks the engine that builds for its version and its disk."""

import shutil
from pathlib import Path

from driver_builder.base.errors import DriverBuilderError
from driver_builder.checks.check_builders import Engine
from driver_builder.checks.finding import Unread
from kube_api.text import printable

_TIMEOUT = 15
_LOCAL = "unix://"


def ask(address: str, certificates: Path | None) -> Engine | Unread:
    """Return what the engine says, or why it does not answer."""
    # The SDK of engines needs 8 MiB, and a controller at rest has no use for it.
    from driver_builder.builds.docker.docker_engine import docker_engine, engine_errors  # noqa: PLC0415 - see above

    try:
        with (
            docker_engine(address, certificates=certificates, timeout=_TIMEOUT) as api,
            engine_errors(f"asking {address} for its version"),
        ):
            found = api.info()
    except DriverBuilderError as error:
        return Unread(message=printable(str(error)))
    return Engine(
        version=_word(found.get("ServerVersion")),
        architecture=_word(found.get("Architecture")),
        storage=_word(found.get("Driver")),
        free=_free(str(found.get("DockerRootDir") or "")) if address.startswith(_LOCAL) else None,
    )


def _word(value: object) -> str:
    return printable(str(value or ""), 63)


def _free(folder: str) -> int | None:
    """Return the free bytes of the engine's folder, where it is on this machine and not that of a container's host."""
    try:
        return shutil.disk_usage(folder).free if folder and Path(folder).is_dir() else None
    except OSError:
        return None
