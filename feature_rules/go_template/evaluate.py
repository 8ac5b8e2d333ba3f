"""Walks through a parsed template and writes its text: the second half of a template's life, once per expansion.

Everything a user's template can do wrong ends as a TemplateError with its line; the meter ends what never would.
"""

from collections.abc import Mapping
from typing import Any, Literal, assert_never

from feature_rules.errors import FunctionError, TemplateError
from feature_rules.go_template.arguments import literal_argument, source_of, value_argument
from feature_rules.go_template.data.formatting import printed
from feature_rules.go_template.data.limits import MAX_NESTING, MAX_OUTPUT_BYTES, Meter
from feature_rules.go_template.data.values import ANY, Object, byte_length, is_true, to_bytes, type_of
from feature_rules.go_template.functions.registry import Registered
from feature_rules.go_template.functions.table import FUNCTIONS
from feature_rules.go_template.nodes import (
    Action,
    Body,
    Bool,
    Branches,
    Chain,
    Command,
    Dot,
    Field,
    Function,
    Leave,
    Nil,
    Node,
    Number,
    Operand,
    Pipe,
    Range,
    String,
    Text,
    Use,
    Variable,
)  # fmt: skip
from kube_api.text import printable

_NOTHING = object()
"""No value comes through the pipe; nil may come."""

_Signal = Literal["break", "continue"] | None


def expand(templates: Mapping[str, Body], main: str, data: Any) -> str:
    """Write the template ``main`` over ``data``.

    Raises:
        TemplateError: with the line where it went wrong.
    """
    run = _Run(templates)
    try:
        run.template(main, data)
    except RecursionError as error:
        raise TemplateError(f"line {run.line}: a value, or templates in templates, are nested too deeply") from error
    return run.text()


class _Run:
    """One expansion: its output, its work, and the variables in scope."""

    def __init__(self, templates: Mapping[str, Body]) -> None:
        self._templates = templates
        self._meter = Meter()
        self._parts: list[str] = []
        self._size = 0
        self._depth = 0
        self.line = 1
        self._variables: list[tuple[str, Any]] = []

    def text(self) -> str:
        """Give the output; half characters next to each other are joined, those alone become U+FFFD."""
        return to_bytes("".join(self._parts)).decode("utf-8", "replace")

    def template(self, name: str, dot: Any) -> None:
        """Write one template, which sees no variable but ``$``."""
        outer, self._variables = self._variables, [("$", dot)]
        self._body(self._templates[name], dot)
        self._variables = outer

    def _body(self, body: Body, dot: Any) -> _Signal:
        for node in body:
            try:
                self._meter.spend(1)
                self.line = node.line
                signal = self._node(node, dot)
            except FunctionError as error:
                # Bytes that are no UTF-8 are in Go's strings as surrogates, which nothing can encode.
                raise TemplateError(f"line {node.line}: {printable(str(error))}") from error
            if signal:
                return signal
        return None

    def _node(self, node: Node, dot: Any) -> _Signal:
        match node:
            case Text():
                self._write(node.text)
            case Action():
                value = self._pipeline(node.pipe, dot)
                if not node.pipe.variables:
                    self._meter.visit(value)
                    self._write(printed(self._meter, value))
            case Branches():
                return self._branches(node, dot)
            case Range():
                return self._range(node, dot)
            case Use():
                self._use(node, dot)
            case Leave():
                return "continue" if node.goes_on else "break"
            case _:
                assert_never(node)
        return None

    def _write(self, text: str) -> None:
        self._size += byte_length(text)
        if self._size > MAX_OUTPUT_BYTES:
            raise FunctionError(f"the output is longer than {MAX_OUTPUT_BYTES >> 20} MiB")
        self._parts.append(text)

    def _branches(self, node: Branches, dot: Any) -> _Signal:
        mark = len(self._variables)
        try:
            for pipe, body in node.branches:
                value = self._pipeline(pipe, dot)
                if is_true(value):
                    return self._body(body, value if node.sets_dot else dot)
            return self._body(node.otherwise, dot)
        finally:
            del self._variables[mark:]

    def _range(self, node: Range, dot: Any) -> _Signal:
        mark = len(self._variables)
        items = self._items(self._pipeline(node.pipe, dot), node.pipe)
        inner = len(self._variables)
        signal: _Signal = None
        is_empty = True
        for key, item in items:
            is_empty = False
            self._meter.spend(1)
            self._set_loop_variables(node.pipe, key, item, inner)
            signal = self._body(node.body, item)
            del self._variables[inner:]
            if signal == "break":
                break
        signal = self._body(node.otherwise, dot) if is_empty else None
        del self._variables[mark:]
        return signal

    def _items(self, value: Any, pipe: Pipe) -> Any:
        match value:
            case None:
                return ()
            case list():
                return enumerate(value)
            case dict():
                return sorted(value.items(), key=lambda item: to_bytes(item[0]))
            case int() if not isinstance(value, bool):
                if len(pipe.variables) > 1:
                    raise FunctionError(f"range over the integer {value} has one variable at most")
                return ((number, type(value)(number)) for number in range(value))
            case _:
                raise FunctionError(f"range can't iterate over a {type_of(value)}")

    def _set_loop_variables(self, pipe: Pipe, key: Any, item: Any, top: int) -> None:
        values = (item,) if len(pipe.variables) == 1 else (key, item)
        first = top - len(pipe.variables)
        for place, name in enumerate(pipe.variables):
            if pipe.is_assignment:
                self._assign(name, values[place])
            else:
                self._variables[first + place] = (name, values[place])

    def _use(self, node: Use, dot: Any) -> None:
        self._meter.spend(2)
        value = None if node.pipe is None else self._pipeline(node.pipe, dot)
        if node.name not in self._templates:
            raise FunctionError(f"template {node.name!r} is not defined")
        if self._depth >= MAX_NESTING:
            raise FunctionError(f"templates use each other more than {MAX_NESTING} deep")
        self._depth += 1
        self.template(node.name, value)
        self._depth -= 1

    def _pipeline(self, pipe: Pipe, dot: Any) -> Any:
        value: Any = _NOTHING
        for command in pipe.commands:
            self._meter.spend(1)
            value = self._command(command, dot, value)
        for name in pipe.variables:
            if pipe.is_assignment:
                self._assign(name, value)
            else:
                self._variables.append((name, value))
        return value

    def _assign(self, name: str, value: Any) -> None:
        for place in range(len(self._variables) - 1, -1, -1):
            if self._variables[place][0] == name:
                self._meter.spend((len(self._variables) - place) // 16)
                self._variables[place] = (name, value)
                return
        raise FunctionError(f"{name} is not defined; := defines a variable")

    def _variable(self, name: str) -> Any:
        for distance, (known, value) in enumerate(reversed(self._variables)):
            if known == name:
                self._meter.spend(distance // 16)
                return value
        raise FunctionError(f"{name} is not defined here")

    def _command(self, command: Command, dot: Any, piped: Any) -> Any:
        first = command.operands[0]
        if isinstance(first, Function):
            return self._call(first.name, command.operands[1:], dot, piped)
        if len(command.operands) > 1 or piped is not _NOTHING:
            raise FunctionError(f"{_described(first)} is not a function, so it takes no argument")
        if isinstance(first, Nil):
            raise FunctionError("nil is not a command")
        return self._operand(first, dot)

    def _operand(self, operand: Operand, dot: Any) -> Any:
        value: Any
        match operand:
            case Dot():
                value = dot
            case Field():
                value = self._fields(dot, operand.names)
            case Variable():
                value = self._fields(self._variable(operand.name), operand.fields)
            case Chain():
                value = self._fields(self._operand(operand.operand, dot), operand.fields)
            case Pipe():
                value = self._pipeline(operand, dot)
            case Function():
                value = self._call(operand.name, (), dot, _NOTHING)
            case Nil() | Bool() | String() | Number():
                value = literal_argument(operand, ANY)
            case _:
                assert_never(operand)
        return value

    def _fields(self, value: Any, names: tuple[str, ...]) -> Any:
        for name in names:
            value = _field(value, name)
        return value

    def _call(self, name: str, operands: tuple[Operand, ...], dot: Any, piped: Any) -> Any:
        function = FUNCTIONS[name]
        _check_count(function, len(operands) + (piped is not _NOTHING))
        self._meter.spend(1)
        if name in ("and", "or"):
            return self._logic(name == "or", operands, dot, piped)
        arguments = [
            self._argument(operand, _parameter(function, place), dot) for place, operand in enumerate(operands)
        ]
        if piped is not _NOTHING:
            arguments.append(value_argument(piped, _parameter(function, len(arguments))))
        weigh = self._meter.visit if function.is_deep else self._meter.glance
        for argument in arguments:
            weigh(argument)
        try:
            value = function.call(self._meter, *arguments) if function.metered else function.call(*arguments)
        except FunctionError as error:
            raise FunctionError(f"{name}: {error}") from error
        self._meter.glance(value)
        return value

    def _logic(self, stops_at: bool, operands: tuple[Operand, ...], dot: Any, piped: Any) -> Any:
        value: Any = None
        for operand in operands:
            value = self._argument(operand, ANY, dot)
            if is_true(value) == stops_at:
                return value
        return value if piped is _NOTHING else piped

    def _argument(self, operand: Operand, type_name: str, dot: Any) -> Any:
        if isinstance(operand, Nil | Bool | String | Number):
            return literal_argument(operand, type_name)
        return value_argument(self._operand(operand, dot), type_name)


def _parameter(function: Registered, place: int) -> str:
    return function.parameters[place] if place < len(function.parameters) else function.rest


def _check_count(function: Registered, count: int) -> None:
    wanted = len(function.parameters)
    if count < wanted or (count > wanted and not function.rest):
        at_least = "at least " if function.rest else ""
        raise FunctionError(f"{function.name} takes {at_least}{wanted} arguments; it got {count}")


def _field(value: Any, name: str) -> Any:
    match value:
        case dict():
            if name not in value:
                raise FunctionError(f'map has no entry for key "{name}"; index . "{name}" gives an empty value instead')
            return value[name]
        case Object() if name in value.members:
            return value.members[name]
        case None:
            raise FunctionError(f"nil has no field {name}")
        case _:
            raise FunctionError(f"a {type_of(value)} has no field {name}")


def _described(operand: Operand) -> str:
    match operand:
        case Dot():
            return "."
        case Field():
            return "." + ".".join(operand.names)
        case Variable():
            return ".".join((operand.name, *operand.fields))
        case Bool() | Nil() | String() | Number():
            return source_of(operand)
        case _:
            return "a value that is here"
