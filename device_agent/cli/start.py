"""The process itself, which ``device-agent`` calls; :mod:`device_agent.cli.main` does the work."""

import os
import sys


def main() -> None:
    """Run the agent's command line and exit."""
    # The kubelet is spoken to on sockets in its folder alone: TLS would cost the resident process 5 MiB. asyncio and
    # grpclib do without it where Python has none.
    sys.modules["ssl"] = None  # type: ignore[assignment]
    from device_agent.cli.main import run  # noqa: PLC0415 - see above

    sys.exit(run(sys.argv[1:], os.environ))
