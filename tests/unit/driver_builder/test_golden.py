"""What must not change by accident: build keys, Dockerfiles, and the DaemonSets of drivers of many kinds.

A changed key builds every image of every user anew; a changed name, selector or fingerprint takes DaemonSets away or
replaces running pods. Whoever means it runs ``GOLDEN=write make unit`` and says in CHANGELOG.md what users will see.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from driver_builder.builds.templates.templates import Variant, render, template_versions, templates_directory
from driver_builder.model.build import BuildRequest
from driver_builder.nodes.changes import StartBuild
from tests.support.driver_builder.changes import applied
from tests.support.driver_builder.golden_cases import ABSENT, CASES, THERE, Case, actions

FOLDER = Path(__file__).parents[2] / "data" / "golden"
JOBS = FOLDER.with_name("golden_jobs")
JOB_CASES = {name for name, case in CASES.items() if case.in_a_job}
each_case = pytest.mark.parametrize("name", sorted(CASES))


def check(path: Path, text: str) -> None:
    """Compare with a golden file, or write it where that is asked for."""
    if os.environ.get("GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"{path.name} differs; if that is meant, GOLDEN=write writes it anew"


def request_of(case: Case) -> BuildRequest | None:
    """Return what would be built; None for a prebuilt image."""
    return next((item.request for item in actions(case.seen, ABSENT) if isinstance(item, StartBuild)), None)


@each_case
def test_the_daemon_set_and_its_fingerprint(name: str) -> None:
    """Name, selector, template and fingerprint of the DaemonSet, beside key and tag of the image."""
    case = CASES[name]
    request = request_of(case)
    built: dict[str, Any] = {"key": request.key, "target": request.target.id} if request else {}
    made = applied(actions(case.seen, THERE))
    document = {"build": built, "daemonSets": [item.manifest for item in made]}
    # By way of JSON: what two containers share is written twice, and no anchors.
    check(FOLDER / f"{name}.yaml", yaml.safe_dump(json.loads(json.dumps(document)), sort_keys=True, width=120))


@each_case
def test_the_dockerfile(name: str) -> None:
    """The Dockerfile that an engine is given."""
    request = request_of(CASES[name])
    if request is not None:
        check(FOLDER / f"{name}.Dockerfile", render(request, templates_directory()))


@pytest.mark.parametrize("name", sorted(JOB_CASES))
def test_the_dockerfile_of_a_job(name: str) -> None:
    """The Dockerfile that a Job is given: for each template, and for an admin's own."""
    request = request_of(CASES[name])
    assert request is not None
    check(JOBS / f"{name}.Dockerfile", render(request, templates_directory(), Variant.JOB))


def test_every_template_has_a_golden_dockerfile_of_a_job() -> None:
    """A new template also has a case with ``in_a_job``."""
    requests = [request_of(CASES[name]) for name in JOB_CASES]
    assert {request.template for request in requests if request and not request.own_template} == set(
        template_versions()
    )


def test_every_golden_file_belongs_to_a_case() -> None:
    """The files of a case that is removed are removed with it."""
    assert {path.stem for path in FOLDER.iterdir()} == set(CASES)
    assert {path.stem for path in JOBS.iterdir()} == JOB_CASES
