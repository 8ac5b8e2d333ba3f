"""Source local: feature files, their directives, and what is wrong with them."""

import os
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from feature_rules.features import Failed, Features, FileFeatures
from nfd_worker.guarded_file import MAX_FEATURE_FILE
from nfd_worker.host import Host
from nfd_worker.sources import discover
from nfd_worker.sources.local import FEATURE_FILES, labels, parse_feature_file, parse_time
from nfd_worker.sources.settings import LocalSettings, SourceSettings
from tests.support.nfd_worker.trees import host

NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z
SETTINGS = SourceSettings(local=LocalSettings(clock=lambda: NOW))

Pair = tuple[dict[str, str], dict[str, str]]


def parsed(text: str) -> Pair:
    """Parse a file: features and labels."""
    made = parse_feature_file(text, "f", NOW).content
    return dict(made.features), dict(made.labels)


def both(**values: str) -> Pair:
    """Expect the same features and labels."""
    return values, values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", both(), id="empty"),
        pytest.param("a\nb=\nc=d=e\n", both(a="true", b="", c="d=e"), id="values"),
        pytest.param("  a=1\t\r\n", both(a="1"), id="white space around a line"),
        pytest.param("# a comment\n#+no-label\na=1", both(a="1"), id="comments"),
        pytest.param("a=1\na=2", both(a="2"), id="the later line counts"),
        pytest.param("# +no-label\na=1\nb=2", ({"a": "1", "b": "2"}, {"b": "2"}), id="no label"),
        pytest.param("# +no-feature\na=1\nb=2", ({"b": "2"}, {"a": "1", "b": "2"}), id="no feature"),
        pytest.param("# +no-feature\n# +no-label\na=1\nb=2", both(b="2"), id="neither"),
        pytest.param("a=1\n# +no-label\na=2", ({"a": "2"}, {}), id="an earlier label goes"),
        pytest.param("a=1\n# +no-feature\na=2", ({}, {"a": "2"}), id="an earlier feature goes"),
    ],
)
def test_lines_and_the_directives_for_one_line(text: str, expected: Pair) -> None:
    """Names and values as written."""
    assert parsed(text) == expected


PAST, FUTURE = "# +expiry-time=2012-07-28T11:22:33Z\n", "# +expiry-time=2080-07-28T11:22:33Z\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"{PAST}a=1\nb=2", both(), id="expired, until said otherwise"),
        pytest.param(f"{PAST}a=1\n{FUTURE}b=2", both(b="2"), id="a later one takes over"),
        pytest.param(f"{FUTURE}a=1\n{PAST}b=2", both(a="1"), id="the other way round"),
        pytest.param("# +expiry-time=2026-01-01T00:00:00Z\na=1", both(a="1"), id="this very moment"),
        pytest.param("# +expiry-time=2025-12-31T23:59:59.999Z\na=1", both(), id="a moment ago"),
        pytest.param("# +expiry-time=2026-01-01T01:00:00+02:00\na=1", both(), id="another zone, past"),
        pytest.param("# +expiry-time=2025-12-31T23:00:00-02:00\na=1", both(a="1"), id="another zone, to come"),
        pytest.param("# +expiry-time= 2012-07-28T11:22:33Z \na=1", both(), id="white space"),
        pytest.param("# +expiry-time=tomorrow\na=1", both(a="1"), id="unreadable: as before"),
        pytest.param(f"{PAST}# +expiry-time\na=1", both(), id="no time: as before"),
        pytest.param(f"# +no-label\n{PAST}a=1\n{FUTURE}b=2", ({"b": "2"}, {}), id="an expired line uses up nothing"),
    ],
)
def test_what_has_expired_is_not_there(text: str, expected: Pair) -> None:
    """An expiry time holds until the next one."""
    assert parsed(text) == expected


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("# +no-labels", "there is no directive 'no-labels'; there are expiry-time, no-label and no-feature"),
        ("# +", "there is no directive ''"),
        ("# +expiry-time", "expiry-time needs a time"),
        ("# +expiry-time=2080-07-28T11:22:33X", "'2080-07-28T11:22:33X' is not a time like"),
        ("# +expiry-time=2080-02-30T11:22:33Z", "'2080-02-30T11:22:33Z' is a time that does not exist"),
        ("=1", "'=1' has no name before the '='"),
    ],
)
def test_a_wrong_line_is_reported_with_its_place_and_stops_no_other(line: str, problem: str) -> None:
    """File, line, and what would be right."""
    made = parse_feature_file(f"a=1\n{line}\nb=2\n", "20-file", NOW)
    assert made.content.features == {"a": "1", "b": "2"}
    [told] = made.problems
    assert told.startswith("20-file:2: ")
    assert problem in told


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:00:00-01:00", 0),
        ("1970-01-01T00:00:01.5Z", 1.5),
        ("1970-01-01T00:00:01,25Z", 1.25),
    ],
)
def test_times_have_a_zone_and_perhaps_a_fraction(text: str, expected: float) -> None:
    """Expiry times are RFC 3339, as Go reads it."""
    assert parse_time(text) == expected


@pytest.mark.parametrize(
    "text", ["", "1970-01-01", "1970-01-01T00:00:00", "1970-01-01 00:00:00Z", "1970-01-01T00:00:00z",
             "\u0661970-01-01T00:00:00Z", "1970-01-01T24:00:00Z", "1970-01-01T00:00:60Z", "1970-01-01T00:00:00+99:00"],
)  # fmt: skip
def test_anything_else_is_no_time(text: str) -> None:
    """Any other text is rejected with an error."""
    with pytest.raises(ValueError, match=r"."):
        parse_time(text)


def files(root: Path, contents: dict[str, str | bytes]) -> Host:
    """Write feature files."""
    return host(root, {f"{FEATURE_FILES}/{name}": content for name, content in contents.items()})


def found_on(it: Host) -> Features:
    """Discover, which must succeed."""
    found = discover("local", it, SETTINGS)
    assert isinstance(found, Features)
    return found


def test_a_node_without_feature_files_has_no_local_features(tmp_path: Path) -> None:
    """The directory need not be there."""
    assert found_on(host(tmp_path, {})).attributes == {"local.feature": {}, "local.label": {}}


def test_files_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    """A later one overwrites; what it hides from labels stays that of the earlier one."""
    found = found_on(
        files(tmp_path, {"b": "k=2\n# +no-label\nl=2\n", "a": "k=1\nl=1\n", ".c": "k=3\n", "d/e": "k=4\n"})
    )
    assert found.attributes == {"local.feature": {"k": "2", "l": "2"}, "local.label": {"k": "2", "l": "1"}}
    assert labels(found, SETTINGS) == {"k": "2", "l": "1"}


def test_a_bad_file_is_reported_once_and_stops_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Too long, a pipe, a dangling link, a wrong line."""
    it = files(tmp_path, {"long": b"a" * (MAX_FEATURE_FILE + 1), "wrong": "# +what\n", "good": "good=1\n"})
    folder = tmp_path / FEATURE_FILES
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("nowhere")
    (folder / "loop").symlink_to("loop")
    assert found_on(it).attributes["local.label"] == {"good": "1"}
    assert found_on(it).attributes["local.label"] == {"good": "1"}
    told = sorted(record.getMessage().removeprefix(f"host: {folder}/") for record in caplog.records)
    assert told == [
        "link left out: No such file or directory",
        "local: wrong:1: there is no directive 'what'; there are expiry-time, no-label and no-feature",
        f"long left out: it has {MAX_FEATURE_FILE + 1} bytes, and {MAX_FEATURE_FILE} is the most",
        "loop left out: Too many levels of symbolic links",
        "pipe left out: it is not a regular file",
    ]


@pytest.mark.parametrize("backup", ["gfd~", "gfd.bak", "gfd.dpkg-old", "gfd.rpmsave", "gfd.orig", "#gfd#", "gfd.swp"])
def test_a_backup_of_a_file_does_not_count(tmp_path: Path, caplog: pytest.LogCaptureFixture, backup: str) -> None:
    """It sorts behind the file, and would win over it; the log names it once."""
    it = files(tmp_path, {"gfd": "count=4\n", backup: "count=2\n"})
    assert found_on(it).attributes["local.label"] == {"count": "4"}
    assert found_on(it).attributes["local.label"] == {"count": "4"}
    assert [record.getMessage() for record in caplog.records] == [
        f"host: {tmp_path / FEATURE_FILES / backup} left out: it is named as a backup of another file"
    ]


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    """Links are followed, as a mounted ConfigMap consists of links."""
    it = files(tmp_path, {"..data/real": "a=1\n"})
    (tmp_path / FEATURE_FILES / "linked").symlink_to("..data/real")
    assert found_on(it).attributes["local.label"] == {"a": "1"}


def test_a_directory_that_cannot_be_listed_is_a_failure(tmp_path: Path) -> None:
    """When the directory cannot be listed the source fails, and its labels stay."""
    folder = tmp_path / FEATURE_FILES
    folder.parent.mkdir(parents=True)
    folder.symlink_to("features.d")
    assert isinstance(discover("local", Host(str(tmp_path)), SETTINGS), Failed)


def test_a_file_that_cannot_be_read_just_now_counts_with_what_it_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An I/O error passes, and is that file's alone: others come, change and go."""
    it = files(tmp_path, {"a": "a=1\n", "b": "b=1\n"})
    found_on(it)
    folder = tmp_path / FEATURE_FILES
    (folder / "b").unlink()
    (folder / "b").symlink_to("/proc/self/mem")
    (folder / "never").symlink_to("/proc/self/mem")
    (folder / "a").rename(folder / "c")
    found = found_on(it)
    assert found.attributes["local.label"] == {"a": "1", "b": "1"}
    one, other = {"a": "1"}, {"b": "1"}
    assert found.files == {
        "features.d/b": FileFeatures(other, other), "features.d/c": FileFeatures(one, one), "features.d/never": None,
    }  # fmt: skip
    assert "features.d/b: Input/output error; its last value stays" in caplog.text
    (folder / "b").unlink()
    assert found_on(it).attributes["local.label"] == {"a": "1"}


def test_a_file_says_when_what_expires() -> None:
    """Of what is there still, and of what is left out; what stands there again without a time does not expire."""
    made = parse_feature_file(
        f"x=1\n{PAST}x=2\nold=1\n{FUTURE}a=1\nb=1\n# +expiry-time=2080-01-01T00:00:00Z\nb=2\n", "f", NOW
    )
    times = {"a": parse_time("2080-07-28T11:22:33Z"), "b": parse_time("2080-01-01T00:00:00Z")}
    assert (made.content.expiry, made.content.expired) == (times, frozenset({"old"}))


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    """Whatever it says; and every line that is not a comment is a feature, a label, or told."""
    made = parse_feature_file(text, "f", NOW)
    assert all(isinstance(value, str) for value in {**made.content.features, **made.content.labels}.values())
    assert len(made.problems) <= text.count("\n") + 1


@given(st.datetimes(timezones=st.timezones()))
def test_any_moment_reads_back(moment: datetime) -> None:
    """As Python writes it; a zone of the distant past may have seconds, which RFC 3339 does not."""
    zone = moment.utcoffset() or timedelta()
    assume(zone % timedelta(minutes=1) == timedelta())
    assert abs(parse_time(moment.isoformat()) - moment.timestamp()) < 1e-3
