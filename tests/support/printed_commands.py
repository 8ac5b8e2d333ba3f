"""The kubectl commands that pages print: in fenced and indented code, and in code within sentences. Pure."""

import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCED = re.compile(r"^( *)(```|~~~)[^\n]*\n(.*?)^\1\2", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_INDENTED = re.compile(r"^ {4,}[^`\n]*$", re.MULTILINE)
_COMMENT = re.compile(r"^ *#( {2,}.*)$", re.MULTILINE)
_BEGIN = re.compile(r"(?<![\w./`-])kubectl(?= +[\w-])")
_OF_TWO_WORDS = ("auth", "create", "rollout", "set")
_ENDS = "|;&<>)\n"
_ENDS_AS_A_WORD = "#("
"""A comment, and an aside of a message."""


def pages() -> list[Path]:
    """Return the files whose commands somebody types: documentation, and manifests with commands in comments."""
    folders = ("docs", "examples", "deploy")
    found = (
        path for folder in folders for ending in ("md", "yaml", "txt") for path in (ROOT / folder).rglob(f"*.{ending}")
    )
    # Decisions tell what was chosen once, not what to type.
    return sorted([ROOT / "README.md", *(path for path in found if "decisions" not in path.parts)])


def commands(text: str, *, is_yaml: bool = False) -> list[tuple[str, ...]]:
    """Return the words behind ``kubectl`` of each command of a page, each once."""
    if is_yaml:
        code = [match[1] for match in _COMMENT.finditer(text)]
        prose = re.sub(r"\n *# ?", " ", text)
    else:
        code = [match[3] for match in _FENCED.finditer(text)]
        prose = _FENCED.sub("", text)
        code += ["\n".join(_INDENTED.findall(prose))]
    code += [re.sub(r"\s*\n\s*", " ", match[1]) for match in _INLINE.finditer(prose)]
    return list(dict.fromkeys(words for part in code for words in _in_shell(part)))


def _in_shell(code: str) -> Iterator[tuple[str, ...]]:
    # A placeholder is a word, and a bar within a table is escaped.
    plain = re.sub(r"<([\w-]+)>", r"\1", code).replace(r"\|", "|")
    for match in _BEGIN.finditer(plain):
        if words := tuple(shlex.split(_until_its_end(plain[match.end() :]))):
            yield words


def _until_its_end(code: str) -> str:
    """Return one simple command: as far as what ends it in a shell, outside of quotes."""
    kept, quote, before = list[str](), "", ""
    for letter in code.replace("\\\n", " "):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in _ENDS or (letter in _ENDS_AS_A_WORD and before == " "):
            break
        kept.append(letter)
        before = letter
    return "".join(kept) + quote


def by_verb(printed: Iterable[tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return verb -> all that is printed behind it, of all commands together, as far as kubectl itself reads it.

    A verb has two words where the first one alone is none (``rollout status``).
    """
    found = defaultdict[str, list[str]](list)
    for words in printed:
        own = words[: words.index("--")] if "--" in words else words
        # Nothing but these is printed before a verb.
        before = 2 if own[0] in ("-n", "--kubeconfig") else 0
        verb, *rest = own[before:]
        if verb in _OF_TWO_WORDS and rest and not rest[0].startswith("-"):
            verb = f"{verb} {rest.pop(0)}"
        found[verb] += [*own[:before], *rest]
    return {verb: tuple(words) for verb, words in sorted(found.items())}


def all_printed() -> list[tuple[str, ...]]:
    """Return the words behind ``kubectl`` of each command of all pages."""
    return [words for page in pages() for words in commands(page.read_text(), is_yaml=page.suffix != ".md")]
