"""Which addresses a registry may have, and may refer to by redirects, upload locations and token services. Pure.

Place in the flow: ``config`` reads the settings; ``registry_connection`` resolves a name, calls :meth:`Reach.refusal`
with every address, and connects to one that was checked. For the host that ``spec.image`` names it calls
:meth:`Reach.refusal_of_own`: registries inside of a cluster have addresses of the cluster, so the ranges that an admin
adds are for redirects alone. Private addresses are allowed: registries, stores and token services on premises have
them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_NAT64 = ip_network("64:ff9b::/96")
_NEVER = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4",
        # The first holds ::, ::1 and the addresses that once stood for IPv4 in IPv6; fec0::/10 is site-local.
        "::/96", "fe80::/10", "fec0::/10", "ff00::/8",
        # NAT64 of a network's own: which IPv4 address is meant is for its operator to say.
        "64:ff9b:1::/48",
        # Metadata and host services of clouds (Alibaba, Azure, AWS) outside of the link-local ranges.
        "100.100.100.200/32", "168.63.129.16/32", "fd00:ec2::/32",
    )
)  # fmt: skip
"""This host, the local link, multicast: no registry and no store is there for a controller in a pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """``forbidden`` are ranges that redirects must not lead to, besides those that nothing may.

    ``allowed`` are hosts (``name`` or ``name:port``) that may have any address. With ``local`` the registry itself may,
    but nothing that it refers to: for commands with files of one's own, on one's own machine.
    """

    forbidden: tuple[Network, ...] = ()
    allowed: frozenset[str] = frozenset()
    local: bool = False

    def allows_host(self, host: str, port: int) -> bool:
        """Whether a setting allows a host with any address."""
        name = host.lower()
        return name in self.allowed or f"{name}:{port}" in self.allowed

    def as_flags(self) -> list[str]:
        """The flags with which another program of ours makes the same value."""
        ranges, hosts = ",".join(map(str, self.forbidden)), ",".join(sorted(self.allowed))
        flags = {"--registry-forbidden-ranges": ranges, "--registry-allowed-hosts": hosts}
        return [f"{flag}={value}" for flag, value in flags.items() if value]

    def refusal(self, addresses: Iterable[str]) -> str:
        """Return the first address that is not allowed; empty if all are."""
        return _first_in((*_NEVER, *self.forbidden), addresses)

    def refusal_of_own(self, addresses: Iterable[str]) -> str:
        """Return the first address that the registry itself may not have; empty if all are allowed."""
        return "" if self.local else _first_in(_NEVER, addresses)


def _first_in(networks: tuple[Network, ...], addresses: Iterable[str]) -> str:
    return next((address for address in addresses if _is_in(networks, ip_address(address))), "")


def _is_in(networks: tuple[Network, ...], address: Address) -> bool:
    return any(form in network for form in _forms(address) for network in networks if form.version == network.version)


def parse_networks(text: str) -> tuple[Network, ...]:
    """Read ``10.96.0.0/12,fd00::/8``.

    Raises:
        ValueError: names the word that is not a range.
    """
    try:
        return tuple(ip_network(word.strip(), strict=False) for word in text.split(",") if word.strip())
    except ValueError as error:
        raise ValueError(f"{error}: write CIDR,...") from error


def parse_hosts(text: str) -> frozenset[str]:
    """Read ``blobs.example.com,tokens.example.com:8443``."""
    return frozenset(word.strip().lower() for word in text.split(",") if word.strip())


def _forms(address: Address) -> list[Address]:
    """An address and the IPv4 addresses that it stands for in IPv6."""
    if isinstance(address, IPv4Address):
        return [address]
    inner = [address.ipv4_mapped, address.sixtofour]
    if address in _NAT64:
        inner.append(IPv4Address(int(address) & 0xFFFFFFFF))
    plain = IPv6Address(int(address))
    return [plain, *(found for found in inner if found is not None)]
