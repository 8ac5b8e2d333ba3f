"""The files of ``build``: DriverContainers, and the ConfigMaps and Secrets that they name.

The manifests are checked as ``lint`` does: what an API server would refuse or drop ends the command.
"""

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from driver_builder.api import driver_container
from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.spec_reader import Path as FieldPath
from driver_builder.base.check_result import Status
from driver_builder.base.errors import ConfigurationError
from driver_builder.checks.lint import LintContext, found, key_of, lint, specs
from driver_builder.checks.lint_files import Document, FileResult, read_documents
from driver_builder.cli import output
from driver_builder.model.driver_key import DriverKey, driver_key
from driver_builder.registry.given_objects import KINDS, GivenObjects, object_of_files
from kube_api.client import Object
from kube_api.resources import CONFIG_MAPS, DRIVER_CONTAINERS, SECRETS, Resource

_DATA = ("data", "binaryData", "stringData")


@dataclass(frozen=True, slots=True)
class Given:
    """What the files have. A driver comes after those that it depends on."""

    drivers: tuple[DriverContainer, ...]
    objects: GivenObjects


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that name files."""
    parser.add_argument(
        "-f", "--file", action="append", required=True, metavar="FILE", dest="files",
        help="manifest of DriverContainers, ConfigMaps and Secrets, directory of manifests, or - for standard input;"
        " may be repeated",
    )  # fmt: skip
    for flag, kind, what in (
        ("--config-map", CONFIG_MAPS.kind, "such as the source"),
        ("--secret", SECRETS.kind, "such as signing keys, or the registry's password"),
    ):
        parser.add_argument(
            flag, action="append", default=[], metavar="NAME=PATH",
            help=f"{kind} made of a file, or of the files in a directory, as by kubectl create --from-file, {what};"
            " may be repeated",
        )  # fmt: skip


def read(flags: argparse.Namespace, namespace: str) -> Given:
    """Read all files; ``namespace`` is that of objects that name none.

    Raises:
        ConfigurationError: a file cannot be read, a DriverContainer is wrong, or there is none.
    """
    documents = list(read_documents(flags.files))
    placed = [(document, _placed(value, namespace, flags), path) for document, value, path in found(documents)]
    _check([item for item in documents if isinstance(item, FileResult)], placed)
    containers = [value for _, value, _ in placed]
    if not containers:
        raise ConfigurationError(f"no {DRIVER_CONTAINERS.kind} in {', '.join(flags.files)}")
    keys = [key_of(value) for value in containers]
    if repeated := sorted({key for key in keys if keys.count(key) > 1}):
        raise ConfigurationError(f"{DRIVER_CONTAINERS.kind} {', '.join(repeated)} is in the files more than once")
    named = [_placed(value, namespace, flags) for kind in KINDS for _, value, _ in found(documents, kind)]
    made = [
        *(_made(CONFIG_MAPS, words, namespace) for words in flags.config_map),
        *(_made(SECRETS, words, namespace) for words in flags.secret),
    ]
    parsed = {driver.key: driver for driver in map(driver_container.parse, containers)}
    return Given(drivers=tuple(_in_order(parsed)), objects=GivenObjects((*named, *made)))


def _check(unreadable: Iterable[FileResult], placed: Sequence[tuple[Document, Object, FieldPath]]) -> None:
    """Refuse manifests with errors, all at once."""
    fleet = LintContext(drivers=specs(value for _, value, _ in placed))
    wrong = [*unreadable]
    for document, value, path in placed:
        wrong += (result for result in lint(document, value, path, fleet) if result.status is Status.FAILED)
    if wrong:
        rows = [(result.place, result.driver or "-", result.sentence) for result in wrong]
        raise ConfigurationError(f"nothing is built\n{output.table(('WHERE', 'DRIVER', 'WHAT'), rows)}")


def _placed(value: Mapping[str, Any], namespace: str, flags: argparse.Namespace) -> Object:
    """Give an object its namespace, and what only an API server would have given it."""
    written = value.get("metadata")
    metadata = dict(written) if isinstance(written, Mapping) else {}
    own = metadata.get("namespace") or namespace
    if flags.namespace and own not in flags.namespace:
        raise ConfigurationError(
            f"{value['kind']} {metadata.get('name')} is of namespace {own}, not {', '.join(flags.namespace)}:"
            " remove --namespace, or the namespace in the file"
        )
    if value["kind"] in KINDS and not metadata.get("name"):
        raise ConfigurationError(f"a {value['kind']} in the files has no metadata.name")
    place = f"{value['kind']} {own}/{metadata.get('name')}"
    annotations = _texts(metadata.get("annotations"), f"{place}: metadata.annotations")
    kept = {key: metadata[key] for key in ("name", "uid") if metadata.get(key)}
    data = {key: _texts(value[key], f"{place}: {key}") for key in _DATA if value["kind"] in KINDS and key in value}
    return {**value, **data, "metadata": {"uid": "", **kept, "namespace": own, "annotations": annotations}}


def _texts(value: object, place: str) -> dict[str, str]:
    """Return a mapping of texts, as an API server demands it."""
    mapping = {} if value is None else value
    if not isinstance(mapping, Mapping):
        raise ConfigurationError(f"{place} is not a mapping of texts")
    for key, text in mapping.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise ConfigurationError(f"{place}: {key} has a value that is not a text: put it in quotes")
    return dict(mapping)


def _made(resource: Resource, words: str, namespace: str) -> Object:
    name, equals, path = words.partition("=")
    owner, slash, own = name.rpartition("/")
    if not equals or not path or not own:
        flag = "--secret" if resource is SECRETS else "--config-map"
        raise ConfigurationError(f"{flag} {words!r}: write NAME=PATH or NAMESPACE/NAME=PATH; a manifest goes with -f")
    return object_of_files(resource, owner if slash else namespace, own, Path(path))


def _in_order(known: Mapping[DriverKey, DriverContainer]) -> Iterator[DriverContainer]:
    needs = {
        key: [driver_key(driver.namespace, name) for name in driver.spec.depends_on]
        for key, driver in sorted(known.items())
        if isinstance(driver.spec, DriverSpec)
    }
    try:
        order = list(TopologicalSorter(needs).static_order())
    except CycleError:
        # Each of them says so in its own result.
        order = sorted(known)
    yield from (known[key] for key in dict.fromkeys((*order, *sorted(known))) if key in known)
