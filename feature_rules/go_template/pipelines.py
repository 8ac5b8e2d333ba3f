"""What stands inside an action: ``$x := command | command``, its operands, and the variables in scope.

The part of the parser that knows functions by name and literals by their value.
"""

from typing import assert_never

from feature_rules.errors import TemplateError
from feature_rules.go_template.data.limits import MAX_NESTING
from feature_rules.go_template.data.numbers import MAX_INT, MAX_UINT, MIN_INT, parse_float, parse_integer
from feature_rules.go_template.functions.table import unknown_function
from feature_rules.go_template.lexer import Token
from feature_rules.go_template.literals import character, unquote
from feature_rules.go_template.nodes import (
    Bool,
    Chain,
    Command,
    Dot,
    Field,
    Function,
    Nil,
    Number,
    Operand,
    Pipe,
    String,
    Variable,
)  # fmt: skip

_BEGINS_OPERAND = frozenset(
    {"string", "raw", "character", "number", "variable", "field", "dot", "word", "keyword", "left_paren"}
)

_FLOAT_MARKS = frozenset(".eEpP")


class Tokens:
    """The tokens of a template with a place among them."""

    def __init__(self, items: tuple[Token, ...]) -> None:
        self._items = items
        self._place = 0

    def peek(self) -> Token:
        """Look at the next token."""
        return self._items[min(self._place, len(self._items) - 1)]

    def next(self) -> Token:
        """Take the next token."""
        token = self.peek()
        self._place += 1
        return token

    def peek_visible(self) -> Token:
        """Take spaces and look at what follows them."""
        while self.peek().kind == "space":
            self._place += 1
        return self.peek()

    def next_visible(self) -> Token:
        """Take spaces and the token behind them."""
        self.peek_visible()
        return self.next()

    def back(self, token: Token) -> None:
        """Go back to just before ``token``."""
        while self._items[self._place - 1] is not token:
            self._place -= 1
        self._place -= 1

    def expect(self, kind: str, context: str) -> Token:
        """Take the next token that is not a space; it must be of ``kind``."""
        token = self.next_visible()
        if token.kind != kind:
            raise unexpected(token, context)
        return token

    def skip_word(self, text: str) -> bool:
        """Take the next keyword if it is ``text``."""
        if (token := self.peek_visible()).kind != "keyword" or token.text != text:
            return False
        self._place += 1
        return True

    def word_after_left(self) -> str:
        """Look at the first word of the action that is next."""
        ahead = self._place + 1
        while self._items[ahead].kind == "space":
            ahead += 1
        return self._items[ahead].text if self._items[ahead].kind == "keyword" else ""


class PipelineParser:
    """Reads pipelines and keeps the variables that are in scope."""

    def __init__(self, stream: Tokens) -> None:
        self._tokens = stream
        self._variables = ["$"]
        self._depth = 0

    def mark(self) -> int:
        """Return how many variables are in scope, for :meth:`release`."""
        return len(self._variables)

    def release(self, mark: int) -> None:
        """Forget the variables declared since ``mark``."""
        del self._variables[mark:]

    def replace_variables(self, variables: list[str]) -> list[str]:
        """Begin another scope; the one before is returned."""
        before, self._variables = self._variables, variables
        return before

    def pipeline(self, context: str, end: str = "right") -> Pipe:
        """Read a pipeline up to and with the token of kind ``end``."""
        line = self._tokens.peek_visible().line
        variables, is_assignment = self._declarations(context)
        commands: list[Command] = []
        while (token := self._tokens.next_visible()).kind != end:
            if token.kind not in _BEGINS_OPERAND:
                raise unexpected(token, context)
            self._tokens.back(token)
            commands.append(self._command())
            if len(commands) > 1 and isinstance(commands[-1].operands[0], Bool | Dot | Nil | Number | String):
                raise TemplateError(f"line {token.line}: {token.text} cannot take the value before the |")
        if not commands:
            raise TemplateError(f"line {line}: a value is missing in {context}")
        return Pipe(line, variables, is_assignment, tuple(commands))

    def _declarations(self, context: str) -> tuple[tuple[str, ...], bool]:
        names: list[str] = []
        while (variable := self._tokens.peek_visible()).kind == "variable":
            self._tokens.next()
            follows = self._tokens.peek_visible()
            if follows.kind in ("assign", "declare"):
                self._tokens.next()
                self._declare(variable, names)
                return tuple(names), follows.kind == "assign"
            if follows.kind != "comma":
                self._tokens.back(variable)
                break
            self._tokens.next()
            self._declare(variable, names)
            if context != "range" or len(names) > 1:
                raise TemplateError(f"line {variable.line}: too many variables in {context}")
        if names:
            raise TemplateError(f"line {variable.line}: after {names[0]}, comes a second variable and :=")
        return (), False

    def _declare(self, variable: Token, names: list[str]) -> None:
        names.append(variable.text)
        self._variables.append(variable.text)

    def _command(self) -> Command:
        operands: list[Operand] = []
        while True:
            token = self._tokens.peek_visible()
            if token.kind in _BEGINS_OPERAND:
                operands.append(self._operand())
            token = self._tokens.next()
            if token.kind == "space":
                continue
            if token.kind in ("right", "right_paren"):
                self._tokens.back(token)
            elif token.kind != "pipe":
                raise unexpected(token, "operand")
            break
        if not operands:
            raise TemplateError(f"line {token.line}: a command is missing before the |")
        return Command(tuple(operands))

    def _operand(self) -> Operand:
        token = self._tokens.next_visible()
        operand = self._term(token)
        fields: list[str] = []
        while self._tokens.peek().kind == "field":
            fields.append(self._tokens.next().text[1:])
        if not fields:
            return operand
        match operand:
            case Field():
                return Field((*operand.names, *fields))
            case Variable():
                return Variable(operand.name, tuple(fields))
            case Function() | Pipe() | Chain():
                return Chain(operand, tuple(fields))
            case Bool() | String() | Number() | Nil() | Dot():
                raise TemplateError(f"line {token.line}: {token.text} has no fields")
            case _:
                assert_never(operand)

    def _term(self, token: Token) -> Operand:
        term: Operand
        match token.kind:
            case "word":
                term = self._function(token)
            case "dot":
                term = Dot()
            case "field":
                term = Field((token.text[1:],))
            case "variable":
                term = self._variable(token)
            case "string" | "raw":
                term = String(token.text, string_value(token, "operand"))
            case "character" | "number":
                term = _number(token)
            case "left_paren":
                term = self._parenthesised(token)
            case _:
                term = _constant(token)
        return term

    def _variable(self, token: Token) -> Variable:
        if token.text not in self._variables:
            raise TemplateError(f"line {token.line}: {token.text} is not defined here")
        return Variable(token.text, ())

    def _function(self, token: Token) -> Function:
        reason = unknown_function(token.text)
        if reason:
            raise TemplateError(f"line {token.line}: {reason}")
        return Function(token.text)

    def _parenthesised(self, token: Token) -> Pipe:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise TemplateError(f"line {token.line}: parentheses are nested more than {MAX_NESTING} deep")
        pipe = self.pipeline("parentheses", "right_paren")
        self._depth -= 1
        return pipe


def unexpected(token: Token, context: str) -> TemplateError:
    """Make the error about a token that may not stand in ``context``."""
    what = "the end of the template" if token.kind == "end of template" else repr(token.text)
    return TemplateError(f"line {token.line}: unexpected {what} in {context}")


def string_value(token: Token, context: str) -> str:
    """Take the quotes off a string token."""
    if token.kind not in ("string", "raw"):
        raise unexpected(token, context)
    value = unquote(token.text)
    if value is None:
        raise TemplateError(f"line {token.line}: {token.text} has a wrong \\ escape")
    return value


def _constant(token: Token) -> Operand:
    if token.text in ("true", "false"):
        return Bool(token.text == "true")
    if token.text == "nil":
        return Nil()
    raise unexpected(token, "operand")


def _number(token: Token) -> Number:
    if token.kind == "character":
        code = character(token.text)
        if code is None:
            raise TemplateError(f"line {token.line}: {token.text} is not one character")
        return Number(token.text, code, float(code), is_float=False)
    integer = parse_integer(token.text)
    if integer is not None and MIN_INT <= integer <= MAX_UINT:
        return Number(token.text, integer, float(integer), is_float=False)
    floating = parse_float(token.text) if _FLOAT_MARKS.intersection(token.text) else None
    if integer is not None or floating is None:
        reason = "is too large" if integer is not None else "is not a number"
        raise TemplateError(f"line {token.line}: {token.text} {reason}")
    fits = floating.is_integer() and MIN_INT <= floating <= MAX_INT
    return Number(token.text, int(floating) if fits else None, floating, is_float=True)
