"""Flags of the agent and the environment variables that stand in for them: defaults < environment < flags."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from device_agent.config import DEFAULT_NVML_SOCKET
from device_agent.errors import ConfigurationError
from kube_api.log_lines import FORMATS, LEVELS, known_word

DEFAULT_FILE = "/etc/device-agent/config.yaml"
DEFAULT_PLUGIN_DIR = "/var/lib/kubelet/device-plugins"
DEFAULT_POD_RESOURCES = "/var/lib/kubelet/pod-resources/kubelet.sock"
DEFAULT_STATE_DIR = "/var/lib/driverwright-agent"
DEFAULT_REPORT_DIR = "/run/driverwright-agent"
ALL_XIDS = 0
"""Stands for each Xid in a set of them; no error has this number."""

_LONGEST_SOCKET_FOLDER = 60
"""Bytes; the path of a Unix socket has at most 107, and the name of a plugin's socket 43."""
_SHORTEST, _LONGEST = 1.0, 300.0
_LONGEST_NODE_NAME = 253
_MOST_XIDS, _LARGEST_XID = 256, 2**32 - 1

Flags = Mapping[str, str | None]
"""Flag -> its text; None where it is not given."""


class Option(NamedTuple):
    """One flag; ``environment`` is the variable that stands in for it."""

    flag: str
    metavar: str
    help: str
    environment: str
    setting: str
    parse: Callable[[str], Any] = str


class Settings(NamedTuple):
    """Everything that can be set besides the resources.

    ``config_file``: the file with the resources.
    ``root``: what stands for the node's ``/``.
    ``plugin_dir``: where the kubelet has its socket.
    ``port``: of ``/healthz``, ``/readyz`` and ``/metrics``; 0 for none.
    ``socket``: a Unix socket with the same; empty for none.
    ``log_level``: a name of :mod:`logging`, lower case. ``log_format``: text or json.
    ``interval``: seconds from one look at the devices to the next, without an event.
    ``state_dir``: where is kept what has to survive the agent, in files.
    ``nvml_socket``: where the container ``nvml`` listens.
    ``profiles``: the folder with profiles of devices; empty for none. ``default_profile``: the key of one of them.
    ``mig_config``: the folder with the file of MIG layouts; empty for none.
    ``pod_resources``: where the kubelet says which container has which device.
    ``report_dir``: where nfd-worker reads how GPUs are shared; empty for nowhere.
    ``node_name``: of the Node whose labels choose profile and MIG layout; empty: not known.
    ``ignored_xids``, ``counted_xids``: of NVIDIA's driver; :data:`ALL_XIDS` is each. The latter override the former.
    """

    config_file: str = DEFAULT_FILE
    root: str = "/"
    plugin_dir: str = DEFAULT_PLUGIN_DIR
    port: int = 8080
    socket: str = ""
    log_level: str = "info"
    log_format: str = "text"
    interval: float = 10.0
    state_dir: str = DEFAULT_STATE_DIR
    nvml_socket: str = DEFAULT_NVML_SOCKET
    profiles: str = ""
    default_profile: str = ""
    mig_config: str = ""
    pod_resources: str = DEFAULT_POD_RESOURCES
    report_dir: str = DEFAULT_REPORT_DIR
    node_name: str = ""
    ignored_xids: frozenset[int] = frozenset()
    counted_xids: frozenset[int] = frozenset()


def _parse_port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len("65535") and int(text) < 1 << 16):
        raise ValueError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def _parse_interval(text: str) -> float:
    digits, is_minutes = text[:-1], text.endswith("m")
    if not (text[-1:] in ("s", "m") and digits.isascii() and digits.isdigit() and len(digits) <= len("300")):
        raise ValueError(f"{text[:40]!r} is not a duration such as 10s or 1m")
    seconds = float(digits) * (60 if is_minutes else 1)
    if not _SHORTEST <= seconds <= _LONGEST:
        raise ValueError(f"{text!r} is too short or too long: write a duration from 1s to 5m")
    return seconds


def _parse_folder(text: str) -> str:
    return os.path.abspath(text)  # noqa: PTH100 - pathlib would cost the resident process 1 MiB


def _parse_optional_folder(text: str) -> str:
    return _parse_folder(text) if text else ""


def _parse_plugin_dir(text: str) -> str:
    folder = _parse_folder(text)
    if len(os.fsencode(folder)) > _LONGEST_SOCKET_FOLDER:
        raise ValueError(f"{folder!r} is too long for a folder of sockets: it has at most {_LONGEST_SOCKET_FOLDER}")
    return folder


def _parse_node_name(text: str) -> str:
    is_name = text.isascii() and text.replace("-", "").replace(".", "").isalnum()
    if text and not (is_name and len(text) <= _LONGEST_NODE_NAME):
        raise ValueError(f"{text[:40]!r} is not the name of a Node")
    return text


def _parse_xids(text: str) -> frozenset[int]:
    """Read a list as NVIDIA's device plugin has it: numbers with commas, or ``all`` or ``xids`` for each."""
    words = [word for word in (part.strip().lower() for part in text[: 16 * _MOST_XIDS].split(",")) if word]
    if any(word in ("all", "xids") for word in words):
        return frozenset({ALL_XIDS})
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) <= len(str(_LARGEST_XID)) and int(word) > 0):
            raise ValueError(f"{word[:40]!r} is not the number of an Xid: write numbers with commas, or all")
    if len(words) > _MOST_XIDS:
        raise ValueError(f"it has {len(words)} numbers: write at most {_MOST_XIDS}, or all")
    return frozenset(map(int, words))


OPTIONS = (
    Option("config", "FILE", f"file with the resources (default: {DEFAULT_FILE})", "DEVICE_AGENT_CONFIG",
           "config_file"),
    Option("root", "DIR", "where the node's / is mounted (default: /)", "HOST_ROOT", "root", _parse_folder),
    Option("plugin-dir", "DIR", f"folder of the kubelet's socket (default: {DEFAULT_PLUGIN_DIR})",
           "DEVICE_AGENT_PLUGIN_DIR", "plugin_dir", _parse_plugin_dir),
    Option("interval", "DURATION", "look at the devices at least this often, from 1s to 5m (default: 10s)",
           "DEVICE_AGENT_INTERVAL", "interval", _parse_interval),
    Option("port", "PORT", "port of /healthz, /readyz and /metrics; 0 for none (default: 8080)",
           "DEVICE_AGENT_PORT", "port", _parse_port),
    Option("socket", "FILE", "Unix socket with the same pages, where a port would be one of the node (default: none)",
           "DEVICE_AGENT_SOCKET", "socket"),
    Option("state-dir", "DIR", f"folder for what survives the agent (default: {DEFAULT_STATE_DIR})",
           "DEVICE_AGENT_STATE_DIR", "state_dir", _parse_folder),
    Option("nvml-socket", "FILE", f"Unix socket of the container nvml (default: {DEFAULT_NVML_SOCKET})",
           "DEVICE_AGENT_NVML_SOCKET", "nvml_socket"),
    Option("profiles", "DIR", "folder with profiles of devices (default: none)", "DEVICE_AGENT_PROFILES", "profiles",
           _parse_optional_folder),
    Option("default-profile", "KEY", "the profile where the Node asks for none (default: default)",
           "DEVICE_AGENT_DEFAULT_PROFILE", "default_profile"),
    Option("mig-config", "DIR", "folder with the file config.yaml of MIG layouts (default: none)",
           "DEVICE_AGENT_MIG_CONFIG", "mig_config", _parse_optional_folder),
    Option("pod-resources", "FILE", f"the kubelet's socket of podresources (default: {DEFAULT_POD_RESOURCES})",
           "DEVICE_AGENT_POD_RESOURCES", "pod_resources"),
    Option("report-dir", "DIR", f"folder in which nfd-worker reads how GPUs are shared (default: {DEFAULT_REPORT_DIR})",
           "DEVICE_AGENT_REPORT_DIR", "report_dir", _parse_optional_folder),
    Option("node-name", "NAME", "name of the Node, for its labels of GPUs, metrics and Events (default: none)",
           "NODE_NAME", "node_name", _parse_node_name),
    Option("disable-healthchecks", "XIDS", "Xids that change no health, with commas, or all",
           "DP_DISABLE_HEALTHCHECKS", "ignored_xids", _parse_xids),
    Option("enable-healthchecks", "XIDS", "Xids that do, though they are usually ignored or disabled",
           "DP_ENABLE_HEALTHCHECKS", "counted_xids", _parse_xids),
    Option("log-level", "LEVEL", "debug, info, warning or error (default: info)", "DEVICE_AGENT_LOG_LEVEL",
           "log_level", partial(known_word, known=LEVELS)),
    Option("log-format", "FORMAT", "text or json (default: text)", "DEVICE_AGENT_LOG_FORMAT", "log_format",
           partial(known_word, known=FORMATS)),
)  # fmt: skip
"""All flags, in the order of the help."""


def build_settings(flags: Flags, environment: Mapping[str, str]) -> Settings:
    """Put the layers together.

    Raises:
        ConfigurationError: names the place, the setting and what is wrong.
    """
    values: dict[str, Any] = {}
    for option in OPTIONS:
        given = flags.get(option.flag)
        place = f"environment variable {option.environment}" if given is None else f"flag --{option.flag}"
        text = environment.get(option.environment) if given is None else given
        if text is None:
            continue
        try:
            values[option.setting] = option.parse(text)
        except ValueError as error:
            raise ConfigurationError(f"{place}: {error}") from error
    settings = Settings(**values)
    if settings.default_profile and not settings.profiles:
        raise ConfigurationError("--default-profile names one of the profiles of --profiles, which is not given")
    return settings


def run_flags(arguments: Sequence[str]) -> Flags | None:
    """Read the flags of ``run``, each as ``--flag=value``; None for anything that needs argparse, also to refuse it.

    Nodes run nothing else, and argparse would cost the resident process 0.9 MiB.
    """
    given = list(arguments[1:] if arguments[:1] == ["run"] else arguments)
    known = {option.flag for option in OPTIONS}
    flags: dict[str, str | None] = {}
    for argument in given:
        name, has_value, value = argument.partition("=")
        if not name.startswith("--") or not has_value or name[2:] not in known:
            return None
        flags[name[2:]] = value
    return flags
