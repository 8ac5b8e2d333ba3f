"""Builds driver images with a Docker Engine.

Place in the flow: a :class:`~driver_builder.build.Builder`; the pipeline hands it a request and verifies what is left.

The engine's classic builder is used (no BuildKit client exists for Python), in two runs: one up to the stage ``build``,
whose image keeps a tag, and one to the end, which finds all of that in the cache. The tag is what keeps the cache:
layers that only dangling images use go with the next ``docker image prune``, and with them the kernel headers and the
compiler that every other driver for this kernel would have shared.
"""

import base64
import hashlib
import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import docker
import requests
import urllib3
from docker.errors import APIError, DockerException, NotFound
from docker.types import CancellableStream

from driver_builder.build import BuildRequest, BuiltImage, LogSink
from driver_builder.build_limits import BuildLimits
from driver_builder.build_output import BuildOutput
from driver_builder.credentials import DOCKER_HUB, Credentials
from driver_builder.errors import BuildFailed, BuildFailure, TemporaryError
from driver_builder.failures import classify
from driver_builder.templates import BUILD_STAGE, FACTS_FOLDER, build_context, templates_directory

_CONNECT_SECONDS = 10.0
_HUB_KEY = "https://index.docker.io/v1/"


@contextmanager
def docker_engine(address: str, *, timeout: int = 120) -> Iterator[docker.APIClient]:
    """A client of the engine at ``address`` (``unix:///var/run/docker.sock``), closed at the end of the block.

    Raises:
        TemporaryError: when the engine does not answer.
    """
    with _engine_errors(f"connecting to {address}"):
        api = docker.APIClient(base_url=address, version="auto", timeout=timeout)
    try:
        yield api
    finally:
        api.close()


class DockerBuilder:
    """Builds with the engine behind ``api``, whose own timeout bounds every request but the builds themselves.

    ``templates`` is the folder of the templates (None: ours), ``credentials`` are by registry host, for the base and
    source images that the engine pulls; ``clock`` counts seconds.
    """

    def __init__(
        self,
        api: docker.APIClient,
        *,
        templates: Path | None = None,
        credentials: Mapping[str, Credentials] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._templates = templates
        self._credentials = dict(credentials or {})
        self._clock = clock

    def build(self, request: BuildRequest, *, directory: Path, log: LogSink, cancelled: Event) -> BuiltImage:
        """Build in the engine and save the image as ``directory/image.tar``; see :class:`Builder`."""
        context = build_context(request, templates_directory(self._templates))
        limits = BuildLimits(request.deadline_seconds, cancelled, self._clock)
        names = _Names.of(request)
        with self._replaced(names.cache):
            self._run(context, {"t": names.cache, "target": BUILD_STAGE}, log, limits)
        with self._removed_after(names.image):
            # All but the last steps are in the cache now: they need not be told a second time.
            self._run(context, {"t": names.image}, lambda _: None, limits)
            facts = self._read_facts(names)
            archive = directory / "image.tar"
            self._save(names.image, archive, limits)
        return BuiltImage(
            archive=archive,
            module_symvers=_fact(facts, "Module.symvers"),
            compiler=_fact(facts, "compiler").partition("\n")[0].strip(),
        )

    def _run(self, context: bytes, parameters: Mapping[str, str], log: LogSink, limits: BuildLimits) -> None:
        """One run of the builder. Raises BuildFailed, or TemporaryError when the engine went away."""
        limits.check()
        output = BuildOutput()
        with _engine_errors("building"), self._post_build(context, parameters, limits) as response:
            if response.status_code != 200:
                output.error = _message(response)
            else:
                self._follow(response, output, log, limits)
        if output.image_id is None:
            limits.check(output.tail)
        if output.image_id is None or output.error:
            raise _failure(output)

    def _post_build(self, context: bytes, parameters: Mapping[str, str], limits: BuildLimits) -> requests.Response:
        """Start a build. Not by ``APIClient.build``: it hides the response, without which nothing can be cancelled."""
        always = {"networkmode": "host", "rm": "1", "forcerm": "1"}
        return self._api.post(
            f"{self._api.base_url}/v{self._api.api_version}/build",
            params={**always, **parameters},
            data=context,
            headers={"Content-Type": "application/x-tar", "X-Registry-Config": self._registry_config()},
            stream=True,
            timeout=(_CONNECT_SECONDS, limits.left()),
        )

    def _registry_config(self) -> str:
        entries = {
            _HUB_KEY if host == DOCKER_HUB else host: {
                "username": known.username,
                "password": known.password,
                "identitytoken": known.identity_token,
            }
            for host, known in self._credentials.items()
        }
        return base64.urlsafe_b64encode(json.dumps(entries).encode()).decode()

    def _follow(self, response: requests.Response, output: BuildOutput, log: LogSink, limits: BuildLimits) -> None:
        stream = CancellableStream((json.loads(line) for line in response.iter_lines() if line), response)
        with limits.closing(stream):
            for item in stream:
                for line in output.take(item):
                    log(line)
        for line in output.end():
            log(line)

    def _read_facts(self, names: "_Names") -> dict[str, bytes]:
        """The files below /facts of the build stage, out of a container that is never started."""
        with _engine_errors("reading the facts of the build"):
            self._remove_container(names.container)
            self._api.create_container(names.cache, command=["none"], name=names.container)
            try:
                chunks, _ = self._api.get_archive(names.container, FACTS_FOLDER)
                return _files(b"".join(chunks))
            except NotFound:
                return {}
            finally:
                self._remove_container(names.container)

    def _remove_container(self, name: str) -> None:
        with suppress(NotFound):
            self._api.remove_container(name, force=True, v=True)

    def _save(self, image: str, archive: Path, limits: BuildLimits) -> None:
        with _engine_errors("saving the image"), archive.open("wb") as file:
            for chunk in self._api.get_image(image):
                limits.check()
                file.write(chunk)

    @contextmanager
    def _removed_after(self, image: str) -> Iterator[None]:
        """Remove an image's local name, whatever happens: it lies in the registry or is built again."""
        try:
            yield
        finally:
            # A failure to tidy up must not hide how the build went; the name is the same the next time.
            with suppress(DockerException, requests.RequestException):
                self._api.remove_image(image)

    @contextmanager
    def _replaced(self, image: str) -> Iterator[None]:
        """After a new image has taken the name, remove the one that had it, or each build would leave one behind."""
        before = self._image_id(image)
        yield
        if before and before != self._image_id(image):
            with suppress(DockerException, requests.RequestException):
                self._api.remove_image(before)

    def _image_id(self, image: str) -> str | None:
        with _engine_errors("looking for an earlier build"):
            try:
                return str(self._api.inspect_image(image)["Id"])
            except NotFound:
                return None


@dataclass(frozen=True, slots=True)
class _Names:
    """Names in the engine, the same whenever the same request is built: a build that was killed leaves nothing new.

    ``cache`` is for a driver and a kernel, so that a newer version of the driver takes the older one's place.
    """

    cache: str
    image: str
    container: str

    @classmethod
    def of(cls, request: BuildRequest) -> "_Names":
        key = hashlib.sha256(request.key.encode()).hexdigest()[:32]
        driver = hashlib.sha256(request.driver.encode()).hexdigest()[:8]
        return cls(
            cache=f"driverwright-cache/{request.target.short_hash}-{driver}:latest",
            image=f"driverwright-build/{key}:latest",
            container=f"driverwright-facts-{key}",
        )


@contextmanager
def _engine_errors(doing: str) -> Iterator[None]:
    """Turn what the engine's client and the local disk raise into our own errors."""
    try:
        yield
    except (
        DockerException,
        requests.RequestException,
        urllib3.exceptions.HTTPError,
        OSError,
        ValueError,
        tarfile.TarError,
    ) as error:
        reason, message = classify(None, str(error), ())
        if reason is BuildFailure.DISK_FULL:
            raise BuildFailed(reason, f"{message} (while {doing})") from error
        raise TemporaryError(f"the build engine failed while {doing}: {_words(error)}") from error


def _words(error: Exception) -> str:
    return error.explanation if isinstance(error, APIError) and error.explanation else str(error)


def _message(response: requests.Response) -> str:
    try:
        return str(response.json()["message"])
    except (ValueError, KeyError, TypeError):
        return f"{response.status_code} {response.text[:200]}"


def _failure(output: BuildOutput) -> BuildFailed | TemporaryError:
    if not output.error:
        return TemporaryError("the build engine went away in the middle of a build; it is built again when it is back")
    reason, message = classify(output.exit_code, output.error, output.lines)
    return BuildFailed(reason, message, log_tail=output.tail)


def _files(content: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return {Path(member.name).name: _read(tar, member) for member in tar if member.isfile()}


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    return file.read() if file else b""


def _fact(facts: Mapping[str, Any], name: str) -> str:
    if name not in facts:
        raise BuildFailed(
            BuildFailure.TEMPLATE_INVALID,
            f"the template's build stage left no file {FACTS_FOLDER}/{name}; copy it there",
        )
    return str(facts[name].decode(errors="replace"))
