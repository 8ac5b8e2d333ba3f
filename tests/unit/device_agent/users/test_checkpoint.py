"""What the kubelet's checkpoint says: both formats are read, anything else is refused by our own error."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from device_agent.errors import FileInvalid, UsersUnknown
from device_agent.users.checkpoint import LONGEST, NAME, Entry, of_pods, parse_checkpoint, read_checkpoint

GPU = "nvidia.com/gpu"
POD, PLAIN = "11e5bd56-3c42-4dbf-a1c1-7b1c0dbb3d6e", "11e5bd563c424dbfa1c17b1c0dbb3d6e"


def entry(ids: object, **fields: object) -> dict[str, object]:
    """Make an entry as the kubelet writes it."""
    return {
        "PodUID": POD, "ContainerName": "work", "ResourceName": GPU, "DeviceIDs": ids, "AllocResp": "Cg0KA0E=", **fields
    }  # fmt: skip


def checkpoint(*entries: object) -> bytes:
    """Make a checkpoint with the checksum of another one: that is not checked."""
    data = {"PodDeviceEntries": list(entries) or None, "RegisteredDevices": {GPU: ["GPU-0", "GPU-7"]}}
    return json.dumps({"Data": data, "Checksum": 3045461424, "BootID": "of a newer kubelet"}).encode()


@pytest.mark.parametrize(
    ("content", "found"),
    [
        pytest.param(checkpoint(entry(["GPU-0", "GPU-1"])), {"GPU-0", "GPU-1"}, id="a list, until 1.19"),
        pytest.param(checkpoint(entry({"0": ["GPU-0"], "1": ["GPU-1"]})), {"GPU-0", "GPU-1"}, id="by NUMA node"),
        pytest.param(checkpoint(entry({"-1": ["GPU-0"]})), {"GPU-0"}, id="without a NUMA node"),
        pytest.param(checkpoint(entry({"0": None})), set(), id="a NUMA node with nothing"),
        pytest.param(checkpoint(entry(None)), set(), id="no devices"),
        pytest.param(checkpoint(), set(), id="no entries"),
        pytest.param(b'{"Data": {"PodDeviceEntries": []}}', set(), id="nothing else"),
    ],
)
def test_both_formats_are_read(content: bytes, found: set[str]) -> None:
    """Devices that are registered alone belong to nobody."""
    assert {one.id for one in parse_checkpoint(content)} == found
    assert {(one.pod, one.resource) for one in parse_checkpoint(content)} <= {(PLAIN, GPU)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "it is not JSON", id="empty"),
        pytest.param(checkpoint()[:-4], "it is not JSON", id="cut"),
        pytest.param(b"[" * 100_000, "it is not JSON", id="deep"),
        pytest.param(b"7", "it has no Data", id="a number"),
        pytest.param(b'{"Data": {}}', "it has no Data.PodDeviceEntries", id="no entries"),
        pytest.param(b'{"Data": {"PodDeviceEntries": {"a": 1}}}', "is not a list", id="entries that are an object"),
        pytest.param(checkpoint(7), "an entry is not an object", id="an entry that is a number"),
        pytest.param(checkpoint(entry(["a"], PodUID=None)), "no proper PodUID", id="no pod"),
        pytest.param(checkpoint(entry(["a"], ResourceName="x" * 600)), "no proper ResourceName", id="a long name"),
        pytest.param(checkpoint(entry(["\u001b[1m"])), "no proper DeviceIDs", id="an id that is not printable"),
        pytest.param(checkpoint(entry("GPU-0")), "neither a list nor a map", id="ids that are a text"),
        pytest.param(checkpoint(entry({"0": {"1": []}})), "neither a list nor a map", id="a third format"),
        pytest.param(checkpoint(*[entry([str(n) for n in range(10_000)])] * 7), "more than 65536", id="too many"),
    ],
)
def test_what_is_no_checkpoint_is_refused(content: bytes, message: str) -> None:
    """The message says what is wrong."""
    with pytest.raises(FileInvalid, match=message):
        parse_checkpoint(content)


_FIELDS = ["Data", "PodDeviceEntries", "PodUID", "ResourceName", "DeviceIDs", "0"]


@given(st.binary(max_size=60) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_FIELDS), inner, max_size=5),
).map(lambda value: json.dumps({"Data": {"PodDeviceEntries": value}}).encode()))  # fmt: skip
def test_any_content_is_read_or_refused(content: bytes) -> None:
    """Nothing but the one error comes out."""
    try:
        found = parse_checkpoint(content)
    except FileInvalid:
        return
    assert all(isinstance(one, Entry) and one.id.isprintable() for one in found)


def test_pods_that_ended_have_nothing() -> None:
    """Their entries stay until the kubelet gives something again; where pods are not known, all may have it."""
    entries = [Entry("a", GPU, "GPU-0"), Entry("b", GPU, "GPU-1")]
    assert of_pods(entries, {"b"}) == {(GPU, "GPU-1")}
    assert of_pods(entries, None) == {(GPU, "GPU-0"), (GPU, "GPU-1")}


def test_the_checkpoint_is_read_from_the_folder_of_the_sockets(tmp_path: Path) -> None:
    """As the kubelet writes it."""
    (tmp_path / NAME).write_bytes(checkpoint(entry({"0": ["GPU-0"]})))
    assert read_checkpoint(str(tmp_path)) == (Entry(PLAIN, GPU, "GPU-0"),)


def test_what_cannot_be_read_is_not_known(tmp_path: Path) -> None:
    """It is not the same as nothing: a file that is missing, that never ends, too long, or none of the kubelet's."""
    path = tmp_path / NAME
    with pytest.raises(UsersUnknown, match=r"cannot read .*: No such file"):
        read_checkpoint(str(tmp_path))
    os.mkfifo(path)
    with pytest.raises(UsersUnknown, match="it is not a regular file"):
        read_checkpoint(str(tmp_path))
    path.unlink()
    path.write_bytes(b" " * (LONGEST + 1))
    with pytest.raises(UsersUnknown, match="it is longer than"):
        read_checkpoint(str(tmp_path))
    path.write_bytes(b"{")
    with pytest.raises(UsersUnknown, match="is not one that is known here: it is not JSON"):
        read_checkpoint(str(tmp_path))
