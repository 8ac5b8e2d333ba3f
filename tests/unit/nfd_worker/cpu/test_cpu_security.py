"""Confidential computing: what is on, and how much of it there is."""

from pathlib import Path

import pytest

from nfd_worker.cpu.cpu_security import discover_security, parse_misc_capacity
from tests.support.nfd_worker.trees import host

KVM_AMD = "sys/module/kvm_amd/parameters"
TDX = "sys/module/kvm_intel/parameters/tdx"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, {}, id="nothing"),
        pytest.param({f"{KVM_AMD}/sev": "N\n", TDX: "N\n"}, {}, id="all off"),
        pytest.param(
            {f"{KVM_AMD}/sev": "Y\n", f"{KVM_AMD}/sev_es": "1\n", f"{KVM_AMD}/sev_snp": "Y\n",
             "sys/fs/cgroup/misc.capacity": "sev_es 99\nsev 410\n"},
            {"sev.enabled": "true", "sev.asids": "410", "sev.es.enabled": "true", "sev.encrypted_state_ids": "99",
             "sev.snp.enabled": "true"},
            id="SEV: amounts go to their own name",
        ),
        pytest.param(
            {TDX: "Y\n", "sys/fs/cgroup/misc/misc.capacity": "tdx 31\n"},
            {"tdx.enabled": "true", "tdx.total_keys": "31"},
            id="TDX host, cgroup v1",
        ),
        pytest.param({"sys/firmware/uv/prot_virt_host": "1\n"}, {"se.enabled": "true"}, id="Secure Execution"),
    ],
)  # fmt: skip
def test_what_is_on(tmp_path: Path, files: dict[str, str], expected: dict[str, str]) -> None:
    """Security features are read from module parameters and cgroup capacities."""
    assert discover_security(host(tmp_path, files), frozenset(), sgx_epc_bytes=0) == expected


def test_a_protected_guest_and_sgx_are_reported_by_the_cpu(tmp_path: Path) -> None:
    """Protected guests and SGX are detected by CPUID, not by files."""
    assert discover_security(host(tmp_path, {}), frozenset({"TDX_GUEST"}), sgx_epc_bytes=4096) == {
        "sgx.enabled": "true", "sgx.epc": "4096", "tdx.protected": "true",
    }  # fmt: skip


def test_capacities_are_pairs() -> None:
    """Lines of misc.capacity that are no pair of name and number are skipped."""
    assert parse_misc_capacity("sev 410\n\nodd\n") == {"sev": "410"}
