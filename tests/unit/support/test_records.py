"""Records of what tests ran on: read, merged, shown as tables, held against what pages say."""

from pathlib import Path

import pytest

from tests.records_page import take
from tests.support import records
from tests.support.records import Found, Records, dump, merge, minor, of_junit, parse, table, unproven, with_tables

DEBIAN_12 = Found.of(
    "node", {"system": "Debian GNU/Linux 12 (bookworm)", "kernel": "6.1.0-57-amd64", "Kubernetes": "1.20.2"}
)
NEWER = Found.of(
    "node", {"system": "Debian GNU/Linux 12 (bookworm)", "kernel": "6.1.0-58-amd64", "Kubernetes": "1.20.2"}
)
OTHER_LINE = Found.of(
    "node", {"system": "Debian GNU/Linux 12 (bookworm)", "kernel": "6.12.9-amd64", "Kubernetes": "1.20.2"}
)
LOOP, DRAIN = "tests/cluster/test_loop.py", "tests/cluster/test_drain.py"

JUNIT = """<testsuites><testsuite timestamp="2026-11-30T02:00:00+00:00">
<testcase classname="tests.cluster.test_loop" name="a"><properties>
<property name="tested on node" value="{kernel: 6.1.0-57-amd64}"/>
<property name="other" value="1"/></properties></testcase>
<testcase classname="tests.cluster.test_loop" name="b"><skipped/></testcase>
<testcase classname="tests.cluster.test_drain" name="a"><properties>
<property name="tested on node" value="{kernel: 6.1.0-57-amd64}"/></properties></testcase>
<testcase classname="tests.cluster.test_drain" name="b"><failure/></testcase>
</testsuite></testsuites>"""


def test_a_file_in_which_a_test_failed_shows_nothing() -> None:
    """A test that was skipped shows nothing either, but takes nothing from the others."""
    assert of_junit(JUNIT) == {Found.of("node", {"kernel": "6.1.0-57-amd64"}): {LOOP: "2026-11-30"}}


def test_records_are_read_as_they_were_written() -> None:
    """In an order that does not depend on theirs."""
    some = {DEBIAN_12: {LOOP: "2026-11-30", DRAIN: "2026-11-29"}, NEWER: {LOOP: "2026-11-28"}}
    assert parse(dump(some)) == some
    assert dump(dict(reversed(some.items()))) == dump(some)
    assert parse(dump({})) == {}


@pytest.mark.parametrize(
    ("new", "merged"),
    [
        pytest.param({}, {DEBIAN_12: {LOOP: "1", DRAIN: "1"}}, id="nothing new"),
        pytest.param({DEBIAN_12: {LOOP: "2"}}, {DEBIAN_12: {LOOP: "2", DRAIN: "1"}}, id="again"),
        pytest.param({NEWER: {LOOP: "2"}}, {DEBIAN_12: {DRAIN: "1"}, NEWER: {LOOP: "2"}}, id="newer"),
        pytest.param({NEWER: {LOOP: "2", DRAIN: "2"}}, {NEWER: {LOOP: "2", DRAIN: "2"}}, id="all newer"),
        pytest.param(
            {DEBIAN_12: {LOOP: "2"}, NEWER: {LOOP: "2"}},
            {DEBIAN_12: {LOOP: "2", DRAIN: "1"}, NEWER: {LOOP: "2"}},
            id="two kernels of a line in one run",
        ),
        pytest.param(
            {OTHER_LINE: {LOOP: "2"}},
            {DEBIAN_12: {LOOP: "1", DRAIN: "1"}, OTHER_LINE: {LOOP: "2"}},
            id="another line",
        ),
    ],
)  # fmt: skip
def test_of_a_release_line_the_last_run_counts(new: Records, merged: Records) -> None:
    """For each file of tests; other lines, and files that did not run, stay."""
    assert merge({DEBIAN_12: {LOOP: "1", DRAIN: "1"}}, new) == merged


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        pytest.param("containerd 1.6.20", "containerd 1.6", id="a version"),
        pytest.param("6.12.9+deb13-amd64", "6.12", id="a kernel"),
        pytest.param("Debian GNU/Linux 12 (bookworm)", "Debian GNU/Linux 12 (bookworm)", id="one number"),
        pytest.param("1.24 to 1.41", "1.24 to 1.41", id="two"),
        pytest.param("v1.2", "v1.2", id="part of a word"),
    ],
)
def test_a_line_is_told_by_its_minor_version(text: str, cut: str) -> None:
    """What comes after it changes from day to day."""
    assert minor(text) == cut


def test_the_summary_has_a_row_for_each_kind_of_part() -> None:
    """With its versions up to the minor number, the newest first, and when it was recorded last."""
    some = {
        DEBIAN_12: {LOOP: "2026-11-29"},
        NEWER: {LOOP: "2026-11-28"},
        OTHER_LINE: {LOOP: "2026-11-30"},
        Found.of("API server", {"Kubernetes": "1.20.2"}): {LOOP: "2026-11-30"},
        Found.of("API server", {"Kubernetes": "1.36.2"}): {LOOP: "2026-11-30"},
    }
    assert table(some, "summary").splitlines()[2:] == [
        "| API server | Kubernetes 1.36.2, 1.20.2 | 2026-11-30 |",
        "| node | Debian GNU/Linux 12 (bookworm) | 2026-11-30 |",
        "| node's kernel | 6.12, 6.1 | 2026-11-30 |",
    ]


def test_a_page_gets_its_tables_and_keeps_the_rest() -> None:
    """A row for each part, the newest first; a single file is named, more are counted."""
    some = {DEBIAN_12: {LOOP: "2026-11-29"}, OTHER_LINE: {LOOP: "2026-11-30", DRAIN: "2026-11-01"}}
    page = "# Page\n\n<!-- tested: nodes, by make records -->\nold\n<!-- end -->\n\nEnd.\n"
    assert with_tables(page, some) == (
        "# Page\n\n<!-- tested: nodes, by make records -->\n"
        "| Kubernetes | system | kernel | runtime | shown by | last |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| 1.20.2 | Debian GNU/Linux 12 (bookworm) | 6.12.9-amd64 | - | 2 files of tests | 2026-11-30 |\n"
        f"| 1.20.2 | Debian GNU/Linux 12 (bookworm) | 6.1.0-57-amd64 | - | `{LOOP}` | 2026-11-29 |\n"
        "<!-- end -->\n\nEnd.\n"
    )


@pytest.mark.parametrize("name", [*records.TABLES, records.SUMMARY])
def test_every_table_is_written_between_its_marks(name: str) -> None:
    """Also with capitals in its name, and where nothing was recorded."""
    page = f"<!-- tested: {name}, by make records -->\nold\n<!-- end -->\n"
    assert with_tables(page, {}) == page.replace("old", table({}, name))


@pytest.mark.parametrize(
    ("row", "cell", "wrong"),
    [
        pytest.param("Kubernetes", "1.20; 1.36.2 once", ["API server Kubernetes 1.36.2"], id="a server"),
        pytest.param("nodes", "Debian 12, kernels 6.1 and 6.12", [], id="nodes that were"),
        pytest.param(
            "nodes", "Debian 13, kernel 6.11", ["node system 13", "node kernel 6.11"], id="nodes that were not"
        ),
        pytest.param("builders", "buildah 1.28 and 1.43 in Jobs", ["builder builder 1.43"], id="the second of two"),
        pytest.param(
            "builders", "buildah 1.28 in Jobs, Docker Engine 20.1", ["engine engine 20.1"], id="another minor"
        ),
    ],
)
def test_a_version_that_nobody_recorded_is_named(row: str, cell: str, wrong: list[str]) -> None:
    """By part, field and version; 20.1 is not 20.10."""
    some: Records = {
        DEBIAN_12: {},
        OTHER_LINE: {},
        Found.of("API server", {"Kubernetes": "1.20.2"}): {},
        Found.of("builder", {"builder": "buildah 1.28.2"}): {},
        Found.of("engine", {"engine": "Docker Engine 20.10.24"}): {},
    }
    assert unproven(row, cell, some) == wrong


def test_files_of_tests_that_are_gone_leave_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As does a part that only these showed."""
    kept = tmp_path / "tested.yaml"
    kept.write_text(dump({DEBIAN_12: {"tests/gone.py": "2026-01-01"}}))
    (tmp_path / "loop.xml").write_text(JUNIT)
    monkeypatch.setattr(records, "FILE", kept)
    assert take(tmp_path) == {Found.of("node", {"kernel": "6.1.0-57-amd64"}): {LOOP: "2026-11-30"}}
