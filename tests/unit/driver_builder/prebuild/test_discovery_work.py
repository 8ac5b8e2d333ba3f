"""Who asks a repository: the builder that the driver names, else the controller's default."""

import argparse
import base64
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driver_builder import config
from driver_builder.api.build_settings import BuilderKind, ConfigMapKey
from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.builds.docker import docker_engine
from driver_builder.cli.commands import run_command
from driver_builder.config import Settings
from driver_builder.model.build_proxy import BuildProxy
from driver_builder.model.repositories import Repository
from driver_builder.nodes.changes import DiscoverKernels
from driver_builder.prebuild.docker_kernel_discovery import DockerKernelDiscovery
from driver_builder.prebuild.job_kernel_discovery import JobKernelDiscovery
from driver_builder.registry.registry_access import Registries
from kube_api.resources import CONFIG_MAPS, SECRETS
from testbed.pki import CertificateAuthority
from tests.support.driver_builder.factories import NAMESPACE
from tests.support.driver_builder.memory_client import MemoryClient

DEBIAN = Repository("debian", "debian:bookworm-slim", "amd64")


def settings(**environment: str) -> Settings:
    """Make settings of environment variables."""
    flags = argparse.Namespace(namespace=[NAMESPACE])
    return config.settings(flags, {f"DRIVER_BUILDER_{name.upper()}": value for name, value in environment.items()})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note who was asked; both know one kernel."""
    calls: list[str] = []

    @contextlib.contextmanager
    def engine(_address: str, **_options: object) -> Iterator[Any]:
        yield object()

    def answer(who: str) -> Any:
        def discover(_self: Any, repository: Repository, *, cancelled: threading.Event) -> tuple[str, ...]:
            assert not cancelled.is_set()
            calls.append(f"{who} {repository}")
            return ("6.1.0-9-amd64",)

        return discover

    monkeypatch.setattr(docker_engine, "docker_engine", engine)
    monkeypatch.setattr(DockerKernelDiscovery, "discover", answer("engine"))
    monkeypatch.setattr(JobKernelDiscovery, "discover", answer("job"))
    return calls


@pytest.mark.parametrize(
    ("builder", "environment", "who"),
    [
        pytest.param(None, {}, "engine", id="nothing said"),
        pytest.param(None, {"builder": "job"}, "job", id="the controller's default"),
        pytest.param(BuilderKind.JOB, {}, "job", id="the driver's own"),
        pytest.param(BuilderKind.DOCKER, {"builder": "job"}, "engine", id="the driver's own before the default"),
    ],
)
def test_who_builds_looks_up(
    asked: list[str], builder: BuilderKind | None, environment: dict[str, str], who: str
) -> None:
    """The result is what a build would find."""
    client = MemoryClient()
    work = run_command._discovery_work(client, settings(**environment), Registries(client))
    action = DiscoverKernels(repository=DEBIAN, namespace=NAMESPACE, registry=RegistrySettings(), builder=builder)
    assert work(action, threading.Event()) == ("6.1.0-9-amd64",)
    assert asked == [f"{who} {DEBIAN}"]


@pytest.mark.parametrize("builder", list(BuilderKind))
def test_who_looks_up_goes_the_way_of_builds(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, builder: BuilderKind
) -> None:
    """An engine is given the password and the certificates; a Job is told where they are."""
    client, given = MemoryClient(), dict[str, Any]()
    pem = CertificateAuthority(tmp_path).file.read_text()
    password = {key: base64.b64encode(value).decode() for key, value in {"username": b"me", "password": b"a@b"}.items()}
    client.create(SECRETS.path(namespace=NAMESPACE), {"metadata": {"name": "proxy"}, "data": password})
    client.create(CONFIG_MAPS.path(namespace=NAMESPACE), {"metadata": {"name": "ca"}, "data": {"ca.crt": pem}})
    monkeypatch.setattr(DockerKernelDiscovery, "__init__", lambda _self, _api, **options: given.update(options))
    monkeypatch.setattr(
        JobKernelDiscovery, "__init__", lambda *words: given.update(proxy=words[-1].proxy, ca=words[-1].ca)
    )
    proxy, ca = BuildProxy(http="http://p:1", secret="proxy"), ConfigMapKey(name="ca", key="ca.crt")
    action = DiscoverKernels(
        repository=DEBIAN, namespace=NAMESPACE, registry=RegistrySettings(), builder=builder, proxy=proxy,
        ca_config_map=ca,
    )  # fmt: skip
    run_command._discovery_work(client, settings(), Registries(client))(action, threading.Event())
    assert len(asked) == 1
    by_engine = ({"HTTP_PROXY": "http://me:a%40b@p:1", "http_proxy": "http://me:a%40b@p:1"}, pem)
    assert (given["proxy"], given["ca"]) == (by_engine if builder is BuilderKind.DOCKER else (proxy, ca))
