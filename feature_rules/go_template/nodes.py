"""A parsed template as frozen values: what :mod:`parser` makes and :mod:`evaluate` walks through.

Names are those of Go's text/template/parse; ``line`` counts from 1 inside the template.
"""

from typing import NamedTuple


class Dot(NamedTuple):
    """``.``, the value that actions are about."""


class Nil(NamedTuple):
    """``nil``, the untyped nothing."""


class Bool(NamedTuple):
    """``true`` or ``false``."""

    value: bool


class String(NamedTuple):
    """A string constant; ``source`` as written, with its quotes."""

    source: str
    value: str


class Number(NamedTuple):
    """A number constant, which takes the type that its place wants: None where it cannot be of that type.

    ``is_float``: written as a float, so it is one where the place wants no type.
    """

    source: str
    integer: int | None
    floating: float | None
    is_float: bool


class Field(NamedTuple):
    """``.a.b``, looked up from dot."""

    names: tuple[str, ...]


class Variable(NamedTuple):
    """``$x.a.b``; ``name`` has its dollar sign."""

    name: str
    fields: tuple[str, ...]


class Function(NamedTuple):
    """The name of a function, first in its command or alone as an argument."""

    name: str


class Chain(NamedTuple):
    """``(pipeline).a.b``, looked up from a value."""

    operand: "Operand"
    fields: tuple[str, ...]


class Command(NamedTuple):
    """Operands side by side: a value, or a function with its arguments."""

    operands: tuple["Operand", ...]


class Pipe(NamedTuple):
    """``$x := command | command``; ``is_assignment`` where an existing variable is set."""

    line: int
    variables: tuple[str, ...]
    is_assignment: bool
    commands: tuple[Command, ...]


Operand = Dot | Nil | Bool | String | Number | Field | Variable | Function | Chain | Pipe


class Text(NamedTuple):
    """Text between actions, its trimmed spaces gone."""

    line: int
    text: str


class Action(NamedTuple):
    """``{{pipeline}}``: prints its value, unless it sets a variable."""

    line: int
    pipe: Pipe


class Branches(NamedTuple):
    """``if`` or ``with``, and their ``else if`` or ``else with``: the first true pipeline's body, or ``otherwise``."""

    line: int
    sets_dot: bool
    branches: tuple[tuple[Pipe, "Body"], ...]
    otherwise: "Body"


class Range(NamedTuple):
    """``range``, with its ``else`` for what is empty."""

    line: int
    pipe: Pipe
    body: "Body"
    otherwise: "Body"


class Use(NamedTuple):
    """``template`` or ``block``: another template with its own dot; without a pipeline dot is nil."""

    line: int
    name: str
    pipe: Pipe | None


class Leave(NamedTuple):
    """``break``, or ``continue``."""

    line: int
    goes_on: bool


Node = Text | Action | Branches | Range | Use | Leave
Body = tuple[Node, ...]
