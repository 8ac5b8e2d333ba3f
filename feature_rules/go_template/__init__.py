"""Templates of rules: Go's text/template with sprig's functions, in pure Python, for labels made of what matched.

``labelsTemplate`` and ``varsTemplate`` of a rule are parsed once, when the rule is loaded, and expanded over what it
matched: domain -> feature -> elements. The option missingkey=error of upstream holds: ``.missing`` is an error, and
``index . "missing"`` is the empty value.

The source goes through :mod:`lexer`, :mod:`parser` and :mod:`pipelines` into :mod:`nodes`; :mod:`evaluate` walks
through those. Templates are written by users and run on every node: :mod:`limits` bounds their work and their memory.

Format: https://pkg.go.dev/text/template and https://masterminds.github.io/sprig/.
"""

from collections.abc import Mapping
from typing import Any

from feature_rules.errors import TemplateError
from feature_rules.go_template.data.limits import MAX_SOURCE_BYTES
from feature_rules.go_template.data.values import byte_length, from_data
from feature_rules.go_template.evaluate import expand
from feature_rules.go_template.nodes import Body
from feature_rules.go_template.parser import MAIN, parse

__all__ = ["Template", "TemplateError", "parse_template"]


class Template:
    """A parsed template; frozen, so one may be expanded as often as wanted."""

    __slots__ = ("_bodies",)

    def __init__(self, bodies: Mapping[str, Body]) -> None:
        self._bodies = bodies

    def expand(self, data: Mapping[str, Any]) -> str:
        """Write the template's text over ``data``: domain -> feature -> list of elements, each str -> str.

        Raises:
            TemplateError: with the line: a field or function does not fit the data, the template calls ``fail``, or it
                does more than 200,000 steps or writes more than 1 MiB.
        """
        return expand(self._bodies, MAIN, from_data(data))


def parse_template(text: str) -> Template:
    """Parse the text of a template, of 65536 bytes at most.

    Raises:
        TemplateError: with the line and what is wrong there; for an unknown function, the name it may have meant.
    """
    size = byte_length(text)
    if size > MAX_SOURCE_BYTES:
        raise TemplateError(f"line 1: the template has {size} bytes; at most {MAX_SOURCE_BYTES} are allowed")
    return Template(parse(text))
