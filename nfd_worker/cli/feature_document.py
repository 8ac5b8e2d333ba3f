"""Features from a document, for trying rules without a node: ``validate`` and ``test`` of the command line.

Two shapes are read. Ours is plain::

    flags:      {cpu.cpuid: [ADX, AVX2]}
    attributes: {kernel.version: {full: 6.1.0-31-amd64}}
    instances:  {pci.device: [{class: "0300", vendor: "10de"}]}

That of a NodeFeature object (``nfd.k8s-sigs.io/v1alpha1``) has it below ``spec.features`` and wraps it in ``elements``
and ``attributes``.
"""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from feature_rules.features import Attributes, Features, Flags, Instances
from nfd_worker.errors import ConfigurationError

Value = TypeVar("Value")

_KINDS = ("flags", "attributes", "instances")


def parse_features(document: object, file: str) -> Features:
    """Read a document of JSON or YAML; ``file`` is for messages.

    Raises:
        ConfigurationError: names the place in the document and what should be there.
    """
    reader = _Reader(file)
    features = reader.mapping(document, "the document")
    if "spec" in features:
        spec = reader.mapping(features["spec"], "spec")
        features = reader.mapping(spec.get("features") or {}, "spec.features")
    for kind in features:
        if kind not in _KINDS:
            reader.fail(kind, f"is not one of {', '.join(_KINDS)}")
    return Features(
        flags=reader.each(features, "flags", reader.flags),
        attributes=reader.each(features, "attributes", reader.attributes),
        instances=reader.each(features, "instances", reader.instances),
    )


class _Reader:
    """Checks values of one file; ``place`` is where they stand in it."""

    def __init__(self, file: str) -> None:
        self._file = file

    def fail(self, place: str, problem: str) -> NoReturn:
        raise ConfigurationError(f"{self._file}: {place} {problem}")

    def each(self, features: Mapping[str, Any], kind: str, read: Callable[[Any, str], Value]) -> dict[str, Value]:
        named = self.mapping(features.get(kind) or {}, kind)
        return {name: read(_unwrapped(value, "elements"), f"{kind}.{name}") for name, value in named.items()}

    def mapping(self, value: object, place: str) -> Mapping[str, Any]:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            self.fail(place, "must be a mapping with strings as keys")
        return value

    def flags(self, value: object, place: str) -> Flags:
        names = list(value) if isinstance(value, Mapping | list) else None
        if names is None or not all(isinstance(name, str) for name in names):
            self.fail(place, "must be a list of strings")
        return frozenset(names)

    def attributes(self, value: object, place: str) -> Attributes:
        attributes = self.mapping(value, place)
        for name, text in attributes.items():
            if not isinstance(text, str):
                self.fail(f"{place}.{name}", f"must be a string; put {text!r:.40} in quotes")
        return dict(attributes)

    def instances(self, value: object, place: str) -> Instances:
        if not isinstance(value, list):
            self.fail(place, "must be a list of mappings")
        return tuple(
            self.attributes(_unwrapped(one, "attributes"), f"{place}[{index}]") for index, one in enumerate(value)
        )


def _unwrapped(value: Any, wrapper: str) -> Any:
    """Take the value out of the wrapper it has in a NodeFeature object; an attribute of that name is a text."""
    if isinstance(value, Mapping) and isinstance(value.get(wrapper), Mapping | list):
        return value[wrapper]
    return value
