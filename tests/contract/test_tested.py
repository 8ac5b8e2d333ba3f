"""What pages say was tested, tests have recorded."""

import re
from pathlib import Path

import pytest

from tests import records_page
from tests.support import records
from tests.support.records import ROOT

RECORDS = records.parse(records.FILE.read_text())
README_ROW = re.compile(r"^\| (Kubernetes|nodes|builders) \| ([^|]*) \|", re.MULTILINE)


@pytest.mark.parametrize("page", records_page.PAGES, ids=lambda page: page.name)
def test_the_tables_are_those_of_the_records(page: Path) -> None:
    """Else: make records."""
    assert records.with_tables(page.read_text(), RECORDS) == page.read_text()


def test_each_table_stands_on_a_page() -> None:
    """None is made for nobody."""
    shown = {name for page in records_page.PAGES for name in re.findall(r"<!-- tested: ([\w ]+),", page.read_text())}
    assert shown == {*records.TABLES, records.SUMMARY}


def test_what_readme_says_it_works_with_was_recorded() -> None:
    """Each version of Kubernetes, node and builder in the second column."""
    rows = dict(README_ROW.findall((ROOT / "README.md").read_text()))
    assert set(rows) == {"Kubernetes", "nodes", "builders"}
    assert [text for row, cell in rows.items() for text in records.unproven(row, cell, RECORDS)] == []


def test_each_recorded_file_of_tests_exists() -> None:
    """Else: make records."""
    files = {file for shown in RECORDS.values() for file in shown}
    assert {file for file in files if not (ROOT / file).exists()} == set()
