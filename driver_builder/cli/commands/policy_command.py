"""``driver-builder admission-policy``: prints what limits the controller's writes to Nodes. No cluster is needed."""

import argparse

from driver_builder import config
from driver_builder.base.errors import ConfigurationError
from driver_builder.cli.common import EXIT_OK
from driver_builder.config import Settings
from driver_builder.controller.node_rights import node_rights
from driver_builder.model.setting import Group
from kube_api.node_policy import parse_account, render, to_yaml

_COMMENT = """\
# Made by "driver-builder admission-policy": do not edit it, print it again (docs/security.md).
# Needs Kubernetes 1.30 or later.
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the command's own flags."""
    parser.add_argument(
        "--service-account",
        metavar="NAMESPACE/NAME",
        default="driverwright/driver-builder",
        help="service account of the controller (default driverwright/driver-builder)",
    )
    config.add_flags(parser, Group.NODE_FEATURES)


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Print policy and binding.

    Raises:
        ConfigurationError: when the service account is not named so.
    """
    account = parse_account(flags.service_account)
    if account is None:
        raise ConfigurationError(f"--service-account: {flags.service_account!r} is not of the form NAMESPACE/NAME")
    rights = node_rights(third_parties=bool(settings.node_feature_namespaces))
    print(to_yaml(render(rights, *account), _COMMENT), end="")
    return EXIT_OK
