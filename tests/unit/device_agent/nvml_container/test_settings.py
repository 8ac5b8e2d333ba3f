"""Settings of the container nvml, its log, and what it reads of /sys."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from device_agent.boot import read_boot_id
from device_agent.config import DEFAULT_NVML_SOCKET
from device_agent.errors import ConfigurationError
from device_agent.nvml_container import log as its_log
from device_agent.nvml_container.log import Log
from device_agent.nvml_container.settings import build_settings, read_flags
from device_agent.nvml_container.sysfs import read_load, read_numa_node
from kube_api import log_lines


def test_flags_come_before_environment_variables_and_defaults() -> None:
    """As for the agent."""
    settings = build_settings({"socket": "/a/s"}, {"DEVICE_AGENT_NVML_SOCKET": "/b/s", "HOST_ROOT": "/host"})
    assert (settings.socket, settings.places.root, settings.log_level) == ("/a/s", "/host", "info")
    assert build_settings({}, {}).socket == DEFAULT_NVML_SOCKET
    assert build_settings({}, {"DEVICE_AGENT_LOG_LEVEL": "DEBUG"}).log_level == "debug"


@pytest.mark.parametrize(
    ("flag", "variable", "may"),
    [
        pytest.param(None, None, False, id="not unless it is said"),
        pytest.param("true", None, True, id="by the flag that chart and stage set"),
        pytest.param("false", "true", False, id="flags first"),
    ],
)
@pytest.mark.parametrize("name", [pytest.param(one, id=one) for one in ("ends-processes", "changes-mig")])
def test_harm_is_done_only_where_that_is_set(name: str, flag: str | None, variable: str | None, may: bool) -> None:
    """Whoever owns the socket could ask for processes to be ended, or instances to be destroyed."""
    field = name.replace("-", "_")
    environment = {} if variable is None else {f"DEVICE_AGENT_{field.upper()}": variable}
    assert getattr(build_settings({name: flag}, environment), field) is may


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        pytest.param(["--socket=/a", "--root=/host"], {"socket": "/a", "root": "/host"}, id="with an equals sign"),
        pytest.param([], {}, id="none"),
        pytest.param(["--socket", "/a"], None, id="in two words"),
        pytest.param(["--help"], None, id="help"),
        pytest.param(["--interval=1s"], None, id="a flag of the agent"),
    ],
)
def test_what_nodes_run_needs_no_argparse(arguments: list[str], flags: dict[str, str] | None) -> None:
    """Anything else does, also to be refused."""
    assert read_flags(arguments) == flags


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        pytest.param({"log-level": "loud\x1b"}, "'loud' is not one of debug, info", id="a level"),
        pytest.param({"ends-processes": "1"}, "'1' is not one of true, false", id="a switch"),
        pytest.param({"log-format": "xml"}, "'xml' is not one of text, json", id="a format"),
        pytest.param({"socket": "/" + "x" * 200}, "is too long for a Unix socket", id="a long path"),
    ],
)
def test_a_wrong_setting_is_named(flags: dict[str, str | None], message: str) -> None:
    """And what would be right."""
    with pytest.raises(ConfigurationError, match=message):
        build_settings(flags, {})


def test_levels_and_formats_are_those_of_the_other_programs() -> None:
    """They are written twice, because the others' are beside logging."""
    assert (its_log.LEVELS, its_log.FORMATS) == (log_lines.LEVELS, log_lines.FORMATS)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Open a pipe."""
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def test_a_line_of_text_has_time_level_and_message(pipe: tuple[int, int]) -> None:
    """One printable line; below the level there is none."""
    log = Log("info", "text", pipe[1])
    log.debug("not this")
    log.warning("GPU\n\x1b[31m0")
    date, time, *rest = os.read(pipe[0], 1000).decode().split(" ")
    assert (len(date), len(time), rest) == (10, 12, ["WARNING", "GPU", "0\n"])


def test_a_line_of_json_has_the_keys_of_the_other_programs(pipe: tuple[int, int]) -> None:
    """They are public."""
    Log("debug", "json", pipe[1]).debug("text")
    line = json.loads(os.read(pipe[0], 1000))
    assert (list(line), line["level"], line["msg"]) == (["ts", "level", "logger", "msg"], "debug", "text")


def test_signals_change_the_level(pipe: tuple[int, int]) -> None:
    """SIGUSR1 to debug, SIGUSR2 back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    log = Log("warning", "text", pipe[1])
    log.follow_signals()
    levels = []
    for number in before:
        signal.raise_signal(number)
        levels.append(log.level)
    for number, handler in before.items():
        signal.signal(number, handler)
    assert levels == ["debug", "warning"]


def test_nobody_who_reads_the_log_is_no_error() -> None:
    """A closed descriptor stands in."""
    reader, writer = os.pipe()
    os.close(reader)
    Log("info", "text", writer).info("nothing happens")
    os.close(writer)


@pytest.mark.parametrize(
    ("content", "numa_node"),
    [
        pytest.param("1\n", 1, id="a node"),
        pytest.param("-1\n", None, id="no node"),
        pytest.param("x\n", None, id="no number"),
        pytest.param(None, None, id="no file"),
    ],
)
def test_the_numa_node_is_that_of_sysfs(tmp_path: Path, content: str | None, numa_node: int | None) -> None:
    """The kernel writes -1 where there are none."""
    device = tmp_path / "sys/bus/pci/devices/0000:3b:00.0"
    device.mkdir(parents=True)
    if content is not None:
        (device / "numa_node").write_text(content)
    assert read_numa_node(str(tmp_path), "0000:3b:00.0") == numa_node


def test_a_load_is_known_by_the_inode_of_its_module(tmp_path: Path) -> None:
    """Empty without the module; so is the boot id of a folder without one."""
    assert (read_load(str(tmp_path)), read_boot_id(str(tmp_path))) == ("", "")
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    assert read_load(str(tmp_path)) == str((tmp_path / "sys/module/nvidia").stat().st_ino)
    assert len(read_boot_id("/")) == 36
