"""Which real drivers build for which real kernels: every driver times every kernel that the archives here offer.

``python bench/driver_matrix.py`` builds three drivers for two kernels; ``make driver-matrix`` all of them, for hours.
Each one is built by the product itself: ``DockerBuilder`` with the template of Debian in a real engine of its own
(``tests/proving_ground``), then verified against the kernel's Module.symvers, as before every push. The drivers are
Debian's ``-dkms`` packages and the edu driver of ``examples/``. Nothing is rolled out, no module is loaded.

Results: ``built`` (and verified, or why not), ``not applicable`` (the driver's dkms.conf says so), ``failed`` with the
reason that a DriverContainer's status would show. Size is that of all layers, seconds are wall time; the first build of
a kernel installs its headers, the first of all the compiler too.
"""

import argparse
import json
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from driver_builder.build import BuildRequest, ModuleSpec, Source, SourceFiles, SourcePackage  # noqa: E402
from driver_builder.docker_builder import DockerBuilder, docker_engine  # noqa: E402
from driver_builder.errors import BuildFailed, BuildFailure, TemporaryError, VerificationFailed  # noqa: E402
from driver_builder.image_archive import read_image_archive  # noqa: E402
from driver_builder.kernels import KernelTarget, KernelVersion  # noqa: E402
from driver_builder.output import table  # noqa: E402
from driver_builder.verify import verify  # noqa: E402
from tests.proving_ground.apt_sources import parse_os_release  # noqa: E402
from tests.proving_ground.errors import ProvingGroundError  # noqa: E402
from tests.proving_ground.ground import ProvingGround  # noqa: E402
from tests.proving_ground.kernels import release_key  # noqa: E402
from tests.proving_ground.packages import PrivateApt  # noqa: E402
from tests.proving_ground.progress import Progress, for_terminal  # noqa: E402

EDU = "edu"
DRIVERS = {
    EDU: ("edudrv",),
    "v4l2loopback-dkms": ("v4l2loopback",),
    "jool-dkms": ("jool", "jool_siit"),
    "acpi-call-dkms": ("acpi_call",),
    "dm-writeboost-dkms": ("dm_writeboost",),
    "evdi-dkms": ("evdi",),
    "iptables-netflow-dkms": ("ipt_NETFLOW",),
    "langford-dkms": ("langford",),
    "lttng-modules-dkms": ("lttng_tracer", "lttng_statedump", "lttng_probe_sched"),
    "openvpn-dco-dkms": ("ovpn_dco_v2",),
    "rapiddisk-dkms": ("rapiddisk", "rapiddisk_cache"),
    "vpoll-dkms": ("vpoll",),
    "xtables-addons-dkms": ("xt_geoip", "xt_TARPIT", "xt_ipp2p"),
}
"""Driver to the modules that are wanted of it; what they need of the driver's own modules comes with them."""

FEW_DRIVERS = (EDU, "v4l2loopback-dkms", "jool-dkms")
MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One driver on one kernel. ``verified`` is how many modules fit, None where there are none to look at."""

    driver: str
    kernel: str
    result: str
    seconds: float
    reason: str = ""
    message: str = ""
    verified: int | None = None
    image_bytes: int | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the matrix and print it; 1 when an archive, a name or the engine does not do."""
    options = _parser().parse_args(arguments)
    progress = for_terminal()
    try:
        kernels = choose_kernels(options.kernels)
        drivers = choose_drivers(options.drivers)
        with ProvingGround.start(control_plane=False, nodes=False, host_node=False, progress=progress) as ground:
            cells = build_all(ground, drivers, kernels, progress)
    except (ProvingGroundError, TemporaryError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps([asdict(cell) for cell in cells], indent=2) if options.output == "json" else text(cells))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Build real third-party drivers for the kernels of Debian's archives.")
    parser.add_argument(
        "--drivers", default=",".join(FEW_DRIVERS), help=f"all, or some of {', '.join(DRIVERS)} (default %(default)s)"
    )
    parser.add_argument(
        "--kernels",
        default="newest",
        help="all, newest (of the oldest series, one of each flavour but rt), or kernel releases (default %(default)s)",
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser


def choose_kernels(wanted: str) -> list[str]:
    """Choose among the kernels whose headers the archives have, oldest first.

    Raises:
        ProvingGroundError: when there is none, or not the one that was asked for.
    """
    apt = PrivateApt()
    apt.refresh()
    known = parse_headers(apt.cache("search", "--names-only", r"^linux-headers-[0-9].*-amd64$"))
    if wanted == "all":
        chosen = known
    elif wanted == "newest":
        chosen = newest(known)
    else:
        chosen = wanted.split(",")
    unknown = sorted(set(chosen) - set(known))
    if unknown or not chosen:
        hint = f"there are {', '.join(known) or 'none'}"
        raise ProvingGroundError(f"no headers in the archives for {', '.join(unknown) or 'any kernel'}", hint=hint)
    return chosen


def parse_headers(search: str) -> list[str]:
    """Return the kernel releases among what apt-cache search prints, oldest first; not the packages of a series."""
    names = re.findall(r"^linux-headers-(\d+\.\d+\.\d+\S*-amd64) ", search, re.MULTILINE)
    return sorted(set(names), key=lambda name: (release_key(name), name))


def newest(releases: Iterable[str]) -> list[str]:
    """Return the newest release of the oldest series in each flavour but rt."""
    releases = [release for release in releases if "-rt-" not in release]
    series = min((release_key(release)[:2] for release in releases), default=())
    by_flavour = {
        "-cloud-" in release: release
        for release in sorted(releases, key=release_key)
        if release_key(release)[:2] == series
    }
    return sorted(by_flavour.values())


def choose_drivers(wanted: str) -> list[str]:
    """Choose drivers by name, or all that are in the archives.

    Raises:
        ProvingGroundError: for a name that is not in the table.
    """
    if wanted == "all":
        found = PrivateApt().cache("search", "--names-only", "[a-z0-9]-dkms$").splitlines()
        packages = {line.split()[0] for line in found if line}
        return [name for name in DRIVERS if name == EDU or name in packages]
    chosen = wanted.split(",")
    if unknown := sorted(set(chosen) - DRIVERS.keys()):
        raise ProvingGroundError(f"no driver {', '.join(unknown)} here", hint=f"there are {', '.join(DRIVERS)}")
    return chosen


def build_all(ground: ProvingGround, drivers: Sequence[str], kernels: Sequence[str], progress: Progress) -> list[Cell]:
    """Build kernel by kernel, so that all drivers for one find its headers; Ctrl-C gives what there is so far."""
    cells: list[Cell] = []
    pairs = [(driver, kernel) for kernel in kernels for driver in drivers]
    with docker_engine(ground.engine.socket) as api:
        builder = DockerBuilder(api)
        for number, (driver, kernel) in enumerate(pairs, 1):
            try:
                cell = build(builder, request(driver, kernel, ground.base_image), progress, f"{number}/{len(pairs)}")
            except KeyboardInterrupt:
                print("interrupted: this is what was built", file=sys.stderr)
                break
            cells.append(cell)
            print(f"[{number}/{len(pairs)}] {' '.join(str(word) for word in row(cell))}", file=sys.stderr, flush=True)
    return cells


def request(driver: str, kernel: str, base_image: str) -> BuildRequest:
    """What the controller would ask for: the driver's source, its modules, the target."""
    release = parse_os_release(Path("/etc/os-release").read_text())
    return BuildRequest(
        key=f"{driver}-{kernel}",
        driver=f"matrix/{driver}",
        version="1",
        target=KernelTarget(KernelVersion(kernel), release["ID"], release["VERSION_ID"], "amd64"),
        template="debian",
        base_image=base_image,
        source=source(driver),
        modules=tuple(ModuleSpec(name=name) for name in DRIVERS[driver]),
    )


def source(driver: str) -> Source:
    """The files of the edu driver, or a package of the archives."""
    if driver != EDU:
        return SourcePackage(name=driver)
    folder = REPOSITORY / "examples" / "edu-driver" / "src"
    return SourceFiles(files={path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()})


def build(builder: DockerBuilder, wanted: BuildRequest, progress: Progress, number: str) -> Cell:
    """Build and verify one driver for one kernel, and say how it went."""
    driver, kernel = wanted.driver.partition("/")[2], str(wanted.target.kernel_version)
    began = time.monotonic()

    def cell(result: str, **fields: object) -> Cell:
        values = {"driver": driver, "kernel": kernel, "result": result, "seconds": round(time.monotonic() - began, 1)}
        return Cell(**{**values, **fields})  # type: ignore[arg-type]

    with progress.step(f"{number} {driver} for {kernel}") as step, tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        try:
            built = builder.build(wanted, directory=directory, log=step.detail, cancelled=threading.Event())
        except BuildFailed as error:
            is_refused = error.reason is BuildFailure.NOT_APPLICABLE
            result = "not applicable" if is_refused else "failed"
            return cell(result, reason="" if is_refused else error.reason.value, message=str(error))
        image = read_image_archive(built.archive, directory / "layers")
        size = built.archive.stat().st_size
        try:
            modules = verify(image, request=wanted, module_symvers=built.module_symvers)
        except VerificationFailed as error:
            return cell("failed", reason=error.reason.value, message=str(error), image_bytes=size, verified=0)
        return cell("built", verified=len(modules), image_bytes=size)


def row(cell: Cell) -> tuple[object, ...]:
    """One line of the table."""
    size = "-" if cell.image_bytes is None else f"{cell.image_bytes / MIB:.1f} MiB"
    verified = "-" if cell.verified is None else f"{cell.verified} of {len(DRIVERS[cell.driver])}"
    return cell.driver, cell.kernel, cell.result, cell.reason or "-", verified, size, f"{cell.seconds:.1f}"


def text(cells: Sequence[Cell]) -> str:
    """Lay out the table, the sum and what was said about each driver that was not built."""
    counts = {result: sum(cell.result == result for cell in cells) for result in ("built", "not applicable", "failed")}
    lines = [
        table(
            ("DRIVER", "KERNEL", "RESULT", "REASON", "MODULES VERIFIED", "IMAGE", "SECONDS"),
            [row(cell) for cell in cells],
        ),
        "",
        ", ".join(f"{count} {result}" for result, count in counts.items()),
        *(f"\n{cell.driver} for {cell.kernel}: {cell.message}" for cell in cells if cell.message),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
