"""An engine that loses a layer of its cache to another build: a race that a real one cannot be made to run."""

import io
import json
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from urllib.parse import parse_qs

import docker
import pytest

from driver_builder.base.errors import BuildFailed, TemporaryError
from driver_builder.base.reasons import Reason
from driver_builder.builds.build_limits import BuildLimits
from driver_builder.builds.docker.docker_builder import DockerBuilder
from driver_builder.builds.templates.trust import runner, trusting
from driver_builder.model import engine_images
from driver_builder.model.build import BuildRequest
from tests.support.driver_builder.factories import node, snapshot
from tests.support.driver_builder.plans import request_of
from tests.support.driver_builder.scripted_registry import Reply, Request, scripted_registry

LOST = {"error": "failed to get digest sha256:01: open /image/overlay2/content/sha256/01: no such file or directory"}
BUILT = {"aux": {"ID": "sha256:4567"}}
BROKEN = {"error": "The command 'make' returned a non-zero code: 65", "errorDetail": {"code": 65}}


@contextmanager
def engine(
    *builds: object, network: str = "host", proxy: Mapping[str, str] | None = None, ca: str = ""
) -> Iterator[tuple[DockerBuilder, list[Request]]]:
    """A builder whose engine's builds end like this, one after the other; returns what the engine was asked, too."""
    left = list(builds)

    def script(request: Request) -> Reply:
        return Reply(body=json.dumps(left.pop(0) if request.path.endswith("/build") else {"Id": "sha256:1"}).encode())

    with (
        scripted_registry(script) as server,
        closing(docker.APIClient(f"tcp://{server.host}", version="1.41")) as api,
    ):
        yield DockerBuilder(api, network=network, proxy=proxy, ca=ca), server.requests


def names_of(request: BuildRequest, owner: str) -> set[str]:
    """The names that a build leaves images under, by what the engine is asked for."""

    def script(asked: Request) -> Reply:
        if asked.path.endswith("/build"):
            return Reply(body=json.dumps(BUILT).encode())
        return Reply(status=404, body=b'{"message": "No such image"}')

    with (
        scripted_registry(script) as server,
        closing(docker.APIClient(f"tcp://{server.host}", version="1.41")) as api,
        TemporaryDirectory() as folder,
        suppress(BuildFailed, TemporaryError),
    ):
        DockerBuilder(api, owner=owner).build(request, directory=Path(folder), log=lambda _: None, cancelled=Event())
    built = [parse_qs(asked.query)["t"][0] for asked in server.requests if asked.path.endswith("/build")]
    return {name for name in built if not name.startswith(engine_images.HEADERS)}


def run(builder: DockerBuilder) -> list[str]:
    """Run a context; returns what was logged."""
    log: list[str] = []
    limits = BuildLimits(60.0, Event(), time.monotonic)
    builder.run(b"context", name="test/image:latest", log=log.append, limits=limits)
    return log


def test_a_build_that_lost_a_layer_is_run_once_more() -> None:
    """With the same context and parameters, and a word in the log."""
    with engine(LOST, BUILT) as (builder, requests):
        log = run(builder)
    first, second = [request for request in requests if request.path.endswith("/build")]
    assert (first.query, first.body) == (second.query, second.body)
    assert log == ["the engine removed a layer that this build was taking from the cache: retrying"]


def test_a_proxy_is_given_to_the_commands_of_a_build() -> None:
    """By arguments that an engine knows, and writes to no history; without a proxy nothing is given."""
    with engine(BUILT, BUILT, proxy={"http_proxy": "http://p:1"}) as (builder, requests):
        run(builder)
    with engine(BUILT) as (builder, others):
        run(builder)
    (build,), (other,) = ([one for one in asked if one.path.endswith("/build")] for asked in (requests, others))
    assert json.loads(parse_qs(build.query)["buildargs"][0]) == {"http_proxy": "http://p:1"}
    assert "buildargs" not in parse_qs(other.query)


def dockerfile_of(request: Request) -> str:
    """Return the Dockerfile that an engine was given."""
    with tarfile.open(fileobj=io.BytesIO(request.body)) as context:
        file = context.extractfile("Dockerfile")
        assert file is not None
        return file.read().decode()


def test_certificates_are_given_beside_a_build(tmp_path: Path) -> None:
    """By arguments that an engine knows, and not in the Dockerfile, which is as before but for what runs commands."""
    request, pem = request_of(snapshot(node())), "-----BEGIN CERTIFICATE-----\nTUlJ\n-----END CERTIFICATE-----"
    asked = []
    for ca in ("", pem):
        with engine(BROKEN, proxy={"http_proxy": "http://p:1"}, ca=ca) as (builder, requests), suppress(BuildFailed):
            builder.build(request, directory=tmp_path, log=lambda _: None, cancelled=Event())
        asked += [one for one in requests if one.path.endswith("/build")]
    without, build = asked
    assert json.loads(parse_qs(build.query)["buildargs"][0]) == {
        "http_proxy": "http://p:1", "FTP_PROXY": pem, "ftp_proxy": "",
    }  # fmt: skip
    assert "TUlJ" not in dockerfile_of(build)
    assert dockerfile_of(build) == trusting(dockerfile_of(without)) != dockerfile_of(without)


def test_what_runs_commands_is_not_in_log_and_message() -> None:
    """They are those of the template, with and without a CA."""
    announced = f"Step 2/9 : SHELL {json.dumps([*runner(), '/bin/bash', '-c'])}\n"
    failed = {"error": f"The command '{' '.join(runner())} /bin/bash -c false' returned a non-zero code: 1"}
    lines: list[str] = []

    def script(asked: Request) -> Reply:
        items = [{"stream": announced}, {**failed, "errorDetail": {"code": 1}}]
        return Reply(body="\n".join(map(json.dumps, items)).encode() if asked.path.endswith("/build") else b"{}")

    with (
        scripted_registry(script) as server,
        closing(docker.APIClient(f"tcp://{server.host}", version="1.41")) as api,
        pytest.raises(BuildFailed, match="The command '/bin/bash -c false' returned"),
    ):
        DockerBuilder(api, ca="-").run(
            b"", name="test/image:latest", log=lines.append, limits=BuildLimits(60.0, Event(), time.monotonic)
        )
    assert lines == ['Step 2/9 : SHELL ["/bin/bash", "-c"]']


@pytest.mark.parametrize("network", ["host", "none"])
def test_a_build_has_the_network_of_the_setting(network: str) -> None:
    """By the engine's own word for it."""
    with engine(BUILT, network=network) as (builder, requests):
        run(builder)
    (build,) = [request for request in requests if request.path.endswith("/build")]
    assert parse_qs(build.query)["networkmode"] == [network]


@pytest.mark.parametrize(
    ("builds", "reason"),
    [
        pytest.param((LOST, BROKEN), Reason.COMPILE_ERROR, id="the second one fails by itself"),
        pytest.param((LOST, LOST), Reason.BUILD_ERROR, id="it is lost again"),
        pytest.param((BROKEN,), Reason.COMPILE_ERROR, id="another failure is not tried again"),
    ],
)
def test_how_it_ends_is_reported_by_the_last_run(builds: tuple[object, ...], reason: Reason) -> None:
    """There are two at most."""
    with engine(*builds) as (builder, _), pytest.raises(BuildFailed) as caught:
        run(builder)
    assert caught.value.reason is reason


def test_a_full_disk_of_our_own_is_not_the_engines(tmp_path: Path) -> None:
    """The image that the engine saves has no room here: the message names the disk that needs more."""
    (tmp_path / "image.tar").symlink_to("/dev/full")
    request = request_of(snapshot(node()))

    def script(asked: Request) -> Reply:
        if asked.path.endswith("/build"):
            return Reply(body=json.dumps(BUILT).encode())
        if asked.path.endswith("/archive"):
            return Reply(status=404, body=b'{"message": "No such file"}')
        return Reply(body=b'{"Id": "sha256:1"}')

    with (
        scripted_registry(script) as server,
        closing(docker.APIClient(f"tcp://{server.host}", version="1.41")) as api,
        pytest.raises(BuildFailed, match="the controller's own disk is full") as caught,
    ):
        DockerBuilder(api).build(request, directory=tmp_path, log=lambda _: None, cancelled=Event())
    assert caught.value.reason is Reason.DISK_FULL


def test_a_toolchain_is_saved_by_what_was_built(tmp_path: Path) -> None:
    """Its name is that of other drivers' headers too, and theirs may have taken it since."""
    with engine(BUILT) as (builder, requests):
        builder.toolchain(request_of(snapshot(node())), directory=tmp_path, log=lambda _: None, cancelled=Event())
    saved = [request for request in requests if request.path.endswith("/get")]
    assert [request.path.split("/images/")[1] for request in saved] == [f"{BUILT['aux']['ID']}/get"]


def test_what_stays_in_the_engine_cannot_be_named_by_others() -> None:
    """All that a build leaves there is named after the uid of its DriverContainer, and no spec may name it."""
    request = request_of(snapshot(node()))
    one, two = names_of(request, "uid-1"), names_of(request, "uid-2")
    assert one == names_of(request, "uid-1")
    assert len(one) == 2
    assert not one & two
    assert all(engine_images.is_reserved(name) for name in one)


@pytest.mark.parametrize(
    ("name", "is_reserved"),
    [
        ("driverwright-cache/a:latest", True),
        ("docker.io/driverwright-cache/a", True),
        ("index.docker.io/driverwright-headers/a@sha256:0", True),
        ("docker.io/index.docker.io/driverwright-build/a", True),
        ("driverwright-lookup", True),
        ("registry.example.com/driverwright-cache/a", False),
        ("debian:bookworm-slim", False),
        ("driverwright-cache-of-ours/a", False),
    ],
)
def test_names_of_ours_are_known_however_they_are_written(name: str, is_reserved: bool) -> None:
    """An engine leaves its default host out."""
    assert engine_images.is_reserved(name) is is_reserved
