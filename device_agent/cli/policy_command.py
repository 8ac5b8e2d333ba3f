"""``device-agent admission-policy``: a token of the agent's account changes no Node, whatever roles it is given."""

import sys

from device_agent.errors import ConfigurationError
from device_agent.node_rights import node_rights
from kube_api.node_policy import parse_account, render, to_yaml

_COMMENT = """\
# Made by "device-agent admission-policy": do not edit it, print it again (docs/security.md).
# Needs Kubernetes 1.30 or later, and tokens that name their pod's node, which is the default there.
"""


def print_policy(service_account: str) -> int:
    """Print policy and binding for the service account ``namespace/name``.

    Raises:
        ConfigurationError: when it is not so named.
    """
    account = parse_account(service_account)
    if account is None:
        raise ConfigurationError(f"--service-account: {service_account!r} is not of the form NAMESPACE/NAME")
    sys.stdout.write(to_yaml(render(node_rights(), *account), _COMMENT))
    return 0
