"""``make demo``: runs the scenario and reports it, on this machine or on the user's own cluster.

``python -m demo remove`` removes what a demo on the user's own cluster left behind.
"""

import os
import signal
import sys
from collections.abc import Sequence

from demo import demo, own_demo, reporter
from demo.own_settings import SettingsError, from_environment


def main(arguments: Sequence[str]) -> int:
    """Run the scenario; 0 when it succeeded, 1 when it failed, 2 for wrong usage."""
    console = reporter.console()
    if list(arguments) not in ([], ["remove"]):
        console.print(__doc__, markup=False)
        return 2
    try:
        if arguments:
            return own_demo.remove(own_demo.kubeconfig(os.environ), console)
        settings = from_environment(os.environ)
    except SettingsError as error:
        console.print(f"demo: {error}", style="bold red", markup=False, soft_wrap=True)
        return 2
    if settings is None:
        return demo.run(console, keep=os.environ.get("DEMO_KEEP") == "1")
    return own_demo.run(settings, console)


if __name__ == "__main__":
    # Ended from outside, the demo cleans up as it does after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
