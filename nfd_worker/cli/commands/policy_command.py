"""``nfd-worker admission-policy``: what limits a worker's token to its own Node, as manifests."""

import sys

from feature_rules.keys.namespaces import NamespaceOptions
from kube_api.node_policy import parse_account, render, to_yaml
from nfd_worker.errors import ConfigurationError
from nfd_worker.publish.node_rights import node_rights

_COMMENT = """\
# Made by "nfd-worker admission-policy" from the workers' settings: do not edit it, print it again (docs/security.md).
# Needs Kubernetes 1.30 or later, and tokens that name their pod's node, which is the default there.
"""


def print_policy(options: NamespaceOptions, service_account: str) -> int:
    """Print policy and binding for the service account ``namespace/name``.

    Raises:
        ConfigurationError: when it is not so named.
    """
    account = parse_account(service_account)
    if account is None:
        raise ConfigurationError(f"--service-account: {service_account!r} is not of the form NAMESPACE/NAME")
    sys.stdout.write(to_yaml(render(node_rights(options), *account), _COMMENT))
    return 0
