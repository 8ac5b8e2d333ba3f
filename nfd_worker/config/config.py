"""Settings of the worker: built-in defaults < configuration file < inline options < environment < flags.

The layers come from :mod:`nfd_worker.config.file_text` and :mod:`nfd_worker.config.options`; here they become one
value.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from feature_rules.keys.namespaces import NamespaceOptions
from feature_rules.model import Rule, RuleProblem
from nfd_worker.config.file_text import parse_text, read_file
from nfd_worker.config.options import (
    DEFAULT_FILE,
    DEFAULT_RULES_DIR,
    OPTIONS,
    Option,
    Values,
    nearest,
    normalise_arguments,
)
from nfd_worker.errors import ConfigurationError
from nfd_worker.sources import SOURCES, pci, usb
from nfd_worker.sources.settings import SourceSettings, SystemSettings, class_prefix

__all__ = [
    "DEFAULT_FILE", "OPTIONS", "Option", "Settings", "build_settings", "choose_sources", "load_settings",
    "normalise_arguments",
]  # fmt: skip

FEATURE_SOURCES = tuple(SOURCES)
LABEL_SOURCES = (*SOURCES, "custom")
"""What makes labels; ``custom`` are the rules in the worker's own configuration, and has no features."""


def _defaults(known: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in known if name not in SOURCES or SOURCES[name].is_default)


class Settings(NamedTuple):
    """Everything that can be set.

    ``config_file``: where the file part came from; it need not exist when it is the default.
    ``options``: more of the same, inline.
    ``root``: what stands for the node's ``/``.
    ``node_name``: the Node object to label.
    ``kubeconfig``: None for the pod's service account or the user's default.
    ``port``: of ``/healthz`` and ``/metrics``; 0 for none.
    ``log_level``: a name of :mod:`logging`, lower case. ``log_format``: text or json.
    ``oneshot``: one cycle and no more. ``no_publish``: labels are found and not sent.
    ``take_over``: whether to remove what an upstream Node Feature Discovery left on the Node.
    ``sleep_interval``: seconds from one cycle to the next; infinite for only on events.
    ``resync_seconds``: after how long it is checked whether the Node still carries everything; infinite for never, None
    for five minutes, or five intervals where these are shorter.
    ``removal_grace``: for how many seconds what is gone is held, since it may come back.
    ``feature_sources``: which are read. ``label_sources``: which of these also make labels, and ``custom``.
    ``namespaces``: which labels, annotations, resources and taints are allowed.
    ``custom_rules``: the good rules of the configuration; ``rule_problems``: what is wrong with the others.
    ``rules_dir``: where NodeFeatureRules are as files; it need not exist.
    ``sources``: settings of the sources.
    ``notes``: what was accepted without an effect, for the log.
    """

    config_file: str = DEFAULT_FILE
    options: str = ""
    root: str = "/"
    node_name: str = ""
    kubeconfig: str | None = None
    port: int = 8080
    log_level: str = "info"
    log_format: str = "text"
    oneshot: bool = False
    no_publish: bool = False
    take_over: bool = False
    sleep_interval: float = 60.0
    resync_seconds: float | None = None
    removal_grace: float = 60.0
    feature_sources: tuple[str, ...] = _defaults(FEATURE_SOURCES)
    label_sources: tuple[str, ...] = _defaults(LABEL_SOURCES)
    namespaces: NamespaceOptions = NamespaceOptions()
    custom_rules: tuple[Rule, ...] = ()
    rule_problems: tuple[RuleProblem, ...] = ()
    rules_dir: str = DEFAULT_RULES_DIR
    sources: SourceSettings = SourceSettings()
    notes: tuple[str, ...] = ()


def load_settings(flags: Mapping[str, str | None], environment: Mapping[str, str]) -> Settings:
    """Put all layers together; ``flags`` are raw texts by flag name, None where not given.

    Raises:
        ConfigurationError: names the place, the setting and what is wrong.
    """
    from_environment = _layer(
        "environment variable {0.environment}", lambda option: environment.get(option.environment)
    )
    from_flags = _layer("flag --{0.flag}", lambda option: flags.get(option.flag))
    explicit = {**from_environment, **from_flags}
    file = explicit.get("config_file", DEFAULT_FILE)
    place = "flag --options" if "options" in from_flags else "environment variable NFD_WORKER_OPTIONS"
    layers = (
        read_file(file, must_exist=file != DEFAULT_FILE),
        parse_text(explicit.get("options", ""), place),
        from_environment,
        from_flags,
    )
    values = {setting: value for layer in layers for setting, value in layer.items()}
    return build_settings({**values, "notes": [note for layer in layers for note in layer.get("notes", ())]})


def _layer(place: str, text_of: Callable[[Option], str | None]) -> Values:
    values: Values = {}
    notes: list[str] = []
    for option in OPTIONS:
        text = text_of(option)
        if text is None:
            continue
        if option.no_effect:
            notes.append(f"{place.format(option)} has no effect: {option.no_effect}")
            continue
        try:
            values[option.setting] = option.parse(text)
        except ValueError as error:
            raise ConfigurationError(f"{place.format(option)}: {error}") from error
    return {**values, "notes": notes}


def build_settings(values: Values) -> Settings:
    """Make Settings of merged values: fields of Settings, of NamespaceOptions, and ``<source>.<setting>``.

    Raises:
        ConfigurationError: for a source that does not exist.
    """
    chosen = {
        setting: choose_sources(values[setting], known)
        for setting, known in (("feature_sources", FEATURE_SOURCES), ("label_sources", LABEL_SOURCES))
        if setting in values
    }
    return Settings(
        **{name: value for name, value in values.items() if name in Settings._fields and name != "notes"} | chosen,
        namespaces=NamespaceOptions(
            **{name: value for name, value in values.items() if name in NamespaceOptions._fields}
        ),
        sources=_source_settings(values),
        notes=tuple(
            sorted({*values.get("notes", ()), *_field_notes(values), *_class_notes(values), *_flag_notes(values)})
        ),
    )


def _source_settings(values: Values) -> SourceSettings:
    def of(source: str) -> Values:
        return {name.partition(".")[2]: value for name, value in values.items() if name.startswith(f"{source}.")}

    plain = SourceSettings()
    return plain._replace(
        cpu=plain.cpu._replace(**of("cpu")),
        fake=plain.fake._replace(**of("fake")),
        gpu=plain.gpu._replace(**of("gpu")),
        kernel=plain.kernel._replace(**of("kernel")),
        pci=plain.pci._replace(**of("pci")),
        system=SystemSettings(node_name=values.get("node_name", "")),
        usb=plain.usb._replace(**of("usb")),
        upstream_hardware_labels=values.get("upstream_hardware_labels", plain.upstream_hardware_labels),
    )


def _field_notes(values: Values) -> list[str]:
    return [
        f"sources.{source}.deviceLabelFields: {field} is not one of {', '.join(known)}"
        for source, known in (("pci", pci.FIELDS), ("usb", usb.FIELDS))
        for field in values.get(f"{source}.device_label_fields", ())
        if field not in known
    ]


def _class_notes(values: Values) -> Iterator[str]:
    """Name what of a whitelist of classes matches nothing, or less than it says."""
    for source, digits in (("pci", pci.CLASS_DIGITS), ("usb", usb.CLASS_DIGITS)):
        for entry in values.get(f"{source}.device_class_whitelist", ()):
            key, prefix = f"sources.{source}.deviceClassWhitelist: {entry!r}", class_prefix(entry, digits)
            if prefix is None:
                yield f"{key} is no device class: write its first hexadecimal digits, such as {'0302'[:digits]}"
            elif len(entry.strip().lower().removeprefix("0x")) > digits:
                yield f"{key} counts as {prefix}: only the first {digits} digits of a class are labelled"


def _flag_notes(values: Values) -> Iterator[str]:
    """Name what of the lists of CPUID flags no CPU has."""
    listed = [(name, values.get(f"cpu.cpuid_{name.lower()}", ())) for name in ("Blacklist", "Whitelist")]
    if not any(flags for _, flags in listed):
        return
    from nfd_worker.cpu.known_flags import flag_of_kernel, known_flags  # noqa: PLC0415 - most nodes have no such list

    for name, flags in listed:
        for flag in flags:
            if flag not in known_flags():
                meant = flag_of_kernel(flag)
                hint = f"; did you mean {meant}?" if meant else nearest(flag, known_flags())
                yield f"sources.cpu.cpuid.attribute{name}: no CPU has the flag {flag!r}{hint}"


def choose_sources(entries: Sequence[str], known: Sequence[str] = FEATURE_SOURCES) -> tuple[str, ...]:
    """Read a list of sources from left to right: a name adds, ``-name`` removes, ``all`` stands for all default ones.

    ``known``: the sources to choose from, in the order in which they run. A label source that has no features is
    passed over among these.

    Raises:
        ConfigurationError: for a source that does not exist.
    """
    chosen: set[str] = set()
    for entry in entries:
        name = entry.removeprefix("-")
        if name not in LABEL_SOURCES and name != "all":
            raise ConfigurationError(f"there is no source {name!r}{nearest(name, [*known, 'all'])}")
        named = set(_defaults(known)) if name == "all" else {name}
        if entry.startswith("-"):
            chosen -= set(known) if name == "all" else named
        else:
            chosen |= named
    return tuple(name for name in known if name in chosen)
