"""Source system: os-release, DMI, the node's name."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_rules.features import Failed, Features
from nfd_worker.sources import discover
from nfd_worker.sources.settings import SourceSettings, SystemSettings
from nfd_worker.sources.system import parse_os_release, split_version_id
from tests.support.nfd_worker.trees import host, recorded


@pytest.mark.parametrize(
    ("version_id", "parts"),
    [
        ("12", {"VERSION_ID.major": "12"}),
        ("rolling", {}),
        ("", {}),
        ("9.4", {"VERSION_ID.major": "9", "VERSION_ID.minor": "4"}),
        ("v1.9.2", {"VERSION_ID.major": "1", "VERSION_ID.minor": "9"}),
        ("9.4+x", {"VERSION_ID.major": "9", "VERSION_ID.minor": "4"}),
        ("1-beta", {"VERSION_ID.major": "1"}),
        ("version", {}),
    ],
)
def test_a_version_is_split_where_it_has_numbers(version_id: str, parts: dict[str, str]) -> None:
    """A version is split into major and minor; rolling distributions have none."""
    assert split_version_id(version_id) == parts


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    """A broken os-release gives fewer names, and no error."""
    assert all(name and value is not None for name, value in parse_os_release(text).items())


def test_usr_lib_stands_in_for_etc(tmp_path: Path) -> None:
    """Without /etc/os-release, /usr/lib/os-release is read, as os-release(5) says."""
    found = discover("system", host(tmp_path, {"usr/lib/os-release": "ID=alpine\n"}), SourceSettings())
    assert isinstance(found, Features)
    assert found.attributes == {"system.osrelease": {"ID": "alpine"}}


def test_etc_is_read_where_both_are_there(tmp_path: Path) -> None:
    """The vendor's file stands in for a missing one only; an administrator's says what counts."""
    files = {"etc/os-release": "ID=ours\n", "usr/lib/os-release": "ID=vendor\nVERSION_ID=1\n"}
    found = discover("system", host(tmp_path, files), SourceSettings())
    assert isinstance(found, Features)
    assert found.attributes == {"system.osrelease": {"ID": "ours"}}


def test_a_node_without_os_release_cannot_be_read(tmp_path: Path) -> None:
    """Without any os-release the source fails: a mount is missing."""
    found = discover("system", host(tmp_path, {}), SourceSettings())
    assert isinstance(found, Failed)
    assert "etc/os-release or usr/lib/os-release" in found.reason


def test_the_nodes_name_and_dmi_are_features() -> None:
    """The node's name and DMI fields are features, not labels."""
    settings = SourceSettings(system=SystemSettings("node-1"))
    found = discover("system", recorded("intel-gpu-server"), settings)
    assert isinstance(found, Features)
    assert found.attributes["system.name"] == {"nodename": "node-1"}
    assert found.attributes["system.dmiid"]["product_name"] == "PowerEdge XE9680"
