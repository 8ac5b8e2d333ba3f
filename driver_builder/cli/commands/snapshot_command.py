"""The command ``snapshot``: everything that a plan is made of, as a file to read or share."""

import argparse

from driver_builder import config
from driver_builder.cli import common, output
from driver_builder.cli.common import EXIT_OK
from driver_builder.config import Settings
from driver_builder.model.setting import Group


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``snapshot``."""
    parser.add_argument("-o", "--output", choices=("json", "yaml"), default="json", help="output format (default json)")
    config.add_flags(parser, Group.PERMISSIONS)


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Print the snapshot."""
    print(output.document(common.document(settings), flags.output))
    return EXIT_OK
