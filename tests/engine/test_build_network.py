"""Builds by a real engine through a real proxy with a password, from servers whose certificate a private CA signed."""

from __future__ import annotations

import json
import shutil
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import pytest

from driver_builder.base.errors import BuildFailed
from driver_builder.base.reasons import Reason
from driver_builder.builds.docker.docker_builder import DockerBuilder
from driver_builder.builds.docker.docker_engine import docker_engine
from driver_builder.builds.templates.templates import templates_directory
from driver_builder.model.build import BuildRequest, ModuleSpec, Source
from driver_builder.model.build_proxy import BuildProxy, ProxyPassword, variables
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.kernels import KernelTarget, KernelVersion
from testbed.testbed import Testbed
from tests.support.real_parts.build_network import (
    IMAGE,
    INSTALL,
    PASSWORD,
    TEMPLATE,
    USER,
    Network,
    build_network,
    entries_with,
    hidden_words,
)
from tests.support.real_parts.images import derive

pytestmark = [pytest.mark.long]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """What is fetched."""
    with build_network(tmp_path_factory.mktemp("network")) as made:
        yield made


@pytest.fixture(scope="module")
def api(engine_ground: Testbed) -> Iterator[docker.APIClient]:
    """The engine, with a base image that has what fetches."""
    derive(engine_ground, IMAGE, {}, INSTALL, network="host")
    with docker_engine(engine_ground.engine.socket) as client:
        yield client


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The template, with the parts that all templates fetch sources by."""
    folder = tmp_path_factory.mktemp("templates")
    (folder / "network.Dockerfile.j2").write_text(TEMPLATE)
    shutil.copytree(templates_directory() / "parts", folder / "parts")
    return folder


class Builds:
    """Builds of a network; ``lines`` are the log of the last one."""

    def __init__(self, api: docker.APIClient, templates: Path, network: Network) -> None:
        self._api = api
        self._templates = templates
        self._network = network
        self.lines: list[str] = []

    def builder(self, **changes: Any) -> DockerBuilder:
        """Make a builder as a controller does, or with another proxy or CA."""
        proxy = BuildProxy(https=self._network.proxy.url, no_proxy="127.0.0.1")
        given = {"proxy": variables(proxy, ProxyPassword(USER, PASSWORD)), "ca": self._network.ca, **changes}
        return DockerBuilder(self._api, owner="network", templates=self._templates, **given)

    def request(self, source: Source) -> BuildRequest:
        """Ask for a driver with this source."""
        return BuildRequest(
            recipe="network",
            driver=DriverKey(f"network/{type(source).__name__}"),
            version="1",
            target=KernelTarget(KernelVersion("6.1.0-55-cloud-amd64"), "debian", "12", "amd64"),
            template="network",
            base_image=IMAGE,
            source=source,
            modules=(ModuleSpec(name="driver"),),
            args={"HEADERS_MIRROR": self._network.direct},
        )

    def __call__(self, source: Source, folder: Path, **changes: Any) -> Path:
        """Build; returns the image's file."""
        self.lines.clear()
        return (
            self.builder(**changes)
            .build(self.request(source), directory=folder, log=self.lines.append, cancelled=threading.Event())
            .archive
        )


@pytest.fixture
def build(api: docker.APIClient, templates: Path, network: Network) -> Builds:
    """Builds that have the proxy and the CA."""
    return Builds(api, templates, network)


@pytest.mark.parametrize("kind", ["git", "archive"])
def test_sources_come_by_the_proxy_from_servers_of_a_private_ca(
    build: Builds, network: Network, kind: str, tmp_path: Path
) -> None:
    """By name and password; what NO_PROXY names comes without it. Programs do not see what certificates came by."""
    network.proxy.asked.clear()
    archive = build(getattr(network, kind), tmp_path)
    assert set(network.proxy.asked) - {"refused"} == {f"{kind}.example.com"}
    with tarfile.open(archive) as image:
        assert find(image, b"int driver;")
    with tarfile.open(archive) as image:
        assert not find(image, b"FTP_PROXY")


def find(image: tarfile.TarFile, words: bytes) -> bool:
    """Tell whether a saved image has these words anywhere."""
    return any(words in file.read() for entry in image if (file := image.extractfile(entry)) is not None)


@pytest.mark.parametrize("kind", ["git", "archive"])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"ca": ""}, "name that in spec.build.caConfigMap", id="CA"),
        pytest.param({"proxy": {}}, "cannot be (fetched|downloaded)", id="proxy"),
    ],
)
def test_without_one_of_both_the_source_is_missing(
    build: Builds, network: Network, *, kind: str, changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    """The reason says what cannot be fetched, and where certificates are the cause, which field is for them."""
    source = getattr(network, kind)
    # Headers of a server that everybody trusts.
    request = replace(build.request(source), args={})
    with pytest.raises(BuildFailed, match=words) as caught:
        build.builder(**changes).build(request, directory=tmp_path, log=print, cancelled=threading.Event())
    assert caught.value.reason is Reason.SOURCE_MISSING
    assert source.url in str(caught.value)


def test_nothing_of_proxy_and_ca_stays_in_images(
    build: Builds, api: docker.APIClient, network: Network, tmp_path: Path
) -> None:
    """Neither in the driver's image and the toolchain, nor in what stays in the engine, its history, nor in the log."""
    hidden = hidden_words(network)
    saved = [build(network.git, tmp_path)]
    request = build.request(network.git)
    toolchain = build.builder().toolchain(
        request, directory=tmp_path, log=build.lines.append, cancelled=threading.Event()
    )
    assert toolchain is not None
    (kept,) = (
        name for item in api.images(name="driverwright-cache/*") for name in item["RepoTags"] if _is_ours(api, name)
    )
    (tmp_path / "kept.tar").write_bytes(b"".join(api.get_image(kept)))
    saved += [toolchain, tmp_path / "kept.tar"]
    assert [name for path in saved for name in entries_with(path, hidden)] == []
    said = json.dumps([api.history(kept), api.inspect_image(kept)])
    said += "\n".join(build.lines)
    for item in api.images(all=True):
        said += json.dumps(api.inspect_image(item["Id"]))
    assert not [words for words in hidden if words in said]
    assert "sslcacert" in said, "the history has the commands"


def _is_ours(api: docker.APIClient, name: str) -> bool:
    return "git.example.com" in json.dumps(api.history(name))
