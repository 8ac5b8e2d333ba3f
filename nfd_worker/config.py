"""Settings of the worker: built-in defaults < configuration file < environment < flags.

The file is Node Feature Discovery's ``nfd-worker.conf``, accepted as it is. Keys of sources that are not built yet do
nothing and are named once; any other unknown key is an error, because a misspelt key that is ignored is a label that
silently never appears.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import yaml

from nfd_worker.duration import parse_duration
from nfd_worker.errors import ConfigurationError
from nfd_worker.sources import NOT_YET_BUILT, SOURCES
from nfd_worker.sources.pci import FIELDS
from nfd_worker.sources.settings import CpuSettings, KernelSettings, PciSettings, SourceSettings, SystemSettings

DEFAULT_FILE = "/etc/kubernetes/node-feature-discovery/nfd-worker.conf"

_SHORTEST_SLEEP = 1.0


class Settings(NamedTuple):
    """Everything that can be set.

    ``config_file``: where the file part came from; it need not exist when it is the default.
    ``root``: what stands for the node's ``/``.
    ``node_name``: the Node object to label.
    ``kubeconfig``: None for the pod's service account or the user's default.
    ``port``: of ``/healthz`` and ``/metrics``; 0 for none.
    ``log_level``: a name of :mod:`logging`, lower case.
    ``oneshot``: one cycle and no more. ``no_publish``: labels are found and not sent.
    ``sleep_interval``: seconds from one cycle to the next; infinite for only on events.
    ``feature_sources``: which are read. ``label_sources``: which of these also make labels.
    ``label_whitelist``: searched for in the name of each label.
    ``sources``: settings of the sources.
    ``notes``: what was accepted without an effect, for the log.
    """

    config_file: str = DEFAULT_FILE
    root: str = "/"
    node_name: str = ""
    kubeconfig: str | None = None
    port: int = 8080
    log_level: str = "info"
    oneshot: bool = False
    no_publish: bool = False
    sleep_interval: float = 60.0
    feature_sources: tuple[str, ...] = tuple(SOURCES)
    label_sources: tuple[str, ...] = tuple(SOURCES)
    label_whitelist: re.Pattern[str] = re.compile("")
    sources: SourceSettings = SourceSettings()
    notes: tuple[str, ...] = ()


# --- values -----------------------------------------------------------------------------------------------------------

Values = dict[str, Any]
"""Setting -> value; the values of one layer, already of the right type."""


def _parse_bool(text: str) -> bool:
    # The words of Go's strconv.ParseBool, so that flags of a migrated DaemonSet keep working.
    if text.lower() in ("1", "t", "true"):
        return True
    if text.lower() in ("0", "f", "false"):
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(entry for entry in (part.strip() for part in text.split(",")) if entry)


def _parse_sleep(text: str) -> float:
    """Read a sleep interval: nothing or less means for ever, and no interval is shorter than a second."""
    seconds = parse_duration(text)
    return max(seconds, _SHORTEST_SLEEP) if seconds > 0 else float("inf")


def _parse_pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from error


def _parse_port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 16):
        raise ValueError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def _parse_log_level(text: str) -> str:
    if text.lower() not in ("debug", "info", "warning", "error"):
        raise ValueError(f"{text!r} is none of debug, info, warning, error")
    return text.lower()


class Option(NamedTuple):
    """One flag, and the environment variable that stands in for it."""

    flag: str
    environment: str
    parse: Callable[[str], Any]

    @property
    def setting(self) -> str:
        """The field of Settings."""
        return "config_file" if self.flag == "config" else self.flag.replace("-", "_")


OPTIONS = (
    Option("config", "NFD_WORKER_CONFIG", str),
    Option("root", "HOST_ROOT", str),
    Option("node-name", "NODE_NAME", str),
    Option("kubeconfig", "NFD_WORKER_KUBECONFIG", str),
    Option("port", "NFD_WORKER_PORT", _parse_port),
    Option("log-level", "NFD_WORKER_LOG_LEVEL", _parse_log_level),
    Option("oneshot", "NFD_WORKER_ONESHOT", _parse_bool),
    Option("no-publish", "NFD_WORKER_NO_PUBLISH", _parse_bool),
    Option("sleep-interval", "NFD_WORKER_SLEEP_INTERVAL", _parse_sleep),
    Option("feature-sources", "NFD_WORKER_FEATURE_SOURCES", _parse_list),
    Option("label-sources", "NFD_WORKER_LABEL_SOURCES", _parse_list),
    Option("label-whitelist", "NFD_WORKER_LABEL_WHITELIST", _parse_pattern),
)


def load_settings(flags: Mapping[str, str | None], environment: Mapping[str, str]) -> Settings:
    """Put all layers together; ``flags`` are raw texts by flag name, None where not given.

    Raises:
        ConfigurationError: names the place, the setting and what is wrong.
    """
    values = _layer(OPTIONS, "environment variable {0.environment}", lambda option: environment.get(option.environment))
    values |= _layer(OPTIONS, "flag --{0.flag}", lambda option: flags.get(option.flag))
    file = values.setdefault("config_file", DEFAULT_FILE)
    return build_settings({**_read_file(file, must_exist=file != DEFAULT_FILE), **values})


def _layer(options: Iterable[Option], place: str, text_of: Callable[[Option], str | None]) -> Values:
    values: Values = {}
    for option in options:
        text = text_of(option)
        if text is None:
            continue
        try:
            values[option.setting] = option.parse(text)
        except ValueError as error:
            raise ConfigurationError(f"{place.format(option)}: {error}") from error
    return values


def build_settings(values: Values) -> Settings:
    """Make Settings of the merged values, whose file keys are those of :data:`FILE_KEYS`.

    Raises:
        ConfigurationError: for a source that does not exist.
    """
    notes = list(values.pop("notes", ()))
    for setting in ("feature_sources", "label_sources"):
        if setting in values:
            values[setting], unbuilt = choose_sources(values[setting])
            notes += [f"{setting}: source {name} is not built yet and does nothing" for name in unbuilt]
    unknown_fields = set(values.get("pci.device_label_fields", ())).difference(FIELDS)
    notes += [f"sources.pci.deviceLabelFields: {field} is none of {', '.join(FIELDS)}" for field in unknown_fields]
    sources = SourceSettings(
        cpu=CpuSettings(**_of_source("cpu", values)),
        kernel=KernelSettings(**_of_source("kernel", values)),
        pci=PciSettings(**_of_source("pci", values)),
        system=SystemSettings(node_name=values.get("node_name", "")),
    )
    plain = {name: value for name, value in values.items() if "." not in name}
    return Settings(**plain, sources=sources, notes=tuple(sorted(notes)))


def _of_source(source: str, values: Values) -> Values:
    return {name.partition(".")[2]: value for name, value in values.items() if name.startswith(f"{source}.")}


def choose_sources(entries: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read a list of sources from left to right: a name adds, ``-name`` removes, ``all`` stands for all.

    Returns:
        the chosen sources in the order in which they run, and the named ones that are not built yet.

    Raises:
        ConfigurationError: for a source that Node Feature Discovery does not have either.
    """
    chosen: set[str] = set()
    unbuilt: set[str] = set()
    for entry in entries:
        name = entry.removeprefix("-")
        if name not in SOURCES and name not in NOT_YET_BUILT and name != "all":
            hint = _nearest(name, [*SOURCES, *NOT_YET_BUILT, "all"])
            raise ConfigurationError(f"there is no source {name!r}{hint}")
        named = set(SOURCES) if name == "all" else {name}
        unbuilt |= named & NOT_YET_BUILT
        chosen = chosen - named if entry.startswith("-") else chosen | named
    return tuple(name for name in SOURCES if name in chosen), tuple(sorted(unbuilt))


# --- the file ---------------------------------------------------------------------------------------------------------


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError("must be true or false")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("must be a text; put it in quotes")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise TypeError("must be a list of texts; put numbers in quotes")
    return tuple(value)


def _sleep(value: object) -> float:
    return _parse_sleep(str(value) if value == 0 else _text(value))


def _pattern(value: object) -> re.Pattern[str]:
    return _parse_pattern(_text(value))


FILE_KEYS: Mapping[str, tuple[str, Callable[[object], Any]]] = {
    "core.labelWhiteList": ("label_whitelist", _pattern),
    "core.noPublish": ("no_publish", _boolean),
    "core.featureSources": ("feature_sources", _texts),
    "core.labelSources": ("label_sources", _texts),
    "core.sources": ("core_sources", _texts),
    "core.sleepInterval": ("sleep_interval", _sleep),
    "sources.cpu.cpuid.attributeBlacklist": ("cpu.cpuid_blacklist", _texts),
    "sources.cpu.cpuid.attributeWhitelist": ("cpu.cpuid_whitelist", _texts),
    "sources.kernel.kconfigFile": ("kernel.kconfig_file", _text),
    "sources.kernel.configOpts": ("kernel.config_opts", _texts),
    "sources.pci.deviceClassWhitelist": ("pci.device_class_whitelist", _texts),
    "sources.pci.deviceLabelFields": ("pci.device_label_fields", _texts),
}
"""Key in the file -> setting, and what reads its value. ``core.sources`` is an old name of ``core.labelSources``."""

IGNORED_KEYS: Mapping[str, str] = {
    "core.klog": "use --log-level",
    "core.noOwnerRefs": "labels are written to the Node itself: there is no object to own",
    "core.ownerRefs": "labels are written to the Node itself: there is no object to own",
    "core.noPublishFeatures": "only labels leave the node, never features",
    **{f"sources.{name}": "this source is not built yet" for name in sorted(NOT_YET_BUILT)},
}
"""Keys of Node Feature Discovery that have no effect here, and why. Everything below them is accepted, too."""

_BY_LOWER_CASE = {key.lower(): key for key in (*FILE_KEYS, *IGNORED_KEYS)}
_SECTIONS = frozenset({"core", "sources", "sources.cpu", "sources.cpu.cpuid", "sources.kernel", "sources.pci"})
"""What holds keys, in lower case. ``sources.system`` has none."""


def _read_file(path: str, *, must_exist: bool) -> Values:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib would cost the resident process 1 MiB
            text = file.read()
    except FileNotFoundError as error:
        if must_exist:
            raise ConfigurationError(f"there is no configuration file {path}") from error
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read the configuration file {path}: {error}") from error
    return parse_file(text, path)


def parse_file(text: str, path: str) -> Values:
    """Read the text of a configuration file; ``path`` is for messages.

    Keys are compared without regard to case, as upstream does.

    Raises:
        ConfigurationError: for text that is not YAML, an unknown key, or a value of the wrong type.
    """
    try:
        loader = yaml.SafeLoader(text)
        document = loader.get_single_node()
        values = _Reader(loader, path).read(document)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path} is not YAML: {error}") from error
    if "core_sources" in values:
        values["label_sources"] = values.pop("core_sources")
    return values


class _Reader:
    """Walks over the YAML nodes of one file, because only they know their line."""

    def __init__(self, loader: yaml.SafeLoader, path: str) -> None:
        self._loader = loader
        self._path = path
        self._values: Values = {}
        self._notes: list[str] = []

    def read(self, document: yaml.Node | None) -> Values:
        if document is not None:
            self._section(document, "")
        return {**self._values, "notes": tuple(self._notes)}

    def _section(self, node: yaml.Node, section: str) -> None:
        if _is_null(node):
            return
        if not isinstance(node, yaml.MappingNode):
            self._fail(node, section or "the file", "must be a mapping")
        for key_node, value_node in node.value:
            self._entry(key_node, value_node, section)

    def _entry(self, key_node: yaml.Node, value_node: yaml.Node, section: str) -> None:
        name = f"{section}.{key_node.value}" if section else str(key_node.value)
        key = _BY_LOWER_CASE.get(name.lower())
        if key is not None and key in IGNORED_KEYS:
            self._notes.append(f"{self._path}: {key} has no effect: {IGNORED_KEYS[key]}")
        elif key is not None and not _is_null(value_node):
            self._value(key, value_node)
        elif name.lower() in _SECTIONS:
            self._section(value_node, name)
        elif key is None:
            self._fail(key_node, name, f"is not a setting{_nearest(name, _BY_LOWER_CASE.values())}")

    def _value(self, key: str, node: yaml.Node) -> None:
        setting, read = FILE_KEYS[key]
        try:
            self._values[setting] = read(self._loader.construct_object(node, deep=True))
        except (TypeError, ValueError) as error:
            self._fail(node, key, str(error))

    def _fail(self, node: yaml.Node, key: str, problem: str) -> NoReturn:
        raise ConfigurationError(f"{self._path}:{node.start_mark.line + 1}: {key} {problem}")


def _is_null(node: yaml.Node) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")


def _nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""
