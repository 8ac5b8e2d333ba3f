"""Which rule of a DriverContainer a kernel falls under, and which template builds for its distribution. Pure."""

import re

from driver_builder.api import driver_spec
from driver_builder.api.driver_spec import DriverSpec, KernelMapping
from driver_builder.model.kernels import KernelTarget, KernelVersion

ANY_KERNEL = KernelMapping(pattern=driver_spec.compiled(".*"), args={})
"""What a spec without mappings means."""

TEMPLATES = {
    "almalinux": "rhel",
    "amzn": "amazon",
    "centos": "rhel",
    "debian": "debian",
    "fedora": "fedora",
    "flatcar": "flatcar",
    "ol": "rhel",
    "opensuse-leap": "sles",
    "opensuse-tumbleweed": "sles",
    "rhel": "rhel",
    "rocky": "rhel",
    "sles": "sles",
    "ubuntu": "ubuntu",
}
"""os-release ID to template, for specs that name none."""

BASE_IMAGES = {
    "almalinux": "almalinux:{major}",
    "amzn": "amazonlinux:{version}",
    "centos": "quay.io/centos/centos:stream{major}",
    "debian": "debian:{codename}-slim",
    "fedora": "fedora:{version}",
    "flatcar": "debian:trixie-slim",
    "ol": "oraclelinux:{major}",
    "opensuse-leap": "opensuse/leap:{version}",
    "opensuse-tumbleweed": "opensuse/tumbleweed:latest",
    "rhel": "registry.access.redhat.com/ubi{major}/ubi:{version}",
    "rocky": "rockylinux/rockylinux:{major}",
    "sles": "registry.suse.com/bci/bci-base:{version}",
    "ubuntu": "ubuntu:{version}",
}
"""os-release ID to the image a driver is built in, for specs that name none.

Where a distribution's images are named by major release, the newest minor one is taken: its compiler builds for all
kernels of that release. Flatcar's build tools run on a C library that is as new as its own.
"""

_CODENAMES = {"12": "bookworm", "13": "trixie"}
"""Debian's images are those of its codenames."""
_VERSION = re.compile(r"(?P<major>[0-9]+)(?:\.[0-9]+)*")
_OLDEST = {"almalinux": 8, "centos": 8, "ol": 8, "rhel": 8, "rocky": 8}
"""Major releases that the templates know; older ones have other package managers."""


def mapping_for(spec: DriverSpec, kernel_version: KernelVersion) -> KernelMapping | None:
    """Find the first mapping that matches the whole kernel release; without mappings every kernel is wanted."""
    for mapping in spec.mappings or (ANY_KERNEL,):
        if mapping.pattern.fullmatch(kernel_version):
            return mapping
    return None


def template_for(spec: DriverSpec, mapping: KernelMapping, target: KernelTarget) -> str | None:
    """Name the template: the mapping's, else the build's, else the distribution's own."""
    return mapping.template or spec.template or TEMPLATES.get(target.os_id)


def base_image_for(spec: DriverSpec, target: KernelTarget) -> str | None:
    """Name the image a driver is built in: the build's, else the distribution's own, None where none is known."""
    return spec.base_image or _own_base_image(target.os_id, target.os_version)


def _own_base_image(os_id: str, os_version: str) -> str | None:
    rule, version = BASE_IMAGES.get(os_id), _VERSION.fullmatch(os_version)
    if rule is None or version is None or int(version["major"]) < _OLDEST.get(os_id, 0):
        return None
    codename = _CODENAMES.get(os_version)
    if "{codename}" in rule and codename is None:
        return None
    return rule.format(version=os_version, major=version["major"], codename=codename)
