"""The command ``gate``: its exit code says whether a node may boot another kernel."""

import argparse

from driver_builder import config
from driver_builder.cli import common, output
from driver_builder.cli.common import EXIT_FAILED, EXIT_OK, add_output_flag
from driver_builder.config import Settings
from driver_builder.model.setting import Group
from driver_builder.prebuild.gate import Gate, gate, with_kernel
from driver_builder.snapshot.snapshot import Snapshot


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``gate``."""
    parser.add_argument("node", metavar="NODE", help="name of the node")
    parser.add_argument("kernel", metavar="KERNEL", help="kernel release to boot, as uname -r prints it")
    config.add_flags(parser, Group.PERMISSIONS)
    add_output_flag(parser)


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Print which drivers have an image for the kernel and which have not; returns 0 if all have, else 1."""

    def change(seen: Snapshot) -> Snapshot:
        common.find_node(seen, flags.node)
        return with_kernel(seen, flags.node, flags.kernel)

    moved = common.observe(settings, change)
    answer = gate(moved, flags.node, flags.kernel, common.plan_settings(settings).template_versions)
    print(_text(answer) if flags.output == "table" else output.document(answer.as_document(), flags.output))
    return EXIT_OK if answer.is_open else EXIT_FAILED


def _text(answer: Gate) -> str:
    if not answer.findings:
        return answer.sentence
    rows = [(item.check, "yes" if item.is_ok else "NO", item.message) for item in answer.findings]
    return f"{answer.sentence}\n\n{output.table(('DRIVER', 'READY', 'WHY'), rows)}"
