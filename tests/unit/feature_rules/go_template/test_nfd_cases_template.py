"""Known answers of Node Feature Discovery about what parses as a template (tests/data/nfd_cases.yaml)."""

from typing import Any

import pytest

from feature_rules.go_template import TemplateError, parse_template
from tests.support.nfd_worker.nfd_cases import of


@of("template_parse")
def test_template_parse(case: dict[str, Any]) -> None:
    """A template of the largest size parses; what is not a template does not."""
    given = case["input"]
    text = given["template"] if "template" in given else given["repeat"] * given["count"]
    if not case["expect"]["error"]:
        assert parse_template(text).expand({}) == text
        return
    with pytest.raises(TemplateError):
        parse_template(text)
