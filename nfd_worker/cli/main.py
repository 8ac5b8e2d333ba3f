"""Commands of the worker: settings, logging, exit codes. :mod:`nfd_worker.cli.start` calls it, and exits.

Exit status: 0 done, 1 something could not be read, is wrong or could not be published, 2 wrong usage or configuration.

Every command but ``run`` is a module of its own that is imported when it is asked for: the resident process does not
carry what it never needs.
"""
# ruff: noqa: PLC0415 - see above

import gc
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from feature_rules.keys.namespaces import NamespaceOptions
from kube_api.log_lines import LONGEST_MESSAGE, PrintableFormatter, follow_signals, set_up
from kube_api.text import printable
from nfd_worker.config.config import Settings, load_settings
from nfd_worker.config.options import DEFAULT_FILE, OPTIONS, Flags, normalise_arguments, run_flags, with_command
from nfd_worker.errors import ConfigurationError

if TYPE_CHECKING:
    from argparse import Namespace

log = logging.getLogger(__name__)

Environment = Mapping[str, str]


def run(arguments: Sequence[str], environment: Environment) -> int:
    """Run one command; returns the exit status."""
    given = with_command(normalise_arguments(arguments))
    flags = run_flags(given)
    try:
        return _run_parsed(given, environment) if flags is None else _run(flags, environment)
    except ConfigurationError as error:
        sys.stderr.write(f"nfd-worker: {printable(str(error), LONGEST_MESSAGE)}\n")
        return 2


def _run_parsed(arguments: Sequence[str], environment: Environment) -> int:
    from nfd_worker.config.arguments import build_parser

    gc.enable()  # see nfd_worker.cli.start; the daemon does that after its first cycle
    parsed = build_parser().parse_args(arguments)
    flags = {option.flag: getattr(parsed, option.flag.replace("-", "_"), None) for option in OPTIONS}
    return _run_command(parsed, flags, environment)


def _run_command(parsed: "Namespace", flags: Flags, environment: Environment) -> int:
    match parsed.command:
        case "scan":
            from nfd_worker.cli.commands.scan_command import scan

            settings = _scan_settings(flags, parsed.sources, environment)
            return scan(settings, parsed.rules, parsed.output, with_features=parsed.features)
        case "rules eval" | "rules validate":
            return _run_rules(parsed)
        case "labels validate":
            from nfd_worker.cli.commands.labels_command import validate

            return validate(parsed.file, parsed.config, parsed.output)
        case "unpublish":
            from nfd_worker.cli.commands.unpublish_command import unpublish

            return unpublish(_with_logging(load_settings(flags, environment)))
        case "admission-policy":
            from nfd_worker.cli.commands.policy_command import print_policy

            return print_policy(load_settings(flags, environment).namespaces, parsed.service_account)
    return _run(flags, environment)


def _run_rules(parsed: "Namespace") -> int:
    from nfd_worker.cli.commands import rules_command

    if parsed.command == "rules eval":
        return rules_command.evaluate(parsed.rules, parsed.features, _namespaces(parsed.config), parsed.output)
    return rules_command.validate(parsed.files, _namespaces(parsed.config))


def _run(flags: Flags, environment: Environment) -> int:
    from nfd_worker.daemon import Daemon

    def load() -> Settings:
        settings = load_settings(flags, environment)
        if not settings.node_name and not settings.no_publish:
            raise ConfigurationError("the node's name is not known: set --node-name or NODE_NAME, or use --no-publish")
        return settings

    settings = _with_logging(load())
    follow_signals()
    return 0 if Daemon(settings, load).run() else 1


def _scan_settings(flags: Flags, sources: str | None, environment: Environment) -> Settings:
    """Load the settings of a scan; another root means another machine, whose own configuration and rules count.

    ``--config`` names a file of this machine all the same, and one that is not there is an error even by its default
    name: somebody means that of the other machine.
    """
    root, is_elsewhere = (flags["root"] or "/").rstrip("/"), flags["root"] is not None
    if sources is not None:
        flags = {**flags, "feature-sources": sources, "label-sources": sources}
    if is_elsewhere and flags["config"] is None:
        file = root + DEFAULT_FILE
        flags = {**flags, "config": file if os.path.exists(file) else os.devnull}  # noqa: PTH110 - as everywhere here
    elif is_elsewhere:
        _check_exists(str(flags["config"]), root)
    settings = _with_logging(load_settings(flags, environment))
    has_own_rules = is_elsewhere and flags["rules-dir"] is None
    return settings._replace(rules_dir=root + settings.rules_dir) if has_own_rules else settings


def _check_exists(file: str, root: str) -> None:
    if not os.path.exists(file):  # noqa: PTH110 - as everywhere here
        below = f"{root}/{file.lstrip('/')}"
        hint = f"; to use that of the scanned host, give --config {below}" if os.path.exists(below) else ""  # noqa: PTH110
        raise ConfigurationError(f"there is no configuration file {file}{hint}")


def _namespaces(config_file: str | None) -> NamespaceOptions:
    """Take what a configuration file allows; the defaults without one."""
    return NamespaceOptions() if config_file is None else load_settings({"config": config_file}, {}).namespaces


def _with_logging(settings: Settings) -> Settings:
    set_up(settings.log_level, settings.log_format, PrintableFormatter("%(asctime)s %(levelname)s %(message)s"))
    if settings.notes:
        log.info("config: ignored: %s", "; ".join(settings.notes))
    return settings
