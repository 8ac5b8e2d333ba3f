"""The command ``rollout``: how far a driver's rollout is; stop it, let it go on, or undo it."""

import argparse
import math
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from driver_builder.api import spec_rules
from driver_builder.api.rollout_status import previous_wave
from driver_builder.base.errors import ConfigurationError
from driver_builder.cli import output, rollout_view
from driver_builder.cli.common import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, add_output_flag
from driver_builder.cli.rollout_view import Outcome, RolloutView
from driver_builder.config import Settings
from kube_api import names
from kube_api.client import Client
from kube_api.errors import KubeApiError, NotFound
from kube_api.resources import DRIVER_CONTAINERS

Json = dict[str, Any]

POLL_SECONDS = 2.0
_ROOM = 8
"""Lines of a terminal besides the targets: sentence, wave, headers, prompt."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``rollout``."""
    parser.add_argument(
        "action",
        choices=("status", "pause", "resume", "undo"),
        help="show how far it is; stop it; continue it; return to the image of before the wave",
    )
    parser.add_argument("driver", metavar="DRIVER", help="name of the DriverContainer, or NAMESPACE/NAME")
    parser.add_argument("-w", "--watch", action="store_true", help="status: wait until it is rolled out, or stuck")
    parser.add_argument(
        "--timeout",
        metavar="DURATION",
        help="status -w: stop waiting after this long, such as 90s or 1h (default: never)",
    )
    add_output_flag(parser)


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Do it; returns 0 if the driver is rolled out, or was paused, resumed or undone, else 1."""
    if flags.action != "status" and (flags.watch or flags.timeout):
        raise ConfigurationError(f"--watch and --timeout are flags of rollout status, not of {flags.action}")
    if flags.watch and flags.output != "table":
        raise ConfigurationError(f"--watch prints a table: leave out -o {flags.output}")
    seconds = _seconds(flags.timeout)
    client = Client.from_environment(settings.kubeconfig)
    path, obj = _find(client, flags.driver, settings.namespaces)
    if flags.action != "status":
        print(_ACTIONS[flags.action](client, path, obj))
        return EXIT_OK
    view = rollout_view.parse(obj)
    if flags.watch:
        try:
            view = _watch(lambda: rollout_view.parse(client.get(path)), view, seconds)
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
    elif flags.output == "table":
        print("\n".join(rollout_view.lines(view, bars=output.bars())))
    else:
        print(output.document({**view.as_document(), "status": obj.get("status") or {}}, flags.output))
    if flags.output == "table" and (remedies := output.with_remedies("", view.reasons)):
        print(f"\n{remedies}")
    return EXIT_OK if view.outcome is Outcome.DONE else EXIT_FAILED


def _find(client: Client, name: str, namespaces: tuple[str, ...]) -> tuple[str, Json]:
    """Return the path of a DriverContainer, and the object.

    Raises:
        ConfigurationError: there is none, or there are several.
    """
    namespace, slash, bare = name.rpartition("/")
    places = (namespace,) if slash else namespaces
    found: dict[str, Json] = {}
    for place in places:
        path = DRIVER_CONTAINERS.path(namespace=place, name=bare)
        try:
            found[path] = client.get(path)
        except NotFound:
            continue
    if len(found) != 1:
        where = ", ".join(places)
        words = f"there are several {bare!r} in {where}: write NAMESPACE/NAME" if found else None
        raise ConfigurationError(f"DRIVER: {words or f'there is no DriverContainer {bare!r} in {where}: see -n'}")
    return next(iter(found.items()))


def _pause(client: Client, path: str, obj: Json) -> str:
    driver, annotations = _named(obj)
    if annotations.get(names.PAUSE_ANNOTATION) == "true":
        return f"{driver} is paused already"
    client.patch(path, {"metadata": {"annotations": {names.PAUSE_ANNOTATION: "true"}}})
    return f"{driver} paused: no builds, rollouts and repairs; continue with: driver-builder rollout resume {driver}"


def _resume(client: Client, path: str, obj: Json) -> str:
    driver, annotations = _named(obj)
    stopped = [name for name in (names.PAUSE_ANNOTATION, names.UNDO_ROLLOUT_ANNOTATION) if name in annotations]
    if not stopped:
        return f"{driver} is not paused"
    client.patch(path, {"metadata": {"annotations": dict.fromkeys(stopped)}})
    return f"{driver} resumed"


def _undo(client: Client, path: str, obj: Json) -> str:
    """Undo the wave that is under way.

    Raises:
        ConfigurationError: there is none.
    """
    driver, annotations = _named(obj)
    wave = previous_wave(obj.get("status") or {})
    brought = ",".join(sorted({value for value in wave.targets.values() if value})) if wave is not None else ""
    if brought and annotations.get(names.UNDO_ROLLOUT_ANNOTATION) == brought:
        return f"{driver} is undone already"
    if not brought:
        raise ConfigurationError(
            f"{driver}: no wave is under way; set its spec back: images of before are not built anew"
        )
    client.patch(path, {"metadata": {"annotations": {names.UNDO_ROLLOUT_ANNOTATION: brought}}})
    return f"{driver}: nodes return to the image of before; withdraw that with: driver-builder rollout resume {driver}"


_ACTIONS: Mapping[str, Callable[[Client, str, Json], str]] = {"pause": _pause, "resume": _resume, "undo": _undo}


def _named(obj: Json) -> tuple[str, Json]:
    metadata = obj["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}", metadata.get("annotations") or {}


def _watch(read: Callable[[], RolloutView], view: RolloutView, seconds: float) -> RolloutView:
    """Show a rollout until it has ended or the time is over; returns how it is then.

    Raises:
        KubeApiError: the API server refuses, or the driver is gone.
    """
    end, screen = time.monotonic() + seconds, _Screen()
    screen.show(view)
    while view.outcome is Outcome.UNDER_WAY:
        left = end - time.monotonic()
        if left <= 0:
            screen.end(view)
            print(f"driver-builder: {view.driver} is not rolled out after {seconds:g} s", file=sys.stderr)
            return view
        time.sleep(min(POLL_SECONDS, left))
        try:
            view = read()
        except KubeApiError as error:
            if not error.is_temporary:
                raise
            continue
        screen.show(view)
    screen.end(view)
    return view


class _Screen:
    """Shows a rollout: in place on a terminal, elsewhere a line for each change."""

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()
        self._lines = output.InPlace()
        self._said = ""

    def show(self, view: RolloutView) -> None:
        """Show how it is now."""
        if self._is_terminal:
            columns, height = shutil.get_terminal_size()
            self._lines.draw(
                [
                    line[: columns - 1]
                    for line in rollout_view.lines(view, bars=output.bars(), rows=max(height - _ROOM, 3))
                ]
            )
        elif view.sentence != self._said:
            self._said = view.sentence
            print(view.sentence, flush=True)

    def end(self, view: RolloutView) -> None:
        """Leave the whole table on the terminal."""
        if self._is_terminal:
            self._lines.draw(rollout_view.lines(view, bars=output.bars()))


def _seconds(timeout: str | None) -> float:
    """Read a duration; without one it is endless.

    Raises:
        ConfigurationError: it is not one.
    """
    if timeout is None:
        return math.inf
    if timeout.isascii() and timeout.isdigit() and len(timeout) < 10:
        return float(timeout)
    if wrong := spec_rules.DURATION.wrong_with(timeout):
        raise ConfigurationError(f"--timeout: {timeout!r} {wrong}")
    return spec_rules.seconds(timeout)
