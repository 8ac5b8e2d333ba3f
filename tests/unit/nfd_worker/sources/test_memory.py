"""Source memory: NUMA, swap, huge pages, non-volatile memory."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feature_rules.features import Failed, Features
from nfd_worker.sources import discover
from nfd_worker.sources.memory import discover_huge_pages, labels, parse_swaps, quantity
from nfd_worker.sources.settings import SourceSettings
from tests.support.nfd_worker.trees import host

SYSFS = {"sys/bus/cpu/x": ""}
HEADING = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
HUGE_PAGES = "sys/kernel/mm/hugepages"


def found_in(root: Path, files: dict[str, str]) -> Features:
    """Discover a few files."""
    found = discover("memory", host(root, {**SYSFS, **files}), SourceSettings())
    assert isinstance(found, Features)
    return found


@pytest.mark.parametrize(
    ("nodes", "attributes", "made"),
    [
        pytest.param(0, None, {}, id="a kernel without NUMA"),
        pytest.param(1, {"is_numa": "false", "node_count": "1", "cpu_node_count": "1"}, {}, id="one node"),
        pytest.param(
            2, {"is_numa": "true", "node_count": "2", "cpu_node_count": "2"}, {"numa": "true"}, id="two nodes"
        ),
    ],
)
def test_several_memory_nodes_are_numa(
    tmp_path: Path, nodes: int, attributes: dict[str, str] | None, made: dict[str, str]
) -> None:
    """Each node is a device on the node bus."""
    found = found_in(tmp_path, {f"sys/bus/node/devices/node{number}/cpulist": f"{number}\n" for number in range(nodes)})
    assert found.attributes.get("memory.numa") == attributes
    assert labels(found, SourceSettings()) == made


@pytest.mark.parametrize(
    ("upstream", "is_numa", "made"),
    [
        pytest.param(False, "false", {}, id="by default"),
        pytest.param(True, "true", {"numa": "true"}, id="as upstream"),
    ],
)
def test_the_memory_of_a_gpu_is_no_second_node(
    tmp_path: Path, upstream: bool, is_numa: str, made: dict[str, str]
) -> None:
    """A GH200 has one node with CPUs, and eight without for the memory of its GPU."""
    nodes = {"node0/cpulist": "0-71\n", **{f"node{number}/cpulist": "\n" for number in range(1, 9)}}
    it = host(tmp_path, {**SYSFS, **{f"sys/bus/node/devices/{name}": text for name, text in nodes.items()}})
    settings = SourceSettings(upstream_hardware_labels=upstream)
    found = discover("memory", it, settings)
    assert isinstance(found, Features)
    assert found.attributes["memory.numa"] == {"is_numa": is_numa, "node_count": "9", "cpu_node_count": "1"}
    assert labels(found, settings) == made


def test_a_node_that_does_not_list_its_cpus_has_some(tmp_path: Path) -> None:
    """What is not known does not take a label."""
    found = found_in(tmp_path, {f"sys/bus/node/devices/node{number}/meminfo": "" for number in range(2)})
    assert labels(found, SourceSettings()) == {"numa": "true"}


@pytest.mark.parametrize(
    ("swaps", "enabled"),
    [("", "false"), (HEADING, "false"), (HEADING + "\n", "false"), (HEADING + "/dev/zram0 partition 1 0 5\n", "true")],
    ids=["empty", "heading alone", "an empty line", "a swap device"],
)
def test_swap_is_a_line_below_the_heading(swaps: str, enabled: str) -> None:
    """Swap is present if /proc/swaps has an entry; compressed memory counts."""
    assert parse_swaps(swaps) == {"enabled": enabled}


def test_a_kernel_without_swap_has_no_such_feature(tmp_path: Path) -> None:
    """Without /proc/swaps there is no feature memory.swap."""
    assert "memory.swap" not in found_in(tmp_path, {}).attributes


def test_swap_that_is_on_is_labelled(tmp_path: Path) -> None:
    """With the name that upstream's code uses."""
    found = found_in(tmp_path, {"proc/swaps": HEADING + "/swap.img file 1 0 -2\n"})
    assert labels(found, SourceSettings()) == {"swap": "true"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, {"enabled": "false"}, id="none supported"),
        pytest.param(
            {"hugepages-64kB": "7", "hugepages-2048kB": "0"},
            {"enabled": "true", "hugepages-64Ki": "7", "hugepages-2Mi": "0"},
            id="arm64",
        ),
        pytest.param({"hugepages-x": "1", "hugepages-0kB": "1", "x-4kB": "1"}, {"enabled": "false"}, id="other names"),
    ],
)
def test_huge_pages_are_counted_by_size(tmp_path: Path, files: dict[str, str], expected: dict[str, str]) -> None:
    """Reserved ones, whether or not anybody uses them."""
    it = host(tmp_path, {f"{HUGE_PAGES}/{name}/nr_hugepages": f"{count}\n" for name, count in files.items()})
    assert discover_huge_pages(it) == expected


def test_a_size_whose_count_is_no_number_is_left_out(tmp_path: Path) -> None:
    """The other sizes stand, and so do swap and NUMA."""
    files = {f"{HUGE_PAGES}/hugepages-2048kB/nr_hugepages": "\n", f"{HUGE_PAGES}/hugepages-64kB/nr_hugepages": "3\n"}
    found = found_in(tmp_path, {**files, "proc/swaps": HEADING})
    assert found.attributes["memory.hugepages"] == {"enabled": "true", "hugepages-64Ki": "3"}
    assert found.attributes["memory.swap"] == {"enabled": "false"}


def test_a_size_whose_count_is_gone_is_left_out(tmp_path: Path) -> None:
    """A size of huge pages whose directory vanishes while it is read is left out."""
    it = host(tmp_path, {f"{HUGE_PAGES}/hugepages-2048kB/free_hugepages": "0\n"})
    assert discover_huge_pages(it) == {"enabled": "false"}


@pytest.mark.parametrize(
    ("kibibytes", "expected"),
    [(4, "4Ki"), (2048, "2Mi"), (1048576, "1Gi"), (16777216, "16Gi"), (1536, "1536Ki"), (2**60, "1024Ei")],
)
def test_amounts_are_written_in_the_largest_whole_unit(kibibytes: int, expected: str) -> None:
    """Amounts use the largest unit that gives a whole number, as in Kubernetes."""
    assert quantity(kibibytes) == expected


@given(st.integers(1, 2**40))
def test_no_amount_changes_when_it_is_written(kibibytes: int) -> None:
    """Any amount reads back as the same number of bytes."""
    text = quantity(kibibytes)
    power = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei").index(text[-2:])
    assert int(text[:-2]) * 1024**power == kibibytes


def test_persistent_memory_is_listed_with_what_it_reports(tmp_path: Path) -> None:
    """Persistent memory devices have the attributes that they report; a DIMM has no mode."""
    found = found_in(tmp_path, {
        "sys/bus/nd/devices/dax0.0/devtype": "nd_dax\n", "sys/bus/nd/devices/dax0.0/mode": "devdax\n",
        "sys/bus/nd/devices/nmem0/uevent": "",
    })  # fmt: skip
    assert found.instances["memory.nv"] == (
        {"name": "dax0.0", "devtype": "nd_dax", "mode": "devdax"}, {"name": "nmem0"},
    )  # fmt: skip
    assert labels(found, SourceSettings()) == {"nv.present": "true", "nv.dax": "true"}


@pytest.mark.parametrize(
    ("files", "made"),
    [
        pytest.param({"ndbus0/uevent": ""}, set(), id="a bus alone"),
        pytest.param({"region0/devtype": "nd_pmem\n"}, {"nv.present"}, id="a region"),
        pytest.param({"dax0.0/devtype": "nd_dax\n", "dax0.0/namespace": "\n"}, set(), id="DAX without a namespace"),
        pytest.param(
            {"dax0.0/devtype": "nd_dax\n", "dax0.0/namespace": "namespace0.0\n"}, {"nv.present", "nv.dax"}, id="DAX"
        ),
    ],
)
def test_what_the_kernel_makes_without_memory_is_none(tmp_path: Path, files: dict[str, str], made: set[str]) -> None:
    """The kernel makes a bus without DIMMs, and with each region an empty DAX device; upstream labels these as well."""
    found = found_in(tmp_path, {f"sys/bus/nd/devices/{name}": text for name, text in files.items()})
    assert labels(found, SourceSettings()).keys() == made
    upstream = {"nv.present", *(["nv.dax"] if "dax0.0/devtype" in files else [])}
    assert labels(found, SourceSettings(upstream_hardware_labels=True)).keys() == upstream


@pytest.mark.parametrize("file", [f"{HUGE_PAGES}/hugepages-2048kB/nr_hugepages", "proc/swaps"], ids=["pages", "swaps"])
def test_what_cannot_be_read_is_a_failure(tmp_path: Path, file: str) -> None:
    """A directory where a file should be is not the absence of memory."""
    assert isinstance(discover("memory", host(tmp_path, {**SYSFS, f"{file}/x": ""}), SourceSettings()), Failed)


def test_a_missing_sysfs_is_a_failure(tmp_path: Path) -> None:
    """Without sysfs the source fails: a mount is missing."""
    found = discover("memory", host(tmp_path, {"proc/swaps": HEADING}), SourceSettings())
    assert isinstance(found, Failed)
    assert "is the host's /sys mounted there?" in found.reason
