"""The Dockerfile of a Job: that of an engine, with the facts copied out at the end of the stage ``build``."""

import itertools
from dataclasses import replace

import pytest

from driver_builder.builds.job.job_dockerfile import for_a_job
from driver_builder.model.build import (
    BuildRequest,
    Source,
    SourceArchive,
    SourceFiles,
    SourceGit,
    SourceImage,
    SourcePackage,
)
from driver_builder.planning.actions import StartBuild
from driver_builder.templates.stages import Variant
from driver_builder.templates.templates import build_context, recipe_versions, render, templates_directory
from tests.support.golden_cases import ABSENT, CASES, actions
from tests.unit.driver_builder.templates.test_templates import PINNED, REQUEST

SOURCES: list[Source] = [
    SourceFiles(files={"a.c": b"x", "b/c.sh": b"y"}),
    SourceGit(url="https://x/y.git", commit="c" * 40, path="a"),
    SourceArchive(url="https://x/y.tgz", sha256="5" * 64),
    SourcePackage(name="edu-dkms"),
    SourceImage(reference=PINNED, path="/src"),
]
REQUESTS = [
    replace(REQUEST, template=template, source=source, firmware_path=firmware, rebuild=rebuild)
    for template, source, firmware, rebuild in itertools.product(
        recipe_versions(), SOURCES, ("", "/source/fw"), ("", "abc.1")
    )
]
GOLDEN = [
    item.request for case in CASES.values() for item in actions(case.seen, ABSENT) if isinstance(item, StartBuild)
]


@pytest.mark.parametrize("request_", [*REQUESTS, *GOLDEN])
def test_new_is_old(request_: BuildRequest) -> None:
    """Byte for byte, the whole context."""
    folder = templates_directory()
    old = for_a_job(build_context(request_, render(request_, folder)))
    assert build_context(request_, render(request_, folder, Variant.JOB)) == old
    assert request_.own_template or "copy_facts" in {*Variant.JOB.values}
