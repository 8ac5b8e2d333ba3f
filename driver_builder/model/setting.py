"""A setting of driver-builder as one row: flag, variable, check, help, and the chart's value that sets it. Pure.

Place in the flow: ``config`` has the table. Flags, variables and ``docs/settings.md`` are made from it.
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import Any

ENVIRONMENT_PREFIX = "DRIVER_BUILDER_"
RETIRED_SINCE = "0.2"
"""The version that warns of retired settings; pyproject.toml names the last one until it is released."""


class Group(StrEnum):
    """Which commands have a flag: those that name its group."""

    LOGS = "logs"
    CONNECTION = "connection"
    ENGINE = "engine"
    BUILDER = "builder"
    PERMISSIONS = "permissions"
    RUN = "run"
    NODE_FEATURES = "node features"
    GC = "gc"


@dataclass(frozen=True, slots=True)
class Setting:
    """A row.

    Without ``metavar`` it is a switch, without ``help`` it is hidden. ``read`` makes the value of a text, or raises a
    ValueError that quotes it. ``default`` is the text where none is given, or what makes it of the environment, and
    stands for an empty text, too. What is no text is the default value itself, and None leaves that to the class whose
    field ``field`` is. ``chart`` is the path of the value in the chart. ``retired`` says what applies instead: the
    setting is still accepted, and warned of.
    """

    flag: str
    metavar: str
    help: str
    read: Callable[[str], Any] = str
    default: str | float | tuple[float, ...] | Callable[[Mapping[str, str]], str] | None = ""
    _: KW_ONLY
    group: Group = Group.RUN
    short: str = ""
    field: str = ""
    chart: str = ""
    retired: str = ""

    @property
    def name(self) -> str:
        """The flag's name in Python."""
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def variable(self) -> str:
        """The environment variable that stands in for the flag."""
        return ENVIRONMENT_PREFIX + self.name.upper()

    @property
    def is_shown(self) -> bool:
        """Whether help and documentation have it."""
        return bool(self.help) and not self.retired
