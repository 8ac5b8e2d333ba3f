"""A connection by kubeconfig, through the official client: it supports everything in such a file."""

from collections.abc import Mapping

import yaml
from kubernetes import config
from kubernetes.client import ApiClient, ApiException, Configuration

from kube_api.connection import CONNECTIONS
from kube_api.errors import Unreachable
from kube_api.pooled import PooledConnection


def load_kubeconfig(path: str | None) -> PooledConnection:
    """Read a kubeconfig; without one, a pod's service account (behind a proxy), else the default kubeconfig.

    Raises:
        Unreachable: it cannot be read, or is not a kubeconfig.
    """
    settings = Configuration()
    try:
        _load(settings, path)
    except (
        config.ConfigException,
        yaml.YAMLError,
        OSError,
        OverflowError,
        ValueError,
        TypeError,
        LookupError,
    ) as error:
        # The loader does not check shapes: a kubeconfig that is a list ends in a TypeError.
        raise Unreachable(
            f"no API server is configured ({error}): pass --kubeconfig FILE, set KUBECONFIG, "
            "or run in a pod with a service account"
        ) from error
    return connection_of(settings)


def connection_of(settings: Configuration) -> PooledConnection:
    """Connect with the official client's settings, which renew what expires."""
    settings.connection_pool_maxsize = CONNECTIONS
    api = ApiClient(settings)

    def authorization() -> Mapping[str, str]:
        try:
            _, _, headers, _, _ = api.param_serialize("GET", "/", header_params={}, auth_settings=["BearerToken"])
        except (ApiException, config.ConfigException) as error:
            raise Unreachable(f"the credentials could not be renewed: {error}") from error
        return {name: value for name, value in headers.items() if name.lower() != "user-agent"}

    return PooledConnection(str(settings.host).rstrip("/"), api.rest_client.pool_manager, authorization)


def _load(settings: Configuration, path: str | None) -> None:
    if path is not None:
        config.load_kube_config(config_file=path, client_configuration=settings)
        return
    try:
        config.load_incluster_config(client_configuration=settings)
    except config.ConfigException:
        config.load_kube_config(client_configuration=settings)
