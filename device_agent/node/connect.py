"""The connection to the API server, with the token that the container ``agent`` has, if it has one."""

import sys
from collections.abc import Mapping

from kube_api.client import Client
from kube_api.credentials import SERVICE_ACCOUNT, service_account


def connect_with_token(environment: Mapping[str, str], folder: str = SERVICE_ACCOUNT) -> Client | None:
    """Connect with the token in a folder, which is read again for each request; None where there is none.

    Each request has a connection of its own: a pool would cost the resident process as much as TLS itself.
    """
    account = service_account(environment, folder)
    if account is None:
        return None
    _allow_tls()
    return Client(account.once())


def _allow_tls() -> None:
    """Take back what :func:`device_agent.cli.start.without_tls` does; what was imported before stays without TLS."""
    if sys.modules.get("ssl", sys) is None:
        del sys.modules["ssl"]
