"""A connection by kubeconfig, through the official client: it knows all that such a file can hold."""

from collections.abc import Mapping
from typing import Self

import urllib3
import yaml
from kubernetes import config
from kubernetes.client import ApiClient, ApiException, Configuration

from kube_api.errors import Unreachable


class KubeconfigConnection:
    """The official client's connections and credentials; it refreshes what expires."""

    def __init__(self, settings: Configuration) -> None:
        settings.retries = False
        self._api = ApiClient(settings)

    @classmethod
    def load(cls, kubeconfig: str | None) -> Self:
        """Read a kubeconfig; without one, a pod's service account (behind a proxy), else the default kubeconfig.

        Raises:
            Unreachable: when it cannot be read, or is none.
        """
        settings = Configuration()
        try:
            _load(settings, kubeconfig)
        except (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, LookupError) as error:
            # The loader does not check shapes: a kubeconfig that is a list ends in a TypeError.
            raise Unreachable(
                f"no way to the API server found ({error}): pass --kubeconfig FILE, set KUBECONFIG, "
                "or run in a pod with a service account"
            ) from error
        return cls(settings)

    @property
    def server(self) -> str:
        """The API server's URL without a path."""
        return str(self._api.configuration.host).rstrip("/")

    @property
    def pool(self) -> urllib3.PoolManager:
        """The connections."""
        return self._api.rest_client.pool_manager

    def authorization(self) -> Mapping[str, str]:
        """Give the headers that the file's user sends; expired credentials are renewed here."""
        try:
            _, _, headers, _, _ = self._api.param_serialize("GET", "/", header_params={}, auth_settings=["BearerToken"])
        except (ApiException, config.ConfigException) as error:
            raise Unreachable(f"the credentials could not be renewed: {error}") from error
        return {name: value for name, value in headers.items() if name.lower() != "user-agent"}


def _load(settings: Configuration, kubeconfig: str | None) -> None:
    if kubeconfig is not None:
        config.load_kube_config(config_file=kubeconfig, client_configuration=settings)
        return
    try:
        config.load_incluster_config(client_configuration=settings)
    except config.ConfigException:
        config.load_kube_config(client_configuration=settings)
