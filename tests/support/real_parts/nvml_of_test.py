"""The container ``nvml`` on a test's NVML: ``python -m tests.support.real_parts.nvml_of_test FOLDER LIBRARY``.

FOLDER stands for the node's ``/``, but for ``/dev``; the socket is in it. The environment may give it another boot
(:mod:`tests.support.real_parts.boots`).
"""

import sys

from device_agent.nvml_container.run import supervise
from device_agent.nvml_container.settings import Places, Settings, Timing
from tests.support.real_parts import boots

SOCKET = "nvml.sock"

if __name__ == "__main__":
    boots.enter()
    folder, library = sys.argv[1:]
    places = Places(root=folder, proc_root=folder, library=library)
    timing = Timing(look=2.0, reopen=2.0)
    settings = Settings(f"{folder}/{SOCKET}", places=places, timing=timing, ends_processes=True, changes_mig=True)
    sys.exit(supervise(settings))
