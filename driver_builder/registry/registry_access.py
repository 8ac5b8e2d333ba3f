"""The registries of the drivers, each with its Secret's credentials and its ConfigMap's CA."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.base.errors import ConfigurationError, PermanentError, RegistryUnauthorized
from driver_builder.model.image_state import ImageState, Invalid, Present, Unauthorized
from driver_builder.model.images import ImageRef
from driver_builder.model.registry_reach import Reach
from driver_builder.registry.credentials import Credentials, credentials_for, parse_docker_config
from driver_builder.registry.image_store import ImageStore
from driver_builder.registry.named_objects import ReferenceNotFound, read_entry, read_secret
from driver_builder.registry.registry import RegistryClient, as_state
from driver_builder.registry.registry_ca import CaFiles, read_ca
from driver_builder.registry.registry_pauses import MOST_KEPT, Memory, Pauses
from kube_api.client import Reader
from kube_api.errors import Forbidden

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

KEY_ENTRIES = ("key", "tls.key")
FIELD = "spec.registry.secretRef"
CA_SECONDS = 60.0

PUSH_PATIENCE = 300.0
"""Seconds that one request of a push waits if the registry asks for a pause: a build is worth that."""


Accounts = Callable[[str, RegistrySettings], Mapping[str, Credentials] | None]
"""The passwords for a namespace's registry, by host, that replace those of the Secret in its settings; None: these."""


class Registries:
    """Asks registries about images, and waits for their answers.

    If a registry asks for a pause, its last answer stands until then, for all images of the same namespace and the
    same settings. A registry that does not answer is also left alone for a while, longer
    each time. ``account_seconds`` is how long the content of a Secret is cached unless a
    registry refuses it; a CA is cached for a minute at most. ``client`` has the Secrets and ConfigMaps.
    """

    def __init__(
        self,
        client: Reader,
        *,
        ca_file: str | None = None,
        reach: Reach | None = None,
        plain_http_passwords: bool = False,
        account_seconds: float = 0.0,
        accounts: Accounts = lambda _namespace, _settings: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._accounts = accounts
        self._ca_file = ca_file
        self._reach = reach
        self._plain_http_passwords = plain_http_passwords
        self._ca_files = CaFiles()
        self._clock = clock
        self._credentials = Memory[dict[str, Credentials]](account_seconds, clock)
        self._certificates = Memory[Path](min(account_seconds, CA_SECONDS), clock)
        self._keys = Memory["ec.EllipticCurvePublicKey"](account_seconds, clock)
        self._pauses = Pauses(clock)
        self._pushed: dict[ImageRef, str] = {}

    def inspect(
        self,
        namespace: str,
        settings: RegistrySettings,
        image: ImageRef,
        architecture: str = "",
        *,
        signed_by: str | None = None,
    ) -> ImageState:
        """Return whether an image exists, as far as the registry says.

        For an index of several platforms the answer is about ``architecture``, Kubernetes' word for it.
        ``signed_by`` names the Secret with the image key: then the answer says whether the image is signed with it.

        Raises:
            KubeApiError: when a Secret or ConfigMap cannot be read for now.
        """
        account = (image.host, namespace, settings)
        if (paused := self._pauses.of(account)) is not None:
            return paused
        try:
            client = self.store(namespace, settings, image.host, image.repository)
            state = client.inspect(image.repository, image.reference, architecture=architecture)
            if signed_by is not None and isinstance(state, Present):
                state = self._with_signature(client, image, state, self._image_key(namespace, signed_by))
        except (RegistryUnauthorized, Forbidden) as error:
            # Forbidden by the API server: a Secret that we may not read. It concerns only the drivers that name it.
            state = Unauthorized(message=str(error))
        except PermanentError as error:
            return Invalid(message=str(error))
        if isinstance(state, Unauthorized):
            # The Secret may be another one by now.
            self._credentials.forget((namespace, settings.secret))
        self._pauses.saw(account, state)
        return state

    def pushed(self) -> dict[ImageRef, str]:
        """The digests that our own builds ended with, by image."""
        return dict(self._pushed)

    def remember_push(self, image: ImageRef, digest: str) -> None:
        """Record that a tag names, or is about to name, the result of a build of ours."""
        self._pushed.pop(image, None)
        self._pushed[image] = digest
        while len(self._pushed) > MOST_KEPT:
            del self._pushed[next(iter(self._pushed))]

    def store(
        self,
        namespace: str,
        settings: RegistrySettings,
        host: str,
        repository: str,
        *,
        patience: float = 0,
        wait: Callable[[float], object] = time.sleep,
    ) -> ImageStore:
        """Give the place where a driver's images are, which is their registry; as :meth:`connect`."""
        return self.connect(namespace, settings, host, repository, patience=patience, wait=wait)

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
            RegistryUnauthorized: when the Secret is missing or holds nothing for this registry.
            ConfigurationError: when the ConfigMap with its CA is missing, or has no CA; or when a password would be
                sent without TLS and no setting allows it.
        """
        if patience:
            # A build that ends with a push is worth a look at its Secret.
            self._credentials.forget((namespace, settings.secret))
        own = self._accounts(namespace, settings)
        has_password = settings.secret is not None if own is None else bool(credentials_for(own, host, repository))
        if settings.plain_http and has_password and not self._plain_http_passwords:
            whose = f"of Secret {namespace}/{settings.secret}" if own is None else "of docker's config.json"
            raise ConfigurationError(
                f"spec.registry: plainHttp would send the password {whose} to {host}"
                " without TLS: remove secretRef or plainHttp, or allow it with --registry-plain-http-passwords"
            )
        return RegistryClient(
            host,
            credentials=self._credentials_for(namespace, settings, host, repository),
            plain_http=settings.plain_http,
            ca_file=self._ca(namespace, settings),
            deadline=patience or None,
            patience=patience,
            wait=wait,
            reach=self._reach,
        )

    def _image_key(self, namespace: str, secret: str) -> "ec.EllipticCurvePublicKey":
        """The public part of the key that a driver's images are signed with."""
        # It needs 7 MiB, and only those whose images are signed have it.
        from driver_builder.registry.image_signature import parse_private_key  # noqa: PLC0415 - see above

        def read() -> "ec.EllipticCurvePublicKey":
            content = read_entry(self._client, namespace, secret, KEY_ENTRIES, field="signing.imageKeySecretRef")
            return parse_private_key(content).public_key()

        return self._keys.get((namespace, secret), read)

    def _with_signature(
        self, client: ImageStore, image: ImageRef, state: Present, key: "ec.EllipticCurvePublicKey"
    ) -> ImageState:
        from driver_builder.registry.image_signature import has_signature  # noqa: PLC0415 - as in _image_key

        def ask() -> ImageState:
            return replace(state, is_signed=has_signature(client, image.at(state.digest), key))

        return as_state(image, ask)

    def _ca(self, namespace: str, settings: RegistrySettings) -> str | Path | None:
        if settings.ca_config_map is None:
            return self._ca_file
        ca = settings.ca_config_map
        return self._certificates.get(
            (namespace, ca), lambda: self._ca_files.file(read_ca(self._client, namespace, ca))
        )

    def credentials(self, namespace: str, settings: RegistrySettings, host: str = "") -> dict[str, Credentials]:
        """Read all credentials of a driver, by host; ``host`` is named in the error for a missing Secret.

        Raises:
            RegistryUnauthorized: when the Secret is missing.
        """
        if (own := self._accounts(namespace, settings)) is not None:
            return dict(own)
        secret = settings.secret
        if secret is None:
            return {}
        return self._credentials.get((namespace, secret), lambda: self._read(namespace, secret, host))

    def _read(self, namespace: str, secret: str, host: str) -> dict[str, Credentials]:
        make = f"docker-registry {secret} --docker-server={host or 'HOST'} ..."
        try:
            entries = read_secret(self._client, namespace, secret, field=FIELD, make=make)
        except ReferenceNotFound as error:
            raise RegistryUnauthorized(str(error)) from error
        return parse_docker_config(entries.get(".dockerconfigjson") or entries.get(".dockercfg") or b"")

    def _credentials_for(
        self, namespace: str, settings: RegistrySettings, host: str, repository: str
    ) -> Credentials | None:
        if (own := self._accounts(namespace, settings)) is not None:
            return credentials_for(own, host, repository)
        credentials = credentials_for(self.credentials(namespace, settings, host), host, repository)
        if credentials is None and settings.secret is not None:
            raise RegistryUnauthorized(f"{FIELD}: Secret {namespace}/{settings.secret} has no credentials for {host}")
        return credentials
