"""Files of YAML to plain values, within bounds. The values are still to be checked."""

from collections.abc import Hashable
from typing import Any

import yaml

from device_agent.errors import ConfigurationError
from device_resources.kinds import Path, Problem, shown
from feature_rules.yaml_nodes import compose, excess


def plain_document(text: str, path: str) -> object:
    """Give the value of the one document of a text; None for an empty one. ``path`` is for messages.

    Raises:
        ConfigurationError: it is not YAML, more than one document, or too much of it.
    """
    composed = compose(text)
    if composed.error:
        place = f"{path}:{composed.line}:" if composed.line else path
        raise ConfigurationError(f"{place} {composed.error}")
    if len(composed.documents) > 1:
        raise ConfigurationError(f"{path} must be one document: remove the lines '---'")
    for document in composed.documents:
        if reason := excess(document):
            raise ConfigurationError(f"{path} {reason}")
        return _plain(document, path, ())
    return None


def _plain(node: yaml.Node, file: str, path: Path) -> Any:
    """Give the value of a node; a key that is given twice is an error, as YAML's own rules say."""
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, file, (*path, index)) for index, item in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        return _scalar(node, file)
    found: dict[Hashable, Any] = {}
    for key_node, value in node.value:
        key = _scalar(key_node, file) if isinstance(key_node, yaml.ScalarNode) else "a key that is not a text"
        if key in found:
            problem = Problem(path=(*path, key_text(key)[:100]), message="is given twice")
            raise ConfigurationError(f"{file}:{key_node.start_mark.line + 1}: {problem}")
        found[key] = _plain(value, file, (*path, key_text(key)[:100]))
    return found


def key_text(key: object) -> str:
    """Write a key. YAML makes numbers of some, and Python writes none with thousands of digits."""
    try:
        return str(key)
    except ValueError:
        return "a number that is too long"


def _scalar(node: yaml.Node, file: str) -> Any:
    why: Exception | None = None
    try:
        value = yaml.constructor.SafeConstructor().construct_object(node)
    # With a tag (!!bool x) PyYAML's own code ends with other errors than its own.
    except (yaml.YAMLError, ValueError, OverflowError, LookupError, AttributeError) as error:
        value, why = [], error
    if not isinstance(value, Hashable):
        line = node.start_mark.line + 1
        raise ConfigurationError(f"{file}:{line}: {shown(str(node.value))} is not a value: put it in quotes") from why
    return value
