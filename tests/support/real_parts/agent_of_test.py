"""The agent with its account's files elsewhere: ``python -m tests.support.real_parts.agent_of_test FOLDER FLAG...``.

The kubelet mounts them for a container, always at the same place; here the agent runs in none.
"""

import sys

from device_agent.cli import start

if __name__ == "__main__":
    start.without_tls()
    from device_agent.node.connect import connect_with_token

    connect_with_token.__defaults__ = (sys.argv.pop(1),)
    start.main()
