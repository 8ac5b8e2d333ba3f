"""The command ``plan``: what the controller would do next; it changes nothing."""

import argparse

from driver_builder import config
from driver_builder.base.reasons import IN_TROUBLE, Reason
from driver_builder.cli import common, output
from driver_builder.cli.common import EXIT_OK, add_output_flag, add_snapshot_flag
from driver_builder.cli.plan_summary import DriverSummary, as_document, counted, summarise
from driver_builder.config import Settings
from driver_builder.model.setting import Group
from driver_builder.plan.plan import plan
from kube_api.text import first_few

EXIT_SOMETHING_TO_DO = 2
_NAMES = 3
_HEADERS = ("DRIVER", "KERNEL", "OS", "NODES", "READY", "NEXT", "WHERE", "WHY")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``plan``."""
    parser.add_argument("--driver", metavar="NAME", help="only this DriverContainer")
    parser.add_argument(
        "--detailed-exitcode", action="store_true", help="exit with status 2 if there are actions, 0 if there are none"
    )
    config.add_flags(parser, Group.PERMISSIONS)
    add_snapshot_flag(parser)
    add_output_flag(parser)


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Print what comes next for each target, and the actions of the next reconcile."""
    snapshot, plan_settings = common.seen(flags, settings)
    wanted = {driver.key for driver in common.find_drivers(snapshot, flags.driver)}
    summaries = [item for item in summarise(snapshot, plan(snapshot, plan_settings)) if item.driver.key in wanted]
    if flags.output == "table":
        print(_text(summaries))
    else:
        print(output.document([as_document(item) for item in summaries], flags.output))
    busy = any(item.actions for item in summaries)
    return EXIT_SOMETHING_TO_DO if flags.detailed_exitcode and busy else EXIT_OK


def _text(summaries: list[DriverSummary]) -> str:
    rows = [row for item in summaries for row in _rows(item)]
    lines = [f"  {action}" for item in summaries for action in item.actions]
    actions = [action for item in summaries for action in item.actions]
    end = f"next reconcile: {counted(actions)}" if actions else "nothing to do"
    shown = [target.status for item in summaries for target in (*item.targets, *item.ahead)]
    reasons: list[str] = [status.reason for status in shown if status.state in IN_TROUBLE]
    reasons += [Reason.KERNEL_MISMATCH] if any(item.unknown for item in summaries) else []
    blocks = [output.with_remedies(output.table(_HEADERS, rows), reasons) if rows else "", "\n".join(lines), end]
    return "\n\n".join(block for block in blocks if block)


def _rows(item: DriverSummary) -> list[tuple[object, ...]]:
    key = item.driver.key
    rows: list[tuple[object, ...]] = [
        (
            key, target.status.kernel, f"{target.status.os}/{target.status.architecture}", target.status.nodes,
            target.status.ready_nodes, target.next, _names(target.nodes), target.status.message,
        )
        for target in item.targets
    ]  # fmt: skip
    rows += [
        (
            key, ahead.status.kernel, f"{ahead.status.os}/{ahead.status.architecture}", 0, 0, ahead.next,
            f"prebuild for {ahead.status.nodes}", ahead.status.message,
        )
        for ahead in item.ahead
    ]  # fmt: skip
    if item.others:
        rows.append((key, "-", "-", "-", "-", counted(item.others), "-", "for no kernel that runs now"))
    if item.trouble:
        rows.append((key, "-", "-", "-", "-", "nothing", "-", item.trouble))
    rows += [(key, "unknown", "-", 1, 0, "wait", node, why) for node, why in sorted(item.unknown.items())]
    return rows


def _names(nodes: tuple[str, ...]) -> str:
    return first_few(nodes, _NAMES) or "-"
