"""Dockerfiles of a toolchain, and with one: the stage ``headers`` alone, or a toolchain in its place. Pure.

Place in the flow: ``templates`` renders a request, a builder changes the text by one of these functions. Only our own
templates have toolchains (:mod:`driver_builder.model.toolchain`), so a line of theirs that begins with ``FROM`` begins
a stage, and files of another stage come by ``COPY --from``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from driver_builder.builds.templates.templates import HEADERS_STAGE

_FROM = re.compile(r"FROM\s+(?P<base>\S+)(?:\s+AS\s+(?P<name>\S+))?\s*", re.IGNORECASE)
_COPY_FROM = re.compile(r"^COPY --from=(?P<stage>\S+)", re.MULTILINE)
_APT = "apt-get "

REFRESHED = """\
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
# The package lists are as old as the toolchain. Where they cannot be fetched, what they name may still be there.
RUN apt-get update -q -o Acquire::Languages=none || echo "the package lists are those of the toolchain"
"""


@dataclass(frozen=True, slots=True)
class _Stage:
    """One stage: its base, its name (empty: none), and its text, which begins with ``FROM``."""

    base: str
    name: str
    text: str

    @property
    def needs(self) -> frozenset[str]:
        """The stages and images that it is made of."""
        return frozenset((self.base, *_COPY_FROM.findall(self.text)))


def toolchain_dockerfile(dockerfile: str) -> str | None:
    """Return the part of a Dockerfile that ends with the stage ``headers``; None without such a stage.

    Its commands are the same, so an engine that has built the whole finds them in its cache.
    """
    stages = _stages(dockerfile)
    if HEADERS_STAGE not in stages:
        return None
    needed = _needed(stages, HEADERS_STAGE)
    return "".join(stage.text for name, stage in stages.items() if name in needed)


def from_toolchain(dockerfile: str, image: str) -> str:
    """Return a Dockerfile whose stage ``headers`` is ``image``, without the stages that only made it.

    Where a later stage on top of it asks for packages, their lists are refreshed. A Dockerfile without the stage is
    left as it is.
    """
    stages = _stages(dockerfile)
    if HEADERS_STAGE not in stages:
        return dockerfile
    on_top = [stage for stage in stages.values() if stage.base == HEADERS_STAGE]
    refreshed = REFRESHED if any(_APT in stage.text for stage in on_top) else ""
    text = f"FROM {image} AS {HEADERS_STAGE}\n{refreshed}\n"
    stages |= {HEADERS_STAGE: _Stage(base=image, name=HEADERS_STAGE, text=text)}
    last = next(reversed(stages))
    needed = _needed(stages, last)
    return "".join(stage.text for name, stage in stages.items() if name in needed)


def _stages(dockerfile: str) -> dict[str, _Stage]:
    """Return the stages in their order, by name, or by number where they have none."""
    stages: list[_Stage] = []
    for line in dockerfile.splitlines(keepends=True):
        if begin := _FROM.fullmatch(line):
            stages.append(_Stage(base=begin["base"], name=begin["name"] or "", text=line))
        elif stages:
            # What stands before the first stage is a comment.
            stages[-1] = replace(stages[-1], text=stages[-1].text + line)
    return {stage.name or str(number): stage for number, stage in enumerate(stages)}


def _needed(stages: Mapping[str, _Stage], name: str) -> frozenset[str]:
    """Return the stages that one is made of, itself included."""
    needed, left = set[str](), [name]
    while left:
        stage = left.pop()
        if stage in stages and stage not in needed:
            needed.add(stage)
            left += stages[stage].needs
    return frozenset(needed)
