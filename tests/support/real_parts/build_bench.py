"""A controller's build queue on real parts: what fails here has the reason and the words that status would have.

Only the API server is missing: the registry's Secret comes from objects in memory.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import requests

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.builds.build_queue import BuildQueue
from driver_builder.builds.docker.docker_builder import DockerBuilder
from driver_builder.builds.docker.docker_engine import docker_engine
from driver_builder.builds.pipeline.pipeline import build_and_push
from driver_builder.builds.pipeline.toolchain_image import keep_toolchain
from driver_builder.model.build import BuildRequest, LogSink
from driver_builder.model.images import ImageRef
from driver_builder.nodes.changes import StartBuild
from driver_builder.registry.registry_access import Registries
from driver_builder.snapshot.snapshot import FailedBuild
from kube_api.resources import SECRETS
from tests.support.driver_builder.memory_client import MemoryClient
from tests.support.loopback import LOOPBACK

NAMESPACE = "driverwright"
SECRET = "registry-password"
PATIENCE = 900.0


class LeapingClock:
    """Counts seconds, and as many more as a test says: a deadline passes when its time has come, not the machine's."""

    def __init__(self) -> None:
        self._leapt = 0.0

    def __call__(self) -> float:
        """Return the seconds."""
        return time.monotonic() + self._leapt

    def leap(self, seconds: float) -> None:
        """Let so many seconds have passed."""
        self._leapt += seconds


class BuildBench:
    """Builds in ``engine`` by the templates of a folder (None: ours) and pushes to the registry ``host``.

    With ``toolchains`` it begins with those that the registry has, and pushes what is missing before a build ends.
    """

    def __init__(
        self, *, engine: str, host: str, repository: str, templates: Path | None, toolchains: bool = False
    ) -> None:
        self.log: list[str] = []
        self.clock = LeapingClock()
        self.when_waiting: Callable[[], None] | None = None
        """What happens when a build prints ``waiting``."""
        self.host = host
        self._engine = engine
        self._templates = templates
        self._toolchains = toolchains
        self._repository = repository
        self._secret: str | None = None
        self._client = MemoryClient()
        self._registries = Registries(self._client, plain_http_passwords=True, reach=LOOPBACK)
        self._ended = threading.Event()
        self._queue = BuildQueue(self._work, wake=self._ended.set)

    def __enter__(self) -> BuildBench:
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.stop()

    def set_password(self, password: str) -> None:
        """Write the Secret that the driver names from now on."""
        auth = base64.b64encode(f"builder:{password}".encode()).decode()
        config = json.dumps({"auths": {self.host: {"auth": auth}}}).encode()
        body = {"metadata": {"name": SECRET}, "data": {".dockerconfigjson": base64.b64encode(config).decode()}}
        self._client.apply(SECRETS.path(namespace=NAMESPACE, name=SECRET), body, field_manager="test")
        self._secret = SECRET

    def build(self, request: BuildRequest) -> FailedBuild | None:
        """Carry out a build to its end; returns how it failed."""
        action = StartBuild(
            namespace=NAMESPACE,
            request=request,
            image=ImageRef(self.host, self._repository, f"{request.version}-{request.key}"),
            registry=RegistrySettings(plain_http=True, secret=self._secret),
            waiting=1,
        )
        self._ended.clear()
        self._queue.submit(action)
        assert self._ended.wait(PATIENCE), "the build did not end"
        return self._queue.states().failed.get(request.key)

    def tags(self, *, auth: tuple[str, str] | None = None) -> list[str]:
        """Ask the registry which tags the repository has."""
        answer = requests.get(f"http://{self.host}/v2/{self._repository}/tags/list", auth=auth, timeout=30)
        assert answer.status_code in (200, 404), answer.text
        tags: Mapping[str, Any] = answer.json() if answer.status_code == 200 else {}
        return sorted(tags.get("tags") or [])

    def _work(self, action: StartBuild, log: LogSink, cancelled: threading.Event) -> str:
        def both(line: str) -> None:
            self.log.append(line)
            log(line)
            if self.when_waiting and line == "waiting":
                self.when_waiting()

        with docker_engine(self._engine) as api:
            known = self._registries.credentials(action.namespace, action.registry, action.image.host)
            builder = DockerBuilder(api, templates=self._templates, credentials=known, clock=self.clock)
            given: dict[str, Any] = {
                "builder": builder,
                "registries": self._registries,
                "log": both,
                "cancelled": cancelled,
            }
            digest = build_and_push(action, **given, use_toolchain=self._toolchains)
            if self._toolchains:
                keep_toolchain(action, **given)
            return digest
