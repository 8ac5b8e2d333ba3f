"""Strings and characters between quotes with Go's escapes: ``%q`` and sprig's ``quote``. Pure."""

from feature_rules.go_template.data.values import to_bytes

_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\"}


def quoted(text: str, quote: str = '"', *, only_ascii: bool = False) -> str:
    """Write ``text`` as a Go string constant."""
    return quote + "".join(_escaped(character, quote, only_ascii) for character in text) + quote


def is_printable(character: str) -> bool:
    """Return whether Go prints a character as itself: letters, marks, numbers, punctuation, symbols, ASCII space."""
    return character.isprintable()


def is_raw_byte(character: str) -> bool:
    """Return whether a character stands for one byte that is not UTF-8."""
    return "\udc80" <= character <= "\udcff"


def can_be_raw(text: str) -> bool:
    """Return whether ``text`` can stand between backquotes: printable or tabs, and no backquote."""
    return all(
        (character == "\t" or (character >= " " and character not in "`\x7f\ufeff")) and not is_raw_byte(character)
        for character in text
    )


def _escaped(character: str, quote: str, only_ascii: bool) -> str:
    if character == quote:
        return f"\\{quote}"
    if character in _ESCAPES:
        return _ESCAPES[character]
    if is_printable(character) and (character < "\x7f" or not only_ascii):
        return character
    code = ord(character)
    if is_raw_byte(character) or code < 0x20 or code == 0x7F:
        return f"\\x{to_bytes(character)[0]:02x}"
    if 0xD800 <= code < 0xE000:
        return "\\ufffd" if only_ascii else "\ufffd"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
