"""What apt prints when an archive fails, and what is said to it."""

import pytest

from testbed.archive_faults import FAULTS, SETTING, explained, fault_in, parse_versions, said
from testbed.errors import ArchiveError, CommandError

URL = "http://mirror.test/debian"
OUTPUTS = [
    pytest.param(
        f"E: Release file for {URL}/dists/bookworm/InRelease is expired (invalid since 1d 2h 3min 4s). "
        "Updates for this repository will not be applied.",
        "Check-Valid-Until",
        id="expired",
    ),
    pytest.param(
        f"E: Release file for {URL}/dists/bookworm/InRelease is not valid yet (invalid for another 3h 2min 1s). "
        "Updates for this repository will not be applied.",
        "clock is behind",
        id="clock",
    ),
    pytest.param(
        f"Err:2 {URL} s1 Release\n  404  Not Found [IP: 192.0.2.1 80]\n"
        f"E: The repository '{URL} bookworm Release' does not have a Release file.",
        "no such suite",
        id="no Release",
    ),
    pytest.param(
        f"E: The repository '{URL} bookworm Release' no longer has a Release file.", "no such suite", id="Release gone"
    ),
    pytest.param(
        f"E: Failed to fetch {URL}/dists/bookworm/InRelease  The following signatures couldn't be verified because "
        "the public key is not available: NO_PUBKEY 3DFBE86F1D09EAC9\nE: Some index files failed to download. "
        "They have been ignored, or old ones used instead.",
        "debian-archive-keyring",
        id="key",
    ),
    pytest.param(
        f"E: Failed to fetch {URL}/pool/one_2_amd64.deb  Hash Sum mismatch\n   Hashes of expected file:",
        "synchronised",
        id="mismatch",
    ),
    pytest.param(
        f"E: Failed to fetch {URL}/dists/bookworm/main/binary-amd64/Packages.xz  File has unexpected size "
        "(8 != 9). Mirror sync in progress? [IP: 192.0.2.1 80]",
        "synchronised",
        id="size",
    ),
    pytest.param(
        f"E: Failed to fetch {URL}/dists/bookworm/InRelease  Could not resolve 'mirror.test'",
        "network",
        id="no such host",
    ),
    pytest.param(
        f"E: Failed to fetch {URL}/pool/one_2_amd64.deb  Could not connect to 192.0.2.1:80 (192.0.2.1). - connect "
        "(111: Connection refused)",
        "network",
        id="away",
    ),
    pytest.param(
        f"E: Failed to fetch {URL}/pool/one_2_amd64.deb  404  Not Found [IP: 192.0.2.1 80]",
        "try again in an hour",
        id="404",
    ),
    pytest.param("E: Unable to locate package linux-image-6.1.0-47-cloud-amd64", "no longer", id="gone"),
    pytest.param("E: Version '7' for 'one' was not found", "no longer", id="version gone"),
    pytest.param("E: Can not find version '7' of package 'one'", "no longer", id="version of a source gone"),
    pytest.param("E: Unable to find a source package for one", "no longer", id="source gone"),
    pytest.param("E: The package lists or status file could not be parsed or opened.", "damaged", id="damaged lists"),
    pytest.param("E: Couldn't download packages: base-files bash", "try again in an hour", id="debootstrap"),
]


@pytest.mark.parametrize(("output", "helps"), OUTPUTS)
def test_each_fault_of_an_archive_has_what_helps(output: str, helps: str) -> None:
    """Beside what apt calls the error."""
    error = explained("`apt-get update`", CommandError(["apt-get"], "ended with status 100", f"Hit:1 x\n{output}"))
    assert isinstance(error, ArchiveError)
    assert helps in error.hint
    assert output.splitlines()[-1].strip() in str(error) or "Hashes of" in output


def test_each_fault_occurs() -> None:
    """No row of the table is without an example here."""
    assert {id(fault_in(str(param.values[0]))) for param in OUTPUTS} == {id(fault) for fault in FAULTS}


@pytest.mark.parametrize(
    "output", ["E: You don't have enough free space in /var/cache/apt/archives/.", "E: Could not get lock /x/lock", ""]
)
def test_what_no_archive_did_stays_what_it_is(output: str) -> None:
    """A full disk is not got over by another archive."""
    error = CommandError(["apt-get"], "ended with status 100", output)
    assert explained("`apt-get update`", error) is error


def test_a_fault_that_was_got_over_is_none() -> None:
    """A try that failed before one that succeeded; what counts is what apt ends with."""
    output = "Err:1 x\n  Could not connect to x\nE: Failed to fetch http://x/y.deb  404  Not Found\n"
    found = fault_in(output)
    assert found
    assert not found.unreachable


def test_the_setting_is_in_what_it_helps_against() -> None:
    """A clock and damaged lists are this machine's own."""
    assert [SETTING in fault.hint for fault in FAULTS].count(False) == 2


def test_errors_are_said_once() -> None:
    """And without what else apt printed."""
    assert said("Hit:1 x\nE: one\nE: two\nE: one\n") == "E: one\nE: two"
    assert said(" nothing of apt's \n") == "nothing of apt's"


def test_versions_come_newest_first_and_once() -> None:
    """A source of the same name is none of them."""
    madison = (
        "       one |          2 | http://mirror.test/debian bookworm/main amd64 Packages\n"
        "       one |          1 | http://mirror.test/debian bookworm/main amd64 Packages\n"
        "       one |          1 | http://mirror.test/security bookworm-security/main amd64 Packages\n"
        "       one |          3 | http://mirror.test/debian bookworm/main Sources\n"
    )
    assert parse_versions(madison) == ["2", "1"]
