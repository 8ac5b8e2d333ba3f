"""The flags of the worker and the environment variables that stand in for them: names, help, and how a text is read.

All flags of upstream's worker are here, and those of its master that have a meaning on a node, so that the arguments of
a migrated DaemonSet are accepted as they are.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from feature_rules.errors import MatchError
from feature_rules.regexps import check_pattern
from kube_api.log_lines import FORMATS, LEVELS, known_word
from nfd_worker.config.duration import parse_duration

COMMANDS = ("run", "scan", "rules", "labels", "unpublish", "admission-policy")

Flags = Mapping[str, str | None]
"""Flag -> its text; None where it is not given."""

Values = dict[str, Any]
"""Setting -> value, already of the right type; of sources as ``<source>.<setting>``."""

DEFAULT_FILE = "/etc/kubernetes/node-feature-discovery/nfd-worker.conf"
DEFAULT_RULES_DIR = "/etc/kubernetes/node-feature-discovery/rules.d"

_SHORTEST_INTERVAL = 1.0
_LONGEST_GRACE = 3600.0
_FEATURE_GATES = ("AllAlpha", "AllBeta", "DisableAutoPrefix", "NodeFeatureAPI", "NodeFeatureGroupAPI")


class Option(NamedTuple):
    """One flag.

    ``flag``: without dashes. ``metavar``, ``help``: for people. ``is_switch``: without a value it is true.
    ``environment``: the variable that stands in for it; empty for none.
    ``setting``: the field of Settings or NamespaceOptions.
    ``no_effect``: why it is accepted and does nothing; empty when it does something.
    """

    flag: str
    metavar: str
    help: str
    parse: Callable[[str], Any] = str
    environment: str = ""
    setting: str = ""
    is_switch: bool = False
    no_effect: str = ""


# --- values -----------------------------------------------------------------------------------------------------------


def parse_bool(text: str) -> bool:
    """Read what Go's ``strconv.ParseBool`` reads, in any letter case.

    Raises:
        ValueError: for anything else.
    """
    if text.lower() in ("1", "t", "true"):
        return True
    if text.lower() in ("0", "f", "false"):
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def parse_list(text: str) -> tuple[str, ...]:
    """Split at commas; blanks around entries, and empty entries, are dropped."""
    return tuple(entry for entry in (part.strip() for part in text.split(",")) if entry)


def parse_interval(text: str) -> float:
    """Read an interval into seconds: nothing or less means for ever, and none is shorter than a second.

    Raises:
        ValueError: when it is not a duration.
    """
    seconds = parse_duration(text)
    return max(seconds, _SHORTEST_INTERVAL) if seconds > 0 else float("inf")


def parse_grace(text: str) -> float:
    """Read for how long something is held, in seconds.

    Raises:
        ValueError: when it is not a duration, or too long for labels that are not true any more.
    """
    seconds = parse_duration(text)
    if not 0 <= seconds <= _LONGEST_GRACE:
        raise ValueError(f"{text[:40]!r} is not a duration from 0 to 1h")
    return seconds


def parse_pattern(text: str) -> str:
    """Make sure of a regular expression; the empty one is not even compiled.

    Raises:
        ValueError: when the text is not valid.
    """
    try:
        check_pattern(text)
    except MatchError as error:
        raise ValueError(str(error)) from error
    return text


def parse_directory(text: str) -> str:
    """Make a path absolute, since the worker reads everything below a root; the empty one stays, for none."""
    return os.path.abspath(text) if text else ""  # noqa: PTH100 - pathlib would cost the resident process 1 MiB


def _parse_port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len("65535") and int(text) < 1 << 16):
        raise ValueError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def _parse_feature_gates(text: str) -> bool:
    """Read ``Name=true,...`` into whether keys get their prefix; that is the only gate with a meaning here."""
    gates: dict[str, bool] = {}
    for entry in parse_list(text):
        name, _, value = entry.partition("=")
        if name not in _FEATURE_GATES:
            raise ValueError(f"there is no feature gate {name!r}; there are {', '.join(_FEATURE_GATES)}")
        gates[name] = parse_bool(value)
    return not gates.get("DisableAutoPrefix", gates.get("AllAlpha", False))


# --- the table --------------------------------------------------------------------------------------------------------


def _setting(
    flag: str, metavar: str, text: str, parse: Callable[[str], Any] = str, *, setting: str = "", environment: str = ""
) -> Option:
    name = flag.replace("-", "_")
    variable = environment or f"NFD_WORKER_{name.upper()}"
    return Option(flag, metavar, text, parse, variable, setting or name, is_switch=metavar == "BOOL")


NO_OWNER = "labels are written to the Node itself: there is no object to own"
NO_FEATURES = "features never leave the node"
NO_KLOG = "use --log-level; the log goes to standard error"

_IGNORED: Mapping[str, tuple[str, str]] = {
    "owner-refs": ("LIST", NO_OWNER),
    "no-owner-refs": ("BOOL", NO_OWNER),
    "no-publish-features": ("LIST", NO_FEATURES),
    "v": ("LEVEL", NO_KLOG),
    "vmodule": ("LIST", NO_KLOG),
    "logtostderr": ("BOOL", NO_KLOG),
    "alsologtostderr": ("BOOL", NO_KLOG),
    "stderrthreshold": ("LEVEL", NO_KLOG),
    "log_backtrace_at": ("PLACE", NO_KLOG),
    "log_dir": ("DIR", NO_KLOG),
    "log_file": ("FILE", NO_KLOG),
    "log_file_max_size": ("SIZE", NO_KLOG),
    "add_dir_header": ("BOOL", NO_KLOG),
    "one_output": ("BOOL", NO_KLOG),
    "skip_headers": ("BOOL", NO_KLOG),
    "skip_log_headers": ("BOOL", NO_KLOG),
}
"""Flags of upstream's worker that do nothing here, and why."""

OPTIONS = (
    _setting("config", "FILE", "nfd-worker.conf of Node Feature Discovery", setting="config_file"),
    _setting("options", "YAML", "more configuration, in the file's format; it overrides the file"),
    _setting("root", "DIR", "where the node's / is mounted (default: /)", environment="HOST_ROOT"),
    _setting("node-name", "NAME", "name of the Node", environment="NODE_NAME"),
    _setting("kubeconfig", "FILE", "kubeconfig (default: the pod's service account, else your own kubeconfig)"),
    _setting("port", "PORT", "port of /healthz and /metrics; 0 for none (default: 8080)", _parse_port),
    _setting("log-level", "LEVEL", "debug, info, warning or error (default: info)", partial(known_word, known=LEVELS)),
    _setting("log-format", "FORMAT", "text or json (default: text)", partial(known_word, known=FORMATS)),
    _setting("oneshot", "BOOL", "label once and exit", parse_bool),
    _setting("no-publish", "BOOL", "discover labels, but do not publish them", parse_bool),
    _setting("take-over", "BOOL", "remove what an upstream Node Feature Discovery left on the Node", parse_bool),
    _setting("sleep-interval", "DURATION", "interval between discovery cycles, such as 60s (default) or 5m;"
             " 0: only on events", parse_interval),
    _setting("resync-period", "DURATION", "how often to check that the Node still has what was published, and to"
             " restore it (default: 5m, or 5 sleep intervals if shorter); 0: never", parse_interval,
             setting="resync_seconds"),
    _setting("removal-grace", "DURATION", "how long what is gone keeps its labels: it may come back (default: 1m);"
             " 0: not at all", parse_grace),
    _setting("feature-sources", "LIST", "sources to read, such as all,-pci", parse_list),
    _setting("label-sources", "LIST", "sources that create labels; custom: those of rules", parse_list),
    _setting("label-whitelist", "REGEX", "publish only labels whose name, after the namespace, matches this",
             parse_pattern),
    _setting("deny-label-ns", "LIST", "namespaces to deny for labels, such as vendor.io,*.example.com", parse_list),
    _setting("extra-label-ns", "LIST", "namespaces to allow for labels although denied or below kubernetes.io",
             parse_list),
    _setting("enable-taints", "BOOL", "let rules taint the Node", parse_bool),
    _setting("rules-dir", "DIR", f"NodeFeatureRules as files (default: {DEFAULT_RULES_DIR})", parse_directory),
    _setting("feature-gates", "LIST", "DisableAutoPrefix=true: do not add a default namespace to keys without one",
             _parse_feature_gates, setting="auto_prefix"),
    *(Option(flag, metavar, f"ignored: {reason}", is_switch=metavar == "BOOL", no_effect=reason)
      for flag, (metavar, reason) in _IGNORED.items()),
)  # fmt: skip
"""All flags, in the order of the help."""

_BY_FLAG = {option.flag: option for option in OPTIONS}
_ANSWERED = {"version": "--version", "help": "--help"}


def normalise_arguments(arguments: Sequence[str]) -> list[str]:
    """Rewrite flags as Go takes them (``-oneshot``, ``-sleep-interval 60s``) in a way that argparse cannot mistake.

    Each flag of :data:`OPTIONS` becomes ``--flag=value``; everything else stays as it is. A flag at the end whose value
    is missing is left for argparse to refuse.
    """
    normalised: list[str] = []
    left = iter(arguments)
    for argument in left:
        if argument == "--":
            return [*normalised, argument, *left]
        name, has_value, value = _undashed(argument).partition("=")
        option = _BY_FLAG.get(name)
        if option is None:
            normalised.append(_ANSWERED.get(name, argument))
        elif has_value:
            normalised.append(f"--{name}={value}")
        elif option.is_switch:
            normalised.append(f"--{name}=true")
        else:
            following = next(left, None)
            normalised.append(f"--{name}" if following is None else f"--{name}={following}")
    return normalised


def with_command(arguments: Sequence[str]) -> list[str]:
    """Put ``run`` before arguments that do not start with a command: upstream's worker has none."""
    given = list(arguments)
    return given if given[:1] and given[0] in (*COMMANDS, "-h", "--help", "--version") else ["run", *given]


def run_flags(arguments: Sequence[str]) -> Flags | None:
    """Read the flags of ``run`` from normalised arguments; None for anything that needs argparse, also to refuse it.

    Nodes run nothing else, and argparse costs each start 5 ms, and the resident process 0.9 MiB.
    """
    command, *rest = arguments
    flags: dict[str, str | None] = dict.fromkeys(_BY_FLAG)
    for argument in rest:
        name, has_value, value = argument.partition("=")
        if not name.startswith("--") or not has_value or name[2:] not in flags:
            return None
        flags[name[2:]] = value
    return flags if command == "run" else None


def _undashed(argument: str) -> str:
    """Take one or two dashes off; anything else is not a flag."""
    return argument[1:].removeprefix("-") if argument.startswith("-") else ""


def nearest(word: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """Return which of the known words is meant; nothing when none is similar enough."""
    import difflib  # noqa: PLC0415 - needed for mistakes only

    near = difflib.get_close_matches(word[:100], sorted(known), n=1, cutoff=cutoff)
    return f"; did you mean {near[0]}?" if near else ""
