"""The templates of other distributions, built by their real package managers: apt, dnf, yum and zypper.

Debian has these programs, so a Debian base image takes the part of the distribution's: with archives that are made
here, of a real kernel's headers under that distribution's names. What the distribution itself brings (its compiler, its
keys, how it configures kernels) is not proven by this.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import docker
import pytest

from driver_builder.archives.image_archive import read_image_archive
from driver_builder.base.errors import BuildFailed
from driver_builder.base.reasons import Reason
from driver_builder.builds.docker.docker_builder import DockerBuilder
from driver_builder.builds.docker.docker_engine import docker_engine
from driver_builder.model.build import BuildRequest, ModuleSpec, SourceFiles, SourceGit
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.kernels import KernelTarget, KernelVersion
from driver_builder.model.repositories import Repository
from driver_builder.modules.verify import VerifiedModule, verify
from driver_builder.prebuild.docker_kernel_discovery import DockerKernelDiscovery
from testbed.command import run
from testbed.kernels import CLOUD, KernelPackage, newest_kernel
from testbed.packages import ensure_packages
from testbed.pki import CertificateAuthority
from testbed.progress import PlainLines
from testbed.testbed import Testbed
from tests.kernel.test_loader_on_real_kernels import SOURCE
from tests.support.real_parts import dkms_releases, rpm_archive
from tests.support.real_parts.apt_repository import served_headers
from tests.support.real_parts.images import derive
from tests.support.real_parts.rpm_archive import Headers, RpmPackage, signer
from tests.support.real_parts.web_server import served

# What the templates install by name comes with the image; the archive has a package of these names without content.
TOOLS = RpmPackage(
    "gcc",
    "12",
    "1",
    provides=(
        *("binutils", "diffutils", "elfutils-libelf-devel", "findutils", "gawk", "kmod", "libelf-devel", "make"),
        *("patch", "tar", "xz"),
    ),
)
BASE = (
    "COPY rpm.asc /etc/pki/rpm-gpg/KEY-test",
    "COPY dnf.repo /etc/yum.repos.d/base.repo",
    "COPY zypper.repo /etc/zypp/repos.d/base.repo",
    "RUN zypper --non-interactive --gpg-auto-import-keys refresh",
    "COPY apt.asc /etc/apt/trusted.gpg.d/base.asc",
    "COPY apt.list /etc/apt/sources.list.d/base.list",
    "COPY mirror.asc /tmp/",
    "RUN gpg --dearmor </tmp/mirror.asc >/usr/share/keyrings/ubuntu-archive-keyring.gpg",
)
AWAY = (
    "RUN sed -i s,/base/,/gone/, /etc/yum.repos.d/base.repo /etc/zypp/repos.d/base.repo",
    'RUN sed -i "s, main,-gone main," /etc/apt/sources.list.d/base.list',
)
REPO = (
    "[base]\nname=base\nbaseurl={url}\nenabled=1\nautorefresh=1\ngpgcheck=1\ngpgkey=file:///etc/pki/rpm-gpg/KEY-test\n"
)
SUITE = "bookworm"
"""Of the base image, which apt's mirrors are named by."""
IMAGE, IMAGE_AWAY, IMAGE_TLS = (f"package-managers/{name}:1" for name in ("base", "away", "tls"))


@dataclass(frozen=True, slots=True)
class Node:
    """What a node says of itself, and the template that builds for it."""

    template: str
    os: str
    kernel: str

    @property
    def package_manager(self) -> str:
        """Which of the archives is the node's."""
        return {"ubuntu": "apt", "sles": "zypper"}.get(self.template, "dnf")

    def package(self, headers: Headers) -> RpmPackage:
        """Make the RPM package of the kernel's headers, as the distribution names it and lays it out."""
        if self.package_manager == "zypper":
            version, release, flavour = self.kernel.split("-")
            place = f"/usr/src/linux-{version}-{release}-obj/x86_64/{flavour}"
            return RpmPackage(
                f"kernel-{flavour}-devel", version, f"{release}.1", folders=headers.under(self.kernel, place)
            )
        version, release = self.kernel.removesuffix(".x86_64").split("-")
        place = f"/usr/src/kernels/{self.kernel}"
        return RpmPackage("kernel-devel", version, release, folders=headers.under(self.kernel, place))


ROCKY = Node("rhel", "rocky:9.4", "6.1.0-427.13.1.el9_4.x86_64")
FEDORA = Node("fedora", "fedora:40", "6.1.9-300.fc40.x86_64")
AMAZON = Node("amazon", "amzn:2023", "6.1.82-99.168.amzn2023.x86_64")
SLES = Node("sles", "sles:15.6", "6.1.0-150600.23.25-default")
UBUNTU = Node("ubuntu", "ubuntu:24.04", "6.1.0-9117-generic")
NODES = (ROCKY, FEDORA, AMAZON, SLES, UBUNTU)

# One for each package manager: what a mirror and a stranger can do is the package manager's matter, not the template's.
# Oracle's, SUSE's and Ubuntu's have no places of their own beside base image and mirror.
ORACLE = Node("rhel", "ol:9.4", "6.1.0-1.el9.x86_64")
MIRRORED = (
    replace(ORACLE, kernel="6.1.0-2.el9.x86_64"),
    replace(SLES, kernel="6.1.0-150600.23.7-default"),
    replace(UBUNTU, kernel="6.1.0-9118-generic"),
)
FORGED = (
    replace(ORACLE, kernel="6.1.0-3.el9.x86_64"),
    replace(SLES, kernel="6.1.0-150600.23.8-default"),
    replace(UBUNTU, kernel="6.1.0-9119-generic"),
)
# The templates that no stranger's mirror is tried with: their headers are missing just so.
MISSING = (replace(AMAZON, kernel="6.1.83-99.168.amzn2023.x86_64"),)


def by_template(nodes: tuple[Node, ...], *, long: tuple[Node, ...] = ()) -> pytest.MarkDecorator:
    """Make a test of each node; those of ``long`` are for `make test-long`."""
    marks = {node: [pytest.mark.long] for node in long}
    return pytest.mark.parametrize(
        "node", [pytest.param(node, id=node.template, marks=marks.get(node, [])) for node in nodes]
    )


@dataclass(frozen=True, slots=True)
class Archives:
    """Where archives are, by package manager and name, and the keys that the base image has."""

    urls: Mapping[tuple[str, str], str]
    rpm_key: bytes
    apt_key: bytes
    apt_mirror_key: bytes
    root: Path
    """The folder that is served."""


@pytest.fixture(scope="module")
def kernel() -> KernelPackage:
    """A real kernel."""
    ensure_packages(rpm_archive.PACKAGES)
    return newest_kernel(CLOUD, PlainLines())


@pytest.fixture(scope="module")
def archives(kernel: KernelPackage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archives]:
    """Archives of the distributions, mirrors, and mirrors signed by a stranger."""
    root = tmp_path_factory.mktemp("archives")
    headers = Headers(kernel, root / "headers")
    urls = {}
    with ExitStack() as stack:
        distribution = stack.enter_context(signer(root / "keys/right", "Distribution"))
        stranger = stack.enter_context(signer(root / "keys/wrong", "Stranger"))
        url = stack.enter_context(served(root))
        apt_keys = {}
        kinds = (("base", distribution, NODES), ("mirror", distribution, MIRRORED), ("forged", stranger, FORGED))
        for name, who, nodes in kinds:
            for manager in ("dnf", "zypper"):
                packages = [node.package(headers) for node in nodes if node.package_manager == manager]
                who.make_archive(root / manager / name, [TOOLS, *packages])
                urls[manager, name] = f"{url}/{manager}/{name}/"
            (release,) = (node.kernel for node in nodes if node.package_manager == "apt")
            folder = root / "apt" / name
            folder.mkdir(parents=True)
            suites = [SUITE, f"{SUITE}-updates", f"{SUITE}-security"]
            made = stack.enter_context(served_headers(folder, like=kernel.release, kernel=release, suites=suites))
            urls["apt", name], apt_keys[name] = made.url, made.public_key
        yield Archives(urls, distribution.public_key.encode(), apt_keys["base"], apt_keys["mirror"], root)


@pytest.fixture(scope="module")
def api(engine_ground: Testbed, kernel: KernelPackage, archives: Archives) -> Iterator[docker.APIClient]:
    """The engine, with the base image, and one whose archives are not there."""
    files = {f"{name}.repo": REPO.format(url=archives.urls[name, "base"]).encode() for name in ("dnf", "zypper")}
    files |= {"rpm.asc": archives.rpm_key, "apt.asc": archives.apt_key, "mirror.asc": archives.apt_mirror_key}
    files["apt.list"] = f"deb {archives.urls['apt', 'base']} {SUITE} main\n".encode()
    derive(engine_ground, IMAGE, files, rpm_archive.package_managers(kernel), *BASE, network="host")
    derive(engine_ground, IMAGE_AWAY, {}, *AWAY, base=IMAGE)
    with docker_engine(engine_ground.engine.socket) as client:
        yield client


@dataclass(frozen=True, slots=True)
class Made:
    """What was built, and what was said meanwhile."""

    module: VerifiedModule
    log: list[str]

    @property
    def places(self) -> list[str]:
        """Where the log says that headers were looked for."""
        return [line.partition(" in ")[2] for line in self.log if line.startswith("driverwright: looking for ")]


ASKS_FOR_HEADERS = b"""
$(if $(wildcard /lib/modules/$(shell uname -r)/build/Module.symvers),,$(error no headers of $(shell uname -r)))
"""
"""Lines of a Makefile that looks for the kernel's headers as if the kernel were running."""


def source(**files: bytes) -> SourceFiles:
    """Return the example's source, whose Makefile finds the headers by the running kernel's release."""
    own = {path.name: path.read_bytes() for path in sorted((SOURCE / "src").iterdir())}
    return SourceFiles(files={**own, "Makefile": own["Makefile"] + ASKS_FOR_HEADERS, **files})


def build(
    api: docker.APIClient, node: Node, folder: Path, *, mirror: str = "", base_image: str = IMAGE, **fields: Any
) -> Made:
    """Build as the controller does, and verify.

    Raises:
        BuildFailed: as builder and verification.
    """
    os_id, _, os_version = node.os.partition(":")
    request = BuildRequest(
        recipe=f"test-{node.template}",
        driver=DriverKey(f"driverwright/edu-{node.template}"),
        version="1.0.0",
        target=KernelTarget(KernelVersion(node.kernel), os_id, os_version, "amd64"),
        template=node.template,
        base_image=base_image,
        source=source(),
        modules=(ModuleSpec(name="edudrv"),),
        args={"HEADERS_MIRROR": mirror} if mirror else {},
    )
    request = replace(request, **fields)
    log: list[str] = []
    try:
        built = DockerBuilder(api).build(request, directory=folder, log=log.append, cancelled=threading.Event())
    except BuildFailed:
        print(*log[-40:], sep="\n")
        raise
    image = read_image_archive(built.archive, folder / "layers")
    (module,) = verify(image, request=request, module_symvers=built.module_symvers)
    return Made(module, log)


# `make test` builds once with each package manager: with yum here, with zypper from a mirror, after these, with apt in
# test_failure_classes.py.
@by_template(NODES, long=tuple(node for node in NODES if node is not AMAZON))
def test_headers_come_from_the_base_images_repositories(api: docker.APIClient, node: Node, tmp_path: Path) -> None:
    """Tools and headers are installed, the module is made and fits, symbol by symbol; nothing else is asked."""
    made = build(api, node, tmp_path)
    assert made.module.vermagic.split()[0] == node.kernel
    (place,) = made.places
    assert place.endswith(f" of {IMAGE}")


@by_template(MIRRORED, long=(MIRRORED[0], MIRRORED[2]))
def test_a_mirror_has_what_the_repositories_have_not(
    api: docker.APIClient, archives: Archives, node: Node, tmp_path: Path
) -> None:
    """Its packages are signed by the distribution."""
    mirror = archives.urls[node.package_manager, "mirror"]
    made = build(api, node, tmp_path, mirror=mirror)
    assert made.module.vermagic.split()[0] == node.kernel
    first, second = made.places
    assert (first.endswith(f" of {IMAGE}"), second) == (True, mirror)


@by_template(FORGED)
def test_packages_of_a_stranger_are_not_installed(
    api: docker.APIClient, archives: Archives, node: Node, tmp_path: Path
) -> None:
    """Whoever can answer for a mirror could put anything into the kernel: to the build they are not there."""
    with pytest.raises(BuildFailed) as caught:
        build(api, node, tmp_path, mirror=archives.urls[node.package_manager, "forged"])
    assert caught.value.reason is Reason.HEADERS_MISSING


@by_template(MISSING)
def test_headers_that_nobody_has_are_missing(api: docker.APIClient, node: Node, tmp_path: Path) -> None:
    """The repositories answer, and have none."""
    with pytest.raises(BuildFailed) as caught:
        build(api, node, tmp_path)
    assert caught.value.reason is Reason.HEADERS_MISSING
    assert "is in none of these places" in str(caught.value)


@by_template(NODES)
def test_repositories_that_do_not_answer_are_distinguished(api: docker.APIClient, node: Node, tmp_path: Path) -> None:
    """That goes by itself, unlike headers that are missing."""
    with pytest.raises(BuildFailed) as caught:
        build(api, node, tmp_path, base_image=IMAGE_AWAY)
    assert caught.value.reason is Reason.REPOSITORY_UNAVAILABLE


@pytest.mark.long
def test_a_source_of_git_is_fetched_in_a_stage_of_its_own(
    api: docker.APIClient, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The distribution's image has no git: source and history come to the build from another stage."""
    root = tmp_path_factory.mktemp("git")
    for name, content in source().files.items():
        (root / name).write_bytes(content)
    with (root / "Makefile").open("a") as makefile:
        makefile.write("$(if $(wildcard /.git/HEAD),,$(error there is no /.git))\n")
    git = ["git", "-C", str(root), "-c", "user.name=test", "-c", "user.email=test@example.com"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"], ["update-server-info"]):
        run([*git, *words])
    commit = run([*git, "rev-parse", "HEAD"]).strip()
    with served(root) as url:
        made = build(api, ROCKY, tmp_path, source=SourceGit(url=f"{url}/.git", commit=commit, path=""))
    assert made.module.vermagic.split()[0] == ROCKY.kernel


CONF = """\
PACKAGE_NAME="edu"
PACKAGE_VERSION="1.0"
BUILT_MODULE_NAME[0]="edudrv"
DEST_MODULE_LOCATION[0]="/updates"
AUTOINSTALL="yes"
BUILD_DEPENDS[0]="another"
MAKE="make -C ${kernel_source_dir} M=${dkms_tree}/edu/1.0/build modules && make modules"
"""
"""Takes the headers that dkms gives, and then those of the running kernel; names a driver that is not there."""
EXCLUDING = ('KERNEL="^5"', 'ARCH="s390x"', 'KERNEL_MIN="6.14"', 'KERNEL_MAX="6.1"', 'CONFIG="CONFIG_NOBODY_KNOWS"')
DKMS = ("bullseye", "bookworm", "trixie")
"""Suites with a dkms of each kind: before 3.0, as Ubuntu has it up to 22.04; before 3.0.11; since."""


@pytest.mark.long
@pytest.mark.parametrize("suite", DKMS)
def test_every_release_of_dkms_builds_and_excludes_alike(
    engine_ground: Testbed, api: docker.APIClient, suite: str, tmp_path: Path
) -> None:
    """Headers are given, looked for and asked for; a kernel that is excluded, in any way, is not built for."""
    tools = f"package-managers/dkms-{suite}:1"
    print(f"dkms {dkms_releases.offer(engine_ground, tools, suite)}")
    made = build(api, ROCKY, tmp_path, tools_image=tools, source=source(**{"dkms.conf": CONF.encode()}))
    assert made.module.vermagic.split()[0] == ROCKY.kernel

    for line in EXCLUDING:
        conf = f"{CONF}BUILD_EXCLUSIVE_{line}\n".encode()
        with pytest.raises(BuildFailed, match=f"BUILD_EXCLUSIVE_{re.escape(line)}") as caught:
            build(api, ROCKY, tmp_path, tools_image=tools, source=source(**{"dkms.conf": conf}))
        assert caught.value.reason is Reason.NOT_APPLICABLE


@by_template(NODES)
def test_a_kernel_discovery_lists_the_releases(api: docker.APIClient, node: Node) -> None:
    """As uname would say them, out of what the package manager prints; Debian's own are there as well for apt."""
    found = DockerKernelDiscovery(api).discover(Repository(node.template, IMAGE, "amd64"), cancelled=threading.Event())
    offered = sorted(other.kernel for other in NODES if other.package_manager == node.package_manager)
    assert [release for release in found if not release.endswith("amd64") and "-common" not in release] == offered


@pytest.fixture(scope="module")
def private_ca(
    engine_ground: Testbed, api: docker.APIClient, archives: Archives, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """An image whose repositories have TLS by a private CA, which this returns."""
    assert api
    authority = CertificateAuthority(tmp_path_factory.mktemp("authority"))
    certificate = authority.issue_files("server", "server", hosts=["127.0.0.1"])
    with served(archives.root, certificate=certificate) as url:
        places = "/etc/yum.repos.d/base.repo /etc/zypp/repos.d/base.repo"
        apt = f'echo "deb {url}/apt/base {SUITE} main" >/etc/apt/sources.list.d/base.list'
        derive(
            engine_ground,
            IMAGE_TLS,
            {},
            "RUN apt-get install -q --yes --no-install-recommends ca-certificates openssl",
            f"RUN sed -i -E s,http://127.0.0.1:[0-9]+/,{url}/, {places}; {apt}",
            base=IMAGE,
            network="host",
        )
        yield authority.file.read_text()


@by_template(tuple(node for node in NODES if node is not FEDORA))
def test_repositories_of_a_private_ca_are_believed_where_the_build_names_it(
    api: docker.APIClient, private_ca: str, node: Node
) -> None:
    """By each package manager; without it the failure says which field is missing."""
    repository = Repository(node.template, IMAGE_TLS, "amd64")
    assert node.kernel in DockerKernelDiscovery(api, ca=private_ca).discover(repository, cancelled=threading.Event())
    with pytest.raises(BuildFailed, match=r"name that in spec\.build\.caConfigMap") as caught:
        DockerKernelDiscovery(api).discover(repository, cancelled=threading.Event())
    assert caught.value.reason is Reason.REPOSITORY_UNAVAILABLE


@by_template(NODES)
def test_a_kernel_discovery_of_repositories_that_do_not_answer_fails(api: docker.APIClient, node: Node) -> None:
    """An empty answer would mean that there is no kernel."""
    with pytest.raises(BuildFailed) as caught:
        DockerKernelDiscovery(api).discover(Repository(node.template, IMAGE_AWAY, "amd64"), cancelled=threading.Event())
    assert caught.value.reason is Reason.REPOSITORY_UNAVAILABLE
