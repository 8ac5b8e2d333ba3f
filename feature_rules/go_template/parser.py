"""Tokens to nodes: the blocks of a template, those it defines, and the scopes of its variables.

The second stage of parsing, after :mod:`lexer`; what stands inside an action is :mod:`pipelines`' part. Everything that
upstream refuses when it loads a rule is refused here: unknown functions and variables, and blocks that do not match.
"""

from collections.abc import Mapping

from feature_rules.errors import TemplateError
from feature_rules.go_template.data.limits import MAX_NESTING
from feature_rules.go_template.lexer import Token, tokens
from feature_rules.go_template.nodes import Action, Body, Branches, Leave, Node, Pipe, Range, Text, Use
from feature_rules.go_template.pipelines import PipelineParser, Tokens, string_value, unexpected

MAIN = ""
"""Name of the template itself among those it defines; upstream's, too."""


def parse(source: str) -> Mapping[str, Body]:
    """Parse a template: the bodies of all templates in it by name, the main one under :data:`MAIN`.

    Raises:
        TemplateError: with the line and what is wrong there.
    """
    parser = _Parser(Tokens(tuple(tokens(source))))
    parser.define(MAIN, parser.main(), 1)
    return parser.definitions


class _Parser:
    """One pass over the tokens; holds what is in scope where it stands."""

    def __init__(self, stream: Tokens) -> None:
        self.definitions: dict[str, Body] = {}
        self._tokens = stream
        self._pipelines = PipelineParser(stream)
        self._range_depth = 0
        self._depth = 0

    def define(self, name: str, body: Body, line: int) -> None:
        """Keep a body under its name; of two only one may have contents."""
        if name not in self.definitions or _is_empty(self.definitions[name]):
            self.definitions[name] = body
        elif not _is_empty(body):
            raise TemplateError(f"line {line}: template {name!r} is defined twice")

    def main(self) -> Body:
        """Read to the end; only here may ``define`` stand."""
        body: list[Node] = []
        while self._tokens.peek().kind != "end of template":
            if self._starts("define"):
                self._definition()
                continue
            end, node = self._node()
            if end is not None:
                raise TemplateError(f"line {end.line}: {{{{{end.text}}}}} closes nothing")
            body.extend(node)
        return tuple(body)

    def _starts(self, keyword: str) -> bool:
        return self._tokens.peek().kind == "left" and self._tokens.word_after_left() == keyword

    def _definition(self) -> None:
        self._tokens.next()
        line = self._tokens.next_visible().line
        name = string_value(self._tokens.next_visible(), "define")
        self._tokens.expect("right", "define")
        self._separate_template(name, line, "define")

    def _separate_template(self, name: str, line: int, what: str) -> None:
        outer, self._range_depth = self._range_depth, 0
        outer_variables = self._pipelines.replace_variables(["$"])
        body = self._body_to_end(line, what)
        self._pipelines.replace_variables(outer_variables)
        self._range_depth = outer
        self.define(name, body, line)

    def _body(self, line: int, what: str) -> tuple[Body, Token]:
        """Read up to ``end`` or ``else``; that keyword is returned, with what follows it still unread."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise TemplateError(f"line {line}: blocks are nested more than {MAX_NESTING} deep")
        body: list[Node] = []
        while self._tokens.peek().kind != "end of template":
            end, node = self._node()
            if end is not None:
                self._depth -= 1
                return tuple(body), end
            body.extend(node)
        raise TemplateError(f"line {line}: this {{{{{what}}}}} has no {{{{end}}}}")

    def _body_to_end(self, line: int, what: str) -> Body:
        body, end = self._body(line, what)
        if end.text != "end":
            raise TemplateError(f"line {end.line}: {{{{else}}}} where {{{{end}}}} of {{{{{what}}}}} is expected")
        self._tokens.expect("right", "end")
        return body

    def _node(self) -> tuple[Token | None, tuple[Node, ...]]:
        """Read text or an action: the keyword that ends this body, or what belongs into it."""
        token = self._tokens.next()
        if token.kind == "text":
            return None, (Text(token.line, token.text),)
        word = self._tokens.next_visible()
        if word.kind != "keyword" or word.text in ("nil", "true", "false"):
            self._tokens.back(word)
            return None, (Action(token.line, self._pipelines.pipeline("command")),)
        if word.text in ("end", "else"):
            return word, ()
        return None, (self._block(word),)

    def _block(self, word: Token) -> Node:
        match word.text:
            case "if" | "with":
                return self._branches(word)
            case "range":
                return self._range(word)
            case "template" | "block":
                return self._use(word)
            case "break" | "continue":
                return self._leave(word)
            case _:
                raise TemplateError(f"line {word.line}: {{{{{word.text}}}}} may not stand inside another block")

    def _branches(self, word: Token) -> Branches:
        scope = self._pipelines.mark()
        branches: list[tuple[Pipe, Body]] = []
        while True:
            pipe = self._pipelines.pipeline(word.text)
            body, end = self._body(word.line, word.text)
            branches.append((pipe, body))
            if end.text == "end" or not self._tokens.skip_word(word.text):
                break
        otherwise = self._otherwise(word, end)
        self._pipelines.release(scope)
        return Branches(word.line, word.text == "with", tuple(branches), otherwise)

    def _range(self, word: Token) -> Range:
        scope = self._pipelines.mark()
        pipe = self._pipelines.pipeline("range")
        self._range_depth += 1
        body, end = self._body(word.line, "range")
        self._range_depth -= 1
        otherwise = self._otherwise(word, end)
        self._pipelines.release(scope)
        return Range(word.line, pipe, body, otherwise)

    def _otherwise(self, word: Token, end: Token) -> Body:
        self._tokens.expect("right", end.text)
        return () if end.text == "end" else self._body_to_end(word.line, word.text)

    def _use(self, word: Token) -> Use:
        name = string_value(self._tokens.next_visible(), word.text)
        pipe = None
        token = self._tokens.next_visible()
        if token.kind != "right" or word.text == "block":
            self._tokens.back(token)
            pipe = self._pipelines.pipeline(word.text)
        if word.text == "block":
            self._separate_template(name, word.line, "block")
        return Use(word.line, name, pipe)

    def _leave(self, word: Token) -> Leave:
        token = self._tokens.next_visible()
        if token.kind != "right":
            raise unexpected(token, word.text)
        if not self._range_depth:
            raise TemplateError(f"line {word.line}: {{{{{word.text}}}}} outside {{{{range}}}}")
        return Leave(word.line, word.text == "continue")


def _is_empty(body: Body) -> bool:
    return all(isinstance(node, Text) and not node.text.strip() for node in body)
