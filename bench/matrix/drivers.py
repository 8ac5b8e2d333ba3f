"""The drivers of the matrix: Debian's ``-dkms`` packages and the edu driver of ``examples/``, as build requests."""

import re
from collections.abc import Mapping
from pathlib import Path

from driver_builder.builds.templates import templates
from driver_builder.model.build import BuildRequest, ModuleSpec, Source, SourceFiles, SourcePackage
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.kernels import KernelTarget, KernelVersion
from testbed.base_image import base_image_ref
from testbed.errors import TestbedError
from testbed.kernels import parse_candidates
from testbed.packages import PrivateApt, release_codename

REPOSITORY = Path(__file__).resolve().parents[2]
TEMPLATE = "debian"
EDU = "edu"
DEBIANS = {"bookworm": "12", "trixie": "13"}


def _modules(*names: str) -> tuple[ModuleSpec, ...]:
    return tuple(ModuleSpec(name=name) for name in names)


DRIVERS: Mapping[str, tuple[ModuleSpec, ...]] = {
    EDU: (ModuleSpec(name="edudrv", parameters=("use_irq=1",)),),
    "v4l2loopback-dkms": (ModuleSpec(name="v4l2loopback", parameters=("devices=2", "exclusive_caps=1")),),
    "jool-dkms": _modules("jool", "jool_siit"),
    "acpi-call-dkms": _modules("acpi_call"),
    "dm-writeboost-dkms": _modules("dm_writeboost"),
    "evdi-dkms": (ModuleSpec(name="evdi", parameters=("initial_device_count=1",)),),
    "iptables-netflow-dkms": (ModuleSpec(name="ipt_NETFLOW", parameters=("destination=127.0.0.1:2055",)),),
    "openvpn-dco-dkms": _modules("ovpn_dco_v2"),
    "vpoll-dkms": _modules("vpoll"),
    "rapiddisk-dkms": _modules("rapiddisk", "rapiddisk_cache"),
    "langford-dkms": _modules("langford"),
    "xtables-addons-dkms": _modules("xt_geoip", "xt_TARPIT", "xt_ipp2p"),
    "lttng-modules-dkms": _modules("lttng_tracer", "lttng_statedump", "lttng_probe_sched"),
}
"""Driver to the modules that are wanted of it; what they need of the driver's own modules comes with them."""

FEW_DRIVERS = (EDU, "v4l2loopback-dkms", "jool-dkms")


def choose_drivers(wanted: str, codename: str = "") -> dict[str, str]:
    """Choose drivers by name, or all that are in the archives; gives the version of each.

    Raises:
        TestbedError: for a name that is not in the table, or not in the archives.
    """
    names = list(DRIVERS) if wanted == "all" else wanted.split(",")
    if unknown := sorted(set(names) - DRIVERS.keys()):
        raise TestbedError(f"no driver {', '.join(unknown)} here", hint=f"there are {', '.join(DRIVERS)}")
    versions = {EDU: "1.0.0", **_candidates(codename)}
    absent = [name for name in names if name not in versions]
    if absent and wanted != "all":
        raise TestbedError(f"the archives have no {', '.join(absent)}", hint="see what apt-cache policy says")
    return {name: versions[name] for name in names if name in versions}


def _candidates(codename: str) -> dict[str, str]:
    return parse_candidates(PrivateApt(codename).cache("policy", *(name for name in DRIVERS if name != EDU)))


def request(driver: str, version: str, kernel: str, codename: str = "") -> BuildRequest:
    """Ask for what the controller would ask for; the key changes with package, recipe, kernel and wanted modules."""
    target = KernelTarget(KernelVersion(kernel), "debian", DEBIANS[codename or release_codename()], "amd64")
    return BuildRequest(
        driver=DriverKey(f"matrix/{driver}"),
        version=re.sub(r"[^A-Za-z0-9_.-]", "_", version),
        target=target,
        template=TEMPLATE,
        recipe=templates.template_versions()[TEMPLATE],
        base_image=base_image_ref(codename),
        source=source(driver),
        modules=DRIVERS[driver],
        deadline_seconds=3600,
    )


def source(driver: str) -> Source:
    """Give the files of the edu driver, or a package of the archives."""
    if driver != EDU:
        return SourcePackage(name=driver)
    folder = REPOSITORY / "examples" / "edu-driver" / "src"
    return SourceFiles(files={path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()})
