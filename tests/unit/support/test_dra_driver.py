"""The DRA driver of the tests and what stands in for its kubelet: both speak the kubelet's protocol."""

import asyncio
import json
from pathlib import Path

from device_agent.protocol.wire import decode, encode
from driver_builder.snapshot.resource_slices import NodeSlice, read_slice
from kube_api.resources import NODES, RESOURCE_SLICES
from tests.support.driver_builder.memory_client import MemoryClient
from tests.support.real_parts import dra_messages as messages
from tests.support.real_parts.dra_driver import DEVICE, DraDriver
from tests.support.real_parts.dra_messages import Claim, Claims, Device, Prepared, PreparedClaim, PreparedClaims
from tests.support.real_parts.plugin_watcher import PluginWatcher, short_root

GPU = "gpu.example.com"
CLAIM = Claim(namespace="apps", uid="uid-1", name="gpu")


def test_a_map_of_claims_is_written_as_protobuf_writes_it() -> None:
    """An entry is a message with the key as field 1 and the value as field 2."""
    device = Device(pool_name="a", device_name="b", cdi_device_ids=("c/d=e",))
    answer = PreparedClaims(claims=(PreparedClaim(uid="u", value=Prepared(devices=(device,))),))
    written = encode(answer)
    assert written == bytes.fromhex("0a14") + b"\x0a\x01u\x12\x0f\x0a\x0d" + b"\x12\x01a\x1a\x01b\x22\x05c/d=e"
    assert decode(written, PreparedClaims) == answer
    assert decode(encode(Claims(claims=(CLAIM,))), Claims).claims == (CLAIM,)


def test_it_registers_and_prepares_a_claim() -> None:
    """Its file of CDI is there from the one call to the other."""
    with short_root() as root:
        asyncio.run(_register_and_prepare(root))


async def _register_and_prepare(root: Path) -> None:
    driver, kubelet = DraDriver(GPU, "node-a", root, pod_uid="1"), PluginWatcher(root)
    await driver.start()
    try:
        info = await kubelet.register()
        assert (info.type, info.name, info.supported_versions) == (messages.DRA_PLUGIN, GPU, (messages.DRA_SERVICE,))
        assert (await driver.statuses.get()).plugin_registered
        (device,) = (await kubelet.prepare(GPU, CLAIM)).devices
        assert (device.pool_name, device.device_name) == ("node-a", DEVICE)
        (file,) = (root / "var/run/cdi").iterdir()
        content = json.loads(file.read_text())
        assert device.cdi_device_ids == (f"{content['kind']}={content['devices'][0]['name']}",)
        assert await kubelet.unprepare(GPU, CLAIM) == Prepared()
        assert not list((root / "var/run/cdi").iterdir())
    finally:
        await driver.stop()
    assert not list((root / "var/lib/kubelet/plugins_registry").iterdir())


def test_its_slice_is_one_of_its_node() -> None:
    """With the Node as its owner; a second one is not made."""
    client, driver = MemoryClient(), DraDriver(GPU, "node-a", Path("/"))
    client.create(NODES.path(), {"metadata": {"name": "node-a"}})
    driver.publish(client)
    driver.publish(client)
    (made,) = client.list(RESOURCE_SLICES.path()).items
    found = read_slice(made)
    assert found is not None
    assert NodeSlice(driver=found.driver, node=found.node) == NodeSlice(driver=GPU, node="node-a")
    assert found.has_devices
    assert made["metadata"]["ownerReferences"][0]["uid"] == client.get(NODES.path(name="node-a"))["metadata"]["uid"]
