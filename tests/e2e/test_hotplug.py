"""A device that comes or goes while a node runs changes the Node's labels at once, without a poll."""

import time
from collections.abc import Callable

import pytest

from kube_api.names import FEATURE_LABEL_PREFIX
from tests.proving_ground.guest.guest import Guest
from tests.story.story import Story

pytestmark = pytest.mark.e2e

# virtio-rng: vendor 1af4, class 00ff, which the story's configuration labels for the sake of QEMU's edu device.
LABEL = f"{FEATURE_LABEL_PREFIX}/pci-00ff_1af4.present"
MOST_SECONDS = 2.0
"""From the guest's seeing the device to the label in the API server."""

PATIENCE = 60.0


def seconds_until(is_so: Callable[[], bool]) -> float:
    """Wait until something is so; gives how long it took."""
    start = time.monotonic()
    while not is_so():
        assert time.monotonic() - start < PATIENCE
        time.sleep(0.02)
    return time.monotonic() - start


def sees_device(guest: Guest) -> bool:
    """Look into the guest's own sysfs."""
    return guest.run("grep -lx 0x1005 /sys/bus/pci/devices/*/device")[0] == 0


def test_a_plugged_device_is_labelled_and_an_unplugged_one_is_not(
    story: Story, record_property: Callable[[str, object], None]
) -> None:
    """Within two seconds of the guest's seeing it; other labels stay as they are."""
    guest = story.guests["guest-b"]
    before = story.cluster.labels(guest.name)
    assert LABEL not in before
    guest.qmp("device_add", driver="virtio-rng-pci", id="hotplugged")
    try:
        seconds_until(lambda: sees_device(guest))
        took = seconds_until(lambda: LABEL in story.cluster.labels(guest.name))
        record_property("seconds_to_label", took)
        assert took <= MOST_SECONDS
        assert {**before, LABEL: "true"} == story.cluster.labels(guest.name)
    finally:
        guest.qmp("device_del", id="hotplugged")
    seconds_until(lambda: not sees_device(guest))
    took = seconds_until(lambda: LABEL not in story.cluster.labels(guest.name))
    record_property("seconds_to_no_label", took)
    assert took <= MOST_SECONDS
    assert before == story.cluster.labels(guest.name)
