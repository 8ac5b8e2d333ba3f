"""Cuts the text of a template into tokens: text between actions, and what stands inside ``{{`` and ``}}``.

The first stage of parsing; trim markers and comments are dealt with here and the parser never sees them. Spaces inside
an action are tokens, because they separate arguments: ``.a.b`` is one operand and ``.a .b`` are two.
"""

import re
from collections.abc import Generator, Iterator
from typing import NamedTuple

from feature_rules.errors import TemplateError

_SPACES = " \t\r\n"
_LEFT = re.compile(r"\{\{(?P<trim>-(?=[ \t\r\n]))?")
_RIGHT = re.compile(r"(?P<trim>[ \t\r\n]-)?\}\}")
_COMMENT = re.compile(r"[ \t\r\n]/\*")
_WORD = r"\w+"
_INSIDE = re.compile(
    rf"""
      (?P<space>[ \t\r\n]+)
    | (?P<declare>:=)
    | (?P<assign>=)
    | (?P<pipe>\|)
    | (?P<string>"(?:[^"\\\n]|\\[^\n])*")
    | (?P<raw>`[^`]*`)
    | (?P<character>'(?:[^'\\\n]|\\[^\n])*')
    | (?P<variable>\$(?:{_WORD})?)
    | (?P<number>(?:[+-]|\.?[0-9])[0-9a-zA-Z_.]*(?:(?<=[eEpP])[+-][0-9_]+)?)
    | (?P<field>\.{_WORD})
    | (?P<dot>\.)
    | (?P<word>{_WORD})
    | (?P<left_paren>\()
    | (?P<right_paren>\))
    | (?P<comma>,)
    """,
    re.VERBOSE,
)
_KEYWORDS = frozenset(
    {"block", "break", "continue", "define", "else", "end", "if", "nil", "range", "template", "with", "true", "false"}
)
_ENDS_WORD = frozenset(" \t\r\n.,|:)(")
_NEEDS_TERMINATOR = frozenset({"variable", "field", "word", "dot"})
_UNTERMINATED = {'"': "quoted string", "`": "raw quoted string", "'": "character constant"}


class Token(NamedTuple):
    """``kind``: ``text``, ``left``, ``right``, ``end of template``, ``keyword``, or a group name of the patterns."""

    kind: str
    text: str
    line: int


def tokens(source: str) -> Iterator[Token]:
    """Cut ``source`` into tokens; the last one is of kind ``end of template``.

    Raises:
        TemplateError: at what is not a token: a stray character, a string, comment or action that does not end.
    """
    position, line = 0, 1
    trims_left = False
    while True:
        left = _LEFT.search(source, position)
        text = source[position : left.start() if left else len(source)]
        shown = _trimmed(text, left=trims_left, right=bool(left and left["trim"]))
        if shown:
            yield Token("text", shown, line + text[: text.find(shown)].count("\n"))
        line += text.count("\n")
        if left is None:
            yield Token("end of template", "", line)
            return
        comment = _COMMENT.match(source, left.end()) if left["trim"] else None
        if source.startswith("/*", left.end()) or comment:
            right = _after_comment(source, left.end(), line)
        else:
            yield Token("left", left[0], line)
            right = yield from _inside(source, left.end(), line)
        line += source.count("\n", left.start(), right.end())
        position = right.end()
        trims_left = right["trim"] is not None


def _trimmed(text: str, *, left: bool, right: bool) -> str:
    if left:
        text = text.lstrip(_SPACES)
    return text.rstrip(_SPACES) if right else text


def _after_comment(source: str, start: int, line: int) -> re.Match[str]:
    end = source.find("*/", source.index("/*", start) + 2)
    if end < 0:
        raise TemplateError(f"line {line}: this comment has no end */")
    right = _RIGHT.match(source, end + 2)
    if right is None:
        raise TemplateError(f"line {line}: the end */ of a comment must be followed by }}}}")
    return right


def _inside(source: str, position: int, first_line: int) -> Generator[Token, None, re.Match[str]]:
    line, depth = first_line, 0
    while True:
        right = _RIGHT.match(source, position)
        if right is not None:
            if depth:
                raise TemplateError(f"line {line}: a parenthesis is not closed before }}}}")
            yield Token("right", right[0], line)
            return right
        found = _INSIDE.match(source, position)
        if found is None or found.lastgroup is None:
            raise TemplateError(f"line {line}: {_not_a_token(source, position, first_line)}")
        kind, text = found.lastgroup, found[0]
        if kind == "space" and (trimming := _RIGHT.match(source, found.end() - 1)) and trimming["trim"]:
            text = text[:-1]
        position = position + len(text)
        if kind in _NEEDS_TERMINATOR and not _is_ended(source, position):
            raise TemplateError(f"line {line}: {source[position]!r} cannot follow {text}; a space may be missing")
        depth += (kind == "left_paren") - (kind == "right_paren")
        if depth < 0:
            raise TemplateError(f"line {line}: this ) closes nothing")
        if text:
            yield Token("keyword" if kind == "word" and text in _KEYWORDS else kind, text, line)
        line += text.count("\n")


def _is_ended(source: str, position: int) -> bool:
    return position == len(source) or source[position] in _ENDS_WORD or source.startswith("}}", position)


def _not_a_token(source: str, position: int, first_line: int) -> str:
    if position >= len(source):
        return f"the action that begins in line {first_line} has no end }}}}"
    character = source[position]
    if character in _UNTERMINATED:
        return f"this {_UNTERMINATED[character]} has no end {character}"
    if character == ":":
        return ": must be followed by ="
    return f"{character!r} has no meaning in an action"
