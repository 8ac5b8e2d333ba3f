"""The ConfigMaps and Secrets that a spec names, and the one error for a missing object or key.

Place in the flow: the code that handles a field of a spec reads the object, and turns :class:`ReferenceNotFound` into
the kind of failure that it is there.
"""

import base64
import binascii

from driver_builder.api.build_settings import ConfigMapKey
from driver_builder.base.errors import ConfigurationError
from driver_builder.registry.given_objects import NotGiven
from kube_api.client import Object, Reader
from kube_api.errors import Forbidden, NotFound
from kube_api.resources import CONFIG_MAPS, SECRETS, Resource


class ReferenceNotFound(ConfigurationError):
    """The object does not exist, may not be read, or has no such key.

    The message names field, object and the next step.
    """


def read_config_map(client: Reader, namespace: str, name: str, *, field: str) -> Object:
    """Read a ConfigMap.

    Raises:
        ReferenceNotFound: when none exists.
    """
    return _read(client, CONFIG_MAPS, namespace, name, field=field, make=f"configmap {name} --from-file=DIRECTORY")


def read_text(client: Reader, namespace: str, wanted: ConfigMapKey, *, field: str) -> str:
    """Read one text of a ConfigMap.

    Raises:
        ReferenceNotFound: when there is no such ConfigMap, or no such text in it.
    """
    make = f"configmap {wanted.name} --from-file={wanted.key}"
    texts = _read(client, CONFIG_MAPS, namespace, wanted.name, field=field, make=make).get("data") or {}
    if wanted.key not in texts:
        raise ReferenceNotFound(
            f"{field}: ConfigMap {namespace}/{wanted.name} has no text {wanted.key!r} ({_has(texts)})"
        )
    return str(texts[wanted.key])


def read_secret(client: Reader, namespace: str, name: str, *, field: str, make: str = "") -> dict[str, bytes]:
    """Read a Secret, by key; ``make`` is the command line for ``kubectl create secret`` in the message.

    Raises:
        ReferenceNotFound: when none exists.
    """
    make = f"secret {make or f'generic {name} --from-file=...'}"
    data = _read(client, SECRETS, namespace, name, field=field, make=make).get("data") or {}
    return {key: _decoded(text) for key, text in data.items()}


def read_entry(client: Reader, namespace: str, name: str, keys: tuple[str, ...], *, field: str) -> bytes:
    """Read the first of these keys of a Secret that has a content.

    Raises:
        ReferenceNotFound: there is no such Secret, or it has none of the keys.
    """
    make = f"generic {name} --from-file={keys[0]}=FILE"
    entries = read_secret(client, namespace, name, field=field, make=make)
    for key in keys:
        if entries.get(key):
            return entries[key]
    raise ReferenceNotFound(f"{field}: Secret {namespace}/{name} has neither {' nor '.join(keys)} ({_has(entries)})")


def _read(client: Reader, resource: Resource, namespace: str, name: str, *, field: str, make: str) -> Object:
    try:
        return client.get(resource.path(namespace=namespace, name=name))
    except Forbidden as error:
        may = f"allow the Role of driver-builder in {namespace} to get it: {error}"
        raise ReferenceNotFound(f"{field}: {resource.kind} {namespace}/{name} cannot be read: {may}") from error
    except NotGiven as error:
        raise ReferenceNotFound(
            f"{field}: {resource.kind} {namespace}/{name} is in none of the files: {error}"
        ) from error
    except NotFound as error:
        command = f"kubectl -n {namespace} create {make}"
        raise ReferenceNotFound(
            f"{field}: {resource.kind} {namespace}/{name} does not exist: create it with {command}"
        ) from error


def _has(entries: dict[str, bytes] | dict[str, str]) -> str:
    return f"it has {', '.join(sorted(entries)) or 'none'}"


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except binascii.Error:
        # The API server accepts nothing that is not base64.
        return b""
