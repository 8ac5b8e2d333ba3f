"""Who builds, and with which secrets."""

import argparse
import base64
import errno
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any, cast

import pytest

from driver_builder import config
from driver_builder.api.build_settings import BuilderKind
from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.base.errors import BuildFailed, ConfigurationError
from driver_builder.builds.docker import docker_engine
from driver_builder.builds.docker.docker_builder import DockerBuilder
from driver_builder.builds.job.job_builder import JobBuilder
from driver_builder.builds.own_disk import own_disk
from driver_builder.builds.pipeline import pipeline, toolchain_image
from driver_builder.builds.signing_secrets import SigningSecrets
from driver_builder.cli import builder_choice
from driver_builder.config import Settings
from driver_builder.model.build import Builder
from driver_builder.model.setting import Group
from driver_builder.registry.registry_access import Registries
from kube_api.client import Client
from kube_api.errors import NotFound
from kube_api.resources import SECRETS
from tests.support.driver_builder.memory_client import MemoryClient
from tests.unit.driver_builder.builds.job.test_job_manifest import action


class Cluster:
    """An API server with one Secret."""

    def get(self, path: str) -> dict[str, Any]:
        """Read it."""
        if not path.endswith("/token"):
            raise NotFound(path)
        value = base64.b64encode(b"first line\n\nabc\nsecond line\n").decode()
        return {"data": {"key": value}}


def client() -> Client:
    """The same, for who wants a client."""
    return cast(Client, cast(Any, Cluster()))


def settings(*words: str) -> Settings:
    """Settings as by these flags."""
    parser = argparse.ArgumentParser()
    config.add_flags(parser, Group.CONNECTION, *config.RUN)
    return config.settings(parser.parse_args(words), {})


IMAGES = ("--job-image=b", "--hand-over-image=h")


@pytest.mark.parametrize(
    ("words", "asked", "is_job"),
    [
        pytest.param((), None, False, id="docker is the default"),
        pytest.param(("--builder=job", *IMAGES), None, True, id="the controller's default"),
        pytest.param(IMAGES, BuilderKind.JOB, True, id="the spec asks for a Job"),
        pytest.param(("--builder=job", *IMAGES), BuilderKind.DOCKER, False, id="the spec asks for the engine"),
    ],
)
def test_the_spec_goes_before_the_default(
    words: tuple[str, ...], asked: BuilderKind | None, is_job: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine is not asked where a Job builds."""

    @contextmanager
    def engine(_address: str, **_options: object) -> Iterator[object]:
        yield object()

    monkeypatch.setattr(docker_engine, "docker_engine", engine)
    wanted = replace(action(builder=asked), registry=RegistrySettings())
    chosen = builder_choice.builder_for(wanted, settings(*words), client=client(), registries=Registries(client()))
    with chosen as builder:
        assert isinstance(builder, JobBuilder if is_job else DockerBuilder)


def test_jobs_need_two_images() -> None:
    """A controller without them says which flags it lacks."""
    with pytest.raises(ConfigurationError, match="--job-image and --hand-over-image"):
        builder_choice.job_settings(action(), settings("--job-image=b"), client())


def test_limits_of_builds_are_given_to_jobs() -> None:
    """The sizes of their disks, and the largest resources; without a setting there are none of these."""
    words = (*IMAGES, "--job-work-size=40Gi", "--max-build-resources=cpu=4")
    given = builder_choice.job_settings(action(), settings(*words), client())
    assert (given.work_size, given.output_size, given.max_resources) == ("40Gi", str(8 << 30), {"cpu": "4"})
    assert builder_choice.job_settings(action(), settings(*IMAGES), client()).max_resources == {}


def test_the_ca_of_the_registries_is_given_to_jobs(tmp_path: Path) -> None:
    """As text, for it is a file of the controller's; a missing file is an error."""
    file = tmp_path / "ca.crt"
    file.write_text("-----BEGIN")
    given = replace(settings(*IMAGES), registry_ca_file=str(file))
    assert builder_choice.job_settings(action(), given, client()).ca == "-----BEGIN"
    file.unlink()
    with pytest.raises(ConfigurationError, match="--registry-ca-file"):
        builder_choice.job_settings(action(), given, client())


def test_secrets_of_a_build_are_known_line_by_line() -> None:
    """For its log to hide them; lines that say nothing would hide everything else, and a missing Secret has none."""
    assert builder_choice.secret_values(action(build_secrets=("token", "gone")), client()) == (
        "first line",
        "second line",
    )


@pytest.mark.parametrize(
    ("key", "is_built"),
    [
        pytest.param("token", False, id="a password of packages"),
        pytest.param(".dockerconfigjson", True, id="a password of base images"),
    ],
)
def test_what_was_installed_with_a_secret_is_not_kept(key: str, is_built: bool, tmp_path: Path) -> None:
    """A Job with the Secret could leave it in the toolchain, which others read; what pulls stays outside of images."""
    memory = MemoryClient()
    memory.create(SECRETS.path(namespace="driverwright"), {"metadata": {"name": "given"}, "data": {key: "e30="}})
    wanted = replace(action(build_secrets=("given",)), registry=RegistrySettings())
    cancelled = Event()
    cancelled.set()
    expected = pytest.raises(BuildFailed, match="cancelled") if is_built else nullcontext()
    with (
        builder_choice.builder_for(
            wanted, settings("--builder=job", *IMAGES), client=cast(Client, memory), registries=Registries(memory)
        ) as builder,
        expected,
    ):
        assert isinstance(builder, JobBuilder)
        made = builder.toolchain(wanted.request, directory=tmp_path, log=lambda _line: None, cancelled=cancelled)
        assert made is None


def test_a_toolchain_that_finds_no_room_fails_no_driver(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its image is pushed already. What is said of the toolchain has no secrets."""

    def keep(*_arguments: object, **_named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/tmp/s3cret")

    monkeypatch.setattr(pipeline, "build_and_push", lambda *_arguments, **_named: "sha256:1")
    monkeypatch.setattr(toolchain_image, "keep_toolchain", keep)
    with own_disk():
        digest = builder_choice.make_image(
            action(),
            builder=cast(Builder, None),
            registries=Registries(client()),
            secrets=SigningSecrets(client()),
            log=lambda _line: None,
            is_kept=True,
            use_toolchain=True,
            keeps_toolchain=True,
            redact=lambda text: text.replace("s3cret", "***"),
        )
    assert digest == "sha256:1"
    said = capsys.readouterr().err
    assert "is not pushed: the controller's own disk is full" in said
    assert "s3cret" not in said
