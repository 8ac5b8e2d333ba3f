"""Connecting to the API server: address, trust and credentials, as kubectl and pods use them.

A pod's service account is three files and two variables, read here; the token is read again for each request, because
the kubelet replaces it. Everything else that a kubeconfig can hold (exec plugins, client certificates, OIDC, proxies)
is left to the official client. Importing that takes 20 MiB and a quarter of a second of CPU, so only a process with a
kubeconfig does (docs/decisions/0007-service-account-without-the-client.md).
"""

import os
from collections.abc import Mapping
from typing import NamedTuple

from kube_api.connection import CONNECTIONS, Connection
from kube_api.errors import Unreachable

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where the kubelet mounts ``token``, ``ca.crt`` and ``namespace``."""

_PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


class ServiceAccount(NamedTuple):
    """A pod's service account: the server's URL, a CA file and a token file."""

    server: str
    ca_file: str
    token_file: str

    def authorization(self) -> Mapping[str, str]:
        """Read the token.

        Raises:
            OSError: the file does not exist, or is not a token.
        """
        with open(self.token_file, encoding="ascii") as file:  # noqa: PTH123 - one import less in a short-lived child
            try:
                return {"Authorization": f"Bearer {file.read().strip()}"}
            except UnicodeDecodeError as error:
                raise OSError(f"{self.token_file} is not a token: it has characters that are not ASCII") from error

    def pooled(self) -> Connection:
        """Connect for many requests, from several threads."""
        import urllib3  # noqa: PLC0415 - slow to import

        from kube_api.pooled import PooledConnection  # noqa: PLC0415 - as above

        pool = urllib3.PoolManager(ca_certs=self.ca_file, cert_reqs="CERT_REQUIRED", maxsize=CONNECTIONS)
        return PooledConnection(self.server, pool, self.authorization)

    def once(self) -> Connection:
        """Connect for one or two requests."""
        from kube_api.once import OnceConnection  # noqa: PLC0415 - a pool's user does not need it

        return OnceConnection(self.server, self.ca_file, self.authorization)


def service_account(environment: Mapping[str, str], folder: str = SERVICE_ACCOUNT) -> ServiceAccount | None:
    """Return the account of the pod this runs in; None outside of a pod, or behind a proxy, which is not supported."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    token_file, ca_file = f"{folder}/token", f"{folder}/ca.crt"
    if not host or not port or not os.path.isfile(token_file) or not os.path.isfile(ca_file):  # noqa: PTH113 - as above
        return None
    if any(environment.get(name) for name in _PROXY_VARIABLES):
        return None
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return ServiceAccount(server, ca_file=ca_file, token_file=token_file)


def connect(kubeconfig: str | None = None, *, once: bool = False) -> Connection:
    """Connect as kubectl would: the given kubeconfig, else the pod's service account, else the default kubeconfig.

    ``once`` is for a process that sends one or two requests and ends.

    Raises:
        Unreachable: no usable credentials were found; the message names the searched places.
    """
    own = service_account(os.environ) if kubeconfig is None else None
    if own is not None:
        return own.once() if once else own.pooled()
    try:
        from kube_api.kubeconfig import load_kubeconfig  # noqa: PLC0415 - heavy, see above
    except ImportError as error:
        raise Unreachable(f"the official client, which reads kubeconfig files, cannot be imported: {error}") from error
    return load_kubeconfig(kubeconfig)
