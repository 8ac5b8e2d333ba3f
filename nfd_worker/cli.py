"""Command line of the worker: flags, logging, exit codes. The only place that may exit.

Exit status: 0 done, 1 something could not be read or published, 2 wrong usage or configuration.
"""

import argparse
import logging
import os
import sys
from collections.abc import Mapping, Sequence

from nfd_worker import __version__
from nfd_worker.config import OPTIONS, Settings, load_settings
from nfd_worker.cycle import run_cycle
from nfd_worker.daemon import Daemon
from nfd_worker.errors import ConfigurationError
from nfd_worker.host import Host
from nfd_worker.output import FORMATS, render
from nfd_worker.sources import SOURCES

log = logging.getLogger(__name__)

_HELP: Mapping[str, tuple[str, str]] = {
    "config": ("FILE", "nfd-worker.conf of Node Feature Discovery"),
    "root": ("DIR", "what stands for the node's / (default: /)"),
    "node-name": ("NAME", "the Node to label"),
    "kubeconfig": ("FILE", "how to reach the API server (default: the pod's service account, else your kubeconfig)"),
    "port": ("PORT", "port of /healthz and /metrics; 0 for none (default: 8080)"),
    "log-level": ("LEVEL", "debug, info, warning or error (default: info)"),
    "oneshot": ("BOOL", "label once and end"),
    "no-publish": ("BOOL", "find labels, but send nothing"),
    "sleep-interval": ("DURATION", "time between two looks at the host, such as 60s or 5m; 0: only on events"),
    "feature-sources": ("LIST", f"sources to read, such as all,-pci (there are {', '.join(SOURCES)})"),
    "label-sources": ("LIST", "which of these make labels"),
    "label-whitelist": ("REGEX", "label only what this is found in, after the label's namespace"),
}

Flags = Mapping[str, str | None]
"""Flag -> its text; None where it is not given."""

_SCAN_OPTIONS = ("config", "root", "node-name", "label-whitelist", "log-level")
_SWITCHES = ("oneshot", "no-publish")


def main() -> None:
    """Run the worker's command line and exit."""
    sys.exit(run(sys.argv[1:], os.environ))


def run(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run one command; returns the exit status."""
    parsed = build_parser().parse_args(with_command(arguments))
    flags = {option.flag: getattr(parsed, option.flag.replace("-", "_"), None) for option in OPTIONS}
    if parsed.command == "scan" and parsed.sources is not None:
        flags |= {"feature-sources": parsed.sources, "label-sources": parsed.sources}
    try:
        return _scan(flags, environment, parsed) if parsed.command == "scan" else _run(flags, environment)
    except ConfigurationError as error:
        sys.stderr.write(f"nfd-worker: {error}\n")
        return 2


def with_command(arguments: Sequence[str]) -> list[str]:
    """Put ``run`` before arguments that do not start with a command."""
    given = list(arguments)
    return given if given[:1] and given[0] in ("run", "scan", "-h", "--help", "--version") else ["run", *given]


def build_parser() -> argparse.ArgumentParser:
    """Make the parser; flags stay None when they are not given."""
    parser = argparse.ArgumentParser(
        prog="nfd-worker",
        description="Label a Kubernetes node by its hardware, CPU, kernel and operating system.",
        epilog="Without a command, run. Every flag of run has an environment variable (see nfd-worker run --help).",
    )
    parser.add_argument("--version", action="version", version=f"nfd-worker {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    run_parser = commands.add_parser(
        "run",
        help="keep the labels of this node right (default)",
        description="Keep the labels of this node right until told to stop. Flags win over environment variables, and"
        " these over the configuration file. SIGHUP reloads the file.",
    )
    _add_options(run_parser, tuple(option.flag for option in OPTIONS))
    scan_parser = commands.add_parser(
        "scan",
        help="show the labels of this host, or of a recorded one, and send nothing",
        description="Show what would be labelled, without a cluster. Exit status 1 when a source could not be read.",
    )
    _add_options(scan_parser, _SCAN_OPTIONS)
    scan_parser.add_argument("--sources", metavar="LIST", help="look at these only, such as pci,kernel")
    scan_parser.add_argument("--features", action="store_true", help="show the features behind the labels, too")
    scan_parser.add_argument("-o", "--output", choices=FORMATS, default="table", help="default: table")
    return parser


def _add_options(parser: argparse.ArgumentParser, names: tuple[str, ...]) -> None:
    for option in OPTIONS:
        if option.flag not in names:
            continue
        metavar, text = _HELP[option.flag]
        text = f"{text} [{option.environment}]"
        if option.flag in _SWITCHES:
            parser.add_argument(f"--{option.flag}", nargs="?", const="true", metavar=metavar, help=text)
        else:
            parser.add_argument(f"--{option.flag}", metavar=metavar, help=text)


def _scan(flags: Flags, environment: Mapping[str, str], parsed: argparse.Namespace) -> int:
    settings = load_settings(flags, environment)
    _set_up_logging(settings)
    report = run_cycle(Host(settings.root), settings, {})
    sys.stdout.write(render(report, parsed.output, with_features=parsed.features))
    return 1 if report.failed else 0


def _run(flags: Flags, environment: Mapping[str, str]) -> int:
    def load() -> Settings:
        settings = load_settings(flags, environment)
        if not settings.node_name and not settings.no_publish:
            raise ConfigurationError("the node's name is not known: set --node-name or NODE_NAME, or use --no-publish")
        return settings

    settings = load()
    _set_up_logging(settings)
    return 0 if Daemon(settings, load).run() else 1


def _set_up_logging(settings: Settings) -> None:
    line = "%(asctime)s %(levelname)s %(message)s"
    logging.basicConfig(stream=sys.stderr, level=settings.log_level.upper(), format=line, force=True)
    if settings.notes:
        log.info("config: accepted without effect: %s", "; ".join(settings.notes))
