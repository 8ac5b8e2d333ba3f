"""Parses the texts of /proc that decide on device nodes. Pure: value in, value out."""

import re

from device_agent.device_nodes.values import MajorNames

MAX_MAJOR = 4095
MAX_MINOR = 1048575
"""The kernel keeps a major number in 12 bits and a minor number in 20 (MINORBITS of kdev_t.h)."""
MAX_ID = 2**32 - 2
"""The largest id of a user or a group; the next one means none."""

_SECTION = "Character devices:"
_LINE = re.compile(r" *(\d{1,10}) (.+)", re.ASCII)
_NUMBER = re.compile(r"\d{1,10}", re.ASCII)


def parse_majors(devices_text: str) -> MajorNames:
    """Return the names of the drivers of each major number, of character devices alone.

    The format is ``chrdev_show`` of fs/char_dev.c: a section each for character and block devices, between them a
    blank line. A major number has a line for each range of minor numbers.
    """
    names: dict[int, frozenset[str]] = {}
    _, _, section = devices_text.partition(f"{_SECTION}\n")
    for line in section.split("\n"):
        found = _LINE.fullmatch(line)
        if not found:
            break
        major = int(found[1])
        if major <= MAX_MAJOR:
            names[major] = names.get(major, frozenset()) | {found[2]}
    return names


def parse_fields(text: str) -> dict[str, str]:
    """Return the values of lines such as ``Device Minor: 0``, without the blanks around them."""
    pairs = (line.partition(":") for line in text.split("\n"))
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def parse_number(text: str, most: int) -> int | None:
    """Return a decimal number of at most ``most``; None for anything else."""
    number = int(text) if _NUMBER.fullmatch(text) else None
    return number if number is None or number <= most else None
