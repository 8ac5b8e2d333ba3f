"""Confidential computing on this node: SGX, TDX, SEV and Secure Execution; the attributes of ``cpu.security``."""

from feature_rules.features import Flags
from nfd_worker.host import Host

_MISC_CAPACITY = ("sys/fs/cgroup/misc.capacity", "sys/fs/cgroup/misc/misc.capacity")


def discover_security(host: Host, flags: Flags, *, sgx_epc_bytes: int) -> dict[str, str]:
    """Return what is on, and how much of it there is."""
    capacity = _find_misc_capacity(host)
    found: dict[str, str] = {}
    if sgx_epc_bytes:
        found |= {"sgx.enabled": "true", "sgx.epc": str(sgx_epc_bytes)}
    if _is_on(host.find("sys/module/kvm_intel/parameters/tdx")):
        found["tdx.enabled"] = "true"
        found |= _amount("tdx.total_keys", capacity.get("tdx"))
    if "TDX_GUEST" in flags:
        found["tdx.protected"] = "true"
    found |= _sev(host, capacity)
    if (host.find("sys/firmware/uv/prot_virt_host") or "").strip() == "1":
        found["se.enabled"] = "true"
    return found


def parse_misc_capacity(text: str) -> dict[str, str]:
    """Read the capacities of the misc cgroup controller: one ``name amount`` a line."""
    return dict(pair for pair in (line.split() for line in text.splitlines()) if len(pair) == 2)


def _sev(host: Host, capacity: dict[str, str]) -> dict[str, str]:
    def parameter(name: str) -> bool:
        return _is_on(host.find(f"sys/module/kvm_amd/parameters/{name}"))

    found: dict[str, str] = {}
    if parameter("sev"):
        found["sev.enabled"] = "true"
        found |= _amount("sev.asids", capacity.get("sev"))
    if parameter("sev_es"):
        found["sev.es.enabled"] = "true"
        found |= _amount("sev.encrypted_state_ids", capacity.get("sev_es"))
    if parameter("sev_snp"):
        found["sev.snp.enabled"] = "true"
    return found


def _find_misc_capacity(host: Host) -> dict[str, str]:
    found = host.find_first(_MISC_CAPACITY)
    return {} if found is None else parse_misc_capacity(found[1].decode(errors="replace"))


def _is_on(parameter: str | None) -> bool:
    return parameter is not None and parameter[:1] in ("1", "Y")


def _amount(name: str, amount: str | None) -> dict[str, str]:
    return {} if amount is None else {name: amount}
