"""The Dockerfile of a Job: that of an engine, with the facts copied out at the end of the stage ``build``."""

from dataclasses import replace
from pathlib import Path

import pytest

from driver_builder.base.errors import BuildFailed
from driver_builder.base.reasons import Reason
from driver_builder.builds.job import job_builder
from driver_builder.builds.templates import templates
from driver_builder.builds.templates.templates import (
    COPY_FACTS,
    FACTS_VOLUME,
    Variant,
    render,
    template_versions,
    templates_directory,
    with_facts_copied,
)
from driver_builder.model.build import OwnTemplate
from tests.unit.driver_builder.builds.templates.test_templates import REQUEST

OWN = "FROM {{ base_image }} AS build\nRUN x\n\nFROM scratch\n"


@pytest.mark.parametrize("template", sorted(template_versions()))
def test_our_templates_render_it(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rule for an admin's own, and an engine gets all but that one command."""
    monkeypatch.setattr(templates, "with_facts_copied", lambda dockerfile: dockerfile)
    request = replace(REQUEST, template=template)
    made = render(request, templates_directory(), Variant.JOB)
    assert made.count(COPY_FACTS) == 1
    assert made.replace(f"{COPY_FACTS}\n\n", "") == render(request, templates_directory())


@pytest.mark.parametrize(
    "text", [OWN, OWN.replace("\nFROM s", "{% if copy_facts %}\n{{ copy_facts }}\n{% endif %}\nFROM s")]
)
def test_a_template_of_the_admins_own_gets_the_command_once(text: str, tmp_path: Path) -> None:
    """Whether it renders it or not; an engine is given the template's text and no more."""
    own = replace(REQUEST, own_template=OwnTemplate(place="ConfigMap a/b/c", text=text))
    assert render(own, tmp_path, Variant.JOB).splitlines().count(COPY_FACTS) == 1
    assert COPY_FACTS not in render(own, tmp_path)


def test_the_facts_are_copied_at_the_end_of_the_build_stage() -> None:
    """Wherever that stage stands, and whatever comes after it."""
    before = "FROM a AS headers\nRUN x\nFROM headers as build\nRUN y\n\nFROM scratch\nCOPY --from=build /out/ /\n"
    lines = with_facts_copied(before).splitlines()
    assert lines.index("RUN y") < lines.index(COPY_FACTS) < lines.index("FROM scratch")
    assert [line for line in lines if line not in (COPY_FACTS, "")] == [line for line in before.splitlines() if line]


def test_a_last_stage_is_ended_by_the_file() -> None:
    """No stage needs another one after it."""
    assert with_facts_copied("FROM a AS build\nRUN y\n").splitlines()[2] == COPY_FACTS


def test_without_the_stage_the_template_is_refused() -> None:
    """Its facts could not be had."""
    with pytest.raises(BuildFailed, match="no stage 'build'") as caught:
        with_facts_copied("FROM scratch\n")
    assert caught.value.reason is Reason.TEMPLATE_INVALID


def test_the_script_of_the_job_mounts_what_is_copied_to() -> None:
    """Both name the same folder."""
    script = Path(job_builder.__file__).with_name("build.sh").read_text()
    assert f"--volume /building/facts:{FACTS_VOLUME} " in script
