"""The user name and password of a build's proxy: ``spec.build.proxy.secretRef``.

Place in the flow: an engine is given them with the build; a Job has the Secret mounted. Both redact them from the log.
"""

from driver_builder.base.errors import BuildFailed, TemporaryError
from driver_builder.base.reasons import Reason
from driver_builder.model.build_proxy import PASSWORD, PROXY_FIELD, USERNAME, BuildProxy, ProxyPassword
from driver_builder.registry.named_objects import ReferenceNotFound, read_secret
from kube_api.client import Reader
from kube_api.errors import KubeApiError


def proxy_password(namespace: str, proxy: BuildProxy | None, client: Reader) -> ProxyPassword | None:
    """Read who the builds of a namespace use a proxy as; None for one without a password.

    Raises:
        BuildFailed: the Secret is missing, or has no user name or no password.
        TemporaryError: the API server does not answer.
    """
    if proxy is None or proxy.secret is None:
        return None
    name = proxy.secret
    try:
        entries = read_secret(client, namespace, name, field=PROXY_FIELD)
    except ReferenceNotFound as error:
        raise BuildFailed(Reason.SOURCE_MISSING, str(error)) from error
    except KubeApiError as error:
        raise TemporaryError(f"{PROXY_FIELD}: Secret {name} cannot be read: {error}") from error
    missing = [key for key in (USERNAME, PASSWORD) if key not in entries]
    if missing:
        words = f"{PROXY_FIELD}: Secret {namespace}/{name} has no {' and no '.join(missing)}"
        raise BuildFailed(Reason.SOURCE_MISSING, words)
    username, password = (entries[key].decode(errors="replace").strip("\r\n") for key in (USERNAME, PASSWORD))
    return ProxyPassword(username, password)
