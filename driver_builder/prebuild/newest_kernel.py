"""The newest kernel that a node of a distribution can move to, among those that its repository offers. Pure.

A node stays on its *stream*: what its package manager keeps it on unless a person decides otherwise. That is the
series (6.1, 6.12) and flavour on Debian and Ubuntu, the minor release of RHEL and its kin, the release of Fedora, the
series of Amazon Linux, the service pack of SLES. Only a node on one of Debian's older backports (``+bpo``) moves from
series to series, as that repository does.
"""

import re
from collections.abc import Iterable, Mapping

from driver_builder.model.kernels import KernelTarget, KernelVersion, is_kernel_version
from driver_builder.targets import resolve_target

_RPM = r"\.(?P<arch>[a-z0-9_]+?)(?P<flavour>\+[a-z0-9-]+)?"

STREAMS: Mapping[str, re.Pattern[str]] = {
    "debian": re.compile(
        r"(?P<order>(?:[0-9]+\.[0-9]+\.[0-9]+(?P<moving>\+bpo)|(?P<series>[0-9]+\.[0-9]+)\.[0-9]+(?P<release>\+[a-z]+[0-9]+)?)"
        r"(?:[-+.][0-9](?:[0-9a-z.]|[-+][0-9])*)?)-(?P<flavour>[a-z][a-z0-9-]*)"
    ),
    "ubuntu": re.compile(r"(?P<order>(?P<series>[0-9]+\.[0-9]+\.[0-9]+)-[0-9]+)-(?P<flavour>[a-z][a-z0-9-]*)"),
    "rhel": re.compile(
        r"(?P<order>(?P<series>[0-9]+\.[0-9]+)\.[0-9]+-[0-9.]*[0-9](?:\.(?P<realtime>rt)[0-9.]*[0-9])?)"
        rf"\.(?P<release>el[0-9]+[a-z0-9_]*){_RPM}"
    ),
    "fedora": re.compile(rf"(?P<order>[0-9]+\.[0-9]+\.[0-9]+-[0-9.]*[0-9])\.(?P<release>fc[0-9]+){_RPM}"),
    "amazon": re.compile(rf"(?P<order>(?P<series>[0-9]+\.[0-9]+)\.[0-9]+-[0-9.]*[0-9])\.(?P<release>amzn[0-9]+){_RPM}"),
    "sles": re.compile(
        r"(?P<order>[0-9]+\.[0-9]+\.[0-9]+-(?:(?P<release>[0-9]{6})\.)?[0-9.]*[0-9])-(?P<flavour>[a-z0-9_]*[a-z][a-z0-9_]*)"
    ),
}
"""By template: the group ``order`` of a kernel release orders it among its stream, all other groups are the stream.

A node's own kubelet may set the label that is matched. So no repetition holds another one that matches the same text: a
text that does not match is rejected in one step, not tried in all ways of splitting it.
"""


def family_of(os_id: str) -> str | None:
    """Return the family whose repository can be asked, None for a distribution without kernel packages."""
    template = resolve_target.TEMPLATES.get(os_id)
    return template if template in STREAMS else None


def stream_of(os_id: str, release: str) -> str | None:
    """Return the stream of a kernel as a few words; None for a kernel that is in no package."""
    match = _match(os_id, release)
    if match is None:
        return None
    return " ".join(value.strip("+") for name, value in match.groupdict().items() if name != "order" and value)


def newest(os_id: str, stream: str, releases: Iterable[str]) -> KernelVersion | None:
    """Find the newest release of a stream; None when none exists."""
    known = [release for release in releases if stream_of(os_id, release) == stream]
    return KernelVersion(max(known, key=lambda release: _order(os_id, release))) if known else None


def is_newer(target: KernelTarget, release: str) -> bool:
    """Return whether ``release`` is of the target's stream and newer than the target's kernel."""
    stream = stream_of(target.os_id, target.kernel_version)
    if stream is None or stream_of(target.os_id, release) != stream:
        return False
    return _order(target.os_id, release) > _order(target.os_id, target.kernel_version)


def _match(os_id: str, release: str) -> re.Match[str] | None:
    pattern = STREAMS.get(family_of(os_id) or "")
    return pattern.fullmatch(release) if pattern is not None and is_kernel_version(release) else None


def _order(os_id: str, release: str) -> tuple[tuple[int, ...], str]:
    """Compare number by number: 6.1.0-9 comes before 6.1.0-10. The text settles what numbers leave open."""
    match = _match(os_id, release)
    text = match["order"] if match is not None else release
    return tuple(int(number) for number in re.findall(r"[0-9]+", text)), release
