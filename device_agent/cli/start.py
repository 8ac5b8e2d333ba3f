"""The process itself, which ``device-agent`` calls; :mod:`device_agent.cli.main` does the work."""

import os
import sys


def main() -> None:
    """Run the agent's command line and exit."""
    without_tls()
    if len(sys.argv) == 3 and sys.argv[1] == "get" and sys.argv[2].startswith("/"):
        from device_agent.cli.get_command import get_page  # noqa: PLC0415 - probes need nothing else

        sys.exit(get_page(sys.argv[2], os.environ))
    if sys.argv[1:2] == ["nvml"]:
        from device_agent.nvml_container.run import run_nvml  # noqa: PLC0415 - it is resident and needs nothing else

        status = run_nvml(sys.argv[2:], os.environ)
        if status is not None:
            sys.exit(status)
    from device_agent.cli.main import run  # noqa: PLC0415 - see above

    sys.exit(run(sys.argv[1:], os.environ))


def without_tls() -> None:
    """Make Python one that has no ``ssl``, as asyncio and grpclib expect there may be.

    The kubelet is spoken to on sockets in its folder alone, and TLS would cost the resident process 5 MiB.
    """
    sys.modules["ssl"] = None  # type: ignore[assignment]
