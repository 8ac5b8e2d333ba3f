"""Entry of the worker: settings, logging, exit codes. The only place that may exit.

Exit status: 0 done, 1 something could not be read, is wrong or could not be published, 2 wrong usage or configuration.

Every command but ``run`` is a module of its own that is imported when it is asked for: the resident process does not
carry what it never needs.
"""
# ruff: noqa: PLC0415 - see above

import logging
import os
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence

from kube_api.text import printable
from nfd_worker.cli.log_format import LONGEST_MESSAGE, PrintableFormatter
from nfd_worker.config.arguments import build_parser, with_command
from nfd_worker.config.config import Settings, load_settings
from nfd_worker.config.options import DEFAULT_FILE, OPTIONS, normalise_arguments
from nfd_worker.errors import ConfigurationError
from nfd_worker.labels.namespaces import NamespaceOptions

log = logging.getLogger(__name__)

Flags = Mapping[str, str | None]
"""Flag -> its text; None where it is not given."""

Environment = Mapping[str, str]


def main() -> None:
    """Run the worker's command line and exit."""
    sys.exit(run(sys.argv[1:], os.environ))


def run(arguments: Sequence[str], environment: Environment) -> int:
    """Run one command; returns the exit status."""
    parsed = build_parser().parse_args(with_command(normalise_arguments(arguments)))
    flags = {option.flag: getattr(parsed, option.flag.replace("-", "_"), None) for option in OPTIONS}
    try:
        return _run_command(parsed, flags, environment)
    except ConfigurationError as error:
        sys.stderr.write(f"nfd-worker: {printable(str(error), LONGEST_MESSAGE)}\n")
        return 2


def _run_command(parsed: Namespace, flags: Flags, environment: Environment) -> int:
    match parsed.command:
        case "scan":
            from nfd_worker.cli.scan_command import scan

            settings = _scan_settings(flags, parsed.sources, environment)
            return scan(settings, parsed.rules, parsed.output, with_features=parsed.features)
        case "rules eval":
            from nfd_worker.cli.rules_command import evaluate

            return evaluate(parsed.rules, parsed.features, _namespaces(parsed.config), parsed.output)
        case "rules validate":
            from nfd_worker.cli.rules_command import validate as validate_rules

            return validate_rules(parsed.files, _namespaces(parsed.config))
        case "labels validate":
            from nfd_worker.cli.labels_command import validate as validate_labels

            return validate_labels(parsed.file, parsed.config, parsed.output)
        case "unpublish":
            from nfd_worker.cli.unpublish_command import unpublish

            return unpublish(_with_logging(load_settings(flags, environment)))
    return _run(flags, environment)


def _run(flags: Flags, environment: Environment) -> int:
    from nfd_worker.daemon import Daemon

    def load() -> Settings:
        settings = load_settings(flags, environment)
        if not settings.node_name and not settings.no_publish:
            raise ConfigurationError("the node's name is not known: set --node-name or NODE_NAME, or use --no-publish")
        return settings

    return 0 if Daemon(_with_logging(load()), load).run() else 1


def _scan_settings(flags: Flags, sources: str | None, environment: Environment) -> Settings:
    """Load the settings of a scan; another root means another machine, whose own configuration and rules count."""
    root, is_elsewhere = (flags["root"] or "/").rstrip("/"), flags["root"] is not None
    if sources is not None:
        flags = {**flags, "feature-sources": sources, "label-sources": sources}
    if is_elsewhere and flags["config"] is None:
        file = root + DEFAULT_FILE
        flags = {**flags, "config": file if os.path.exists(file) else os.devnull}  # noqa: PTH110 - as everywhere here
    settings = _with_logging(load_settings(flags, environment))
    has_own_rules = is_elsewhere and flags["rules-dir"] is None
    return settings._replace(rules_dir=root + settings.rules_dir) if has_own_rules else settings


def _namespaces(config_file: str | None) -> NamespaceOptions:
    """Take what a configuration file allows; the defaults without one."""
    return NamespaceOptions() if config_file is None else load_settings({"config": config_file}, {}).namespaces


def _with_logging(settings: Settings) -> Settings:
    line = "%(asctime)s %(levelname)s %(message)s"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PrintableFormatter(line))
    logging.basicConfig(handlers=[handler], level=settings.log_level.upper(), force=True)
    if settings.notes:
        log.info("config: ignored: %s", "; ".join(settings.notes))
    return settings
