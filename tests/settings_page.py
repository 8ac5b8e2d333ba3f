"""Writes ``docs/settings.md`` from the table of settings: ``make docs``."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from driver_builder.config import SETTINGS
from driver_builder.model.setting import RETIRED_SINCE, Group, Setting

PAGE = Path(__file__).parents[1] / "docs/settings.md"

_HEAD = """\
<!-- Made by make docs from driver_builder/config.py: change that file. -->

# Settings of driver-builder

Each setting is a flag and an environment variable; that of a flag without a value is `true`. The flag goes before the
variable, and an empty variable is as none. A value that cannot be used ends the program with exit code 2, and the
message names the flag or variable.

In the controller's Deployment prefer variables to flags: commands that are run in its pod obey them too. The chart sets
those with a value of the chart; the others go into `driverBuilder.env`.
"""
_SECTIONS: Mapping[str, tuple[str, tuple[Group, ...]]] = {
    "Every command": (
        "Registries: [where they may be](registry.md#where-a-registry-may-be-and-where-it-may-redirect-to) and\n"
        "[their certificates](registry.md#certificates-plain-http-proxies). [Templates](templates.md).",
        (Group.CONNECTION,),
    ),
    "What builds": (
        "Of `run`, `preflight` and `doctor`; `build` has those of [the engine](operations.md#the-engine-that-builds).\n"
        "The certificates for an engine over TLS are in the folder `DOCKER_CERT_PATH`, if `DOCKER_TLS_VERIFY` is set.\n"
        "[Builds in Jobs](operations.md#builds-in-jobs), [toolchains](operations.md#toolchains).",
        (Group.ENGINE, Group.BUILDER),
    ),
    "What DriverContainers may use": (
        "Of `run`, `plan`, `explain`, `gate`, `preflight`, `build`, `snapshot`, `doctor` and `lint`.\n"
        "[What each limits, and what is recommended](security.md#settings).",
        (Group.PERMISSIONS,),
    ),
    "The controller": (
        "Of `run`; `admission-policy` has `--node-feature-namespaces` as well. The holder of the Lease is\n"
        "`POD_NAME`, else the host's name. [The image of the loader](operations.md#the-image-of-the-loader) and\n"
        "[its privileges](security.md#privileges-of-the-loader), [device plugins](stages.md#deviceplugin),\n"
        "[their accounts](stages.md#profiles-of-shared-gpus), [DRA drivers](stages.md#dra-drivers),\n"
        "[drains for device agents](upgrades.md#drains-that-a-device-agent-asks-for),\n"
        "[labels of other programs](node-features.md).",
        (Group.RUN, Group.NODE_FEATURES),
    ),
    "Removing old images": ("Of [`gc`](registry.md#removing-old-images).", (Group.GC,)),
    "Logs": ("Before the command: `driver-builder --log-level debug plan`. [Logs](monitoring.md#logs).", (Group.LOGS,)),
}
_COLUMNS = ("Flag", "Variable", "Meaning", "Value of the chart")
_RETIRED = (
    f"{RETIRED_SINCE} accepts them with a warning in the log and by `doctor`. The version after it does not know them."
)


def page() -> str:
    """Make the page."""
    sections = (
        _section(title, words, _COLUMNS, (_cells(row) for row in SETTINGS if row.is_shown and row.group in groups))
        for title, (words, groups) in _SECTIONS.items()
    )
    retired = ((f"`{row.flag}`", row.retired) for row in SETTINGS if row.retired)
    return "\n".join([_HEAD, *sections, _section("Retired", _RETIRED, ("Flag", "What applies instead"), retired)])


def _section(title: str, words: str, head: tuple[str, ...], rows: Iterable[Iterable[str]]) -> str:
    table = (f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *rows))
    return "\n".join([f"## {title}", "", words, "", *table, ""])


def _cells(row: Setting) -> Iterator[str]:
    flag = f"{row.flag} {row.metavar}".strip()
    yield f"`{row.short}`, `{flag}`" if row.short else f"`{flag}`"
    yield f"`{row.variable}`"
    yield re.sub(r"docs/([\w-]+\.md)", r"[\1](\1)", row.help.replace("*", r"\*"))
    yield f"`{row.chart}`" if row.chart else ""


if __name__ == "__main__":
    PAGE.write_text(page())
