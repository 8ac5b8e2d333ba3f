"""Every flag, environment variable and metric of each program is in the documentation, and no other metric."""

import argparse
import re
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from device_agent.config.options import OPTIONS as AGENT_OPTIONS
from device_agent.metrics import Counts, render
from device_agent.profiles.fields import PROFILE_FIELDS
from device_resources.exporter import EXPORTER_FIELDS
from device_resources.fields import GROUP_FIELDS, HEALTH_FIELDS, PATH_FIELDS, RESOURCE_FIELDS
from device_resources.kinds import Fields, Items, Kind
from device_resources.memory_limits import MEMORY_FIELDS
from device_resources.nvidia_fields import NVIDIA_FIELDS
from driver_builder import config
from driver_builder.api import nvidia_stage
from driver_builder.builds.build_queue import BuildStates
from driver_builder.cli.main import COMMANDS
from driver_builder.cluster.cluster_cache import ClusterCache
from driver_builder.controller.metrics import CacheCollector, StateCollector
from driver_builder.model.setting import Group
from nfd_worker.config.options import OPTIONS
from nfd_worker.metrics import Metrics
from tests.support.driver_builder.memory_client import MemoryClient

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {page.name: page.read_text() for page in DOCS.glob("*.md")}
NOT_A_SETTING = {"--help", "--output"}
SUFFIXES = {"counter": "_total", "info": "_info"}
"""Of the names of metrics, by their kind."""


def flags_of(command: str) -> set[str]:
    """Return the flags of a command of driver-builder, as its help prints them."""
    (module,) = [module for name, module, _ in COMMANDS if name == command]
    parser = argparse.ArgumentParser(prog="x")
    config.add_flags(parser, Group.CONNECTION)
    module.add_flags(parser)
    return set(re.findall(r"--[a-z][a-z-]+[a-z]", parser.format_usage())) - NOT_A_SETTING


@pytest.mark.parametrize("command", [name for name, _, _ in COMMANDS])
def test_every_flag_of_driver_builder_is_documented(command: str) -> None:
    """By its whole name, on any page."""
    assert {
        flag
        for flag in flags_of(command)
        if not any(f"{flag}`" in text or f"{flag} " in text for text in PAGES.values())
    } == set()


def test_every_setting_of_nfd_worker_is_documented() -> None:
    """Flag and environment variable, but for upstream's flags without effect."""
    rows = {(f"--{option.flag}", option.environment) for option in OPTIONS if not option.no_effect}
    documented = re.findall(r"^\| `(--[\w-]+)` \| `(\w+)` \|", PAGES["nfd-worker.md"], re.MULTILINE)
    assert set(documented) == rows


def test_every_setting_of_device_agent_is_documented() -> None:
    """Flag and environment variable."""
    documented = re.findall(r"^\| `(--[\w-]+)` \| `(\w+)` \|", PAGES["device-agent.md"], re.MULTILINE)
    assert set(documented) == {(f"--{option.flag}", option.environment) for option in AGENT_OPTIONS}


def test_the_metrics_of_device_agent_are_those_documented() -> None:
    """None is missing, none is gone."""
    text = render(Counts(resources=(), config_is_current=True, reloads={}))
    documented = re.findall(r"^\| `(device_agent_\w+)` \|", PAGES["device-agent.md"], re.MULTILINE)
    assert set(documented) == set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))


def test_every_field_of_a_resource_is_documented() -> None:
    """As in the table of the page; of a path, a group, the health, and the resource itself."""
    page = PAGES["device-agent.md"]
    fields = [RESOURCE_FIELDS, GROUP_FIELDS, PATH_FIELDS, HEALTH_FIELDS]
    names = {name for part in fields for name in part.kinds} - {"groups", "paths", "health"}
    assert {name for name in names if not re.search(rf"`(\w+(\[\])?\.)*{name}`", page)} == set()


def test_every_field_of_nvidias_devices_is_documented() -> None:
    """In the table of the stage, and no others."""
    names = {
        f"{name}.{inner}" if inner else name
        for name, kind in NVIDIA_FIELDS.kinds.items()
        for inner in (kind.kinds if isinstance(kind, Fields) else ("",))
    }
    table = PAGES["stages.md"].partition("### NVIDIA's devices")[2].partition("\n- ")[0]
    assert set(re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE)) == names


@pytest.mark.parametrize(
    ("name", "fields"),
    [pytest.param("exporter", EXPORTER_FIELDS, id="exporter"), pytest.param("memory", MEMORY_FIELDS, id="memory")],
)
def test_every_field_of_the_use_of_devices_is_documented(name: str, fields: Fields) -> None:
    """In the table of its page, and no others; that of a DriverContainer is made from the rows."""
    page, head = {"exporter": ("gpu-metrics.md", "| field of `exporter` |"), "memory": ("gpu-memory.md", "| field |")}[
        name
    ]
    table = PAGES[page].partition(head)[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == fields.kinds.keys()


def test_every_field_of_a_stages_profiles_is_documented() -> None:
    """In a table of their own: those that the agent's configuration does not have."""
    more = {name: kind for name, kind in nvidia_stage.FIELDS.kinds.items() if name not in NVIDIA_FIELDS.kinds}
    names = {f"{name}.configMap" if isinstance(kind, Fields) else name for name, kind in more.items()}
    table = PAGES["stages.md"].partition("### Profiles of shared GPUs")[2].partition("\n- ")[0]
    assert set(re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE)) == names


def test_where_a_stage_has_its_mig_layouts_from_is_documented() -> None:
    """In the table of its own: the one field that the agent does not read."""
    table = PAGES["stages.md"].partition("### MIG layouts")[2].partition("\n- ")[0]
    mig = nvidia_stage.FIELDS.kinds["mig"]
    assert isinstance(mig, Fields)
    assert set(re.findall(r"^\| `mig\.(\w+)` \|", table, re.MULTILINE)) == mig.kinds.keys()


def names_in(kind: Kind) -> set[str]:
    """Return the names of all fields below one."""
    inner = kind.kind if isinstance(kind, Items) else kind
    if not isinstance(inner, Fields):
        return set()
    return {name for key, below in inner.kinds.items() for name in (names_in(below) or {key})}


def test_every_field_of_a_profile_is_documented() -> None:
    """What it means, that it means nothing, or that it is refused; those of `gfd` together."""
    page = PAGES["gpu-sharing.md"]
    ignored_together = {"oneshot", "noTimestamp", "sleepInterval", "outputFile", "machineTypeFile"}
    names = names_in(PROFILE_FIELDS) - ignored_together
    assert {name for name in names if not re.search(rf"`[\w.\[\]]*\b{name}`", page)} == set()


def test_the_metrics_of_nfd_worker_are_those_documented() -> None:
    """None is missing, none is gone."""
    served = set(re.findall(r"^# TYPE (\w+)", Metrics("node").render(is_published=True), re.MULTILINE))
    assert set(re.findall(r"`(nfd_worker_\w+)`", PAGES["nfd-worker.md"])) == served


def test_the_metrics_of_driver_builder_are_those_documented() -> None:
    """None is missing, none is gone."""
    cache = ClusterCache(MemoryClient(), namespaces=["driverwright"])
    families = [*REGISTRY.collect(), *StateCollector(BuildStates).collect(), *CacheCollector(cache).collect()]
    names = {f"{family.name}{SUFFIXES.get(family.type, '')}" for family in families}
    served = {name for name in names if name.startswith("driver_builder_")}
    documented = re.findall(r"^\| `(driver_builder_\w+)` \|", PAGES["operations.md"], re.MULTILINE)
    assert set(documented) == served
