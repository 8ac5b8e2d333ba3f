"""Bounds of YAML: what would blow up is refused, and quickly."""

import time

import pytest
import yaml

from feature_rules.load import load_rule_list, load_rules
from feature_rules.yaml_nodes import compose, excess, nearest, scalar_text


def bomb(levels: int, width: int) -> str:
    """Make a list whose aliases stand for width ** levels nodes."""
    lines = ["- &a0 [x]"]
    lines += [f"- &a{level} [{', '.join([f'*a{level - 1}'] * width)}]" for level in range(1, levels)]
    return "\n".join(lines)


def chain(length: int) -> str:
    """Make a list of mappings each of which merges the one before."""
    return "\n".join(["- &m0 {name: a}", *(f"- &m{index} {{<<: *m{index - 1}}}" for index in range(1, length))])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(bomb(9, 9), "has more than 50000 entries once its aliases are followed", id="wide bomb"),
        pytest.param(bomb(50, 2), "has more than 50000 entries once its aliases are followed", id="tall bomb"),
        pytest.param("&a [*a]", "nested deeper than 100 levels", id="list in itself"),
        pytest.param("&a [*a, *a, *a]", "nested deeper than 100 levels", id="list in itself, thrice"),
        pytest.param("&a {<<: *a}", "nested deeper than 100 levels", id="mapping merged into itself"),
        pytest.param(chain(200), "nested deeper than 100 levels", id="chain of merges"),
    ],
)
def test_what_grows_when_aliases_are_followed_is_refused(text: str, reason: str) -> None:
    """A document whose aliases expand without bound is refused as one problem."""
    start = time.thread_time()
    assert [one.message for one in load_rules(text, "f.yaml").problems] == [reason]
    assert [one.message for one in load_rule_list(yaml.compose(text, yaml.SafeLoader), "f.yaml").problems] == [reason]
    assert time.thread_time() - start < 1


def test_what_stays_within_bounds_is_read() -> None:
    """Aliases as such are fine, and so are 100 levels."""
    assert [excess(node) for node in compose(bomb(5, 5)).documents] == [None]
    assert compose("[" * 100 + "]" * 100).error == ""


@pytest.mark.parametrize(
    ("text", "plain", "converted"),
    [
        ("a", "a", "a"),
        ("'5'", "5", "5"),
        ("!!str 5", "5", "5"),
        ("5", None, "5"),
        ("-5", None, "-5"),
        ("+5", None, None),
        ("0.5", None, "0.5"),
        ("1.0", None, None),
        ("off", None, "false"),
        ("True", None, "true"),
        ("~", None, ""),
        ("=", "=", "="),
        ("!other a", None, None),
        ("!!int a", None, None),
        ("!!binary YQ==", None, None),
    ],
)
def test_texts_of_scalars(text: str, plain: str | None, converted: str | None) -> None:
    """Only texts are texts; converting takes what YAML does not change."""
    node = yaml.compose(text, yaml.SafeLoader)
    assert isinstance(node, yaml.ScalarNode)
    assert (scalar_text(node, convert=False), scalar_text(node, convert=True)) == (plain, converted)


def test_a_hint_names_the_nearest_word_or_all() -> None:
    """What is far from everything gets the whole list."""
    assert nearest("lables", ("labels", "vars")) == "; did you mean labels?"
    assert nearest("x", ("labels", "vars")) == "; there are labels, vars"
