"""The scan child with the real pynvml, on a small library of our own in place of the driver's (tests/nvml)."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from device_resources.gpu_sharing import LONGEST, GpuSharing, SharedResource, format_sharing
from feature_rules.features import Failed, Features
from nfd_worker.gpu.scan_runner import SCAN_COMMAND, ScanRunner
from nfd_worker.host import BOOT_ID
from nfd_worker.sources.gpu import SHARING_FILE, labels, parse_answer
from nfd_worker.sources.settings import SourceSettings
from tests.nvml import DRIVER, H100, SONAME
from tests.support.nfd_worker.trees import host, pci_device

TWO = DRIVER + H100.format(n=1) + H100.format(n=2)


Scan = Callable[..., dict[str, Any]]


@pytest.fixture
def scan(library: Path, tmp_path: Path) -> Scan:
    """Give a function that runs the child on a machine and gives its answer."""

    def run(machine: str, request: Mapping[str, str] | None = None, path: Path = library.parent) -> dict[str, Any]:
        (tmp_path / "machine").write_text(machine)
        environment = {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(path),
            "FAKE_NVML_MACHINE": str(tmp_path / "machine"),
            "FAKE_NVML_LOG": str(tmp_path / "log"),
        }
        said = "" if request is None else json.dumps(request)
        done = subprocess.run(SCAN_COMMAND, input=said, env=environment, capture_output=True, text=True, check=True)
        assert (done.stderr, done.stdout.count("\n")) == ("", 1)
        answer = json.loads(done.stdout)
        assert isinstance(answer, dict)
        return answer

    return run


def calls(tmp_path: Path) -> list[str]:
    """Say which of nvmlInit and nvmlShutdown were called."""
    return (tmp_path / "log").read_text().split()


def test_everything_of_a_gpu_is_read(scan: Scan, tmp_path: Path) -> None:
    """NVML's answers, and what sysfs and DMI know besides."""
    root = host(
        tmp_path / "root",
        {
            "sys/bus/pci/devices/0000:1b:00.0/class": "0x030200\n",
            "sys/bus/pci/devices/0000:1b:00.0/numa_node": "1\n",
            "sys/devices/virtual/dmi/id/product_name": "PowerEdge XE9680\n",
        },
    ).root
    links = "link 0 00000000:2B:00.0\nlink off\nlink 0 00000000:2B:00.0\nlink 2 00000000:5C:00.0\n"
    assert scan(DRIVER + H100.format(n=1) + links, {"root": root}) == {
        "state": "ok",
        "reason": "",
        "driver": "550.54.15",
        "cuda": 12040,
        "machine": "PowerEdge XE9680",
        "devices": [
            {
                "uuid": "GPU-1",
                "name": "NVIDIA H100 80GB HBM3",
                "pci_bus_id": "0000:1b:00.0",
                "pci_class": "0302",
                "numa_node": "1",
                "memory_mib": 81559,
                "compute_major": 9,
                "compute_minor": 0,
                "ecc_mode": 1,
                "persistence_mode": 0,
                "mig_mode": 0,
                "virtualization": 0,
                "nvlink_links": 3,
                "nvlink_peers": ["0000:2b:00.0"],
                "migs": [],
            }
        ],
    }
    assert calls(tmp_path) == ["init", "shutdown"]


REPORT = GpuSharing("mixed", {"nvidia.com/gpu": SharedResource(4, "time-slicing"), "nvidia.com/l4": SharedResource()})


def test_how_gpus_are_shared_is_read_as_device_agent_writes_it(scan: Scan, tmp_path: Path) -> None:
    """By the keys of the labels, and with what makes the product of a resource that is shared."""
    root = host(tmp_path / "root", {SHARING_FILE: format_sharing(REPORT)}).root
    assert scan(TWO, {"root": root})["sharing"] == {
        "mig_strategy": "mixed",
        "nvidia.com/gpu.replicas": "4",
        "nvidia.com/gpu.sharing-strategy": "time-slicing",
        "nvidia.com/gpu.renamed": "false",
        "nvidia.com/l4.replicas": "1",
        "nvidia.com/l4.sharing-strategy": "none",
        "nvidia.com/l4.renamed": "false",
    }


def _nothing(_file: Path) -> None:
    pass


def _too_long(file: Path) -> None:
    file.write_bytes(b" " * (LONGEST + 1))


@pytest.mark.parametrize(
    ("put", "words"),
    [
        pytest.param(lambda file: file.write_text("{"), "it is not JSON", id="half a file"),
        pytest.param(lambda file: file.write_bytes(b"\xff\x00"), "it is not JSON", id="bytes"),
        pytest.param(_too_long, f"and {LONGEST} is the most", id="too long"),
        pytest.param(os.mkfifo, "it is not a regular file", id="a pipe"),
        pytest.param(Path.mkdir, "Is a directory", id="a directory"),
        pytest.param(lambda file: file.symlink_to("/dev/zero"), "it is not a regular file", id="a link to a device"),
        pytest.param(lambda file: file.symlink_to("missing"), "", id="a link to nothing"),
        pytest.param(_nothing, "", id="no file"),
    ],
)
def test_a_report_that_cannot_be_used_leaves_the_answer_as_without_one(
    scan: Scan, tmp_path: Path, put: Callable[[Path], object], words: str
) -> None:
    """But for a sentence that names the file; a file that is not there needs none."""
    file = tmp_path / "root" / SHARING_FILE
    file.parent.mkdir(parents=True)
    put(file)
    root = str(tmp_path / "root")
    found = scan(TWO, {"root": root})
    problem = found.pop("sharing_problem", "")
    assert words in problem
    assert (SHARING_FILE in problem) is bool(words)
    assert found == scan(TWO, {"root": str(tmp_path)})


def test_an_old_gpu_reports_less(scan: Scan, tmp_path: Path) -> None:
    """A query that a GPU does not support leaves out the attribute, and is no failure."""
    root = host(tmp_path / "root", {"sys/bus/pci/devices/0000:01:00.0/numa_node": "-1\n"}).root
    (device,) = scan(DRIVER + "gpu\nname Quadro K600\nuuid GPU-1\npci 00000000:01:00.0\n", {"root": root})["devices"]
    assert {name for name, value in device.items() if value is not None} == {
        "uuid", "name", "pci_bus_id", "nvlink_peers", "migs",
    }  # fmt: skip


def test_mig_devices_are_read_over_the_gaps_between_them(scan: Scan) -> None:
    """A MIG device that was taken away leaves its number empty."""
    machine = (
        DRIVER + H100.format(n=1) + "migmode 1\n"
        "mig\nname NVIDIA H100 80GB HBM3 MIG 1g.10gb\nuuid MIG-1\nattributes 16 1 1 0 1 0 1 1 9856\n"
        "mig\nname NVIDIA H100 80GB HBM3 MIG 3g.40gb\nuuid MIG-2\nattributes 60 3 3 0 3 0 3 3 40320\n"
    )
    (device,) = scan(machine)["devices"]
    assert device["migs"] == [
        {
            "uuid": "MIG-1", "name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "memory_mib": 9856, "multiprocessors": 16,
            "slices_gi": 1, "slices_ci": 1, "engines_copy": 1, "engines_decoder": 1, "engines_encoder": 0,
            "engines_jpeg": 1, "engines_ofa": 0,
        },
        {
            "uuid": "MIG-2", "name": "NVIDIA H100 80GB HBM3 MIG 3g.40gb", "memory_mib": 40320, "multiprocessors": 60,
            "slices_gi": 3, "slices_ci": 3, "engines_copy": 3, "engines_decoder": 3, "engines_encoder": 0,
            "engines_jpeg": 3, "engines_ofa": 0,
        },
    ]  # fmt: skip


@pytest.mark.parametrize("code", [9, 6, 28], ids=["driver not loaded", "not found", "GPU not found"])
def test_a_driver_that_is_not_there_is_absent(scan: Scan, code: int) -> None:
    """A node on which no driver is loaded, or whose GPUs belong to another driver, is a node like any other."""
    answer = scan(f"fault init {code}\n{TWO}")
    assert answer["state"] == "absent"
    assert answer["reason"].startswith("NVML cannot start: ")


def test_a_driver_that_answers_as_if_it_were_not_loaded_has_advice(scan: Scan) -> None:
    """So NVML answers also where the driver is loaded and its device nodes are missing."""
    advice = (
        "where the kernel module nvidia is loaded, check that this container may use /dev/nvidiactl and /dev/nvidia*"
    )
    assert scan(f"fault init 9\n{TWO}")["reason"].endswith(f"; {advice}")


def test_a_node_without_the_library_is_absent(scan: Scan, tmp_path: Path) -> None:
    """Without NVML in the loader's path and on the host the driver counts as absent."""
    assert scan(TWO, {"root": str(tmp_path)}, tmp_path) == {"state": "absent", "reason": f"there is no {SONAME}"}


def test_a_worker_without_pynvml_is_absent(library: Path, tmp_path: Path) -> None:
    """Without the optional package pynvml the driver counts as absent."""
    code = f"import sys; sys.path.append({str(Path.cwd())!r}); from nfd_worker.gpu.gpu_scan import main; main()"
    bare = (sys.executable, "-I", "-S", "-c", code)
    environment = {"LD_LIBRARY_PATH": str(library.parent), "FAKE_NVML_MACHINE": str(tmp_path)}
    done = subprocess.run(bare, input="", env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {
        "state": "absent",
        "reason": "the Python package nvidia-ml-py is not installed",
    }


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("fault init 18", "NVML cannot start: RM has detected an NVML/RM version mismatch.; libnvidia-ml.so.1 and the"),
        (
            "fault init 4",
            "NVML cannot start: Insufficient Permissions; check that this container may use /dev/nvidiactl and",
        ),
        ("fault init 999", "NVML cannot start: Unknown Error; check that this container may use /dev/nvidiactl"),
        ("fault driver 999", "NVML cannot read the driver: Unknown Error;"),
        ("fault count 8", "NVML cannot read the driver: Insufficient External Power; the kernel log may have"),
    ],
)
def test_a_driver_in_trouble_is_a_failure_with_advice(scan: Scan, fault: str, reason: str) -> None:
    """The labels stay as they were."""
    answer = scan(f"{fault}\n{TWO}")
    assert answer["state"] == "failed"
    assert answer["reason"].startswith(reason)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("handle 15", "GPU 1 cannot be read: GPU is lost; the kernel log has an Xid message"),
        ("name 15", "GPU 1 cannot be read: GPU is lost; "),
        ("ecc 16", "GPU 1 cannot be read: GPU requires restart; drain the node and reset the GPU"),
        ("pci 999", "GPU 1 cannot be read: Unknown Error; "),
    ],
)
def test_one_bad_gpu_among_several_fails_the_scan(scan: Scan, tmp_path: Path, fault: str, reason: str) -> None:
    """A count of the others would be a false label; NVML is shut down all the same."""
    answer = scan(f"{TWO}fault {fault}\n")
    assert answer["state"] == "failed"
    assert answer["reason"].startswith(reason)
    assert calls(tmp_path) == ["init", "shutdown"]


def test_each_gpu_that_cannot_be_read_is_named(scan: Scan) -> None:
    """Who repairs a node sees at once how much of it is broken."""
    answer = scan(f"{DRIVER}{H100.format(n=1)}lost 15\n{H100.format(n=2)}{H100.format(n=3)}lost 999\n")
    assert answer["state"] == "failed"
    assert "GPU 0 cannot be read: GPU is lost; " in answer["reason"]
    assert "; GPU 2 cannot be read: Unknown Error; " in answer["reason"]


def test_gpus_behind_nvswitch_have_each_other_as_peers(scan: Scan) -> None:
    """The other end of each link is a switch, and not a GPU."""
    links = "link 2 00000000:F1:00.0\nlink 2 00000000:F2:00.0\n"
    machine = f"{DRIVER}{H100.format(n=1)}{links}p2p 6 0\n{H100.format(n=2)}{links}p2p 0 6\n"
    features = parse_answer(json.dumps(scan(machine)).encode())
    assert isinstance(features, Features)
    names = ("nvlink_links", "nvlink_peers", "nvlink_peer_ids")
    found = [[device[name] for name in names] for device in features.instances["gpu.device"]]
    assert found == [["2", "1", "0000:2b:00.0"], ["2", "1", "0000:1b:00.0"]]


def test_a_shutdown_that_fails_spoils_nothing(scan: Scan) -> None:
    """A failed shutdown of NVML keeps the result of the scan."""
    assert scan(f"fault shutdown 999\n{TWO}")["state"] == "ok"


def test_sysfs_that_cannot_be_read_is_a_failure(scan: Scan, tmp_path: Path) -> None:
    """A directory stands in for an I/O error."""
    (tmp_path / "root/sys/bus/pci/devices/0000:1b:00.0/class").mkdir(parents=True)
    answer = scan(TWO, {"root": str(tmp_path / "root")})
    assert answer["state"] == "failed"
    assert "0000:1b:00.0/class: Is a directory" in answer["reason"]


@pytest.mark.parametrize(
    "place",
    [
        f"usr/lib/{os.uname().machine}-linux-gnu",
        f"usr/lib/{os.uname().machine}-linux-gnu/nvidia/current",
        "usr/lib64",
        "run/nvidia/driver/usr/lib64",
        "home/kubernetes/bin/nvidia/lib64",
    ],
)
def test_the_library_is_found_on_the_host(scan: Scan, library: Path, tmp_path: Path, place: str) -> None:
    """In the places of the distributions, of NVIDIA's driver container and of GKE."""
    (tmp_path / "root" / place).mkdir(parents=True)
    shutil.copy(library, tmp_path / "root" / place / SONAME)
    answer = scan(TWO, {"root": str(tmp_path / "root")}, tmp_path)
    assert [device["uuid"] for device in answer["devices"]] == ["GPU-1", "GPU-2"]


def test_the_library_may_be_named(scan: Scan, library: Path, tmp_path: Path) -> None:
    """A named library is the only one that is tried."""
    assert scan(TWO, {"library": str(library)}, tmp_path)["state"] == "ok"
    missing = str(tmp_path / "none.so")
    assert scan(TWO, {"library": missing}) == {"state": "absent", "reason": f"there is no {missing}"}


@pytest.mark.parametrize("where", ["loader", "host"])
def test_a_library_that_does_not_load_is_a_failure(scan: Scan, tmp_path: Path, where: str) -> None:
    """It is there, so its absence would be a lie."""
    place = tmp_path / "lib" if where == "loader" else tmp_path / "root/usr/lib64"
    place.mkdir(parents=True)
    (place / SONAME).write_bytes(b"\x7fELF, but not really")
    answer = scan(TWO, {"root": str(tmp_path / "root")}, tmp_path / "lib")
    assert answer["state"] == "failed"
    assert "cannot be loaded" in answer["reason"]


def test_the_answer_becomes_labels(scan: Scan) -> None:
    """The scan's answer gives the labels of GPU Feature Discovery."""
    features = parse_answer(json.dumps(scan(TWO)).encode())
    assert isinstance(features, Features)
    found = labels(features, SourceSettings())
    assert (found["nvidia.com/gpu.product"], found["nvidia.com/gpu.count"]) == ("NVIDIA-H100-80GB-HBM3", "2")


def test_a_driver_that_hangs_is_killed_at_the_deadline(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker goes on, and knows nothing of the GPUs."""
    (tmp_path / "machine").write_text(f"hang init\n{TWO}")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    monkeypatch.setenv("FAKE_NVML_MACHINE", str(tmp_path / "machine"))
    monkeypatch.setattr("nfd_worker.gpu.scan_runner.SCAN_DEADLINE_SECONDS", 1.0)
    here = host(
        tmp_path / "root",
        {BOOT_ID: Path("/", BOOT_ID).read_text(), **pci_device("0000:1b:00.0", "0x10de")},
    )
    assert ScanRunner().run_once(here) == Failed("the GPU scan took longer than 1 s and was killed")
