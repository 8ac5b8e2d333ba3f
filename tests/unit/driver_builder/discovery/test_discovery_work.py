"""Who asks a repository: the builder that the driver names, else the controller's default."""

import argparse
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from driver_builder import config
from driver_builder.api.driver_spec import BuilderKind, RegistrySettings
from driver_builder.builds.docker import docker_engine
from driver_builder.cli.commands import run_command
from driver_builder.config import Settings
from driver_builder.discovery.docker_kernel_discovery import DockerKernelDiscovery
from driver_builder.discovery.job_kernel_discovery import JobKernelDiscovery
from driver_builder.model.repositories import Repository
from driver_builder.planning.actions import DiscoverKernels
from driver_builder.references.registry_access import Registries
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
