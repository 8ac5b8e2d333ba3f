"""YAML as composed nodes, within bounds: only nodes know their line, and nothing is built that a bomb could blow up.

:mod:`feature_rules.load` reads rules from the nodes with :class:`NodeReader`, which collects what is wrong.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import yaml

from feature_rules.model import RuleProblem

MAX_CHARACTERS = 1 << 20
MAX_DEPTH = 100
MAX_NODES = 50_000
"""Each costs PyYAML 1.2 kB while it reads."""

MAX_PROBLEMS = 200
_SHOWN = 60

_TAG = "tag:yaml.org,2002:"
_NULL, _BOOL, _MERGE = f"{_TAG}null", f"{_TAG}bool", f"{_TAG}merge"
_NUMBERS = frozenset({f"{_TAG}int", f"{_TAG}float"})
_TEXTS = frozenset({f"{_TAG}{kind}" for kind in ("str", "timestamp", "value", "merge")})
_TRUE = frozenset({"true", "yes", "on"})
_CANONICAL = re.compile(r"-?(?:0|[1-9][0-9]{0,14})|-?(?:0|[1-9][0-9]{0,6})\.[0-9]{0,7}[1-9]")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Composed(NamedTuple):
    """The documents of a text, as far as it is YAML; ``error`` and ``line`` say where and why it ends early."""

    documents: tuple[yaml.Node, ...]
    error: str = ""
    line: int = 0


class _BoundedLoader(yaml.SafeLoader):
    """Composes as SafeLoader does, and stops at what would exhaust Python's stack or the container's memory."""

    depth = 0
    nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.depth += 1
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise yaml.MarkedYAMLError(problem=f"more than {MAX_NODES} entries", problem_mark=self.get_mark())
        if self.depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(problem=f"nested deeper than {MAX_DEPTH} levels", problem_mark=self.get_mark())
        node: yaml.Node | None = super().compose_node(parent, index)
        self.depth -= 1
        return node


def compose(text: str) -> Composed:
    """Compose all documents of a text of at most 1 MiB; raises nothing."""
    if len(text) > MAX_CHARACTERS:
        return Composed((), f"is longer than {MAX_CHARACTERS} characters")
    documents: list[yaml.Node] = []
    try:
        loader = _BoundedLoader(text)
        while loader.check_node():
            node = loader.get_node()
            documents += [node] if node else []
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        return Composed(tuple(documents), f"is not YAML: {error.problem or error.context}", line)
    except yaml.YAMLError as error:
        return Composed(tuple(documents), f"is not YAML: {str(error).splitlines()[0]}")
    # PyYAML lets errors of int() and chr() pass. Which ones, and their words, differ between versions of Python.
    except (ValueError, OverflowError):
        return Composed(tuple(documents), "is not YAML: an escape or a version is too large a number", loader.line + 1)
    return Composed(tuple(documents))


def excess(node: yaml.Node) -> str | None:
    """Return why a node is too much to read once every alias in it is followed; None when it is not."""
    try:
        size, _ = _measure(node, 1, {})
    except RecursionError:
        return f"nested deeper than {MAX_DEPTH} levels"
    return f"has more than {MAX_NODES} entries once its aliases are followed" if size > MAX_NODES else None


def _measure(node: yaml.Node, depth: int, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Count the nodes and levels below a node; each is visited once, however many aliases lead to it."""
    size, height = known.get(id(node), (0, 0))
    if depth + height > MAX_DEPTH:
        raise RecursionError
    if size:
        return size, height
    sizes = [_measure(child, depth + 1, known) for child in _children(node)]
    known[id(node)] = measured = 1 + sum(size for size, _ in sizes), 1 + max((height for _, height in sizes), default=0)
    return measured


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def is_null(node: yaml.Node | None) -> bool:
    """Return whether nothing is written here."""
    return node is None or node.tag == _NULL


def scalar_text(node: yaml.ScalarNode, *, convert: bool) -> str | None:
    """Give the text of a scalar; None when it is not one.

    With ``convert``, booleans and numbers are texts, too, if YAML leaves them as they are written: ``0300``, ``1.10``
    and ``1e3`` would become 192, 1.1 and 1000, which is never meant.
    """
    text = str(node.value)
    if node.tag in _TEXTS or (node.tag in _NUMBERS and ":" in text):
        return _mended(text) if _SURROGATE.search(text) else text
    if convert and node.tag in (_NULL, _BOOL):
        return "" if node.tag == _NULL else str(text.lower() in _TRUE).lower()
    return text if convert and node.tag in _NUMBERS and _CANONICAL.fullmatch(text) else None


def _mended(text: str) -> str:
    """Join the surrogate pairs of JSON's escapes, which PyYAML leaves apart; a single one becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class NodeReader:
    """Reads values from nodes for one file and keeps what is wrong; what it cannot read it gives as empty.

    ``rule``: the origin of the rule being read, for problems. ``convert``: as of :func:`scalar_text`; then the names of
    fields are compared without regard to case, too, as Go's JSON does. ``mistakes``: how many there were, of which the
    first 200 are kept as ``problems``.
    """

    def __init__(self, file: str, *, convert: bool) -> None:
        self.file = file
        self.convert = convert
        self.rule = ""
        self.mistakes = 0
        self.problems: list[RuleProblem] = []

    def report(self, node: yaml.Node, field: str, message: str, *, word: str = "", known: Sequence[str] = ()) -> None:
        """Keep a problem with the line of its node, and with a hint where a ``word`` is not one of the known ones."""
        self.mistakes += 1
        if self.mistakes <= MAX_PROBLEMS:
            hint = nearest(word, known) if known else ""
            self.problems.append(RuleProblem(self.rule, field, message + hint, self.file, node.start_mark.line + 1))

    def fields(self, node: yaml.Node, path: str, known: Sequence[str]) -> dict[str, yaml.Node]:
        """Read a mapping whose keys are ``known``; fields that are null count as not given."""
        by_name = {name.lower() if self.convert else name: name for name in known}
        found: dict[str, yaml.Node] = {}
        for key, (key_node, value) in self._pairs(node, path).items():
            name = by_name.get(key.lower() if self.convert else key)
            if name is None:
                self.report(key_node, joined(path, key), "there is no such field", word=key, known=known)
            elif not is_null(value):
                found[name] = value
        return found

    def entries(self, node: yaml.Node, path: str) -> dict[str, yaml.Node]:
        """Read a mapping; a merge key (``<<``) fills in what the mapping itself does not give."""
        return {key: value for key, (_, value) in self._pairs(node, path).items()}

    def _pairs(self, node: yaml.Node, path: str) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        if not isinstance(node, yaml.MappingNode):
            self.report(node, path, "must be a mapping")
            return {}
        own: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        merged: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
                for source in reversed(sources):
                    merged |= self._pairs(source, path)
                continue
            name = scalar_text(key, convert=key.tag != _BOOL) if isinstance(key, yaml.ScalarNode) else None
            if name is None:
                self.report(key, path, "has a key that is not a string; put it in quotes")
            elif name in own:
                self.report(key, joined(path, name), "is given twice")
            else:
                own[name] = key, value
        return merged | own

    def items(self, node: yaml.Node, path: str) -> list[tuple[str, yaml.Node]]:
        """Read a list: the path and the node of each item."""
        if not isinstance(node, yaml.SequenceNode):
            self.report(node, path, "must be a list")
            return []
        return [(f"{path}[{index}]", item) for index, item in enumerate(node.value)]

    def text(self, node: yaml.Node, path: str) -> str:
        """Read a text."""
        text = scalar_text(node, convert=self.convert) if isinstance(node, yaml.ScalarNode) else None
        if text is None:
            quote = "; put it in quotes" if isinstance(node, yaml.ScalarNode) and not is_null(node) else ""
            self.report(node, path, f"must be a string{quote}")
        return text or ""

    def text_map(self, node: yaml.Node | None, path: str) -> dict[str, str]:
        """Read a mapping of texts; empty when it is not given."""
        if node is None:
            return {}
        return {key: self.text(value, joined(path, key)) for key, value in self.entries(node, path).items()}


def joined(path: str, name: str) -> str:
    """Append a name to a path of fields."""
    return f"{path}.{name[:_SHOWN]}" if path else name[:_SHOWN]


def nearest(word: str, known: Sequence[str]) -> str:
    """Return which of the known words is meant, if one is near."""
    import difflib  # noqa: PLC0415 - needed for mistakes only

    near = difflib.get_close_matches(word[:_SHOWN], known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
