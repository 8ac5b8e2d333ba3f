"""A template of the admin's own is rendered in a process with limits."""

import os
import sys

import pytest

from driver_builder.base.errors import BuildFailed, TemporaryError
from driver_builder.base.reasons import Reason
from driver_builder.builds.templates.template_process import Limits, render_own
from driver_builder.model.build import OwnTemplate
from tests.unit.driver_builder.builds.templates.test_template_engine import PLACE, VALUES

LITTLE = Limits(cpu_seconds=1, seconds=600.0)
ENOUGH = Limits(cpu_seconds=60, seconds=600.0)
"""A machine that others use as well may count the same work for more."""


def render(text: str, limits: Limits = ENOUGH) -> str:
    """Render a text as an admin's template."""
    return render_own(OwnTemplate(place=PLACE, text=text), VALUES, limits=limits)


def test_a_template_is_rendered_with_its_values() -> None:
    """Words and lists reach the process, and every character comes back."""
    assert render("FROM {{ base_image }}\n{% for m in modules %}{{ m }}{% endfor %} \u00fc\U0001f600") == (
        f"FROM {VALUES['base_image']}\nedudrv \u00fc\U0001f600"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("{{ modules + 1 }}", f"template {PLACE}:1 cannot be rendered: can only conc", id="an error"),
        pytest.param(
            "FROM x\n{% set x = 'a' * 600000000 %}",
            f"template {PLACE}:2 cannot be rendered: it exceeds the memory limit of templates",
            id="memory",
        ),
        pytest.param("{% set x = 7 ** (7 ** 9) %}", "it takes more than 1 s of CPU time", id="one long operation"),
        pytest.param(
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            "it takes more than 1 s of CPU time",
            id="loops without an end",
            marks=pytest.mark.long,
        ),
    ],
)
def test_what_a_template_does_is_bounded(text: str, message: str) -> None:
    """It is refused as a template with an error is, and the controller stays as it was."""
    with pytest.raises(BuildFailed) as caught:
        render(text, LITTLE if "CPU time" in message else ENOUGH)
    assert caught.value.reason is Reason.TEMPLATE_INVALID
    assert message in str(caught.value)


def test_a_template_that_waits_is_ended() -> None:
    """Whatever it waits for: the clock goes on."""
    with pytest.raises(BuildFailed, match=r"killed: it took more than 0\.01 s"):
        render("FROM x", Limits(seconds=0.01))


def test_the_process_knows_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an environment nor a folder to import from reaches it."""
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    assert os.environ["PYTHONHOME"]
    assert render("FROM x") == "FROM x"


def test_where_no_process_can_be_started_it_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine out of processes is no fault of the template."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(TemporaryError, match="its process cannot be started"):
        render("FROM x")
