"""The command ``explain``: why a node has a driver or not, check by check."""

import argparse
import sys

from driver_builder import config
from driver_builder.base.check_result import CheckResult, Status, lines
from driver_builder.checks.explain import explain
from driver_builder.checks.explanation import Explanation
from driver_builder.cli import common, output
from driver_builder.cli.common import EXIT_FAILED, EXIT_OK, add_output_flag, add_snapshot_flag
from driver_builder.config import Settings
from driver_builder.model.setting import Group

_TICKS = {Status.OK: "✓", Status.FAILED: "✗", Status.WAITING: "…", Status.UNKNOWN: "?"}
_PLAIN = {Status.OK: "+", Status.FAILED: "x", Status.WAITING: "~", Status.UNKNOWN: "?"}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``explain``."""
    parser.add_argument("node", metavar="NODE", help="name of the node")
    parser.add_argument("driver", nargs="?", metavar="DRIVER", help="only this DriverContainer (default: all)")
    config.add_flags(parser, Group.PERMISSIONS)
    add_snapshot_flag(parser)
    add_output_flag(parser)


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Print each check; returns 0 if every driver that selects the node is ready there, else 1.

    Without a name, drivers that do not select the node get one line each and do not count, unless none selects it. A
    namespace that cannot be read returns 1: its drivers may select the node.
    """
    snapshot, plan_settings = common.seen(flags, settings)
    node = common.find_node(snapshot, flags.node)
    drivers = common.find_drivers(snapshot, flags.driver)
    explanations = [explain(snapshot, node, driver, plan_settings) for driver in drivers]
    if flags.output == "table":
        brief = flags.driver is None and any(item.selected for item in explanations)
        print("\n\n".join(_text(item, brief=brief) for item in explanations) or "no DriverContainer")
    else:
        print(output.document([item.as_document() for item in explanations], flags.output))
    unread = tuple(snapshot.forbidden.values()) if flags.driver is None else ()
    for words in unread:
        print(f"{words}: whether its drivers select {node.name} is not known", file=sys.stderr)
    counted = [item for item in explanations if item.selected] if flags.driver is None else explanations
    return EXIT_OK if counted and not unread and all(item.is_ready for item in counted) else EXIT_FAILED


def _text(item: Explanation, *, brief: bool) -> str:
    head = f"{item.driver} on {item.node}: {item.sentence}"
    if brief and not item.selected:
        return head
    first = item.first_broken
    checks = [line for step in item.steps for line in _lines(step, advises=step is first or first is None)]
    coming = [f"  newest kernel: {item.coming}"] if item.coming else []
    return "\n".join([head, *checks, *coming])


def _lines(step: CheckResult, *, advises: bool) -> list[str]:
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    tick = (_TICKS if encoding == "utf8" else _PLAIN)[step.status]
    return lines(f"  {tick} {step.check:<9} ", step, advises=advises)
