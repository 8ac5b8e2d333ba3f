"""``make demo``: the story for a person who watches, on this machine or on a cluster of theirs.

``python -m demo remove`` takes away what a demo on a cluster of the user's left behind.
"""

import os
import signal
import sys
from collections.abc import Sequence

from demo import demo, own_demo, reporter
from demo.own_settings import SettingsError, from_environment


def main(arguments: Sequence[str]) -> int:
    """Tell the story; 0 when it came true, 1 when it did not, 2 for wrong usage."""
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
        return demo.tell(console, keep=os.environ.get("DEMO_KEEP") == "1")
    return own_demo.tell(settings, console)


if __name__ == "__main__":
    # Ended from outside, the demo cleans up as it does after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
