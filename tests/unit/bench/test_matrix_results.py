"""The driver matrix's memory, what it reads of a guest's console, and the table it tells."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.matrix import drivers, plain, reporting
from bench.matrix.building import is_outside
from bench.matrix.loading import judge
from bench.matrix.results import Build, Outcome, Plain, Results, Trial, Verdict
from testbed.guest.script import Section, parse_console

OURS, OTHER = "6.1.0-56-amd64", "6.1.0-47-amd64"
BUILT = Build(
    driver="edu", version="1", kernel=OURS, key="k1", outcome=Outcome.BUILT, seconds=31.2,
    verified=1, image_bytes=3 << 20,
)  # fmt: skip
FAILED = Build(
    driver="jool-dkms", version="4", kernel=OURS, key="k2", outcome=Outcome.FAILED, seconds=9,
    reason="CompileError", message="jool.c:1: nothing fits",
)  # fmt: skip
HOME = Trial(driver="edu", kernel=OURS, key="k1", running=OURS, verdict=Verdict.LOADED)
ABROAD = Trial(
    driver="edu", kernel=OURS, key="k1", running=OTHER, verdict=Verdict.REFUSED,
    said="disagrees", refused_by_us="WrongSymbolCRC: module edudrv",
)  # fmt: skip


PLAIN = Plain(driver="jool-dkms", kernel=OURS, key="k2", dkms="3.2.2", code=10)


def filled(path: Path) -> Results:
    """Results with a build that was tried on two kernels, and one that failed, by plain dkms as well."""
    results = Results(path)
    for record in (BUILT, FAILED, HOME, ABROAD, PLAIN):
        results.add(record)
    return results


def test_what_was_found_is_found_again(tmp_path: Path) -> None:
    """The next run reads what this one wrote."""
    path = tmp_path / "deep" / "results.jsonl"
    written, again = filled(path), Results(path)
    assert (again.builds, again.trials, again.plains) == (written.builds, written.trials, {"k2": PLAIN})


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        pytest.param(10, ["as plain dkms (3.2.2) on the same base image: 1 of 1"], id="the same"),
        pytest.param(
            77,
            [
                "as plain dkms (3.2.2) on the same base image: 0 of 1",
                f"jool-dkms for {OURS}: failed, plain dkms not applicable (77)",
            ],
            id="another",
        ),
    ],
)
def test_verdicts_stand_beside_those_of_plain_dkms(tmp_path: Path, code: int, expected: list[str]) -> None:
    """What differs is named with both."""
    results = filled(tmp_path / "results.jsonl")
    results.add(replace(PLAIN, code=code))
    assert reporting.sums([BUILT, FAILED], results).splitlines()[3:] == expected


def test_plain_dkms_gets_the_package_on_the_same_base() -> None:
    """Of the Debian release whose kernel it is; a driver without a package is nothing for it."""
    asked = drivers.request("jool-dkms", "4.1.9-1", "7.2.12+deb13-cloud-amd64", "trixie")
    text = plain.dockerfile(asked)
    assert (asked.base_image, asked.target.os_version) == ("debian:trixie-slim", "13")
    assert text.startswith("FROM debian:trixie-slim\n")
    assert "apt-get download -q jool-dkms;" in text
    assert "linux-headers-7.2.12+deb13-cloud-amd64" in text
    assert not plain.is_asked(drivers.request("edu", "1.0.0", "6.12.118+deb13-amd64", "trixie"))


def test_half_a_line_is_no_result(tmp_path: Path) -> None:
    """A run that was killed while it wrote loses that line only, and so does one of an older form."""
    path = tmp_path / "results.jsonl"
    filled(path)
    path.write_text(path.read_text() + '{"kind": "build", "driver": "old"}\n' + '{"kind": "trial", "dri')
    assert Results(path).builds.keys() == {"k1", "k2"}


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("CompileError", False), ("NotApplicable", False), ("DiskFull", True), ("PackageRepositoryUnavailable", True)],
)
def test_failures_of_the_surroundings_are_tried_again(reason: str, expected: bool) -> None:
    """They say nothing of driver and kernel."""
    build = Build(driver="edu", version="1", kernel=OURS, key="k", outcome=Outcome.FAILED, seconds=1, reason=reason)
    assert is_outside(build) is expected


REFUSAL = (
    "insmod: can't insert '/0/edudrv.ko': invalid module format\n"
    "[    1.503925] edudrv: loading out-of-tree module taints kernel.\n"
    "[    1.505000] edudrv: disagrees about version of symbol module_layout\n"
    "[    1.505001] edudrv: disagrees about version of symbol module_layout\n"
)


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        pytest.param(Section("[    1.5] edudrv: hello\n", 0), (Verdict.LOADED, ""), id="loaded"),
        pytest.param(
            Section(REFUSAL, 8),
            (Verdict.REFUSED, "can't insert '/0/edudrv.ko': invalid module format;"
             " edudrv: disagrees about version of symbol module_layout"),
            id="refused",
        ),
        pytest.param(
            Section("insmod: can't insert '/0/x.ko': No such device\n", 19),
            (Verdict.NEEDS_HARDWARE, "can't insert '/0/x.ko': No such device"),
            id="no hardware",
        ),
        pytest.param(None, (Verdict.DIED, "Kernel panic - not syncing"), id="the kernel died"),
    ],
)  # fmt: skip
def test_the_kernels_words_are_read(section: Section | None, expected: tuple[Verdict, str]) -> None:
    """One verdict, and the line that tells most."""
    assert judge(section, "boot\nKernel panic - not syncing\n") == expected


def test_sections_that_ended_are_read_from_the_console() -> None:
    """A kernel that dies in the second leaves the first."""
    ran = parse_console("SeaBIOS\r\n[[one\r\nhello\r\none 0]]\r\n[[two\r\nOops")
    assert ran.sections == {"one": Section("hello\n", 0)}
    assert ran.console.endswith("Oops")


def test_the_table_says_what_kernel_and_verification_said(tmp_path: Path) -> None:
    """Built, loaded, refused elsewhere by both; failures come with their message."""
    results = filled(tmp_path / "results.jsonl")
    text = reporting.text([BUILT, FAILED], results)
    assert "built" in text
    assert f"{OTHER}: WrongSymbolCRC / refused" in text
    assert "failed: CompileError" in text
    assert "jool-dkms for 6.1.0-56-amd64: jool.c:1: nothing fits" in text
    assert "1 built, 0 not applicable, 1 failed of 2 builds" in text
    assert "1 of 1 refused by verification, 1 by the kernel; they agree in 1" in text


def test_a_disagreement_is_loud(tmp_path: Path) -> None:
    """The kernel loads what verification refuses: one of them is wrong."""
    results = Results(tmp_path / "results.jsonl")
    trial = Trial(**{**{name: getattr(ABROAD, name) for name in ABROAD.__slots__}, "verdict": Verdict.LOADED})
    results.add(trial)
    assert "THEY DISAGREE" in reporting.text([BUILT], results)


def test_the_page_has_every_driver_and_kernel(tmp_path: Path) -> None:
    """What was not run is said; a message is told once for all its kernels."""
    results = filled(tmp_path / "results.jsonl")
    other = Build(
        driver="edu", version="1", kernel=OTHER, key="k3", outcome=Outcome.NOT_APPLICABLE, seconds=1,
        reason="NotApplicable", message=f"not for {OTHER}",
    )  # fmt: skip
    page = reporting.markdown([BUILT, FAILED, other], results)
    assert "| kernel | edu | jool |" in page
    assert f"| {OURS} | loaded | **failed** |" in page
    assert f"| {OTHER} | not applicable | not run |" in page
    assert "| edu | 1 | 1 of 2 | 3.0 | 16 (1 to 31) |" in page
    assert f"| {OURS} | {OTHER} | 1 | 1 | 1 | none |" in page
    assert f"| edu | NotApplicable: not for KERNEL | {OTHER} |" in page
