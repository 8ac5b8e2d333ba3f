"""The kernels of the matrix, by discovery: which headers the archives offer, and in what order they tell most."""

import re
from collections.abc import Iterable, Mapping

from testbed.errors import TestbedError
from testbed.kernels import CLOUD, flavour_of, newest_of_each_series, release_key
from testbed.packages import refreshed_apt

_REALTIME = "rt-amd64"
_GENERIC = "amd64"


def choose_kernels(wanted: str, codename: str = "") -> list[str]:
    """Choose among the kernels whose headers the archives have: all, newest, the first so many, or releases by name.

    ``series`` is the newest cloud kernel of each series, those of backports included.

    Raises:
        TestbedError: when there is none, or not the one that was asked for.
    """
    known = known_kernels(codename)
    if wanted == "all":
        chosen = known
    elif wanted == "newest":
        chosen = known[:2]
    elif wanted == "series":
        chosen = newest_of_each_series([name for name in known if flavour_of(name) == CLOUD])
    elif wanted.isdecimal():
        chosen = known[: int(wanted)]
    else:
        chosen = wanted.split(",")
    unknown = sorted(set(chosen) - set(known))
    if unknown or not chosen:
        hint = f"there are {', '.join(known) or 'none'}"
        raise TestbedError(f"no headers in the archives for {', '.join(unknown) or 'any kernel'}", hint=hint)
    return chosen


def known_kernels(codename: str = "") -> list[str]:
    """Return every kernel whose headers the archives of a Debian release have, those that tell most first."""
    found = refreshed_apt(codename).cache("search", "--names-only", r"^linux-headers-[0-9].*-amd64$")
    return in_order(parse_headers(found))


def parse_headers(search: str) -> list[str]:
    """Return the kernel releases among what apt-cache search prints, oldest first; not the packages of a series."""
    names = re.findall(r"^linux-headers-(\d+\.\d+\.\d+\S*-amd64) ", search, re.MULTILINE)
    return sorted(set(names), key=lambda name: (release_key(name), name))


def in_order(releases: Iterable[str]) -> list[str]:
    """Order releases so that those come first that tell most; whoever stops early has seen the extremes.

    The newest ABI of the oldest series (cloud, generic), its oldest ABI, the newest of each newer series, the other
    ABIs as cloud, then everything that is left; real-time kernels last, the newest first.
    """
    known = list(releases)
    return sorted(known, key=_rank(known).__getitem__)


def _rank(releases: list[str]) -> Mapping[str, tuple[object, ...]]:
    series = sorted({release_key(release)[:2] for release in releases})
    abis = {one: sorted({_abi(name) for name in releases if release_key(name)[:2] == one}) for one in series}

    def rank(release: str) -> tuple[object, ...]:
        own, flavour = release_key(release)[:2], flavour_of(release)
        is_newest, is_oldest = _abi(release) == abis[own][-1], _abi(release) == abis[own][0]
        is_cloud = flavour not in (_GENERIC, _REALTIME)
        if flavour == _REALTIME:
            place = 6
        elif own == series[0] and is_newest:
            place = 0
        elif own == series[0] and is_oldest and is_cloud:
            place = 1
        elif is_newest and is_cloud:
            place = 2
        elif own == series[0] and is_cloud:
            place = 3
        else:
            place = 4 if is_cloud or is_oldest or is_newest else 5
        newest_first = tuple(-number for number in _abi(release))
        return place, not is_newest, newest_first, not is_cloud, release

    return {release: rank(release) for release in releases}


def _abi(release: str) -> tuple[int, ...]:
    """Take the numbers of a release without its flavour, which has some of its own (amd64)."""
    return release_key(release.removesuffix(flavour_of(release)))


def elsewhere(release: str, layouts: Mapping[str, str]) -> list[str]:
    """Choose where else its modules are tried: on the nearest kernel, and on the nearest with another module_layout.

    ``layouts`` maps every kernel there is to the CRC that each module carries. Nearest: of the same flavour, then by
    the number of ABIs between.
    """
    ordered = sorted(layouts, key=lambda name: (_abi(name), name))
    place = ordered.index(release)

    def distance(other: str) -> tuple[object, ...]:
        is_same_series = release_key(other)[:2] == release_key(release)[:2]
        is_same_flavour = flavour_of(other) == flavour_of(release)
        return not is_same_flavour, not is_same_series, abs(ordered.index(other) - place), other

    others = sorted(layouts.keys() - {release}, key=distance)
    other_layout = [other for other in others if layouts[other] != layouts[release]]
    return list(dict.fromkeys([*others[:1], *other_layout[:1]]))
