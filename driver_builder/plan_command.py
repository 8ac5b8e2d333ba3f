"""The command ``plan``: what the controller would do next, and nothing of it done."""

import argparse

from driver_builder import commands, output
from driver_builder.commands import EXIT_OK, add_output_flag
from driver_builder.config import Settings
from driver_builder.plan import plan

add_flags = add_output_flag


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Print the actions of the next pass."""
    decided = plan(commands.observer(settings).observe(), commands.plan_settings(settings))
    steps = [
        (part.driver.key, type(action).__name__, str(action)) for part in decided.drivers for action in part.actions
    ]
    if flags.output == "table":
        print(output.table(("DRIVER", "ACTION", "WHAT"), steps) if steps else "nothing to do")
        return EXIT_OK
    print(output.document([dict(zip(("driver", "action", "what"), step, strict=True)) for step in steps], flags.output))
    return EXIT_OK
