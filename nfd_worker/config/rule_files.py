"""The files rules come from: ``custom.d`` of the node, the mounted ConfigMap of NodeFeatureRules, and ``--rules``.

Between the files and :mod:`nfd_worker.cycle`. A file is parsed when its bytes changed, and its regular expressions and
templates are compiled then and not in every cycle. A file that can no longer be read or used keeps the rules it had: a
half-written file must not take labels from a Node. One that is gone, or empty, keeps them for the grace of removals.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from feature_rules.model import LoadedRules, Rule, RuleProblem
from nfd_worker.errors import HostReadError
from nfd_worker.guarded_file import MAX_YAML_FILE
from nfd_worker.host import Host

CUSTOM_DIRECTORY = "etc/kubernetes/node-feature-discovery/custom.d"
"""Below the host's root; files, and files of one level of directories, as Node Feature Discovery reads it."""

CUSTOM_ORIGIN = "custom.d/"
CLUSTER_ORIGIN = "rules.d/"
"""What the names of files begin with in the record of what made what (:mod:`nfd_worker.labels.origins`)."""

_SELF = Host("/")
"""The worker's own files: a ConfigMap is mounted into the container, not into the node."""


class RuleSet(NamedTuple):
    """The rules in force, in the order in which they run.

    ``custom``: of ``custom.d``. ``cluster``: of the mounted ConfigMap and ``--rules``.
    ``problems``: what is wrong with the files and the rules in them.
    ``unknown``: the files that were never usable, by their origin, and the directories (``custom.d/``) that could never
    be listed: what their rules would make is not known.
    """

    custom: tuple[Rule, ...] = ()
    cluster: tuple[Rule, ...] = ()
    problems: tuple[RuleProblem, ...] = ()
    unknown: tuple[str, ...] = ()


class _Place(NamedTuple):
    """A file with rules: ``shown`` is its path in messages, ``origin`` its name in the record of what made what."""

    host: Host
    path: str
    shown: str
    origin: str
    dialect: Literal["rule", "custom"]


class _Loaded(NamedTuple):
    """What a file last said: the fingerprint of its bytes, its good rules, and what is wrong with it now."""

    fingerprint: int | None
    rules: tuple[Rule, ...]
    problems: tuple[RuleProblem, ...]
    is_known: bool


class _Held(NamedTuple):
    """A file that is gone, with what it last said, and since when."""

    loaded: _Loaded
    since: float


class RuleFiles:
    """Reads all rule files, again and again, and remembers what each one last said.

    ``host``: whose ``custom.d`` is read. ``rules_dir``: a directory of the worker's own file system, one file for each
    NodeFeatureRule; empty for none. ``files``: more such files, in the order in which their rules run.
    """

    def __init__(self, host: Host, rules_dir: str = "", files: Sequence[str] = ()) -> None:
        self._host = host
        self._rules_dir = rules_dir
        self._files = tuple(_Place(_SELF, os.path.abspath(file), file, file, "rule") for file in files)  # noqa: PTH100 - pathlib would cost the resident process 1 MiB
        self._listed: dict[str, tuple[_Place, ...]] = {}
        self._loaded: dict[_Place, _Loaded] = {}
        self._held: dict[_Place, _Held] = {}
        self.due = float("inf")
        self.has_let_go = False

    def read(self, now: float = 0.0, grace: float = 0.0) -> RuleSet:
        """Read all files; parse those that changed.

        A file that is gone keeps its rules for ``grace`` seconds. ``due``: when the next such time is over;
        ``has_let_go``: whether one was in this call.
        """
        unlisted = [*self._list(CUSTOM_DIRECTORY, self._custom_places), *self._list(self._rules_dir, self._own_places)]
        custom = self._listed.get(CUSTOM_DIRECTORY, ())
        cluster = self._listed.get(self._rules_dir, ()) + self._files
        before = self._loaded
        self._loaded = {place: _load(place, before.get(place)) for place in (*custom, *cluster)}
        self._hold(before, now, grace)
        loaded = self._loaded.values()
        unlistable = (
            origin
            for origin, directory in ((CUSTOM_ORIGIN, CUSTOM_DIRECTORY), (CLUSTER_ORIGIN, self._rules_dir))
            if directory not in self._listed
        )
        unusable = (place.origin for place, one in self._loaded.items() if not one.is_known)
        return RuleSet(
            custom=self._rules(custom, "custom"),
            cluster=self._rules(cluster, "rule"),
            problems=(*unlisted, *(problem for one in loaded for problem in one.problems)),
            unknown=(*unlistable, *unusable),
        )

    def _hold(self, before: dict[_Place, _Loaded], now: float, grace: float) -> None:
        """Remember files that had rules and say nothing any more, not even something wrong."""
        held = {place: _Held(one, now) for place, one in before.items() if one.rules} | self._held
        held = {place: one for place, one in held.items() if self._says_nothing(place)}
        self._held = {place: one for place, one in held.items() if now < one.since + grace}
        self.due = min((one.since for one in self._held.values()), default=float("inf")) + grace
        self.has_let_go = len(self._held) < len(held)

    def _says_nothing(self, place: _Place) -> bool:
        loaded = self._loaded.get(place)
        return loaded is None or not (loaded.rules or loaded.problems)

    def _rules(self, places: tuple[_Place, ...], dialect: str) -> tuple[Rule, ...]:
        """Put the rules of files in their order, those that are held among them."""
        held = {place: one.loaded.rules for place, one in self._held.items() if place.dialect == dialect}
        if held:
            named = [place for place in places if place in self._files]
            places = (*sorted({*places, *held} - {*named}, key=_order), *named)
        return tuple(rule for place in places for rule in held.get(place, ()) or self._loaded[place].rules)

    def _list(self, directory: str, places: Callable[[str], Iterator[_Place]]) -> Iterator[RuleProblem]:
        """List a directory; when that fails, the files it had stay."""
        try:
            self._listed[directory] = tuple(places(directory)) if directory else ()
        except HostReadError as error:
            yield RuleProblem("", "", f"{error}; the rules read there before stay in use")

    def _custom_places(self, directory: str) -> Iterator[_Place]:
        for path, is_directory in _visible(self._host, directory):
            files = _visible(self._host, path) if is_directory else [(path, False)]
            for file, is_nested in files:
                if not is_nested:
                    origin = CUSTOM_ORIGIN + file.removeprefix(f"{CUSTOM_DIRECTORY}/")
                    yield _Place(self._host, file, f"/{file}", origin, "custom")

    def _own_places(self, directory: str) -> Iterator[_Place]:
        files = (path for path, is_directory in _visible(_SELF, directory) if not is_directory)
        for path in sorted(files, key=_object_name):
            yield _Place(_SELF, path, path, CLUSTER_ORIGIN + path.rpartition("/")[2], "rule")


def _order(place: _Place) -> list[str]:
    """Give what listed files are ordered by, see :meth:`RuleFiles.read`."""
    return [_object_name(place.path)] if place.dialect == "rule" else place.path.split("/")


def _object_name(path: str) -> str:
    """Give what files are ordered by: the object ``a`` comes before ``a-b``, but a-b.yaml before a.yaml."""
    return path.removesuffix(".yaml")


def _visible(host: Host, directory: str) -> Iterator[tuple[str, bool]]:
    """List what is neither hidden nor a backup, and whether it is a directory; a mounted ConfigMap hides ``..data``."""
    for name in host.entries(directory):
        if not name.startswith(".") and not host.is_left_over(directory, name):
            path = f"{directory}/{name}"
            yield path, host.has(f"{path}/.")


def _load(place: _Place, before: _Loaded | None) -> _Loaded:
    try:
        content = place.host.read_regular(place.path, MAX_YAML_FILE)
    except HostReadError as error:
        return _unusable(place, before, None, (RuleProblem("", "", str(error), place.shown),))
    fingerprint = hash(content)
    if before is not None and before.fingerprint == fingerprint:
        return before
    loaded = _parse(content, place)
    if loaded.problems and not loaded.rules:
        return _unusable(place, before, fingerprint, loaded.problems)
    rules = tuple(rule._replace(file=place.origin) for rule in loaded.rules)
    return _Loaded(fingerprint, rules, loaded.problems, is_known=True)


def _parse(content: bytes, place: _Place) -> LoadedRules:
    from feature_rules.load import load_rules  # noqa: PLC0415 - PyYAML costs 12 ms, and a node need not have rules

    try:
        return load_rules(content.decode(), place.shown, dialect=place.dialect)
    except UnicodeDecodeError as error:
        return LoadedRules(problems=(RuleProblem("", "", f"is not UTF-8: {error}", place.shown),))


def _unusable(
    place: _Place, before: _Loaded | None, fingerprint: int | None, problems: tuple[RuleProblem, ...]
) -> _Loaded:
    """Keep what the file said before."""
    if before is None or not before.is_known:
        return _Loaded(fingerprint, (), problems, is_known=False)
    kept = RuleProblem("", "", "none of its rules can be used; its previous rules stay in use", place.shown)
    return _Loaded(fingerprint, before.rules, (*problems, kept), is_known=True)
