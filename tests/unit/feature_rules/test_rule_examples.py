"""The examples of docs/rules.md do what their expected output says; the page leaves nothing out."""

import json
import re
from pathlib import Path

import pytest

from feature_rules.go_template.functions.table import FUNCTIONS
from feature_rules.model import OPERATORS
from nfd_worker.cli.main import run

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples/rules"
PAGE = (ROOT / "docs/rules.md").read_text()

NAMES = sorted(file.name.removesuffix(".expected.json") for file in EXAMPLES.glob("*.expected.json"))


@pytest.mark.parametrize("name", NAMES)
def test_an_example_gives_what_it_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each example of the page is valid, and gives the expected output."""
    rules, features = str(EXAMPLES / f"{name}.yaml"), str(EXAMPLES / f"{name}.features.yaml")
    assert run(["rules", "validate", rules], {}) == 0
    assert run(["rules", "eval", "--rules", rules, "--features", features], {}) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((EXAMPLES / f"{name}.expected.json").read_text())


def test_every_file_belongs_to_an_example_of_the_page() -> None:
    """The page mentions every example file."""
    files = {f"{name}.{end}" for name in NAMES for end in ("yaml", "features.yaml", "expected.json")}
    assert {file.name for file in EXAMPLES.iterdir()} == files
    assert all(f"examples/rules/{name}.yaml" in PAGE for name in NAMES)


def test_the_page_names_every_operator() -> None:
    """The table of the page lists every operator."""
    assert set(re.findall(r"`(\w+)`", PAGE)) >= set(OPERATORS[1:])


def test_the_page_names_every_template_function() -> None:
    """The page lists all template functions, and no others."""
    listed = PAGE.partition("<!-- functions -->")[2].partition("<!-- end -->")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == set(FUNCTIONS)
