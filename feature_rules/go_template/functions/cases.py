"""Sprig's functions on the case of letters: ``upper``, ``title``, ``camelcase``, ``snakecase`` and their like.

Go changes one character into one character, where Python's ``upper`` may make two of it; these do as Go.
"""

from collections.abc import Callable
from typing import NamedTuple

from feature_rules.go_template.data.limits import Meter
from feature_rules.go_template.functions.registry import Registry
from feature_rules.go_template.functions.text import SPACES

REGISTRY = Registry()


def _category(character: str) -> str:
    import unicodedata  # noqa: PLC0415 - 0.3 MiB that few templates need

    return unicodedata.category(character)


def _mapped(convert: Callable[[str], str]) -> Callable[[str], str]:
    def one(character: str) -> str:
        changed = convert(character)
        return changed if len(changed) == 1 else character

    return one


_upper = _mapped(str.upper)
_title = _mapped(str.title)


def _lower(character: str) -> str:
    return character.lower()[:1]


def _is_connector(character: str) -> bool:
    return character in "-_" or character in SPACES


def _is_part_of_word(character: str) -> bool:
    if character < "\x80":
        return character.isalnum() or character == "_"
    return _category(character)[0] == "L" or character.isdecimal() or character not in SPACES


@REGISTRY.function("title(string)", metered=True)
def _title_words(meter: Meter, text: str) -> str:
    meter.spend(len(text))
    before = " "
    changed = []
    for character in text:
        changed.append(character if _is_part_of_word(before) else _title(character))
        before = character
    return "".join(changed)


@REGISTRY.function("untitle(string)", metered=True)
def _untitle_words(meter: Meter, text: str) -> str:
    meter.spend(len(text))
    begins = True
    changed = []
    for character in text:
        changed.append(_lower(character) if begins and character not in SPACES else character)
        begins = character in SPACES
    return "".join(changed)


@REGISTRY.function("swapcase(string)", metered=True)
def _swap_case(meter: Meter, text: str) -> str:
    meter.spend(len(text))
    begins = True
    changed = []
    for character in text:
        category = _category(character)
        if category in ("Lu", "Lt"):
            changed.append(_lower(character))
            begins = False
        elif category == "Ll":
            changed.append(_title(character) if begins else _upper(character))
            begins = False
        else:
            changed.append(character)
            begins = character in SPACES
    return "".join(changed)


@REGISTRY.function("initials(string)", metered=True)
def _initials(meter: Meter, text: str) -> str:
    meter.spend(len(text))
    return "".join(
        character
        for before, character in zip(" " + text, text, strict=False)
        if before in SPACES and character not in SPACES
    )


@REGISTRY.function("camelcase(string)", metered=True)
def _camel_case(meter: Meter, text: str) -> str:
    """Join words with a capital each; connectors at the ends, and all but one of several, stay."""
    meter.spend(len(text))
    inner = text.lstrip(f"-_{SPACES}")
    if not inner:
        return text
    kept = [text[: len(text) - len(inner)]]
    before = _upper(inner[0])
    for character in inner[1:]:
        if not _is_connector(before):
            kept.append(before)
            before = _lower(character)
        elif _is_connector(character):
            kept.append(before)
            before = character
        else:
            before = _upper(character)
    return "".join(kept) + before


class _Word(NamedTuple):
    kind: str
    text: str


def _kind(character: str) -> str:
    if _is_connector(character):
        return "connector"
    category = _category(character)
    if category[0] == "P":
        return "punctuation"
    if category == "Lu":
        return "capital"
    if category[0] == "L":
        return "letter"
    return "number" if category[0] == "N" else "other"


def _words(text: str) -> list[_Word]:
    """Cut into runs of one kind; a capital begins a word, and the last of several begins the next one.

    Behind punctuation ``-`` and ``_`` are punctuation, too.
    """
    words: list[_Word] = []
    place = 0
    while place < len(text):
        kind = _kind(text[place])
        end = _run_end(text, place, kind)
        if kind == "capital":
            if end - place == 1:
                end = _run_end(text, end, "letter")
            elif end < len(text) and _kind(text[end]) == "letter":
                end -= 1
        words.append(_Word(kind, text[place:end]))
        place = end
    return words


def _run_end(text: str, place: int, kind: str) -> int:
    while place < len(text) and (
        _kind(text[place]) == kind or (kind == "punctuation" and _category(text[place])[0] == "P")
    ):
        place += 1
    return place


def _connected(meter: Meter, text: str, connector: str) -> str:
    """Write the words in lower case with ``connector`` between them.

    A number belongs to the word before it, unless small letters follow: Bld4Floor is bld4_floor, http2xx is http_2xx.
    """
    meter.spend(2 * len(text))
    words = _words(text)
    written: list[str] = []
    place = 0
    while place < len(words):
        word = words[place]
        written.append(_small(word, connector))
        place += 1
        if word.kind in ("connector", "punctuation"):
            continue
        if word.kind != "number" and _kind_at(words, place) == "number":
            place = _number_after_word(words, place, written, connector)
            continue
        if word.kind == "number":
            place = _letters_after_number(words, place, written, connector)
        if _begins_word(words, place):
            written.append(connector)
    return "".join(written)


def _number_after_word(words: list[_Word], place: int, written: list[str], connector: str) -> int:
    if _kind_at(words, place + 1) == "letter":
        written.append(connector)
        written.append(words[place].text)
        place = _letters_after_number(words, place + 1, written, connector)
    else:
        written.append(words[place].text)
        place += 1
    if _begins_word(words, place):
        written.append(connector)
    return place


def _letters_after_number(words: list[_Word], place: int, written: list[str], connector: str) -> int:
    while _kind_at(words, place) in ("letter", "number"):
        written.append(_small(words[place], connector))
        place += 1
    return place


def _kind_at(words: list[_Word], place: int) -> str:
    return words[place].kind if place < len(words) else ""


def _begins_word(words: list[_Word], place: int) -> bool:
    return _kind_at(words, place) not in ("", "connector", "punctuation")


def _small(word: _Word, connector: str) -> str:
    if word.kind == "connector":
        return connector * len(word.text)
    return "".join(map(_lower, word.text)) if word.kind == "capital" else word.text


def _each(convert: Callable[[str], str]) -> Callable[[Meter, str], str]:
    def change(meter: Meter, text: str) -> str:
        meter.spend(len(text) // 4)
        return "".join(map(convert, text))

    return change


REGISTRY.add("upper(string)", _each(_upper), metered=True)
REGISTRY.add("lower(string)", _each(_lower), metered=True)
REGISTRY.add("snakecase(string)", lambda meter, text: _connected(meter, text, "_"), metered=True)
REGISTRY.add("kebabcase(string)", lambda meter, text: _connected(meter, text, "-"), metered=True)
