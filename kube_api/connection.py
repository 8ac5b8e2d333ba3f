"""How the API server is reached: address, trust and credentials, as kubectl and pods know them.

A pod's service account is three files and two variables, read here; the token is read again for each request, because
the kubelet replaces it. Everything else that a kubeconfig can hold (exec plugins, client certificates, OIDC, proxies)
is left to the official client. Importing that takes 20 MiB and a quarter of a second of CPU, so only who has a
kubeconfig pays for it (docs/decisions/0007-service-account-without-the-client.md).
"""

import os
from collections.abc import Mapping
from typing import Protocol

import urllib3

from kube_api.errors import Unreachable

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where the kubelet mounts ``token``, ``ca.crt`` and ``namespace``."""

_PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


class Connection(Protocol):
    """What a client needs to send a request."""

    @property
    def server(self) -> str:
        """The API server's URL without a path."""

    @property
    def pool(self) -> urllib3.PoolManager:
        """The connections."""

    def authorization(self) -> Mapping[str, str]:
        """Give the headers that say who asks, fresh for each request.

        Raises:
            OSError: when the credentials cannot be read.
            Unreachable: when they cannot be had for another reason.
        """


class ServiceAccountConnection:
    """A pod's way: ``server`` with a CA file and a token file."""

    def __init__(self, server: str, *, ca_file: str, token_file: str) -> None:
        self.server = server
        self.pool = urllib3.PoolManager(ca_certs=ca_file, cert_reqs="CERT_REQUIRED", retries=False)
        self._token_file = token_file

    def authorization(self) -> Mapping[str, str]:
        """Read the token."""
        with open(self._token_file, encoding="ascii") as file:  # noqa: PTH123 - one import less in a short-lived child
            return {"Authorization": f"Bearer {file.read().strip()}"}


def service_account(environment: Mapping[str, str], folder: str = SERVICE_ACCOUNT) -> ServiceAccountConnection | None:
    """Connect as the pod this runs in; None when it runs in none, or behind a proxy, which is not ours to follow."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    token_file, ca_file = f"{folder}/token", f"{folder}/ca.crt"
    if not host or not port or not os.path.isfile(token_file) or not os.path.isfile(ca_file):  # noqa: PTH113 - as above
        return None
    if any(environment.get(name) for name in _PROXY_VARIABLES):
        return None
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return ServiceAccountConnection(server, ca_file=ca_file, token_file=token_file)


def connect(kubeconfig: str | None = None) -> Connection:
    """Connect as kubectl would: the given kubeconfig, else the pod's service account, else the default kubeconfig.

    Raises:
        Unreachable: when no usable credentials are found; the message says where was looked.
    """
    own = service_account(os.environ) if kubeconfig is None else None
    if own is not None:
        return own
    try:
        from kube_api.kubeconfig import KubeconfigConnection  # noqa: PLC0415 - heavy, see above
    except ImportError as error:
        raise Unreachable(f"the official client, which reads kubeconfig files, cannot be imported: {error}") from error
    return KubeconfigConnection.load(kubeconfig)
