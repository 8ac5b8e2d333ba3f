"""Commands of the agent: settings, logging, exit codes.

Exit status: 0 done, 1 a device of ``scan`` or a page of ``get`` is not healthy, the socket of ``nvml`` cannot be had,
a profile or a MIG layout is refused, the cards or who has devices are not known, 2 wrong usage or configuration.
"""

import asyncio
import logging
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from device_agent.config.config_file import read_description
from device_agent.config.options import OPTIONS, Flags, Settings, build_settings, run_flags
from device_agent.errors import ConfigurationError
from device_agent.stand_in import standing_in
from kube_api.log_lines import LONGEST_MESSAGE, PrintableFormatter, follow_signals, set_up
from kube_api.text import printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from device_agent.memory_limits.tell import Create
    from device_agent.node.asked import Asked
    from device_agent.node.own_node import OwnNode

Environment = Mapping[str, str]


def run(arguments: Sequence[str], environment: Environment) -> int:
    """Run one command; returns the exit status."""
    flags = run_flags(arguments)
    try:
        return _run_parsed(arguments, environment) if flags is None else _run(flags, environment)
    except ConfigurationError as error:
        sys.stderr.write(f"device-agent: {printable(str(error), LONGEST_MESSAGE)}\n")
        return 2


def _run_parsed(arguments: Sequence[str], environment: Environment) -> int:
    from device_agent.cli.arguments import parse  # noqa: PLC0415 - nodes do not need it

    parsed = parse(arguments)
    if parsed.command == "get":
        from device_agent.cli.get_command import get_page  # noqa: PLC0415 - as above

        return get_page(parsed.page, environment)
    if parsed.command == "who":
        from device_agent.cli.who_command import print_who  # noqa: PLC0415 - as above

        return print_who(parsed.output, environment)
    if parsed.command == "admission-policy":
        from device_agent.cli.policy_command import print_manifest  # noqa: PLC0415 - as above

        return print_manifest(
            parsed.service_account, parsed.account, limits_memory=parsed.memory_limits, changes_mig=parsed.mig
        )
    if parsed.command == "nvml":
        from device_agent.nvml_container.run import run_with_flags  # noqa: PLC0415 - as above
        from device_agent.nvml_container.settings import FLAGS  # noqa: PLC0415 - as above

        return run_with_flags({flag: getattr(parsed, flag.replace("-", "_")) for flag in FLAGS}, environment)
    if parsed.command in ("profiles", "mig"):
        return _run_on_files(parsed)
    return _run_with_settings(parsed, environment)


def _run_on_files(parsed: "argparse.Namespace") -> int:
    if parsed.command == "mig":
        from device_agent.cli.mig_command import print_plan  # noqa: PLC0415 - as above

        return print_plan(parsed.file, parsed.key, parsed.card, parsed.cards, parsed.output)
    from device_agent.cli.profiles_command import check_profiles  # noqa: PLC0415 - as above

    return check_profiles(parsed.folder, parsed.cards, parsed.output)


def _run_with_settings(parsed: "argparse.Namespace", environment: Environment) -> int:
    flags = {option.flag: getattr(parsed, option.flag.replace("-", "_"), None) for option in OPTIONS}
    if parsed.command == "scan":
        from device_agent.cli.scan_command import show  # noqa: PLC0415 - as above

        return show(_with_logging(build_settings(flags, environment)))
    if parsed.command == "cards":
        from device_agent.cli.profiles_command import write_cards  # noqa: PLC0415 - as above

        return write_cards(_with_logging(build_settings(flags, environment)), parsed.output)
    return _run(flags, environment)


def _run(flags: Flags, environment: Environment) -> int:
    # Of grpclib multidict imports it for one function that is not called; it would be 0.6 MiB.
    with standing_in("pathlib", Path=object):
        from device_agent.agent import Agent  # noqa: PLC0415 - scan does not need it

    settings = _with_logging(build_settings(flags, environment))
    follow_signals()
    load = partial(read_description, settings.config_file)
    own_node = partial(_own_node, settings.node_name, environment)
    asyncio.run(Agent(settings, load(), load, own_node=own_node, connect=partial(_connect, environment)).run())
    return 0


def _own_node(
    name: str,
    environment: Environment,
    on_asked: "Callable[[Asked], None] | None",
    on_mig: "Callable[[], None] | None",
) -> "OwnNode | None":
    from device_agent.node.follow import own_node  # noqa: PLC0415 - only where labels of GPUs are followed

    return own_node(name, environment, on_asked, on_mig)


def _connect(environment: Environment) -> "Create | None":
    from device_agent.node.connect import connect_with_token  # noqa: PLC0415 - only with limits of memory

    client = connect_with_token(environment)
    return client.create if client is not None else None


def _with_logging(settings: Settings) -> Settings:
    set_up(settings.log_level, settings.log_format, PrintableFormatter("%(asctime)s %(levelname)s %(message)s"))
    # What these log of each connection says nothing to an operator.
    for name in ("asyncio", "grpclib", "hpack"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return settings
