"""The configuration file: the keys it may have, and how their values are read from YAML. Text in, values out.

The file is Node Feature Discovery's ``nfd-worker.conf``, accepted as it is; the keys of ``nfd-master.conf`` may stand
in the same file, since here each worker does for its own node what the master does for all. A key that has no effect
is named once. Any other key is an error, because a misspelt key that is ignored is a label that silently never appears.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

import yaml

from feature_rules.yaml_nodes import NodeReader, compose, excess, is_null, joined
from nfd_worker.config.options import (
    NO_FEATURES,
    NO_KLOG,
    NO_OWNER,
    Values,
    nearest,
    parse_grace,
    parse_interval,
    parse_pattern,
)
from nfd_worker.errors import ConfigurationError
from nfd_worker.sources import SOURCES
from nfd_worker.sources.settings import MIG_STRATEGIES

_BOOL = "tag:yaml.org,2002:bool"


class _Reader(NodeReader):
    """Reads values from YAML's nodes, because only they know their line; the first mistake ends it."""

    def report(
        self, node: yaml.Node, field: str, message: str, *, word: str = "", known: Iterable[str] = ()
    ) -> NoReturn:
        place = f"{self.file}:{node.start_mark.line + 1}: {field or 'the file'}"
        raise ConfigurationError(f"{place} {message}{nearest(word, known)}")


Read = Callable[[_Reader, yaml.Node, str], Any]
"""Reads the value at a node; the text is its key, for messages."""


def _text(reader: _Reader, node: yaml.Node, key: str) -> str:
    if is_null(node):
        reader.report(node, key, "must be a string")
    return reader.text(node, key)


def _boolean(reader: _Reader, node: yaml.Node, key: str) -> bool:
    if node.tag != _BOOL:
        reader.report(node, key, "must be true or false")
    return _text(reader, node, key) == "true"


def _texts(reader: _Reader, node: yaml.Node, key: str) -> tuple[str, ...]:
    return tuple(_text(reader, item, path) for path, item in reader.items(node, key))


def _text_map(reader: _Reader, node: yaml.Node, key: str) -> dict[str, str]:
    return reader.text_map(node, key)


def _instances(reader: _Reader, node: yaml.Node, key: str) -> tuple[dict[str, str], ...]:
    instances = []
    for path, item in reader.items(node, key):
        fields = reader.fields(item, path, ("name", "attributes"))
        name = {"name": _text(reader, fields["name"], joined(path, "name"))} if "name" in fields else {}
        instances.append({**reader.text_map(fields.get("attributes"), joined(path, "attributes")), **name})
    return tuple(instances)


def _parsed(parse: Callable[[str], Any]) -> Read:
    def read(reader: _Reader, node: yaml.Node, key: str) -> Any:
        try:
            return parse(_text(reader, node, key))
        except ValueError as error:
            reader.report(node, key, str(error))

    return read


def _parse_mig_strategy(text: str) -> str:
    if text not in MIG_STRATEGIES:
        raise ValueError(f"{text!r} is not one of {', '.join(MIG_STRATEGIES)}")
    return text


_RULES = "sources.custom"

FILE_KEYS: Mapping[str, tuple[str, Read]] = {
    "core.labelWhiteList": ("source_label_whitelist", _parsed(parse_pattern)),
    "core.noPublish": ("no_publish", _boolean),
    "core.featureSources": ("feature_sources", _texts),
    "core.labelSources": ("label_sources", _texts),
    "core.sources": ("core_sources", _texts),
    "core.upstreamHardwareLabels": ("upstream_hardware_labels", _boolean),
    "core.sleepInterval": ("sleep_interval", _parsed(parse_interval)),
    "core.removalGrace": ("removal_grace", _parsed(parse_grace)),
    "sources.cpu.cpuid.attributeBlacklist": ("cpu.cpuid_blacklist", _texts),
    "sources.cpu.cpuid.attributeWhitelist": ("cpu.cpuid_whitelist", _texts),
    "sources.fake.labels": ("fake.labels", _text_map),
    "sources.fake.flagFeatures": ("fake.flag_features", _texts),
    "sources.fake.attributeFeatures": ("fake.attribute_features", _text_map),
    "sources.fake.instanceFeatures": ("fake.instance_features", _instances),
    "sources.gpu.migStrategy": ("gpu.mig_strategy", _parsed(_parse_mig_strategy)),
    "sources.kernel.kconfigFile": ("kernel.kconfig_file", _text),
    "sources.kernel.configOpts": ("kernel.config_opts", _texts),
    "sources.pci.deviceClassWhitelist": ("pci.device_class_whitelist", _texts),
    "sources.pci.deviceLabelFields": ("pci.device_label_fields", _texts),
    "sources.usb.deviceClassWhitelist": ("usb.device_class_whitelist", _texts),
    "sources.usb.deviceLabelFields": ("usb.device_label_fields", _texts),
    "denyLabelNs": ("deny_label_ns", _texts),
    "extraLabelNs": ("extra_label_ns", _texts),
    "labelWhiteList": ("label_whitelist", _parsed(parse_pattern)),
    "enableTaints": ("enable_taints", _boolean),
    "resyncPeriod": ("resync_seconds", _parsed(parse_interval)),
    "noPublish": ("master_no_publish", _boolean),
    "restrictions.disableLabels": ("disable_labels", _boolean),
    "restrictions.disableAnnotations": ("disable_annotations", _boolean),
    "restrictions.disableExtendedResources": ("disable_extended_resources", _boolean),
}
"""Key in the file -> setting, and what reads its value. ``core.sources`` is an old name of ``core.labelSources``."""

_ONE_NODE = "each worker writes to its own Node alone"
_NO_OBJECTS = "no NodeFeature objects are read"

IGNORED_KEYS: Mapping[str, str] = {
    "core.klog": NO_KLOG,
    "core.noOwnerRefs": NO_OWNER,
    "core.ownerRefs": NO_OWNER,
    "core.noPublishFeatures": NO_FEATURES,
    "sources.local.hooksEnabled": "hooks are not run, as in upstream since 0.17; write feature files",
    "autoDefaultNs": "names without a namespace always get one, as in upstream since 0.17",
    "informerPageSize": _NO_OBJECTS,
    "klog": NO_KLOG,
    "leaderElection": _ONE_NODE,
    "nfdApiParallelism": _ONE_NODE,
    "resourceLabels": "upstream removed it; write extendedResources in a NodeFeatureRule",
    "restrictions.allowOverwrite": "a label that another client set on the Node is overwritten when a source or"
    " rule sets the same key",
    "restrictions.denyNodeFeatureLabels": _NO_OBJECTS,
    "restrictions.disableTaints": "taints are off unless enableTaints is true",
    "restrictions.nodeFeatureNamespaceSelector": _NO_OBJECTS,
}
"""Keys of Node Feature Discovery that have no effect here, and why. Everything below them is accepted, too."""

_KEYS = (*FILE_KEYS, *IGNORED_KEYS, _RULES)
_BY_LOWER_CASE = {key.lower(): key for key in _KEYS}


def _sections(keys: Iterable[str]) -> frozenset[str]:
    parts = [key.lower().split(".") for key in keys]
    return frozenset(".".join(names[:count]) for names in parts for count in range(1, len(names)))


_SECTIONS = _sections([*_KEYS, *(f"sources.{name}.any" for name in SOURCES)])
"""What holds keys, in lower case; some sources have a section without any."""


def parse_file(text: str, path: str) -> Values:
    """Read the text of a configuration file; ``path`` is for messages.

    Keys are compared without regard to case, as upstream does. ``notes`` names what has no effect; ``custom_rules`` are
    the good rules of ``sources.custom``, and ``rule_problems`` names the faults of the others, without an error.

    Raises:
        ConfigurationError: for text that is not YAML, an unknown key, or a value of the wrong type.
    """
    composed = compose(text)
    if composed.error:
        place = f"{path}:{composed.line}:" if composed.line else path
        raise ConfigurationError(f"{place} {composed.error}")
    if len(composed.documents) > 1:
        raise ConfigurationError(f"{path} must be one document: remove the lines '---'")
    values: Values = {"notes": ()}
    for document in composed.documents:
        reader = _Reader(path, convert=True)
        reason = excess(document)
        if reason is not None:
            reader.report(document, "", reason)
        _read_section(reader, document, "", values)
    return _folded(values)


def _read_section(reader: _Reader, node: yaml.Node, section: str, values: Values) -> None:
    if is_null(node):
        return
    for name, value in reader.entries(node, section).items():
        key = joined(section, name)
        known = _BY_LOWER_CASE.get(key.lower())
        if known is not None:
            if not is_null(value):
                values |= _read_value(reader, value, known, values["notes"])
        elif key.lower() in _SECTIONS:
            _read_section(reader, value, key, values)
        else:
            reader.report(_key_node(node, name), key, "is not a setting", word=key, known=_KEYS)


def _read_value(reader: _Reader, node: yaml.Node, key: str, notes: tuple[str, ...]) -> Values:
    if key in IGNORED_KEYS:
        return {"notes": (*notes, f"{reader.file}: {key} has no effect: {IGNORED_KEYS[key]}")}
    if key == _RULES:
        return _read_rules(reader, node)
    setting, read = FILE_KEYS[key]
    return {setting: read(reader, node, key)}


def _read_rules(reader: _Reader, node: yaml.Node) -> Values:
    from feature_rules.load import load_rule_list  # noqa: PLC0415 - most files have no rules

    rules, problems = load_rule_list(node, reader.file)
    return {"custom_rules": rules, "rule_problems": problems}


def _folded(values: Values) -> Values:
    """Make one setting of two keys: the old name of the label sources wins; either of both noPublish is enough."""
    if "core_sources" in values:
        values["label_sources"] = values.pop("core_sources")
    if "master_no_publish" in values:
        values["no_publish"] = values.pop("master_no_publish") or values.get("no_publish", False)
    return values


def _key_node(node: yaml.Node, name: str) -> yaml.Node:
    """Find the key, for its line; a merged one stands elsewhere."""
    keys = [key for key, _ in node.value if key.value == name]
    return keys[0] if keys else node
