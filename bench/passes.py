"""What registries that hang cost a pass of the controller, as ratios within one run.

``python bench/passes.py`` lets a controller bring up one driver, alone and beside twenty images in registries that
drip, drop packets or answer in other words each time; the API server is a model, the registries are real sockets.
Beside that, one pass that asks the registries itself and waits for each of their answers, as passes did before they
were asked in the background. A minute.
"""

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.driver_builder.hostile_registries import fleet, hostile_registries

IMAGES = 20
SAMPLES = 5
DEADLINE = 1.0
"""Seconds for which a pass that waits gives each answer; the product gives 30."""
LONG = 600.0


def main() -> None:
    """Measure and print."""
    alone: list[float] = []
    beside: list[float] = []
    with hostile_registries(IMAGES) as hosts:
        for _ in range(SAMPLES):
            with fleet(seconds=LONG) as world:
                alone += world.passes()
            with fleet(seconds=LONG) as world:
                world.add_hostile(hosts, IMAGES, "other")
                beside += world.passes()
        with fleet(seconds=DEADLINE, waits=True) as world:
            world.add_hostile(hosts, IMAGES, "other")
            waiting = world.one_pass()
    usual, busy = statistics.median(alone), statistics.median(beside)
    print(f"a pass, one driver alone        {_shown(alone)}")
    print(f"a pass beside {IMAGES} hostile images  {_shown(beside)}")
    print(f"  for each of its {IMAGES + 1} drivers     {busy / (IMAGES + 1) / usual:.2f} times the pass of one alone")
    print(f"a pass that waits {DEADLINE:.0f} s for each   {waiting:.1f} s: {waiting / busy:.0f} times as long")


def _shown(seconds: list[float]) -> str:
    usual, most = statistics.median(seconds) * 1000, max(seconds) * 1000
    return f"{usual:.1f} ms (median of {len(seconds)}, at most {most:.1f})"


if __name__ == "__main__":
    main()
