"""The documentation: every link and every page that is named leads somewhere."""

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "bench", "demo", "deploy", "device_agent", "device_resources", "docs", "dockerfiles", "driver_builder", "examples",
    "feature_rules", "file_watch", "kube_api", "nfd_worker", "nvml_inventory", "testbed", "tests", "tools",
)  # fmt: skip
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
CODE = sorted(
    file
    for folder in FOLDERS
    for file in (ROOT / folder).rglob("*")
    if file.suffix in {".py", ".yaml", ".j2", ".sh"} or file.name == "Dockerfile"
)
LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]+)\)")
FENCED = re.compile(r"^ *(```|~~~).*?^ *\1", re.MULTILINE | re.DOTALL)
PAGE_NAME = re.compile(r"\bdocs/[\w./-]+?\.md\b")
TEST_NAME = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
FILE_NAME = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[\w./*-]*[\w*])[`:]")


def links(text: str) -> list[str]:
    """Return the targets of all links of a page, but for those in code."""
    return LINK.findall(re.sub(r"`[^`\n]*`", "", FENCED.sub("", text)))


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found: Counter[str] = Counter()
    names = set()
    for heading in re.findall(r"^#+ +(.+?) *#*$", FENCED.sub("", page.read_text()), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        names.add(f"{name}-{found[name]}" if found[name] else name)
        found[name] += 1
    return frozenset(names)


def broken(page: Path, text: str) -> list[str]:
    """Return the relative links of a page that lead nowhere."""
    wrong = []
    for link in links(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        is_good = target.exists() and target.is_relative_to(ROOT)
        if not is_good or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    """Files and headings that a page links exist."""
    assert broken(page, page.read_text()) == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        pytest.param("[a](README.md)", [], id="file"),
        pytest.param("[a](docs)", [], id="folder"),
        pytest.param("[a](README.md#no-such-heading)", ["README.md#no-such-heading"], id="anchor"),
        pytest.param("[a](no-such-file.md)", ["no-such-file.md"], id="missing"),
        pytest.param("[a](../outside.md)", ["../outside.md"], id="outside of the repository"),
        pytest.param("[a](https://example.com/x)", [], id="another host"),
        pytest.param("`[a](missing)`\n```\n[a](missing)\n```\n", [], id="code"),
    ],
)
def test_a_link_that_leads_nowhere_is_found(text: str, wrong: list[str]) -> None:
    """The check above finds missing files and headings, and leaves code alone."""
    assert broken(ROOT / "README.md", text) == wrong


# The changelog names files of earlier versions.
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    """Paths in backticks that begin with a folder of the repository; NAME and ``*`` stand for any."""
    named = {name for name in FILE_NAME.findall(page.read_text()) if "NAME" not in name}
    assert {name for name in named if not any(ROOT.glob(name))} == set()


def test_every_page_that_the_code_names_exists() -> None:
    """Comments, messages and manifests name pages by their path in the repository."""
    missing = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in (*CODE, ROOT / "pyproject.toml", ROOT / "Makefile")
        for name in PAGE_NAME.findall(file.read_text())
        if not (ROOT / name).exists()
    }
    assert missing == set()


def test_every_page_is_in_an_index() -> None:
    """docs/README.md links each page of docs/, docs/decisions/README.md each decision."""
    for folder in (ROOT / "docs", ROOT / "docs" / "decisions"):
        index = folder / "README.md"
        linked = {(folder / link.partition("#")[0]).resolve() for link in links(index.read_text())}
        assert {page for page in folder.glob("*.md") if page != index} <= linked


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    """What docs/security.md says that somebody cannot do, a test shows."""
    named = set(TEST_NAME.findall(page.read_text()))
    gone = {name for file, name in named if f"def {name}(" not in (ROOT / file).read_text()}
    assert gone == set()


def test_each_attacker_has_its_tests() -> None:
    """A row without one would be a promise."""
    section = (ROOT / "docs" / "security.md").read_text().partition("\n## Attackers\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 12
    assert [row for row in rows if not TEST_NAME.search(row.split("|")[-2])] == []


def test_each_claim_has_its_proof() -> None:
    """A row of docs/evidence.md names tests by their path, or a page with the result, or says what was not run."""
    tables = (ROOT / "docs" / "evidence.md").read_text().partition("\n## Builds\n")[2]
    rows = [line for line in tables.splitlines() if re.match(r"\| (?!claim |what )", line)]
    assert len(rows) >= 28
    proofs = [row.split(" | ")[1] for row in rows]
    assert [proof for proof in proofs if not (FILE_NAME.search(proof) or links(proof) or "**not run**" in proof)] == []
    assert re.findall(r"`\w+\.py`", tables) == [], "without its folder nothing checks that a file exists"
