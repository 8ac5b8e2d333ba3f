"""Which versions of the API for dynamic resource allocation (DRA) the API server has."""

from kube_api.client import Reader
from kube_api.errors import Forbidden, KubeApiError, NotFound
from kube_api.resources import RESOURCE_CLAIMS
from kube_api.text import printable

GROUP, VERSION = RESOURCE_CLAIMS.group, RESOURCE_CLAIMS.version


def served_versions(client: Reader) -> tuple[str, ...]:
    """Return the versions of the group; none where the API server does not have it.

    Raises:
        KubeApiError: it does not answer.
    """
    try:
        group = client.get(f"/apis/{GROUP}")
    except NotFound:
        return ()
    return tuple(str(item.get("version")) for item in group.get("versions") or ())


def not_read(kind: str, error: KubeApiError) -> str:
    """Say that objects of a kind may not be read, or were not, and why."""
    return printable(f"{kind}s {'may not be' if isinstance(error, Forbidden) else 'were not'} read: {error}")


def without_version(versions: tuple[str, ...]) -> str:
    """Say what the API server has in place of the version that is needed."""
    if not versions:
        return f"the API server has no {GROUP}"
    return f"the API server has {GROUP} as {printable(', '.join(versions), 63)}, and not as {VERSION}"
