"""Takes what the last test run recorded and writes the tables of what was tested: ``make records``."""

from pathlib import Path

from tests.support import records
from tests.support.records import ROOT

RESULTS = ROOT / "build/tests"
PAGES = (ROOT / "docs/evidence.md", ROOT / "docs/kubernetes-versions.md", ROOT / "docs/distributions.md")


def take(results: Path) -> records.Records:
    """Merge the JUnit files of a folder into the records; files of tests that are gone leave them."""
    known = records.parse(records.FILE.read_text()) if records.FILE.exists() else {}
    for file in sorted(results.glob("*.xml")):
        known = records.merge(known, records.of_junit(file.read_text()))
    there = {
        found: {file: date for file, date in shown.items() if (ROOT / file).exists()} for found, shown in known.items()
    }
    return {found: shown for found, shown in there.items() if shown}


def main() -> None:
    """Write the records, then the pages."""
    taken = take(RESULTS)
    records.FILE.write_text(records.dump(taken))
    for page in PAGES:
        page.write_text(records.with_tables(page.read_text(), taken))
    files = {file for shown in taken.values() for file in shown}
    print(f"{records.FILE.relative_to(ROOT)}: {len(taken)} parts, shown by {len(files)} files of tests")


if __name__ == "__main__":
    main()
