"""What apt and debootstrap print when an archive fails, and what helps against it. Pure.

An archive changes under whoever uses it: kernels leave the pool, a mirror is synchronised, a Release expires, a suite
moves away. Each of these has its own sentence here; every other failure of apt is none of the archive's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from testbed.errors import ArchiveError, CommandError, TestbedError

SETTING = "DRIVERWRIGHT_DEBIAN_ARCHIVE"
"""The environment variable that names another archive (tools/machine reads it)."""
ANOTHER = f"set {SETTING} to the URI of an archive that has it, such as a snapshot"

DAMAGED_LISTS = "could not be parsed or opened"
"""What apt says of lists that it cannot read, also while it updates them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way in which an archive fails: how apt words it, and what to do."""

    pattern: str
    hint: str
    unreachable: bool = False
    """Nothing at all can be had of this archive now."""

    def is_in(self, output: str) -> bool:
        """Tell whether apt's output speaks of it."""
        return re.search(self.pattern, output) is not None


FAULTS = (
    Fault(
        pattern=r"Release file for \S+ is expired|is expired \(invalid since",
        hint="the archive is no longer updated, or this machine's clock is wrong: compare `date -u` with the date "
        f"above; set {SETTING} to the URI of an archive that is updated, or, for a snapshot, write "
        'Acquire::Check-Valid-Until "false"; to /etc/apt/apt.conf.d/90snapshot of this machine',
    ),
    Fault(
        pattern=r"is not valid yet \(invalid for another",
        hint="this machine's clock is behind: compare `date -u` with the date above",
    ),
    Fault(
        pattern=r"(does not have|no longer has) a Release file",
        hint="the archive has no such suite, or has it no longer: see that /etc/apt names an archive that has it, or "
        f"set {SETTING} to the URI of one, such as a snapshot",
    ),
    Fault(
        pattern=r"NO_PUBKEY|EXPKEYSIG|KEYEXPIRED|BADSIG|is not signed|couldn't be verified",
        hint="none of the known keys has signed the archive: install the newest debian-archive-keyring, or set "
        f"DRIVERWRIGHT_DEBIAN_KEYRING to the file of its keys, or {SETTING} to the URI of another archive",
    ),
    Fault(
        pattern=r"Hash Sum mismatch|unexpected size|Mirror sync in progress",
        hint="a mirror that is being synchronised, or a proxy, gives other content than the archive's lists say: try "
        f"again in an hour, or set {SETTING} to the URI of another archive",
    ),
    Fault(
        pattern=r"Could not resolve|Temporary failure resolving|Could not connect|Cannot initiate the connection|"
        r"Unable to connect|Connection failed|Connection timed out|connection timed out|Network is unreachable",
        hint="the archive does not answer: see this machine's network and apt's proxy (`apt-config dump Acquire`), "
        f"or set {SETTING} to the URI of another archive",
        unreachable=True,
    ),
    Fault(
        pattern=r"Unable to locate package|Version '[^']*' for '[^']*' was not found|Can not find version|"
        r"Unable to find a source package|No packages found|has no installation candidate|no versions of package|"
        r"Can't select candidate version|Can't find a source to download|You must put some 'deb-src' URIs",
        hint=f"the archives of this machine have it no longer: {ANOTHER}",
    ),
    Fault(
        pattern=DAMAGED_LISTS,
        hint="the lists in the cache are damaged: remove the folder apt of ~/.cache/driverwright",
    ),
    # Last: apt ends with these after most of the others. What follows them is debootstrap's.
    Fault(
        pattern=r"Failed to fetch|Some index files failed to download|Unable to fetch some archives|"
        r"Couldn't download|Failed getting release file|Invalid Release",
        hint=f"the archive does not give it now: try again in an hour, or {ANOTHER}",
    ),
)
"""The first that fits is the one."""


def fault_in(output: str) -> Fault | None:
    """Return the fault of an archive that apt ended with, or None when it ended with something else."""
    return next((fault for fault in FAULTS if fault.is_in(said(output))), None)


def explained(what: str, error: CommandError) -> TestbedError:
    """Return the error of an archive that made a command fail, or the command's own when no archive did."""
    fault = fault_in(error.output)
    if fault is None:
        return error
    return ArchiveError(f"{what} failed:\n{said(error.output)}", hint=fault.hint, unreachable=fault.unreachable)


def said(output: str) -> str:
    """Return what apt itself calls errors, one a line; they name the files and the suites."""
    errors = [line for line in output.splitlines() if line.startswith("E: ")]
    return "\n".join(dict.fromkeys(errors)) or output.strip()


def parse_versions(madison: str) -> list[str]:
    """Return the versions of a package that can be downloaded from what `apt-cache madison` prints, newest first."""
    found = re.findall(r"^ *\S+ \| +(\S+) \| .* Packages$", madison, re.MULTILINE)
    return list(dict.fromkeys(found))
