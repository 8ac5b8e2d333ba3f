"""What a Debian archive takes away: found elsewhere, or named with what helps. The archive is a small one of ours."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import apt_sources, archive_faults, base_image, cache, kernels, kube_binaries, kube_patches, packages
from testbed.apt_sources import Archive
from testbed.cache import cache_root
from testbed.errors import ArchiveError, TestbedError
from testbed.kernels import CLOUD, choose_kernels, find_kernel, newest_kernel
from testbed.packages import ensure_packages, refreshed_apt, why_unsupported
from testbed.progress import Silent, Step
from tests.support.real_parts import dkms_releases
from tests.support.real_parts.small_archive import SUITES, SmallArchive, flip_a_byte

pytestmark = pytest.mark.skipif(why_unsupported() is not None, reason=str(why_unsupported()))

# Nothing of this machine's own apt: neither its proxies nor what it says of dates.
APT_CONFIG = 'Dir::Etc::parts "{parts}";\nAcquire::Retries "0";\n'
OLD, MIDDLE, NEW = (f"6.1.0-{abi}-{CLOUD}" for abi in (47, 54, 55))


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallArchive]:
    """The one archive of this machine; the cache is empty."""
    ensure_packages((*kernels.PACKAGES, "dpkg-dev", "gpg"))
    config, parts = tmp_path / "apt.conf", tmp_path / "apt.conf.d"
    parts.mkdir()
    config.write_text(APT_CONFIG.format(parts=parts))
    monkeypatch.setenv("APT_CONFIG", str(config))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(kube_binaries.OWN, raising=False)
    monkeypatch.setattr(kube_binaries, "ensure_packages", lambda *_: None)
    with SmallArchive(tmp_path / "archive") as made:
        monkeypatch.setattr(apt_sources, "KEYRING", str(made.keyring))
        named = [Archive(uri=made.url, suite=suite, components=("main",)) for suite in SUITES]
        for module in (packages, base_image):
            monkeypatch.setattr(module, "machine_archives", lambda: named)
        yield made


def lists_of_yesterday() -> None:
    """Let the lists be old enough to be updated."""
    (cache_root() / "apt/updated").unlink()


def names(found: list[Path]) -> list[str]:
    """Return the names of what was downloaded, without the architecture."""
    return [path.name.removesuffix("_amd64.deb") for path in found]


def test_a_file_that_a_mirror_lacks_is_replaced_by_the_newest_that_it_has(
    archive: SmallArchive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other packages of the same download are there as well, each once."""
    archive.package("one", "1")
    newest = archive.package("one", "2")
    archive.package("two", "1")
    archive.publish()
    newest.unlink()
    assert names(refreshed_apt().download(["one", "two"], tmp_path / "debs")) == ["one_1", "two_1"]
    assert "one 1 is used, because 2 cannot be downloaded" in capsys.readouterr().err


def test_a_file_that_is_being_replaced_is_not_taken(archive: SmallArchive, tmp_path: Path) -> None:
    """A mirror in the middle of its synchronisation gives other content than its lists say."""
    flipped = archive.package("one", "1")
    archive.publish()
    flip_a_byte(flipped, -2000)
    with pytest.raises(ArchiveError, match="Hash Sum mismatch") as caught:
        refreshed_apt().download(["one"], tmp_path / "debs")
    assert archive_faults.SETTING in caught.value.hint


@pytest.mark.parametrize("asked", [["one"], ["one", "two"]], ids=["alone", "with another"])
def test_lists_of_before_a_point_release_are_fetched_anew(
    archive: SmallArchive, tmp_path: Path, asked: list[str]
) -> None:
    """What was downloaded with the old lists is not left beside the new."""
    archive.package("two", "1")
    gone = archive.package("one", "1")
    archive.publish()
    apt = refreshed_apt()
    gone.unlink()
    archive.package("one", "2")
    archive.package("two", "2")
    archive.publish()
    assert names(apt.download(asked, tmp_path / "debs")) == [f"{name}_2" for name in asked]


def test_what_left_the_archive_is_named_with_the_setting(archive: SmallArchive, tmp_path: Path) -> None:
    """A package that no list names, and a version that none names."""
    archive.package("one", "1")
    archive.publish()
    for asked, said in (("three", "Unable to locate package three"), ("one=7", "Version '7' for 'one' was not found")):
        with pytest.raises(ArchiveError, match=said) as caught:
            refreshed_apt().download([asked], tmp_path / "debs")
        assert archive_faults.SETTING in caught.value.hint


def test_a_release_that_has_expired_is_named_with_what_helps(archive: SmallArchive) -> None:
    """The clock, another archive, or the setting for a snapshot."""
    archive.package("one", "1")
    archive.publish(expired=True)
    with pytest.raises(ArchiveError, match="is expired") as caught:
        refreshed_apt()
    for helps in ("date -u", archive_faults.SETTING, "Acquire::Check-Valid-Until"):
        assert helps in caught.value.hint


@pytest.mark.parametrize("fault", ["expired", "no such suite"])
def test_the_lists_of_before_stay_in_use_where_one_suite_fails(
    archive: SmallArchive, tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    """That of the other suite is the new one."""
    archive.package("one", "1")
    archive.publish()
    refreshed_apt()
    if fault == "expired":
        archive.publish(SUITES[1:], expired=True)
    else:
        archive.forget_suite(SUITES[1])
    archive.package("two", "1")
    archive.publish(SUITES[:1])
    lists_of_yesterday()
    assert names(refreshed_apt().download(["one", "two"], tmp_path / "debs")) == ["one_1", "two_1"]
    assert "the old ones stay in use" in capsys.readouterr().err


def test_an_archive_that_is_away_is_asked_again_in_a_while(
    archive: SmallArchive, capsys: pytest.CaptureFixture[str]
) -> None:
    """Until then its lists are used: all that is in the cache can be."""
    archive.package("one", "1")
    archive.publish()
    refreshed_apt()
    archive.switch_off()
    lists_of_yesterday()
    assert "Version: 1" in refreshed_apt().cache("show", "one")
    assert "Could not connect" in capsys.readouterr().err
    refreshed_apt()
    assert not capsys.readouterr().err


def test_an_archive_that_was_away_from_the_first_is_asked_again_at_once(archive: SmallArchive) -> None:
    """No lists are none, though apt's update ends well then."""
    archive.package("one", "1")
    archive.publish()
    archive.switch_off()
    for _ in range(2):
        with pytest.raises(ArchiveError, match="Could not connect") as caught:
            refreshed_apt()
        assert archive_faults.SETTING in caught.value.hint


def test_an_update_that_was_ended_is_made_up_for(archive: SmallArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sources had been written, the lists had not come."""
    archive.package("one", "1")
    archive.publish()
    refreshed_apt()
    monkeypatch.setattr(
        packages, "machine_archives", lambda: [Archive(uri=archive.url, suite=SUITES[0], components=("main",))]
    )

    def ended(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(packages, "run", ended)
        with pytest.raises(KeyboardInterrupt):
            refreshed_apt()
    archive.package("two", "1")
    archive.publish()
    assert "Version: 1" in refreshed_apt().cache("show", "two")


@pytest.mark.parametrize("asks", ["cache", "download", "refresh"])
def test_damaged_lists_are_fetched_anew(archive: SmallArchive, tmp_path: Path, asks: str) -> None:
    """By itself apt keeps what the archive has not changed."""
    archive.package("one", "1")
    archive.publish()
    apt = refreshed_apt()
    for path in (cache_root() / "apt/lists").glob("*_Packages*"):
        path.write_text("Version: 1\n\n")
    shutil.rmtree(cache_root() / "apt/cache")
    if asks == "download":
        assert names(apt.download(["one"], tmp_path / "debs")) == ["one_1"]
        return
    if asks == "refresh":
        lists_of_yesterday()
        apt.refresh()
    assert "Version: 1" in apt.cache("show", "one")


def kernel(archive: SmallArchive, release: str, crc: str) -> tuple[Path, Path]:
    """Put a kernel and its headers into the pool; returns the files."""
    version = f"{release.partition('-')[0]}.{release.split('-')[1]}-1"
    image = {f"boot/vmlinuz-{release}": release, f"lib/modules/{release}/modules.order": ""}
    headers = {f"usr/src/linux-headers-{release}/Module.symvers": f"{crc}\tmodule_layout\tvmlinux\tEXPORT_SYMBOL\t\n"}
    return (
        archive.package(f"linux-image-{release}", version, image),
        archive.package(f"linux-headers-{release}", version, headers),
    )


def chosen(count: int) -> list[str]:
    """Return the releases of the kernels that are chosen."""
    return [one.release for one in choose_kernels(count, Silent())]


@pytest.mark.parametrize("part", [0, 1], ids=["image", "headers"])
def test_a_kernel_that_left_the_pool_is_passed_over(
    archive: SmallArchive, capsys: pytest.CaptureFixture[str], part: int
) -> None:
    """Others that refuse each other's modules are there."""
    kernel(archive, OLD, "0x1")
    kernel(archive, MIDDLE, "0x2")
    gone = kernel(archive, NEW, "0x3")
    archive.publish()
    gone[part].unlink()
    assert chosen(2) == [OLD, MIDDLE]
    assert newest_kernel(CLOUD, Silent()).release == MIDDLE
    assert f"kernel {NEW} is passed over" in capsys.readouterr().err


def test_a_kernel_that_another_replaced_since_is_not_waited_for(archive: SmallArchive) -> None:
    """The lists are of before a point release, and name the one that is gone."""
    kernel(archive, OLD, "0x1")
    gone = kernel(archive, MIDDLE, "0x2")
    archive.publish()
    refreshed_apt()
    for path in gone:
        path.unlink()
    kernel(archive, NEW, "0x3")
    archive.publish()
    assert chosen(2) == [OLD, NEW]


def test_kernels_that_left_the_archive_come_from_the_cache(
    archive: SmallArchive, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where those that it has are too few."""
    gone = kernel(archive, OLD, "0x1")
    kernel(archive, NEW, "0x3")
    archive.publish()
    assert chosen(2) == [OLD, NEW]
    for path in gone:
        path.unlink()
    archive.publish()
    lists_of_yesterday()
    assert chosen(2) == [OLD, NEW]
    assert f"kernels of the cache are used that the archives do not give: {OLD}" in capsys.readouterr().err
    assert find_kernel(OLD, Silent()).vmlinuz.read_text() == OLD


def test_kernels_of_a_warm_cache_need_no_archive(archive: SmallArchive) -> None:
    """Neither its lists nor its files."""
    kernel(archive, OLD, "0x1")
    kernel(archive, NEW, "0x3")
    archive.publish()
    assert chosen(2) == [OLD, NEW]
    archive.switch_off()
    lists_of_yesterday()
    assert chosen(2) == [OLD, NEW]
    shutil.rmtree(cache_root() / "apt")
    assert chosen(2) == [OLD, NEW]
    assert newest_kernel(CLOUD, Silent()).release == NEW


def test_a_kernel_that_nobody_has_is_named_with_the_setting(archive: SmallArchive) -> None:
    """And with those that there are."""
    kernel(archive, NEW, "0x3")
    archive.publish()
    with pytest.raises(TestbedError, match=f"no kernel {OLD} in the archives") as caught:
        find_kernel(OLD, Silent())
    assert NEW in caught.value.hint
    assert archive_faults.SETTING in caught.value.hint


def test_a_damaged_kernel_is_unpacked_anew(archive: SmallArchive) -> None:
    """It is not booted as it is."""
    kernel(archive, NEW, "0x3")
    archive.publish()
    flip_a_byte(newest_kernel(CLOUD, Silent()).vmlinuz)
    another_run()
    assert newest_kernel(CLOUD, Silent()).vmlinuz.read_text() == NEW


def another_run() -> None:
    """Forget that this process has compared anything."""
    cache._is_as_made.cache_clear()


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """In the place of ten minutes of compiling: programs that say the version of their source. Lists what it made."""
    made: list[str] = []

    def make(tree: Path, workplace: Path, log: Path, step: Step) -> None:  # noqa: ARG001
        version = (tree / "version").read_text()
        made.append(version)
        folder = tree / "_output/local/bin/linux/amd64"
        folder.mkdir(parents=True)
        for name in kube_binaries.BUILT:
            (folder / name).write_text(f"#!/bin/sh\necho Kubernetes v{version}\n")
            (folder / name).chmod(0o755)
        log.touch()

    monkeypatch.setattr(kube_binaries, "_make", make)
    monkeypatch.setattr(kube_patches, "apply_mends", lambda *_: None)
    return made


def kubernetes(archive: SmallArchive, version: str) -> Path:
    """Put a source of Kubernetes into the pool, and what else its build downloads."""
    archive.package(kube_patches.REFLECT2_PACKAGE, "1")
    return archive.source("kubernetes", version)


def test_a_flipped_byte_of_kubernetes_is_named_and_never_run(
    archive: SmallArchive, compiler: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is built anew."""
    kubernetes(archive, "1.20.2")
    archive.publish()
    binaries = kube_binaries.ensure_kube_binaries(Silent())
    whole = binaries.path("kubelet").read_text()
    flip_a_byte(binaries.path("kubelet"), 20)
    another_run()
    again = kube_binaries.ensure_kube_binaries(Silent())
    assert again.path("kubelet").read_text() == whole
    assert compiler == ["1.20.2", "1.20.2"]
    assert "is damaged, it has to be made anew: kubelet" in capsys.readouterr().err


def test_a_source_that_left_the_pool_gives_way_to_the_next(archive: SmallArchive, compiler: list[str]) -> None:
    """The lists are of before, and name the one that is gone."""
    gone = kubernetes(archive, "1.20.2")
    archive.publish()
    refreshed_apt()
    for path in archive.pool.glob("kubernetes_1.20.2*"):
        path.unlink()
    kubernetes(archive, "1.20.3")
    archive.publish()
    assert kube_binaries.ensure_kube_binaries(Silent()).release == "1.20.3"
    assert compiler == ["1.20.3"]
    assert not gone.exists()


@pytest.mark.parametrize("fault", ["away", "gone", "newer one cannot be downloaded"])
def test_the_kubernetes_that_was_built_stays_in_use(
    archive: SmallArchive, compiler: list[str], capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    """Whatever became of its source."""
    kubernetes(archive, "1.20.2")
    archive.publish()
    kube_binaries.ensure_kube_binaries(Silent())
    for path in archive.pool.glob("kubernetes_*"):
        path.unlink()
    if fault == "newer one cannot be downloaded":
        newer = kubernetes(archive, "1.20.3")
        archive.publish()
        newer.unlink()
    if fault == "gone":
        archive.publish()
    if fault == "away":
        shutil.rmtree(cache_root() / "apt")
        archive.switch_off()
    else:
        lists_of_yesterday()
    assert kube_binaries.ensure_kube_binaries(Silent()).release == "1.20.2"
    assert compiler == ["1.20.2"]
    said = capsys.readouterr().err
    assert "the Kubernetes that was built before is used" in said


def test_a_source_that_is_nowhere_is_named_with_the_settings(archive: SmallArchive, compiler: list[str]) -> None:
    """The user's own programs, or another archive."""
    archive.source("one", "1")
    archive.publish()
    with pytest.raises(TestbedError, match="no source package kubernetes") as caught:
        kube_binaries.ensure_kube_binaries(Silent())
    for setting in (kube_binaries.OWN, archive_faults.SETTING):
        assert setting in caught.value.hint
    assert not compiler


def archived(archive: SmallArchive, monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    """Let dkms be asked of the archive of this machine, and then of another one."""
    named = [Archive(uri=archive.url, suite=SUITES[0], components=("main",))]
    monkeypatch.setattr(dkms_releases, "machine_archives", lambda: named)
    monkeypatch.setattr(dkms_releases, "ARCHIVED", uri)


def test_a_suite_that_was_archived_is_taken_from_where_it_is(
    archive: SmallArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's archive has suites for some years."""
    with SmallArchive(tmp_path / "archived") as another:
        monkeypatch.setattr(apt_sources, "KEYRING", str(another.keyring))
        archived(archive, monkeypatch, another.url)
        another.package("dkms", "2.8.4")
        another.publish(["bullseye"])
        assert names([dkms_releases.dkms_package("bullseye")]) == ["dkms_2.8.4"]


@pytest.mark.parametrize("fault", ["no such suite", "not in the pool"])
def test_the_test_of_a_suite_that_was_archived_is_skipped_with_words(
    archive: SmallArchive, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """A machine that reaches its own mirror alone."""
    package = archive.package("dkms", "2.8.4")
    archive.publish(["bullseye"] if fault == "not in the pool" else SUITES)
    package.unlink()
    archived(archive, monkeypatch, "http://127.0.0.1:9/debian")
    with pytest.raises(pytest.skip.Exception, match="no longer gives the dkms of bullseye, and"):
        dkms_releases.dkms_package("bullseye")


def test_an_archive_that_does_not_answer_is_no_reason_to_skip(
    archive: SmallArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says nothing of the suite."""
    archived(archive, monkeypatch, "http://127.0.0.1:9/debian")
    archive.switch_off()
    with pytest.raises(ArchiveError) as caught:
        dkms_releases.dkms_package("bullseye")
    assert archive_faults.SETTING in caught.value.hint
