"""The command line: settings from flags and environment, what is printed, and exit codes."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from device_agent.cli.main import run
from device_agent.config.options import ALL_XIDS, Settings, build_settings, run_flags
from device_agent.errors import ConfigurationError
from device_agent.kubelet.plugin import endpoint
from tests.unit.device_agent.host_tree import HostTree

CONFIG = """\
resources:
- name: example.com/card
  groups:
  - count: 2
    paths: [{path: /dev/card*, type: Mount}]
"""


def test_flags_override_the_environment() -> None:
    """And the environment the defaults."""
    environment = {"HOST_ROOT": "/host", "DEVICE_AGENT_PORT": "1", "DEVICE_AGENT_INTERVAL": "1m",
                   "DEVICE_AGENT_LOG_FORMAT": "json"}  # fmt: skip
    flags = {"port": "0", "log-level": "DEBUG", "config": None}
    expected = Settings(root="/host", port=0, log_level="debug", log_format="json", interval=60.0)
    assert build_settings(flags, environment) == expected


@pytest.mark.parametrize(
    ("flags", "environment", "message"),
    [
        pytest.param({"port": "http"}, {}, "flag --port: 'http' is not a port", id="port"),
        pytest.param({}, {"DEVICE_AGENT_PORT": "65536"}, "variable DEVICE_AGENT_PORT: '65536'", id="large port"),
        pytest.param({"interval": "10"}, {}, "'10' is not a duration such as 10s", id="interval without a unit"),
        pytest.param({"interval": "0s"}, {}, "write a duration from 1s to 5m", id="short interval"),
        pytest.param({"interval": "6m"}, {}, "write a duration from 1s to 5m", id="long interval"),
        pytest.param({"log-level": "loud"}, {}, "is not one of debug, info", id="log level"),
        pytest.param({"log-format": "xml"}, {}, "is not one of text, json", id="log format"),
        pytest.param({"plugin-dir": "/x" * 40}, {}, "is too long for a folder of sockets", id="long folder"),
        pytest.param({}, {"DP_DISABLE_HEALTHCHECKS": "79,fan"}, "'fan' is not the number of an Xid", id="no Xid"),
        pytest.param({}, {"DP_ENABLE_HEALTHCHECKS": "0"}, "'0' is not the number of an Xid", id="Xid 0"),
        pytest.param({}, {"DP_ENABLE_HEALTHCHECKS": "9" * 11}, "is not the number of an Xid", id="a large Xid"),
        pytest.param(
            {}, {"NODE_NAME": "n/../x"}, "variable NODE_NAME: 'n/../x' is not the name", id="no name of a Node"
        ),
        pytest.param({"disable-healthchecks": "1," * 257}, {}, "it has 257 numbers: write at most", id="many Xids"),
    ],
)
def test_a_wrong_setting_is_named(flags: Mapping[str, str], environment: Mapping[str, str], message: str) -> None:
    """With its place."""
    with pytest.raises(ConfigurationError, match=message):
        build_settings(flags, environment)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", set(), id="nothing"),
        pytest.param("79", {79}, id="one"),
        pytest.param(" 79, 48,", {48, 79}, id="with blanks"),
        pytest.param("all", {ALL_XIDS}, id="all"),
        pytest.param("79,XIDS", {ALL_XIDS}, id="another word for all"),
    ],
)
def test_errors_that_do_not_count_are_named_as_for_nvidias_plugin(text: str, expected: set[int]) -> None:
    """By the same variables."""
    settings = build_settings({}, {"DP_DISABLE_HEALTHCHECKS": text, "DP_ENABLE_HEALTHCHECKS": text})
    assert settings.ignored_xids == settings.counted_xids == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param([], {}, id="nothing"),
        pytest.param(["run", "--port=1"], {"port": "1"}, id="run"),
        pytest.param(["--port=1"], {"port": "1"}, id="without a command"),
        pytest.param(["run", "--port", "1"], None, id="for argparse"),
        pytest.param(["scan"], None, id="another command"),
        pytest.param(["run", "--nothing=1"], None, id="unknown"),
    ],
)
def test_nodes_need_no_argparse(arguments: list[str], expected: Mapping[str, str] | None) -> None:
    """Flags with a value in the same word are read without it."""
    assert run_flags(arguments) == expected


def test_scan_shows_devices_and_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 1 when a device is not healthy."""
    host = HostTree(tmp_path / "host")
    host.file("/dev/card0")
    config = tmp_path / "config.yaml"
    arguments = ["scan", "--config", str(config), "--root", host.path]
    config.write_text(CONFIG)
    assert run(arguments, {}) == 0
    header, *rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert header == ["RESOURCE", "DEVICE", "NUMA", "HEALTH", "FILES"]
    assert [(row[0], row[1][-3:], *row[2:]) for row in rows] == [
        ("example.com/card", f"::{share}", "-", "healthy", "/dev/card0") for share in range(2)
    ]
    config.write_text(f"{CONFIG}  health: {{command: [/usr/bin/false]}}\n")
    assert run(arguments, {}) == 1
    assert "its command ended with 1" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["scan"], ["run"], []])
def test_a_missing_configuration_is_exit_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """And one line says which file."""
    assert run(arguments, {"DEVICE_AGENT_CONFIG": "/nowhere", "DEVICE_AGENT_PORT": "0"}) == 2
    assert "device-agent: cannot read the configuration file /nowhere: No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--help"], 0, "COMMAND"),
        (["--version"], 0, "device-agent "),
        (["run", "--help"], 0, "DEVICE_AGENT_CONFIG"),
        (["scan", "--port=1"], 2, "unrecognized"),
    ],
)
def test_help(arguments: list[str], status: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Help names the environment variables; a flag of another command is refused."""
    with pytest.raises(SystemExit) as ended:
        run(arguments, {})
    printed = capsys.readouterr()
    assert ended.value.code == status
    assert words in printed.out + printed.err


def test_the_path_of_a_socket_is_short() -> None:
    """At most 107 bytes, whatever the resource; two resources have different ones."""
    names = [f"{'a' * 200}.example/{'b' * 60}{number}" for number in range(100)]
    endpoints = {endpoint(name) for name in names}
    assert len(endpoints) == 100
    assert max(map(len, endpoints)) + len("/") + 60 <= 107


def test_help_of_get_asks_no_agent() -> None:
    """Though what a probe runs is read without a parser."""
    command = [sys.executable, "-m", "device_agent", "get", "--help"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0
    assert "usage: device-agent get" in result.stdout
