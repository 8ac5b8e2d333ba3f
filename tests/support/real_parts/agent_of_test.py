"""The agent with its account's files elsewhere: ``python -m tests.support.real_parts.agent_of_test FOLDER FLAG...``.

The kubelet mounts them for a container, always at the same place; here the agent runs in none. The environment may give
it another boot (:mod:`tests.support.real_parts.boots`), and a shorter deadline of drains, which is half an hour.
"""

import os
import sys

from device_agent.cli import start
from tests.support.real_parts import boots

DRAIN_SECONDS = "DRAIN_SECONDS_OF_TEST"

if __name__ == "__main__":
    boots.enter()
    start.without_tls()
    from device_agent.mig.values import MigSettings
    from device_agent.node.connect import connect_with_token

    connect_with_token.__defaults__ = (sys.argv.pop(1),)
    if seconds := os.environ.pop(DRAIN_SECONDS, ""):
        MigSettings.__init__.__kwdefaults__ = {"drain": False, "deadline": int(seconds)}
    start.main()
