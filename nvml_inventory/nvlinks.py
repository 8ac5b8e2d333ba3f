"""Which GPUs a GPU reaches over NVLink."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Any, NamedTuple

from nvml_inventory.binding import nvml
from nvml_inventory.questions import ask, pci_address


class Links(NamedTuple):
    """The links of a GPU: how many are active, and how many of them end at which GPU, by its address."""

    active: int
    peers: Mapping[str, int]


def read_links(handle: Any) -> Links:
    """Read the links of a GPU. Behind NVSwitch the other end of a link is a switch, and no GPU."""
    links = list(_active(handle))
    ends = [_peer(handle, link) for link in links]
    return Links(len(links), {peer: ends.count(peer) for peer in ends if peer})


def count_links(links: Links, peers: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Say how many links lead to each of these GPUs.

    No link ends at a GPU that is reached through NVSwitch: all links lead there. A GPU of which only the status is
    known counts as reached by one.
    """
    return tuple((peer, links.peers.get(peer) or links.active or 1) for peer in peers)


def read_peers(handles: Mapping[str, Any], links: Mapping[str, Links]) -> dict[str, tuple[str, ...]]:
    """Say which GPUs each GPU reaches over NVLink, all by their addresses.

    What NVML says of a pair counts, also behind NVSwitch. Where it says nothing, the ends of the links do: of GPUs that
    this container does not see, and of each pair where an old driver does not know the question.
    """
    peers = {address: set(found.peers) for address, found in links.items()}
    for one, other in combinations(handles, 2):
        match _are_linked(handles[one], handles[other]):
            case True:
                peers[one].add(other)
                peers[other].add(one)
            case False:
                peers[one].discard(other)
                peers[other].discard(one)
    return {address: tuple(sorted(found)) for address, found in peers.items()}


def _are_linked(one: Any, other: Any) -> bool | None:
    """Ask whether two GPUs reach each other over NVLink; None when NVML does not say.

    An error may be that of either GPU: it is not held against one of them here. Each was readable a moment ago, and
    the next inventory says which one is not.
    """
    try:
        status = nvml.nvmlDeviceGetP2PStatus(one, other, nvml.NVML_P2P_CAPS_INDEX_NVLINK)
    except nvml.NVMLError:
        return None
    return None if status == nvml.NVML_P2P_STATUS_UNKNOWN else bool(status == nvml.NVML_P2P_STATUS_OK)


def _active(handle: Any) -> Iterator[int]:
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            is_active = ask(nvml.nvmlDeviceGetNvLinkState, handle, link)
        except nvml.NVMLError_InvalidArgument:
            return  # this GPU has fewer links
        if is_active:
            yield link


def _peer(handle: Any, link: int) -> str | None:
    """Name the GPU at the other end of a link; None for a switch or a processor."""
    if ask(nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link) != nvml.NVML_NVLINK_DEVICE_TYPE_GPU:
        return None
    remote = ask(nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
    return remote and pci_address(remote.busId)
