"""What can be typed after ``nfd-worker``: commands, flags, help and examples. :mod:`nfd_worker.cli.main` acts on it."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from nfd_worker import __version__
from nfd_worker.config.options import OPTIONS

FORMATS = ("table", "json", "yaml")

_SCAN_OPTIONS = (
    "config", "options", "root", "node-name", "log-level", "log-format", "label-sources", "label-whitelist",
    "deny-label-ns", "extra-label-ns", "enable-taints", "rules-dir", "feature-gates",
)  # fmt: skip
_POLICY_OPTIONS = (
    "config", "options", "label-whitelist", "deny-label-ns", "extra-label-ns", "enable-taints", "feature-gates",
)  # fmt: skip
_UNPUBLISH_OPTIONS = ("node-name", "kubeconfig", "log-level", "log-format")

_RUN_EXAMPLES = """\
  nfd-worker --oneshot --no-publish
  nfd-worker --node-name node-1 --kubeconfig ~/.kube/config --sleep-interval 5m
  nfd-worker --label-sources all,-usb"""

_SCAN_EXAMPLES = """\
  nfd-worker scan
  nfd-worker scan --sources pci,kernel -o json
  nfd-worker scan --root /mnt --features -o json > features.json
  nfd-worker scan --rules my-rules.yaml"""

_EVAL_EXAMPLES = """\
  nfd-worker scan --features -o json > features.json
  nfd-worker rules eval --rules my-rules.yaml --features features.json"""

_VALIDATE_EXAMPLES = """\
  nfd-worker rules validate my-rules.yaml more-rules.yaml
  kubectl get nodefeaturerule my-rules -o yaml | nfd-worker rules validate -"""

_LABELS_EXAMPLES = """\
  nfd-worker scan -o json | nfd-worker labels validate -
  nfd-worker labels validate --config nfd-worker.conf -o json wanted.json"""

_UNPUBLISH_EXAMPLES = "  nfd-worker unpublish --node-name node-1"

_POLICY_EXAMPLES = """\
  nfd-worker admission-policy --config nfd-worker.conf | kubectl apply -f -
  kubectl -n driverwright exec daemonset/nfd-worker -- nfd-worker admission-policy"""

_HELP_WIDTH = 100

_Commands = Any
"""What ``add_subparsers`` gives; its type is private to argparse."""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help of a fixed width: to find the terminal's, argparse imports half a MiB, which the worker would keep."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_HELP_WIDTH)


def build_parser() -> argparse.ArgumentParser:
    """Make the parser; flags stay None when they are not given. ``command`` is such as ``run`` or ``rules eval``."""
    parser = argparse.ArgumentParser(
        prog="nfd-worker",
        description="Label a Kubernetes node by its hardware, CPU, kernel and operating system.",
        epilog="Without a command, run. Every flag of run has an environment variable (see nfd-worker run --help).",
        formatter_class=_Help,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"nfd-worker {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_run(commands)
    _add_scan(commands)
    rules = commands.add_parser(
        "rules",
        help="evaluate and validate rules",
        description="Evaluate and validate rules, without a cluster.",
        formatter_class=_Help,
    )
    rules_verbs = rules.add_subparsers(metavar="VERB", required=True)
    _add_rules_eval(rules_verbs)
    _add_rules_validate(rules_verbs)
    labels = commands.add_parser(
        "labels", help="check labels", description="Validate labels, without a cluster.", formatter_class=_Help
    )
    _add_labels_validate(labels.add_subparsers(metavar="VERB", required=True))
    _add_unpublish(commands)
    _add_admission_policy(commands)
    return parser


def _add_command(commands: _Commands, command: str, short: str, long: str, examples: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        command.rpartition(" ")[2],
        help=short,
        description=long,
        epilog=f"examples:\n{examples}",
        formatter_class=_Help,
        allow_abbrev=False,
    )
    parser.set_defaults(command=command)
    return parser


def _add_run(commands: _Commands) -> None:
    text = """\
Keep the labels of this node up to date until stopped. Flags override environment
variables, which override the configuration file. SIGHUP reloads the file."""
    parser = _add_command(commands, "run", "keep the labels of this node up to date (default)", text, _RUN_EXAMPLES)
    _add_options(parser, [option.flag for option in OPTIONS])


def _add_scan(commands: _Commands) -> None:
    text = """\
Show what would be labelled, without a cluster. With --root, everything is read
below it, including the configuration file unless --config names another one, which
is read as named. Exit status 1 when a source could not be
read or a rule is wrong."""
    short = "show the labels of this host, or of a recorded one; publish nothing"
    parser = _add_command(commands, "scan", short, text, _SCAN_EXAMPLES)
    _add_options(parser, _SCAN_OPTIONS)
    parser.add_argument("--sources", metavar="LIST", help="read only these sources, such as pci,kernel")
    _add_rules(parser, "also apply these rules", is_required=False)
    parser.add_argument("--features", action="store_true", help="also show the features behind the labels")
    _add_output(parser, FORMATS)


def _add_rules_eval(commands: _Commands) -> None:
    text = """\
Show what rules would do to a node with these features: labels and the rest with
full keys, validated as on a node, with taints enabled. Rejected outputs are listed
under errors.
Exit status 1 when there are errors."""
    parser = _add_command(commands, "rules eval", "show what rules would do to a node", text, _EVAL_EXAMPLES)
    _add_rules(parser, "NodeFeatureRule objects, or a list of rules", is_required=True)
    features = "what nfd-worker scan --features prints as JSON or YAML; - for standard input"
    parser.add_argument("--features", metavar="FILE", required=True, help=features)
    _add_namespace_config(parser)
    _add_output(parser, ("json", "yaml"))


def _add_rules_validate(commands: _Commands) -> None:
    text = """\
Validate rules: one line for each error, file:line: rule: field: message.
Exit status 1 when there are any."""
    parser = _add_command(commands, "rules validate", "find errors in rules", text, _VALIDATE_EXAMPLES)
    parser.add_argument("files", metavar="FILE", nargs="+", help="NodeFeatureRule objects, or a list of rules; - for"
                        " standard input")  # fmt: skip
    _add_namespace_config(parser)


def _add_labels_validate(commands: _Commands) -> None:
    text = """\
Show which labels, annotations, extended resources and taints a Node may have,
and why the others are rejected. The file has the format of the output of nfd-worker
scan; "options" may hold denyLabelNs and the other namespace settings of
nfd-worker.conf. Exit status 1 when anything is rejected."""
    short = "show which labels a Node may have"
    parser = _add_command(commands, "labels validate", short, text, _LABELS_EXAMPLES)
    parser.add_argument("file", metavar="FILE", help="JSON or YAML; - for standard input")
    _add_namespace_config(parser)
    _add_output(parser, FORMATS)


def _add_unpublish(commands: _Commands) -> None:
    text = """\
Remove from a Node all labels, annotations, extended resources and taints that
nfd-worker set. Delete its DaemonSet first, or they come back."""
    short = "remove everything that nfd-worker set on a Node"
    parser = _add_command(commands, "unpublish", short, text, _UNPUBLISH_EXAMPLES)
    _add_options(parser, _UNPUBLISH_OPTIONS)


def _add_admission_policy(commands: _Commands) -> None:
    text = """\
Print a ValidatingAdmissionPolicy and its binding, for Kubernetes 1.30 and later: a
worker may change only the Node that it runs on, and there only what a worker with
these settings writes. Give the flags and the configuration file of your workers."""
    short = "print an admission policy that limits workers to their own Node"
    parser = _add_command(commands, "admission-policy", short, text, _POLICY_EXAMPLES)
    _add_options(parser, _POLICY_OPTIONS)
    account = "service account of the workers (default: driverwright/nfd-worker)"
    parser.add_argument("--service-account", metavar="NAMESPACE/NAME", default="driverwright/nfd-worker", help=account)


def _add_options(parser: argparse.ArgumentParser, flags: Iterable[str]) -> None:
    without_effect = None
    for option in OPTIONS:
        if option.flag not in flags:
            continue
        if option.no_effect:
            without_effect = without_effect or parser.add_argument_group(
                "flags of Node Feature Discovery without effect"
            )
            without_effect.add_argument(f"--{option.flag}", metavar=option.metavar, help=option.no_effect)
        else:
            parser.add_argument(
                f"--{option.flag}", metavar=option.metavar, help=f"{option.help} [{option.environment}]"
            )


def _add_rules(parser: argparse.ArgumentParser, text: str, *, is_required: bool) -> None:
    parser.add_argument(
        "--rules", metavar="FILE", nargs="+", action="extend", default=[], required=is_required, help=text
    )


def _add_namespace_config(parser: argparse.ArgumentParser) -> None:
    text = "nfd-worker.conf whose denyLabelNs, extraLabelNs, labelWhiteList and restrictions count"
    parser.add_argument("--config", metavar="FILE", help=text)


def _add_output(parser: argparse.ArgumentParser, formats: Sequence[str]) -> None:
    parser.add_argument("-o", "--output", choices=formats, default=formats[0], help=f"default: {formats[0]}")
