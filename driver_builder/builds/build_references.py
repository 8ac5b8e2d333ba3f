"""What a build needs of the objects that ``spec.build`` names, and the one error where one is missing.

Place in the flow: an engine is given password and certificates with the build; a Job has the objects mounted. The
password is redacted from the log.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from driver_builder.api.build_settings import ConfigMapKey
from driver_builder.base.errors import BuildFailed, ConfigurationError, TemporaryError
from driver_builder.base.reasons import Reason
from driver_builder.model.build_proxy import CA_FIELD, PASSWORD, PROXY_FIELD, USERNAME, BuildProxy, ProxyPassword
from driver_builder.registry.named_objects import ReferenceNotFound, read_secret
from driver_builder.registry.registry_ca import read_ca
from kube_api.client import Reader
from kube_api.errors import KubeApiError


def build_secret(client: Reader, namespace: str, name: str, *, field: str = "spec.build.secrets") -> dict[str, bytes]:
    """Read a Secret of a build, by key.

    Raises:
        BuildFailed: the Secret is missing.
        TemporaryError: the API server does not answer.
    """
    with _needed(f"{field}: Secret {name}", ReferenceNotFound):
        return read_secret(client, namespace, name, field=field)


def proxy_password(namespace: str, proxy: BuildProxy | None, client: Reader) -> ProxyPassword | None:
    """Read who the builds of a namespace use a proxy as; None for one without a password.

    Raises:
        BuildFailed, TemporaryError: as :func:`build_secret`; also without a user name or a password.
    """
    if proxy is None or proxy.secret is None:
        return None
    entries = build_secret(client, namespace, proxy.secret, field=PROXY_FIELD)
    missing = [key for key in (USERNAME, PASSWORD) if key not in entries]
    if missing:
        words = f"{PROXY_FIELD}: Secret {namespace}/{proxy.secret} has no {' and no '.join(missing)}"
        raise BuildFailed(Reason.SOURCE_MISSING, words)
    username, password = (entries[key].decode(errors="replace").strip("\r\n") for key in (USERNAME, PASSWORD))
    return ProxyPassword(username, password)


def read_build_ca(client: Reader, namespace: str, wanted: ConfigMapKey | None) -> str:
    """Read the certificates that builds trust, in PEM; empty without a ConfigMap.

    Raises:
        BuildFailed: the ConfigMap is missing, or has no certificate.
        TemporaryError: the API server does not answer.
    """
    if wanted is None:
        return ""
    with _needed(f"{CA_FIELD}: ConfigMap {wanted.name}", ConfigurationError):
        return read_ca(client, namespace, wanted, field=CA_FIELD)


@contextmanager
def _needed(what: str, missing: type[ConfigurationError]) -> Iterator[None]:
    try:
        yield
    except missing as error:
        raise BuildFailed(Reason.SOURCE_MISSING, str(error)) from error
    except KubeApiError as error:
        raise TemporaryError(f"{what} cannot be read: {error}") from error
