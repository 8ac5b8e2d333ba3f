"""Every feature that a source can make: its elements, and what their values can be. A table; pure.

For ``rules validate``: what is not in it can never match. Features that others name (``local``, ``rule``, ``fake``) are
not in it. A test compares it with what the sources find on the recorded hosts.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from feature_rules.run import BACK_REFERENCE
from kube_api.names import label_value
from nfd_worker.cpu.cpu_model import X86_VENDORS
from nfd_worker.cpu.known_flags import flag_of_kernel, known_flags
from nfd_worker.sources import gpu, pci, storage, usb
from nfd_worker.sources.gpu_labels import MIG_LABELS
from nfd_worker.sources.system import DMI_NAMES

FREE = frozenset({"local", "fake", BACK_REFERENCE.partition(".")[0]})
"""Domains whose features are named by files, settings and rules."""


def _no_idea(_text: str) -> str | None:
    return None


class Values(NamedTuple):
    """What the value of an element can be.

    ``pattern``: all of a possible value. ``words``: the same for people. ``meant``: gives the possible value that
    somebody means who writes another one, None when that cannot be told.
    """

    pattern: re.Pattern[str] = re.compile(r"(?s:.*)")
    words: str = ""
    meant: Callable[[str], str | None] = _no_idea

    def can_be(self, text: str) -> bool:
        """Return whether an element can have this value."""
        return self.pattern.fullmatch(text) is not None


class Known(NamedTuple):
    """One feature. ``kind``: flag, attribute or instance, as in messages; flags have no values.

    ``elements``: names of elements, or of attributes of its instances. ``others``: a pattern of further names, as there
    are in modules, options and os-release; None for none. ``meant``: as of :class:`Values`, for names.
    """

    kind: str
    elements: Mapping[str, Values] = MappingProxyType({})
    others: re.Pattern[str] | None = None
    other_values: Values = Values()
    meant: Callable[[str], str | None] = _no_idea

    def values_of(self, name: str) -> Values | None:
        """Return what an element can have; None when there is never an element of this name."""
        if self.others is not None and self.others.fullmatch(name):
            return self.elements.get(name, self.other_values)
        return self.elements.get(name)


def _words(*words: str) -> Values:
    by_name = {word: word for word in words}
    return Values(re.compile("|".join(words)), " or ".join(words), lambda text: by_name.get(text.strip().lower()))


def _hexadecimal(digits: int) -> Values:
    def meant(text: str) -> str | None:
        bare = text.strip().lower().removeprefix("0x")
        bare = bare[:digits] if digits == pci.CLASS_DIGITS and len(bare) == 6 else bare.rjust(digits, "0")
        return bare if re.fullmatch(f"[0-9a-f]{{{digits}}}", bare) else None

    return Values(re.compile(f"[0-9a-f]{{{digits}}}"), f"{digits} hexadecimal digits in lower case, without 0x", meant)


_ANY = Values()
_TRUTH = _words("true", "false")
_TRUE = Values(re.compile("true"), "true where it is there; use Exists or DoesNotExist")
_BIT = _words("0", "1")
_NUMBER = Values(re.compile(r"-?[0-9]+|"), "a whole number")
_ID = _hexadecimal(4)


def _all(names: Iterable[str], values: Values = _ANY) -> dict[str, Values]:
    return dict.fromkeys(names, values)


_attributes = partial(Known, "attribute")
_instances = partial(Known, "instance")


_VENDOR = Values(
    re.compile(rf"(?!(?:{'|'.join(map(re.escape, X86_VENDORS))})$).*"), "the short name of the vendor", X86_VENDORS.get
)
_OPTION = Values(
    re.compile(r"(?!(?:n|no|yes|true|false)$).*"),
    "y, m, a number or a text, and an option that is off is not there: use DoesNotExist",
    {"yes": "y", "true": "y"}.get,
)
_RELEASE = Values(re.compile(r"[A-Za-z0-9_.-]*"), "uname -r as a label value", label_value)
_VIRTUAL = {"name": _ANY, "operstate": _ANY, **_all(("speed", "mtu"), _NUMBER)}

KNOWN: Mapping[str, Known] = {
    "cpu.cpuid": Known("flag", {**_all(known_flags()), "AVX10_VERSION": _NUMBER}, meant=flag_of_kernel),
    "cpu.model": _attributes({"vendor_id": _VENDOR, **_all(("family", "id", "hypervisor"))}),
    "cpu.cstate": _attributes({"enabled": _TRUTH}),
    "cpu.pstate": _attributes({"status": _ANY, "turbo": _TRUTH, "scaling_governor": _ANY}),
    "cpu.rdt": _attributes({
        **_all(("RDTMON", "RDTCMT", "RDTMBM", "RDTL3CA", "RDTL2CA", "RDTMBA"), _TRUE), "RDTL3CA_NUM_CLOSID": _NUMBER,
    }),
    "cpu.security": _attributes({
        **_all(("sgx.enabled", "tdx.enabled", "tdx.protected", "sev.enabled", "sev.es.enabled", "sev.snp.enabled",
                "se.enabled"), _TRUE),
        **_all(("sgx.epc", "tdx.total_keys", "sev.asids", "sev.encrypted_state_ids"), _NUMBER),
    }),
    "cpu.sst": _attributes({"bf.enabled": _TRUE}),
    "cpu.topology": _attributes({
        "hardware_multithreading": _TRUTH, "socket_count": _NUMBER, **_all(("cpu_atom", "cpu_core"), _TRUE),
    }),
    "cpu.coprocessor": _attributes({"nx_gzip": _TRUE}),
    "gpu.driver": _attributes(_all((
        "version", "major", "minor", "revision", "cuda_version", "cuda_major", "cuda_minor"
    ))),
    "gpu.machine": _attributes({"name": _ANY}),
    "gpu.device": _instances(_all((*gpu.DEVICE_FIELDS, "index", "family", "nvlink_peers", "nvlink_peer_ids"))),
    "gpu.mig": _instances(_all((*MIG_LABELS, "gpu", "gpu_name", "uuid", "profile"))),
    "gpu.sharing": Known(
        "attribute", {"mig_strategy": _words("none", "single", "mixed")},
        others=re.compile(r"nvidia\.com/[A-Za-z0-9._-]+\.(?:replicas|sharing-strategy|renamed)"),
    ),
    "kernel.config": Known(
        "attribute", others=re.compile(r"(?!CONFIG_)\w+"), other_values=_OPTION,
        meant=lambda name: name.strip().upper().removeprefix("CONFIG_") or None,
    ),
    "kernel.enabledmodule": Known(
        "flag", others=re.compile(r"(?!.*\.ko$)[^\s/]+"),
        meant=lambda name: name.strip().rpartition("/")[2].removesuffix(".ko"),
    ),
    "kernel.loadedmodule": Known(
        "flag", others=re.compile(r"(?!.*\.ko$)[^\s/-]+"),
        meant=lambda name: name.strip().rpartition("/")[2].removesuffix(".ko").replace("-", "_"),
    ),
    "kernel.kvm": _attributes({"enabled": _TRUTH}),
    "kernel.selinux": _attributes({"enabled": _TRUTH}),
    "kernel.version": _attributes({"full": _RELEASE, **_all(("major", "minor", "revision"), _NUMBER)}),
    "memory.hugepages": Known(
        "attribute", {"enabled": _TRUTH}, others=re.compile(r"hugepages-[1-9][0-9]*[KMGTPE]i"), other_values=_NUMBER
    ),
    "memory.numa": _attributes({"is_numa": _TRUTH, **_all(("node_count", "cpu_node_count"), _NUMBER)}),
    "memory.nv": _instances(_all(("name", "devtype", "mode", "namespace"))),
    "memory.swap": _attributes({"enabled": _TRUTH}),
    "network.device": _instances({**_VIRTUAL, **_all(("sriov_numvfs", "sriov_totalvfs"), _NUMBER)}),
    "network.virtual": _instances(_VIRTUAL),
    "pci.device": _instances({
        **_all(pci.OPTIONAL), **_all(pci.FIELDS, _ID), "class": _hexadecimal(pci.CLASS_DIGITS),
        "sriov_totalvfs": _NUMBER,
    }),
    "storage.block": _instances({
        **_all(storage.ATTRIBUTES), "type": _words(*storage.TYPES), **_all(("dax", "rotational"), _BIT),
        "nr_zones": _NUMBER, "zoned": _words("none", "host-aware", "host-managed"),
    }),
    "system.dmiid": _attributes(_all(DMI_NAMES)),
    "system.name": _attributes({"nodename": _ANY}),
    "system.osrelease": Known(
        "attribute", _all(("ID", "ID_LIKE", "VERSION_ID", "VERSION_ID.major", "VERSION_ID.minor")),
        others=re.compile(r"\w+"),
    ),
    "usb.device": _instances({
        **_all(usb.FIELDS), **_all(("vendor", "device"), _ID), "class": _hexadecimal(usb.CLASS_DIGITS),
    }),
}  # fmt: skip
