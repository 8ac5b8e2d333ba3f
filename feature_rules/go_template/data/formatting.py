"""Go's fmt: ``print``, ``println`` and ``printf``, and how an action prints its value.

Format directives are read here; :mod:`verbs` writes one value. A directive that does not fit its argument is not an
error in Go but text such as ``%!d(string=x)``, and it is the same text here.
"""

import re
from typing import Any

from feature_rules.go_template.data.limits import Meter
from feature_rules.go_template.data.values import type_of
from feature_rules.go_template.data.verbs import Flags, Writer

_FLAGS = "#0+- "
_LARGEST_NUMBER = 1_000_000
_DIGITS = re.compile(r"[0-9]*")


def printed(meter: Meter, value: Any) -> str:
    """Write ``value`` as an action does; nil is ``<no value>``."""
    if isinstance(value, str):
        return value
    return "<no value>" if value is None else plain(meter, value)


def plain(meter: Meter, value: Any) -> str:
    """Write ``value`` as ``%v`` does."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(int(value))
    writer = Writer(meter)
    writer.value(value, "v", Flags())
    return writer.text()


def sprint(meter: Meter, *values: Any) -> str:
    """Write values one after the other, with a space between two of which neither is a string."""
    writer = Writer(meter)
    for place, value in enumerate(values):
        if place and not isinstance(value, str) and not isinstance(values[place - 1], str):
            writer.write(" ")
        writer.value(value, "v", Flags())
    return writer.text()


def sprintln(meter: Meter, *values: Any) -> str:
    """Write values with spaces between them and a newline at the end."""
    writer = Writer(meter)
    for place, value in enumerate(values):
        if place:
            writer.write(" ")
        writer.value(value, "v", Flags())
    writer.write("\n")
    return writer.text()


def sprintf(meter: Meter, template: str, *values: Any) -> str:
    """Write ``values`` into a Go format string."""
    directives = _Directives(meter, template, values)
    while not directives.is_done():
        directives.next()
    directives.name_unused()
    return directives.writer.text()


class _Directives:
    """A walk over a format string: where it is, and which argument is next."""

    def __init__(self, meter: Meter, template: str, values: tuple[Any, ...]) -> None:
        self.writer = Writer(meter)
        self._meter = meter
        self._template = template
        self._values = values
        self._place = 0
        self._argument = 0
        self._is_reordered = False
        self._is_good_argument = True
        self._has_index = False

    def is_done(self) -> bool:
        return self._place >= len(self._template)

    def next(self) -> None:
        """Copy text up to the next directive, and write that."""
        percent = self._template.find("%", self._place)
        end = percent if percent >= 0 else len(self._template)
        self.writer.write(self._template[self._place : end])
        self._place = end + 1
        if percent >= 0:
            self._directive()

    def name_unused(self) -> None:
        """Write down the arguments that no directive took."""
        if self._is_reordered or self._argument >= len(self._values):
            return
        self.writer.write("%!(EXTRA ")
        for place, value in enumerate(self._values[self._argument :]):
            self.writer.write(", " if place else "")
            self.writer.write(f"{type_of(value)}=" if value is not None else "")
            self.writer.value(value, "v", Flags())
        self.writer.write(")")

    def _directive(self) -> None:
        self._meter.spend(4)
        flags = self._flags()
        self._is_good_argument, self._has_index = True, False
        self._index()
        flags = self._width(flags)
        flags = self._precision(flags)
        if not self._has_index:
            self._index()
        if self.is_done():
            self.writer.write("%!(NOVERB)")
            return
        verb = self._template[self._place]
        self._place += 1
        self._verb(verb, flags)

    def _verb(self, verb: str, flags: Flags) -> None:
        if verb == "%":
            self.writer.write("%")
        elif not self._is_good_argument:
            self.writer.write(f"%!{verb}(BADINDEX)")
        elif self._argument >= len(self._values):
            self.writer.write(f"%!{verb}(MISSING)")
        else:
            if verb == "v":
                flags = flags._replace(go_syntax=flags.alternate, alternate=False, plus=False)
            self.writer.value(self._values[self._argument], verb, flags)
            self._argument += 1

    def _flags(self) -> Flags:
        flags = Flags()
        while not self.is_done() and (character := self._template[self._place]) in _FLAGS:
            self._place += 1
            match character:
                case "#":
                    flags = flags._replace(alternate=True)
                case "0":
                    flags = flags._replace(zero=not flags.minus)
                case "+":
                    flags = flags._replace(plus=True)
                case "-":
                    flags = flags._replace(minus=True, zero=False)
                case _:
                    flags = flags._replace(space=True)
        return flags

    def _index(self) -> None:
        """Read ``[3]``, the argument that the directive takes."""
        if not self._template.startswith("[", self._place):
            self._has_index = False
            return
        self._is_reordered = True
        close = self._template.find("]", self._place)
        inside = self._template[self._place + 1 : close] if close >= 0 else ""
        self._place = close + 1 if close >= 0 else self._place + 1
        number = int(inside) if inside.isdecimal() and inside.isascii() and len(inside) < 8 else 0
        self._has_index = bool(number)
        if 1 <= number <= len(self._values):
            self._argument = number - 1
        else:
            self._is_good_argument = False

    def _width(self, flags: Flags) -> Flags:
        if self._template.startswith("*", self._place):
            self._place += 1
            width = self._number_argument()
            self._has_index = False
            if width is None:
                self.writer.write("%!(BADWIDTH)")
                return flags
            if width < 0:
                return flags._replace(width=-width, minus=True, zero=False)
            return flags._replace(width=width)
        width = self._number()
        if width is not None and self._has_index:
            self._is_good_argument = False
        return flags._replace(width=width)

    def _precision(self, flags: Flags) -> Flags:
        if not self._template.startswith(".", self._place):
            return flags
        self._place += 1
        if self._has_index:
            self._is_good_argument = False
        self._index()
        if not self._template.startswith("*", self._place):
            return flags._replace(precision=self._number() or 0)
        self._place += 1
        precision = self._number_argument()
        self._has_index = False
        if precision is None:
            self.writer.write("%!(BADPREC)")
            return flags
        if precision < 0:
            self.writer.write("%!(BADPREC)")
            return flags
        return flags._replace(precision=precision)

    def _number(self) -> int | None:
        digits = _DIGITS.match(self._template, self._place)
        text = digits[0] if digits else ""
        self._place += len(text)
        if len(text) > 8 or int(text[:-1] or 0) > _LARGEST_NUMBER:
            self._place = len(self._template)
            return None
        return int(text) if text else None

    def _number_argument(self) -> int | None:
        if self._argument >= len(self._values):
            return None
        value = self._values[self._argument]
        self._argument += 1
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _LARGEST_NUMBER:
            return None
        return int(value)
