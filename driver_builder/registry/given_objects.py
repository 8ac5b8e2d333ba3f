"""ConfigMaps and Secrets given in files, in the place of those of an API server.

Place in the flow: ``build`` reads sources, templates, certificates, keys and passwords from them by the same code as
the controller does from its cluster.
"""

import base64
from collections.abc import Iterable, Mapping
from pathlib import Path

from driver_builder.base.errors import ConfigurationError
from kube_api.client import Object
from kube_api.errors import NotFound
from kube_api.resources import CONFIG_MAPS, SECRETS, Resource
from kube_api.stored_objects import StoredObjects

KINDS = {resource.kind: resource for resource in (CONFIG_MAPS, SECRETS)}
_FLAGS = {CONFIG_MAPS: "--config-map", SECRETS: "--secret"}


class NotGiven(NotFound):
    """No file has the object; the message says how to give it."""


class GivenObjects(StoredObjects):
    """The objects of files: one that is in none is :class:`NotGiven`."""

    def __init__(self, objects: Iterable[Object] = ()) -> None:
        super().__init__({_path(obj): with_data(obj) for obj in objects})

    def _missing(self, path: str) -> NotGiven:
        flag = next((flag for resource, flag in _FLAGS.items() if f"/{resource.plural}/" in path), "-f")
        return NotGiven(f"give it with {flag} {path.rpartition('/')[2]}=DIRECTORY, or its manifest with -f", status=404)

    def has_secret(self, namespace: str, name: str) -> bool:
        """Return whether a Secret is given."""
        return SECRETS.path(namespace=namespace, name=name) in self.objects


def with_data(obj: Object) -> Object:
    """Give an object as the API server does, which moves ``stringData`` to ``data``. Pure."""
    texts = obj.get("stringData") or {}
    if not texts:
        return obj
    coded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    return {**obj, "data": {**(obj.get("data") or {}), **coded}}


def object_of_files(resource: Resource, namespace: str, name: str, path: Path) -> Object:
    """Make what ``kubectl create configmap|secret NAME --from-file=PATH`` makes of a file, or of those in a folder.

    Raises:
        ConfigurationError: they cannot be read, or there is none.
    """
    try:
        files = sorted(item for item in path.iterdir() if item.is_file()) if path.is_dir() else [path]
        contents = {file.name: file.read_bytes() for file in files}
    except OSError as error:
        raise ConfigurationError(f"{_FLAGS[resource]} {name}={path}: {error}") from error
    if not contents:
        raise ConfigurationError(f"{_FLAGS[resource]} {name}={path}: the folder has no files")
    metadata = {"namespace": namespace, "name": name}
    coded = {key: base64.b64encode(content).decode() for key, content in contents.items()}
    if resource is SECRETS:
        return {"kind": resource.kind, "metadata": metadata, "data": coded}
    return {"kind": resource.kind, "metadata": metadata, **_config_map_data(contents, coded)}


def _config_map_data(contents: Mapping[str, bytes], coded: Mapping[str, str]) -> Object:
    texts: dict[str, str] = {}
    for key, content in contents.items():
        try:
            texts[key] = content.decode()
        except UnicodeDecodeError:
            continue
    return {"data": texts, "binaryData": {key: text for key, text in coded.items() if key not in texts}}


def _path(obj: Object) -> str:
    metadata = obj["metadata"]
    return KINDS[obj["kind"]].path(namespace=metadata["namespace"], name=metadata["name"])
