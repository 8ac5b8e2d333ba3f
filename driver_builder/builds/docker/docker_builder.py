"""Builds driver images with a Docker Engine.

Place in the flow: a :class:`~driver_builder.model.build.Builder`; the pipeline verifies the image.

The engine's classic builder is used (Python has no BuildKit client), in two runs: one up to the stage ``build``, whose
image keeps a tag, and one to the end, which finds all of that in the cache. The tag keeps the cache: layers that only
dangling images use are removed by the next ``docker image prune``, and with them the kernel headers and the compiler
that every other driver for this kernel would have shared. Where containerd keeps the engine's images (as Docker Engine
29 does by default), a prune takes the steps of a tagged image all the same: there each step gets a tag of its own.
"""

import base64
import copy
import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import docker
import requests
from docker.errors import DockerException, NotFound
from docker.types import CancellableStream

from driver_builder.archives.image_files import MAX_IMAGE
from driver_builder.base.errors import BuildFailed, TemporaryError
from driver_builder.base.reasons import Reason
from driver_builder.builds.build_limits import BuildLimits
from driver_builder.builds.build_output import BuildOutput, plain
from driver_builder.builds.docker.docker_engine import engine_errors
from driver_builder.builds.failures import classify
from driver_builder.builds.kernel_metadata import (
    COMPILER,
    SYMVERS,
    fact,
    first_line,
    read_facts,
)
from driver_builder.builds.own_disk import own_disk
from driver_builder.builds.templates.templates import (
    BUILD_STAGE,
    FACTS_FOLDER,
    build_context,
    render,
    templates_directory,
)
from driver_builder.builds.templates.toolchain_stage import from_toolchain, toolchain_dockerfile
from driver_builder.builds.templates.trust import runner, trusting, variables
from driver_builder.model import defaults, engine_images
from driver_builder.model.build import BuildRequest, BuiltImage, LogSink
from driver_builder.model.images import DOCKER_HUB, ImageRef
from driver_builder.registry.credentials import Credentials

MAX_ARCHIVE = MAX_IMAGE + (64 << 20)
"""Bytes of a saved image: its layers and what is around them."""

_CONNECT_SECONDS = 10.0
_LOST_LAYER = re.compile(
    r"failed to get digest sha256:|No such image: sha256:|unknown parent image|layer does not exist"
)
"""What the engine prints when an image that the classic builder uses as cache goes with the end of another build."""
_CONTAINERD_STORE = ["driver-type", "io.containerd.snapshotter.v1"]
"""What an engine says in ``DriverStatus`` of ``GET /info`` when containerd keeps its images."""
_STEP, _STEP_DIGITS = "step", 32
_HUB_KEY = "https://index.docker.io/v1/"


class DockerBuilder:
    """Builds with the engine behind ``api``, whose own timeout bounds every request but the builds themselves.

    ``owner`` is the uid of the DriverContainer: what stays in the engine gets names that others cannot guess.
    ``templates`` is the folder of the templates (None: ours), ``credentials`` are by registry host, for the base and
    source images that the engine pulls; ``network`` is the engine's word for what a build reaches, ``proxy`` has the
    variables of a proxy, which the commands of a build see, ``ca`` certificates that they trust besides those of their
    images (PEM); ``clock`` counts seconds.
    """

    def __init__(
        self,
        api: docker.APIClient,
        *,
        owner: str = "",
        templates: Path | None = None,
        credentials: Mapping[str, Credentials] | None = None,
        network: str = defaults.BUILD_NETWORK,
        proxy: Mapping[str, str] | None = None,
        ca: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._owner = owner
        self._templates = templates
        self._credentials = dict(credentials or {})
        self._network = network
        # An engine knows these names: it writes them to no history, and they change nothing in its cache.
        arguments = {**(proxy or {}), **(variables(ca) if ca else {})}
        self._arguments = {"buildargs": json.dumps(arguments)} if arguments else {}
        self._has_ca = bool(ca)
        self._clock = clock
        self._toolchain: ImageRef | None = None

    def from_toolchain(self, image: ImageRef) -> "DockerBuilder":
        """Return a builder that begins with a toolchain, which the engine pulls; see :class:`ToolchainBuilder`."""
        other = copy.copy(self)
        other._toolchain = image
        return other

    def build(self, request: BuildRequest, *, directory: Path, log: LogSink, cancelled: Event) -> BuiltImage:
        """Build in the engine and save the image as ``directory/image.tar``; see :class:`Builder`."""
        context = build_context(request, self._dockerfile(request))
        limits = BuildLimits(request.deadline_seconds, cancelled, self._clock)
        names = _Names.of(request, self._owner)
        with self._replaced(names.cache):
            self._run(context, {"t": names.cache, "target": BUILD_STAGE}, log, limits)
        self._keep_steps(names.cache)
        with self._removed_after(names.image):
            # All but the last steps are in the cache now: they need not be logged again.
            self._run(context, {"t": names.image}, lambda _: None, limits)
            facts = self._read_facts(names.cache, names.container)
            archive = directory / "image.tar"
            self._save(names.image, archive, limits)
        return BuiltImage(
            archive=archive,
            module_symvers=fact(facts, SYMVERS),
            compiler=first_line(fact(facts, COMPILER)),
        )

    def toolchain(self, request: BuildRequest, *, directory: Path, log: LogSink, cancelled: Event) -> Path | None:
        """Save the stage of the kernel, which an earlier build has left in the cache; see :class:`ToolchainBuilder`."""
        dockerfile = toolchain_dockerfile(self._dockerfile(request))
        if dockerfile is None:
            return None
        limits = BuildLimits(request.deadline_seconds, cancelled, self._clock)
        names = _Names.of(request, self._owner)
        with self._replaced(names.headers):
            image_id = self._run(build_context(request, dockerfile), {"t": names.headers}, log, limits)
        archive = directory / "toolchain.tar"
        # Not by the name: another driver's build may have given it to another image since.
        self._save(image_id, archive, limits)
        return archive

    def run(self, context: bytes, *, name: str, log: LogSink, limits: BuildLimits) -> None:
        """Run a Dockerfile for what it prints: no output comes from the cache, no image is left.

        Raises:
            BuildFailed, TemporaryError: as :meth:`build`.
        """
        with self._removed_after(name):
            self._run(context, {"t": name, "nocache": "1"}, log, limits)

    def _dockerfile(self, request: BuildRequest) -> str:
        text = render(request, templates_directory(self._templates))
        text = from_toolchain(text, str(self._toolchain)) if self._toolchain else text
        return trusting(text) if self._has_ca else text

    def _run(self, context: bytes, parameters: Mapping[str, str], log: LogSink, limits: BuildLimits) -> str:
        """One run of the builder; returns the image's id.

        Raises:
            BuildFailed, TemporaryError: the latter when the engine went away.
        """
        output = self._attempt(context, parameters, log, limits)
        if _LOST_LAYER.search(output.error):
            log("the engine removed a layer that this build was taking from the cache: retrying")
            output = self._attempt(context, parameters, log, limits)
        if output.image_id is None:
            limits.check(output.tail)
        if output.image_id is None or output.error:
            raise _failure(output)
        return output.image_id

    def _attempt(self, context: bytes, parameters: Mapping[str, str], log: LogSink, limits: BuildLimits) -> BuildOutput:
        limits.check()
        output = BuildOutput()
        with engine_errors("building"), self._post_build(context, parameters, limits) as response:
            if response.status_code != 200:
                output.error = _message(response)
            else:
                self._follow(response, output, log, limits)
        output.error = self._shown(output.error)
        return output

    def _shown(self, text: str) -> str:
        """Leave out the script by which each command is run, in both forms in which an engine announces it."""
        if self._has_ca:
            text = text.replace(plain(f"{' '.join(runner())} "), "").replace(f"{json.dumps(runner())[1:-1]}, ", "")
        return text

    def _post_build(self, context: bytes, parameters: Mapping[str, str], limits: BuildLimits) -> requests.Response:
        """Start a build. Not with ``APIClient.build``: it hides the response, which cancelling needs."""
        always = {"networkmode": self._network, "rm": "1", "forcerm": "1", **self._arguments}
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
                    log(self._shown(line))
        for line in output.end():
            log(line)

    def _read_facts(self, image: str, container: str) -> dict[str, str]:
        """The files below /facts of a stage, from a container that is never started."""
        with engine_errors("reading the build's kernel metadata"):
            self._remove_container(container)
            self._api.create_container(image, command=["none"], name=container)
            try:
                chunks, _ = self._api.get_archive(container, FACTS_FOLDER)
                return read_facts(chunks)
            except NotFound:
                return {}
            finally:
                self._remove_container(container)

    def _remove_container(self, name: str) -> None:
        with suppress(NotFound):
            self._api.remove_container(name, force=True, v=True)

    def _save(self, image: str, archive: Path, limits: BuildLimits) -> None:
        left = MAX_ARCHIVE
        with own_disk(), archive.open("wb") as file:
            for chunk in self._saved(image):
                limits.check()
                left -= len(chunk)
                if left < 0:
                    raise BuildFailed(
                        Reason.DISK_FULL,
                        f"the image has more than {MAX_ARCHIVE} bytes; remove from the template what nodes do not need",
                    )
                file.write(chunk)

    def _saved(self, image: str) -> Iterator[bytes]:
        """Yield a saved image. What the reader fails at, such as a full disk of ours, is no error of the engine."""
        with engine_errors("saving the image"):
            yield from self._api.get_image(image)

    @contextmanager
    def _removed_after(self, image: str) -> Iterator[None]:
        """Remove an image's local name in every case: it is in the registry or is built again."""
        try:
            yield
        finally:
            # A failed clean-up must not hide the build's result; the next build uses the same name.
            with suppress(DockerException, requests.RequestException):
                self._api.remove_image(image)

    @contextmanager
    def _replaced(self, image: str) -> Iterator[None]:
        """After a new image has taken the name, remove the previous one, or each build would leave one behind."""
        before = self._image_id(image)
        yield
        if before and before != self._image_id(image):
            with suppress(DockerException, requests.RequestException):
                self._api.remove_image(before)

    def _keep_steps(self, image: str) -> None:
        """Tag the steps of an image, where a prune would take them; those of its predecessor lose their tags."""
        # Without its steps the next build takes longer, no more.
        with suppress(DockerException, requests.RequestException):
            if _CONTAINERD_STORE not in (self._api.info().get("DriverStatus") or ()):
                return
            repository, _, _ = image.rpartition(":")
            tags = {step: f"{_STEP}-{step.rpartition(':')[2][:_STEP_DIGITS]}" for step in self._steps(image)}
            for step, tag in tags.items():
                self._api.tag(step, repository, tag)
            kept = {image, *(f"{repository}:{tag}" for tag in tags.values())}
            found = self._api.images(name=repository)
            for old in sorted({tag for known in found for tag in known["RepoTags"] or ()} - kept):
                if old.startswith(f"{repository}:"):
                    self._api.remove_image(old)

    def _steps(self, image: str) -> Iterator[str]:
        """The ids of the images between an image of ours and the base image."""
        parent = self._api.inspect_image(image).get("Parent")
        while parent:
            step = self._api.inspect_image(parent)
            if not all(engine_images.is_reserved(tag) for tag in step.get("RepoTags") or ()):
                return
            yield parent
            parent = step.get("Parent")

    def _image_id(self, image: str) -> str | None:
        with engine_errors("looking for an earlier build"):
            try:
                return str(self._api.inspect_image(image)["Id"])
            except NotFound:
                return None


@dataclass(frozen=True, slots=True)
class _Names:
    """Names in the engine, the same for the same request, so that a killed build leaves nothing new.

    ``cache`` is for a driver and a kernel: a newer version of the driver replaces the older one's. ``headers`` is for a
    kernel and a base image, and shared by the drivers that use our templates. All others contain the owner's uid: with
    a name that can be guessed, one tenant could build from another's source.
    """

    cache: str
    headers: str
    image: str
    container: str

    @classmethod
    def of(cls, request: BuildRequest, owner: str) -> "_Names":
        key = _digits(request.key, owner)
        driver = _digits(request.driver, owner)
        own = (request.own_template.digest, owner) if request.own_template else ()
        place = _digits(request.template, request.base_image, *own)
        return cls(
            cache=f"{engine_images.CACHE}/{request.target.short_hash}-{driver}:latest",
            headers=f"{engine_images.HEADERS}/{request.target.short_hash}-{place}:latest",
            image=f"{engine_images.IMAGE}/{key}:latest",
            container=f"driverwright-facts-{key}",
        )


def _digits(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:32]


def _message(response: requests.Response) -> str:
    try:
        return str(response.json()["message"])
    except (ValueError, KeyError, TypeError):
        return f"{response.status_code} {response.text[:200]}"


def _failure(output: BuildOutput) -> BuildFailed | TemporaryError:
    if not output.error:
        return TemporaryError(
            "the build engine became unreachable during the build; the build is retried when the engine is back"
        )
    reason, message = classify(output.exit_code, output.error, output.lines)
    return BuildFailed(reason, message, log_tail=output.tail)
