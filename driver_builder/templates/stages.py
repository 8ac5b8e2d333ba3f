"""The stages of a rendered Dockerfile, and the command by which a Job gets the facts of stage ``build``. Pure.

An engine keeps the stage ``build`` as an image, and its facts are read from that. In a Job, buildah keeps no stage: the
last command of the stage copies the facts to a volume. Our templates render that command (``parts/copy_facts.j2``). A
template that does not, which is one of an admin's own, gets it by one rule, :func:`with_facts_copied`.
"""

import re
from enum import Enum

from driver_builder.errors import BuildFailed
from driver_builder.reasons import Reason

BUILD_STAGE = "build"
HEADERS_STAGE = "headers"
FACTS_FOLDER = "/facts"
FACTS_VOLUME = "/driverwright-facts"
"""Where ``builds/job/build.sh`` mounts the folder that they are copied to."""
COPY_FACTS = f"RUN [ ! -d {FACTS_FOLDER} ] || cp -R {FACTS_FOLDER}/. {FACTS_VOLUME}/"

_FROM = re.compile(r"FROM\s", re.IGNORECASE)
_BUILD_STAGE = re.compile(rf"FROM\s.*\sAS\s+{BUILD_STAGE}\s*", re.IGNORECASE)
_HEADERS_STAGE = re.compile(rf"^FROM \S+ AS {HEADERS_STAGE}$", re.MULTILINE | re.IGNORECASE)


class Variant(Enum):
    """What a Dockerfile is rendered for."""

    ENGINE = "engine"
    JOB = "job"

    @property
    def values(self) -> dict[str, str | None]:
        """The variables of a template that depend on it."""
        return {"copy_facts": COPY_FACTS if self is Variant.JOB else None}


def has_headers_stage(dockerfile: str) -> bool:
    """Whether a Dockerfile has a stage that tells of the kernel alone."""
    return _HEADERS_STAGE.search(dockerfile) is not None


def with_facts_copied(dockerfile: str) -> str:
    """Add ``COPY_FACTS`` at the end of the stage ``build``, unless the template rendered it.

    Raises:
        BuildFailed: TEMPLATE_INVALID, when there is no such stage.
    """
    lines = dockerfile.splitlines()
    if COPY_FACTS in lines:
        return dockerfile
    begin = next((number for number, line in enumerate(lines) if _BUILD_STAGE.fullmatch(line)), None)
    if begin is None:
        raise BuildFailed(
            Reason.TEMPLATE_INVALID, f"the template has no stage {BUILD_STAGE!r}: write FROM ... AS {BUILD_STAGE}"
        )
    end = next((number for number in range(begin + 1, len(lines)) if _FROM.match(lines[number])), len(lines))
    return "\n".join([*lines[:end], COPY_FACTS, "", *lines[end:], ""])
