"""Hosts whose files are missing, wrong, endless or of the wrong kind: no crash, no invalid label, no scan that hangs.

``make fuzz`` looks at ten thousand each.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from feature_rules.features import Failed, Features
from feature_rules.keys.namespaces import NamespaceOptions
from kube_api.names import is_label_value, is_qualified_name
from nfd_worker.config.config import Settings
from nfd_worker.cycle import run_cycle
from nfd_worker.host import Host
from nfd_worker.labels.labels import make_content
from nfd_worker.sources import SOURCES, discover
from nfd_worker.sources.local import FEATURE_FILES, of_files, parse_feature_file
from nfd_worker.sources.settings import SourceSettings
from tests.support.nfd_worker.trees import HOSTS, RECORDED

LONGEST_SCAN_SECONDS = 1.0

CONTENTS: dict[str, bytes] = {
    "nothing": b"",
    "white space": b"\n \n",
    "zeros": b"\0" * 100,
    "not UTF-8": b"\xff\xfe\x80",
    "a word": b"many\n",
    "a huge number": b"9" * 5000,
    "a negative number": b"-1\n",
    "hexadecimal": b"0xffffffffffffffffffffffff\n",
    "fields": b"a=b:c d,e-f\nprocessor 0: version = ,\n",
    "a megabyte": bytes(range(256)) * 4096,
    "a million lines": b"\n" * 1_000_000,
}


def to_directory(path: Path) -> None:
    """A directory where a file should be."""
    path.mkdir()


def to_loop(path: Path) -> None:
    """A link that leads to itself."""
    path.symlink_to(path.name)


def to_itself(path: Path) -> None:
    """A link to the directory it is in, which makes the tree endless."""
    path.symlink_to(".")


def to_pipe(path: Path) -> None:
    """A pipe to which nobody writes."""
    os.mkfifo(path)


def to_io_error(path: Path) -> None:
    """A file that opens and cannot be read."""
    path.symlink_to("/proc/self/mem")


def remove(path: Path) -> None:
    """Nothing."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


CHANGES: dict[str, Callable[[Path], None]] = {
    change.__name__: change for change in (remove, to_directory, to_loop, to_itself, to_pipe, to_io_error)
}
"""What a file or directory can become; it is removed before."""

NAMES = st.sampled_from(
    [b"\xff\xfe", b" ", b"a b", b"-", b"x" * 255, b"new\nline", b"1-1:1.0", b"cpu99", b"bonding_masters"]
)
"""Names that a directory may list."""

LISTED = (
    "sys/class/net", "sys/block", "sys/bus/usb/devices", "sys/bus/pci/devices", "sys/bus/nd/devices",
    "sys/bus/node/devices", "sys/bus/cpu/devices", "sys/kernel/mm/hugepages", "sys/devices/system/cpu/cpufreq",
    FEATURE_FILES,
)  # fmt: skip
"""Directories that sources list."""


class Change(NamedTuple):
    """One thing done to a tree: which of its paths (as a fraction of all), how far up from it, and what."""

    where: float
    up: int
    what: str


changes = st.lists(
    st.builds(
        Change, st.floats(0, 1, exclude_max=True), st.integers(0, 3), st.sampled_from([*CHANGES, *CONTENTS]),
    ),
    max_size=12,
)  # fmt: skip
strangers = st.lists(st.tuples(st.sampled_from(LISTED), NAMES, st.sampled_from(sorted(CONTENTS))), max_size=4)


@cache
def tree_of(name: str) -> dict[str, bytes]:
    """Read a recorded host."""
    root = HOSTS / name
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@contextmanager
def hostile(name: str, done: list[Change], added: list[tuple[str, bytes, str]]) -> Iterator[Host]:
    """Write a recorded host, changed."""
    tree = tree_of(name)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "host"
        for path, content in tree.items():
            write(root / path, content)
        for directory, stranger, kind in added:
            place = root / directory / os.fsdecode(stranger)
            if not place.exists():
                write(place if directory == FEATURE_FILES else place / "device", CONTENTS[kind])
        for change in done:
            apply(root, list(tree)[int(change.where * len(tree))], change)
        yield Host(str(root))


def apply(root: Path, path: str, change: Change) -> None:
    """Do one thing; an earlier change may have taken the place away."""
    parts = Path(path).parts
    target = root.joinpath(*parts[: max(1, len(parts) - change.up)])
    try:
        remove(target)
        if change.what in CHANGES:
            CHANGES[change.what](target)
        else:
            target.write_bytes(CONTENTS[change.what])
    except OSError:
        return


def write(path: Path, content: bytes) -> None:
    """Write a file and what is above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@given(st.sampled_from(RECORDED), changes, strangers)
@example("feature-files", [], [(FEATURE_FILES, b"\xff\xfe", "a megabyte")])
@example("intel-bare-metal", [Change(0.5, 2, "to_itself")], [])
def test_no_tree_crashes_a_scan(name: str, done: list[Change], added: list[tuple[str, bytes, str]]) -> None:
    """Each source finds something or fails with a reason; what becomes a label is one; none takes for ever."""
    with hostile(name, done, added) as it:
        start = time.thread_time()
        report = run_cycle(it, Settings(), {})
        seconds = time.thread_time() - start
    assert all(report.failed.values())
    assert_valid(report.content.labels)
    assert seconds < LONGEST_SCAN_SECONDS


@given(st.sampled_from(sorted(SOURCES)), st.sampled_from(RECORDED), changes)
def test_a_source_either_finds_or_fails(source: str, name: str, done: list[Change]) -> None:
    """Nothing but HostReadError leaves it, and a scan repeated finds the same."""
    with hostile(name, done, []) as it:
        first, second = (discover(source, it, SourceSettings()) for _ in range(2))
        assert isinstance(first, Features | Failed)
        assert normal(first) == normal(second)
        if isinstance(first, Features):
            labels = {source: SOURCES[source].labels(first, SourceSettings())}
            assert_valid(make_content(labels, {}, first, NamespaceOptions()).content.labels)


DIRECTIVES = ("# +no-label", "# +no-feature", "# +expiry-time=", "# +expiry-time=2080-07-28T11:22:33Z", "#", "=", "# +")
TIMES = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(Z|[+-][0-9]{2}:[0-9]{2})"

LINES = st.one_of(
    st.sampled_from(DIRECTIVES),
    st.from_regex(TIMES, fullmatch=True).map("# +expiry-time={}".format),
    st.from_regex(r"[a-z./-]{0,70}(=[ -~]{0,70})?", fullmatch=True),
    st.text(max_size=80),
)


@given(st.lists(LINES, max_size=30).map("\n".join), st.floats(0, 4e9))
def test_no_feature_file_makes_an_invalid_label(text: str, now: float) -> None:
    """What Kubernetes does not take is left out and told."""
    made = parse_feature_file(text, "f", now)
    features = of_files({"features.d/f": made.content})
    result = make_content({"local": made.content.labels}, {}, features, NamespaceOptions())
    assert_valid(result.content.labels)
    assert parse_feature_file(text, "f", now) == made


@given(st.binary(max_size=2000))
def test_no_bytes_in_a_feature_file_crash_the_source(content: bytes) -> None:
    """Any bytes in a feature file give features or a failure, never an exception."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / FEATURE_FILES / "f", content)
        found = discover("local", Host(folder), SourceSettings())
    assert isinstance(found, Features)


def assert_valid(labels: object) -> None:
    """Make sure that the API server would take all of them."""
    assert isinstance(labels, dict)
    for key, value in labels.items():
        assert is_qualified_name(key), key
        assert is_label_value(value), value


def normal(found: Features | Failed) -> object:
    """Make what two scans found comparable."""
    if isinstance(found, Failed):
        return found
    attributes = {name: dict(values) for name, values in found.attributes.items()}
    return found.flags, attributes, found.instances
