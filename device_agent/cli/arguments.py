"""The command line for people: commands, flags, help and examples."""

import argparse
from collections.abc import Iterable, Sequence

from device_agent import __version__
from device_agent.config.options import OPTIONS
from device_agent.nvml_container.settings import FLAGS

_RUN_EXAMPLES = """\
examples:
  device-agent --config config.yaml
  device-agent run --config config.yaml --interval 30s"""

_SCAN_EXAMPLES = """\
examples:
  device-agent scan --config config.yaml
  kubectl -n driverwright exec daemonset/device-agent -- device-agent scan"""

_POLICY_EXAMPLES = """\
examples:
  device-agent admission-policy | kubectl apply -f -
  device-agent admission-policy --account gpu/profiles | kubectl apply -f -
  device-agent admission-policy --account gpu/profiles --memory-limits | kubectl apply -f -
  device-agent admission-policy --account gpu/mig --mig | kubectl apply -f -"""

_GET_EXAMPLES = """\
examples:
  kubectl -n driverwright exec daemonset/device-agent -- device-agent get /metrics"""

_NVML_EXAMPLES = """\
It runs in a container of its own beside the agent, privileged, with the node's /dev at /dev (docs/gpu.md).

examples:
  device-agent nvml --socket=/run/device-agent/nvml.sock --root=/host"""

_CARDS_EXAMPLES = """\
examples:
  kubectl -n driverwright exec daemonset/device-agent -c device-agent -- device-agent cards > cards.yaml"""

_CHECK_EXAMPLES = """\
Exit status 1: a profile is refused (docs/gpu-sharing.md).

examples:
  device-agent profiles check profiles/
  device-agent profiles check profiles/ --cards cards.yaml"""

_WHO_EXAMPLES = """\
Exit status 1: the exporter is off, or it is not known who has devices.

examples:
  kubectl -n driverwright exec daemonset/device-agent -c device-agent -- device-agent who
  kubectl -n driverwright exec daemonset/device-agent -c device-agent -- device-agent who -o json"""

_MIG_EXAMPLES = """\
Models: A100-40, A100-80, A30, H100-80, H100-94. Others: --cards.
Exit status 1: a card cannot have its layout (docs/gpu-mig.md).

examples:
  device-agent mig plan config.yaml all-balanced --card A100-40:8
  device-agent mig plan config.yaml all-balanced --cards cards.yaml"""

_COMMANDS = ("run", "scan", "get", "who", "admission-policy", "nvml", "profiles", "cards", "mig")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; without a command it is that of ``run``."""
    given = list(arguments)
    if given[:1] and given[0] not in (*_COMMANDS, "-h", "--help", "--version"):
        given = ["run", *given]
    return _parser().parse_args(given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="device-agent",
        description="Offer a node's devices to pods, by the kubelet's device plugin API.",
        epilog="Without a command, run. Every flag has an environment variable (see device-agent run --help).",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"device-agent {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    run = _add(commands, "run", "offer devices until stopped (default)", _RUN_EXAMPLES)
    _add_options(run, (option.flag for option in OPTIONS))
    scan = _add(commands, "scan", "show the devices of this node; needs no kubelet", _SCAN_EXAMPLES)
    _add_options(scan, ("config", "root", "nvml-socket", "state-dir", "profiles", "default-profile", "log-level",
                         "log-format"))  # fmt: skip
    get = _add(
        commands, "get", "print a page of the agent that runs here; exits with 1 if it is not healthy", _GET_EXAMPLES
    )
    get.add_argument("page", metavar="PAGE", help="/healthz, /readyz or /metrics")
    who = _add(commands, "who", "show which pod has which device, and how much it uses", _WHO_EXAMPLES)
    who.add_argument("-o", "--output", choices=("table", "json"), default="table", help="format (default: table)")
    short = "print the ValidatingAdmissionPolicy of the agent's account"
    policy = _add(commands, "admission-policy", short, _POLICY_EXAMPLES)
    account = "the agent's service account (default: driverwright/device-agent)"
    accounts = policy.add_mutually_exclusive_group()
    accounts.add_argument(
        "--service-account", metavar="NAMESPACE/NAME", default="driverwright/device-agent", help=account
    )
    answering = "an account that may answer which GPU profile a node has: roles, their bindings, and policy"
    accounts.add_argument("--account", metavar="NAMESPACE/NAME", help=answering)
    events = "with --account: also the right to create Events in all namespaces, which limits of memory need"
    policy.add_argument("--memory-limits", action="store_true", help=events)
    changes = "with --account: also what changes of MIG layouts need"
    policy.add_argument("--mig", action="store_true", help=changes)
    nvml = _add(commands, "nvml", "ask NVIDIA's NVML for the agent, and make its device nodes", _NVML_EXAMPLES)
    for flag, (environment, metavar, text) in FLAGS.items():
        nvml.add_argument(f"--{flag}", metavar=metavar, help=f"{text} [{environment}]")
    _add_profiles(commands)
    _add_mig(commands)
    return parser


def _add_profiles(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    cards = _add(
        commands, "cards", "write the GPUs of this node to a file for profiles check and mig plan", _CARDS_EXAMPLES
    )
    cards.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="format (default: yaml)")
    _add_options(cards, ("nvml-socket", "log-level", "log-format"))
    profiles = _add(commands, "profiles", "check profiles of GPUs; needs no cluster", "")
    verbs = profiles.add_subparsers(metavar="VERB", dest="verb", required=True)
    check = _add(verbs, "check", "show what each profile of a folder would offer", _CHECK_EXAMPLES)
    check.add_argument("folder", metavar="FOLDER", help="folder with a file for each profile, named as its key")
    check.add_argument("--cards", metavar="FILE", help="GPUs of a node, as device-agent cards writes them")
    check.add_argument("-o", "--output", choices=("table", "json"), default="table", help="format (default: table)")


def _add_mig(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    mig = _add(commands, "mig", "plan MIG layouts; needs no cluster", "")
    verbs = mig.add_subparsers(metavar="VERB", dest="verb", required=True)
    plan = _add(verbs, "plan", "show where the instances of a MIG layout go, or what does not fit", _MIG_EXAMPLES)
    plan.add_argument("file", metavar="FILE", help="mig-parted's file")
    plan.add_argument("key", metavar="KEY", help="one of its mig-configs, as the label nvidia.com/mig.config names it")
    cards = plan.add_mutually_exclusive_group(required=True)
    cards.add_argument(
        "--card", metavar="MODEL[:N]", action="append", default=[], help="a model, and how many of it; may be repeated"
    )
    cards.add_argument("--cards", metavar="FILE", help="GPUs of a node, as device-agent cards writes them")
    plan.add_argument("-o", "--output", choices=("table", "json"), default="table", help="format (default: table)")


def _add(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, short: str, examples: str
) -> argparse.ArgumentParser:
    text = f"{short[0].upper()}{short[1:]}. Flags override environment variables. SIGHUP reads the file again."
    return commands.add_parser(
        name,
        help=short,
        description=text if name == "run" else f"{short[0].upper()}{short[1:]}.",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _add_options(parser: argparse.ArgumentParser, flags: Iterable[str]) -> None:
    chosen = set(flags)
    for option in OPTIONS:
        if option.flag in chosen:
            text = f"{option.help} [{option.environment}]"
            parser.add_argument(f"--{option.flag}", metavar=option.metavar, help=text)
