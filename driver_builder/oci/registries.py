"""The registries of the drivers, each with its Secret's credentials and its ConfigMap's CA, and what they said last."""

import time
from collections.abc import Callable
from pathlib import Path

from driver_builder.errors import PermanentError, RegistryUnauthorised
from driver_builder.model.image_state import ImageState, Invalid, Present, Unauthorised, Unreachable
from driver_builder.model.images import ImageRef
from driver_builder.named_objects import Missing, read_secret
from driver_builder.oci.credentials import Credentials, credentials_for, parse_docker_config
from driver_builder.oci.registry import RegistryClient
from driver_builder.oci.registry_ca import CaFiles, read_ca
from driver_builder.spec.driver_spec import RegistrySettings
from kube_api.client import Client

FIELD = "spec.registry.secretRef"


class Registries:
    """Asks registries about images.

    A presence is believed for ``trust_seconds``; every other answer is asked for again each time, because it decides
    whether to build and is what a person waits to see mended. A registry that asks for a pause is given it: until then
    its last answer stands, for all images that are asked for with the same Secret.
    """

    def __init__(
        self,
        client: Client,
        *,
        ca_file: str | None = None,
        trust_seconds: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._ca_file = ca_file
        self._ca_files = CaFiles()
        self._trust_seconds = trust_seconds
        self._clock = clock
        self._seen: dict[tuple[ImageRef, str], tuple[float, Present]] = {}
        self._paused: dict[tuple[str, str, str | None], tuple[float, Unreachable]] = {}

    def inspect(
        self, namespace: str, settings: RegistrySettings, image: ImageRef, architecture: str = ""
    ) -> ImageState:
        """Say whether an image exists, as far as the registry lets us know.

        Where it is an index of several platforms, the answer is about ``architecture``, Kubernetes' word for it.
        """
        wanted = (image, architecture)
        known = self._seen.get(wanted)
        if known is not None and self._clock() - known[0] < self._trust_seconds:
            return known[1]
        account = (image.host, namespace, settings.secret)
        ends, paused = self._paused.get(account, (0.0, None))
        if paused is not None and self._clock() < ends:
            return paused
        try:
            client = self.connect(namespace, settings, image.host, image.repository)
            state = client.inspect(image.repository, image.reference, architecture=architecture)
        except RegistryUnauthorised as error:
            return Unauthorised(message=str(error))
        except PermanentError as error:
            return Invalid(message=str(error))
        self._paused.pop(account, None)
        if isinstance(state, Unreachable) and state.retry_after is not None:
            self._paused[account] = (self._clock() + state.retry_after, state)
        if isinstance(state, Present):
            now = self._clock()
            self._seen = {other: seen for other, seen in self._seen.items() if now - seen[0] < self._trust_seconds}
            self._seen[wanted] = (now, state)
        else:
            self._seen.pop(wanted, None)
        return state

    def connect(
        self,
        namespace: str,
        settings: RegistrySettings,
        host: str,
        repository: str = "",
        *,
        patience: float = 0,
        wait: Callable[[float], object] = time.sleep,
    ) -> RegistryClient:
        """Make a client for one registry with a driver's credentials.

        A Secret may hold several for one host, by the beginning of the ``repository``. A registry that asks for a pause
        is waited for with ``wait``, up to ``patience`` seconds in one request.

        Raises:
            RegistryUnauthorised: when the Secret is missing or holds nothing for this registry.
            ConfigurationError: when the ConfigMap with its CA is missing, or is none.
        """
        return RegistryClient(
            host,
            credentials=self._credentials_for(namespace, settings, host, repository),
            plain_http=settings.plain_http,
            ca_file=self._ca(namespace, settings),
            patience=patience,
            wait=wait,
        )

    def _ca(self, namespace: str, settings: RegistrySettings) -> str | Path | None:
        if settings.ca is None:
            return self._ca_file
        return self._ca_files.file(read_ca(self._client, namespace, settings.ca))

    def credentials(self, namespace: str, settings: RegistrySettings, host: str = "") -> dict[str, Credentials]:
        """Read all that a driver's Secret holds, by host; ``host`` is whose it is said to lack when it is missing.

        Raises:
            RegistryUnauthorised: when the Secret is missing.
        """
        if settings.secret is None:
            return {}
        make = f"docker-registry {settings.secret} --docker-server={host or 'HOST'} ..."
        try:
            entries = read_secret(self._client, namespace, settings.secret, field=FIELD, make=make)
        except Missing as error:
            raise RegistryUnauthorised(str(error)) from error
        return parse_docker_config(entries.get(".dockerconfigjson") or entries.get(".dockercfg") or b"")

    def _credentials_for(
        self, namespace: str, settings: RegistrySettings, host: str, repository: str
    ) -> Credentials | None:
        credentials = credentials_for(self.credentials(namespace, settings, host), host, repository)
        if credentials is None and settings.secret is not None:
            raise RegistryUnauthorised(f"{FIELD}: Secret {namespace}/{settings.secret} has no credentials for {host}")
        return credentials
