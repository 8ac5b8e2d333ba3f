"""A build context as a Job takes it: its Dockerfile has one command more, which copies the facts out. Pure.

An engine keeps the stage ``build`` as an image, out of which its facts are read; buildah, without layers, keeps none.
"""

import io
import re
import tarfile

from driver_builder.errors import BuildFailed
from driver_builder.reasons import Reason
from driver_builder.templates.stages import BUILD_STAGE, FACTS_FOLDER

FACTS_VOLUME = "/driverwright-facts"
"""Where ``job_pod/build.sh`` mounts the folder that they are copied to."""

_FROM = re.compile(r"FROM\s", re.IGNORECASE)
_BUILD_STAGE = re.compile(rf"FROM\s.*\sAS\s+{BUILD_STAGE}\s*", re.IGNORECASE)
_COPY = f"RUN [ ! -d {FACTS_FOLDER} ] || cp -R {FACTS_FOLDER}/. {FACTS_VOLUME}/"


def for_a_job(context: bytes) -> bytes:
    """Change the Dockerfile in a context, a tar, and nothing besides.

    Raises:
        BuildFailed: as :func:`with_facts_copied`.
    """
    buffer = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(context)) as old,
        tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for entry in old:
            file = old.extractfile(entry)
            content = file.read() if file else b""
            if entry.name == "Dockerfile":
                content = with_facts_copied(content.decode()).encode()
                entry.size = len(content)
            new.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def with_facts_copied(dockerfile: str) -> str:
    """Add the command at the end of the stage ``build``.

    Raises:
        BuildFailed: TEMPLATE_INVALID, when there is no such stage.
    """
    lines = dockerfile.splitlines()
    begin = next((number for number, line in enumerate(lines) if _BUILD_STAGE.fullmatch(line)), None)
    if begin is None:
        raise BuildFailed(
            Reason.TEMPLATE_INVALID, f"the template has no stage {BUILD_STAGE!r}: write FROM ... AS {BUILD_STAGE}"
        )
    end = next((number for number in range(begin + 1, len(lines)) if _FROM.match(lines[number])), len(lines))
    return "\n".join([*lines[:end], _COPY, "", *lines[end:], ""])
