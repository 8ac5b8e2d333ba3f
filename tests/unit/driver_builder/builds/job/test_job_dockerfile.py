"""The Dockerfile of a Job: that of the template, with the facts copied out."""

import io
import tarfile

import pytest

from driver_builder.builds.job.job_dockerfile import FACTS_VOLUME, for_a_job, with_facts_copied
from driver_builder.errors import BuildFailed
from driver_builder.reasons import Reason
from driver_builder.templates.templates import recipe_versions, templates_directory

COPY = f"RUN [ ! -d /facts ] || cp -R /facts/. {FACTS_VOLUME}/"


def test_the_facts_are_copied_at_the_end_of_the_build_stage() -> None:
    """Wherever that stage stands, and whatever comes after it."""
    before = "FROM a AS headers\nRUN x\nFROM headers as build\nRUN y\n\nFROM scratch\nCOPY --from=build /out/ /\n"
    lines = with_facts_copied(before).splitlines()
    assert lines.index("RUN y") < lines.index(COPY) < lines.index("FROM scratch")
    assert [line for line in lines if line not in (COPY, "")] == [line for line in before.splitlines() if line]


def test_a_last_stage_is_ended_by_the_file() -> None:
    """No stage needs another one after it."""
    assert with_facts_copied("FROM a AS build\nRUN y\n").splitlines()[2] == COPY


def test_without_the_stage_the_template_is_refused() -> None:
    """Its facts could not be had."""
    with pytest.raises(BuildFailed, match="no stage 'build'") as caught:
        with_facts_copied("FROM scratch\n")
    assert caught.value.reason is Reason.TEMPLATE_INVALID


@pytest.mark.parametrize("template", sorted(recipe_versions()))
def test_every_template_has_the_stage(template: str) -> None:
    """What we ship can be built in a Job."""
    text = (templates_directory() / f"{template}.Dockerfile.j2").read_text()
    assert with_facts_copied(text).count(COPY) == 1


def test_all_else_in_a_context_stays_as_it_is() -> None:
    """Names, contents and modes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        folder = tarfile.TarInfo("source")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(folder)
        for name, content, mode in (("Dockerfile", b"FROM a AS build\n", 0o644), ("source/x.sh", b"#!", 0o755)):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    made = for_a_job(buffer.getvalue())
    with tarfile.open(fileobj=io.BytesIO(made)) as tar:
        entries = {entry.name: (entry.isdir(), entry.mode) for entry in tar}
        assert entries == {"source": (True, 0o755), "Dockerfile": (False, 0o644), "source/x.sh": (False, 0o755)}
        dockerfile, script = tar.extractfile("Dockerfile"), tar.extractfile("source/x.sh")
        assert dockerfile is not None
        assert COPY in dockerfile.read().decode()
        assert script is not None
        assert script.read() == b"#!"
    assert for_a_job(buffer.getvalue()) == made
