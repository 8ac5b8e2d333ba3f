"""Source ``local``: feature files that others leave on the node, one ``name[=value]`` a line.

The format is that of Node Feature Discovery (customization guide, *Feature files*). A comment that starts with ``# +``
is a directive: ``expiry-time=<RFC 3339>`` holds until the next one, ``no-label`` and ``no-feature`` hold for the next
feature. What is wrong with one line or one file stops no other.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from feature_rules.features import Features, FileFeatures
from nfd_worker.guarded_file import MAX_FEATURE_FILE
from nfd_worker.host import Host
from nfd_worker.sources.settings import SourceSettings

FEATURE_FILES = "etc/kubernetes/node-feature-discovery/features.d"

ORIGIN = "features.d/"
"""What a file's name begins with in the record of what made what (:mod:`nfd_worker.labels.origins`)."""

_DIRECTIVE = "# +"

_RFC_3339 = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII)


class ParsedFile(NamedTuple):
    """What one file says, and a sentence for each line that is wrong."""

    content: FileFeatures
    problems: tuple[str, ...] = ()


def discover(host: Host, settings: SourceSettings) -> Features:
    """Read all feature files in the order of their names; a later one overwrites what an earlier one says.

    A node without the directory has no local features. A problem is logged once as a warning. A file that cannot be
    read just now counts with what it said before.

    Raises:
        HostReadError: when the directory cannot be listed.
    """
    files: dict[str, FileFeatures | None] = {}
    now = settings.local.clock()
    for name, content in host.find_files(FEATURE_FILES, MAX_FEATURE_FILE).items():
        if content is None:
            files[ORIGIN + name] = None
            continue
        parsed = parse_feature_file(content.decode(errors="replace"), name, now)
        if parsed.content != FileFeatures():
            files[ORIGIN + name] = parsed.content
        for problem in parsed.problems:
            host.warn_once(f"local: {problem}")
    return of_files(files)


def of_files(files: Mapping[str, FileFeatures | None]) -> Features:
    """Make the features of what the files say, which stand in the order of their names."""
    features: dict[str, str] = {}
    labels: dict[str, str] = {}
    for content in files.values():
        if content is not None:
            features |= content.features
            labels |= content.labels
    return Features(attributes={"local.feature": features, "local.label": labels}, files=files)


def labels(features: Features, _settings: SourceSettings) -> dict[str, str]:
    """Label what the files want labelled, under the names that they give."""
    return dict(features.attributes["local.label"])


def parse_feature_file(text: str, file: str, now: float) -> ParsedFile:
    """Read one file; ``file`` is for the problems, ``now`` in seconds since 1970."""
    reader = _Reader(file, now)
    for number, line in enumerate(text.split("\n"), 1):
        reader.read_line(number, line.strip())
    return ParsedFile(reader.content(), tuple(reader.problems))


def parse_time(text: str) -> float:
    """Read a time of RFC 3339, such as ``2080-07-28T11:22:33Z``, as seconds since 1970.

    Raises:
        ValueError: when the text is not a time.
    """
    from datetime import datetime, timedelta, timezone  # noqa: PLC0415 - few files have such a time

    match = _RFC_3339.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time like 2080-07-28T11:22:33Z")
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fraction, sign, offset_hours, offset_minutes = match.groups()[6:]
    offset = timedelta(hours=int(offset_hours or 0), minutes=int(offset_minutes or 0))
    try:
        zone = timezone(-offset if sign == "-" else offset)
        moment = datetime(year, month, day, hour, minute, second, tzinfo=zone)
    except ValueError as error:
        raise ValueError(f"{text!r} is a time that does not exist") from error
    return moment.timestamp() + float(f"0.{fraction or 0}")


class _Reader:
    """The state while the lines of one file go by."""

    def __init__(self, file: str, now: float) -> None:
        self.features: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        self.problems: list[str] = []
        self._file = file
        self._now = now
        self._expiry: float | None = None
        self._expires: dict[str, float] = {}
        self._expired: set[str] = set()
        self._skipped: set[str] = set()

    def content(self) -> FileFeatures:
        """Give what was read."""
        expired = self._expired - self.features.keys() - self.labels.keys()
        return FileFeatures(self.features, self.labels, self._expires, frozenset(expired))

    def read_line(self, number: int, line: str) -> None:
        """Take one line, without white space around it."""
        problem = ""
        if line.startswith(_DIRECTIVE):
            problem = self._directive(line.removeprefix(_DIRECTIVE))
        elif line and not line.startswith("#"):
            if self._expiry is None or self._expiry >= self._now:
                problem = self._feature(line)
            else:
                self._expired.add(line.partition("=")[0])
        if problem:
            self.problems.append(f"{self._file}:{number}: {problem}")

    def _directive(self, directive: str) -> str:
        name, equals, value = directive.partition("=")
        if name in ("no-label", "no-feature"):
            self._skipped.add(name)
            return ""
        if name != "expiry-time":
            return f"there is no directive {name[:40]!r}; there are expiry-time, no-label and no-feature"
        if not equals:
            return "expiry-time needs a time: # +expiry-time=2080-07-28T11:22:33Z"
        try:
            self._expiry = parse_time(value.strip())
        except ValueError as error:
            return f"expiry-time is ignored: {str(error)[:120]}"
        return ""

    def _feature(self, line: str) -> str:
        name, equals, value = line.partition("=")
        skipped, self._skipped = self._skipped, set()
        if not name:
            return f"{line[:40]!r} has no name before the '='"
        self._expires.pop(name, None)
        if self._expiry is not None:
            self._expires[name] = self._expiry
        for directive, found in (("no-feature", self.features), ("no-label", self.labels)):
            if directive in skipped:
                found.pop(name, None)
            else:
                found[name] = value if equals else "true"
        return ""
