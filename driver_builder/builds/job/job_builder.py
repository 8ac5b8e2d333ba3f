"""Builds driver images in Kubernetes Jobs, with buildah, on any node of the target's architecture.

Place in the flow: a :class:`~driver_builder.model.build.Builder`; the pipeline verifies the image.

Memory holds nothing that the cluster does not have: a Job is named by the build key, so a controller that
was killed finds it again and follows it (docs/decisions/0008-job-builder.md).
"""

import copy
import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event

from driver_builder.archives.bounded_tar import read_whole
from driver_builder.base.errors import BuildFailed, DriverBuilderError, RegistryRefused
from driver_builder.base.reasons import Reason
from driver_builder.builds.build_limits import BuildLimits
from driver_builder.builds.build_references import proxy_password, read_build_ca
from driver_builder.builds.job import job_manifest
from driver_builder.builds.job.job_cluster import JobCluster
from driver_builder.builds.job.job_manifest import DOCKER_CONFIG, JobSettings, JobTask
from driver_builder.builds.job.job_run import PATIENCE, JobRun, Patience
from driver_builder.builds.job.upload import IMAGE, fetch_build
from driver_builder.builds.kernel_metadata import COMPILER, LIMITS, SYMVERS, fact, first_line, too_large
from driver_builder.builds.templates.templates import Variant, build_context, render, templates_directory
from driver_builder.builds.templates.toolchain_stage import from_toolchain, toolchain_dockerfile
from driver_builder.builds.templates.trust import trusting
from driver_builder.model.build import BuildRequest, BuiltImage, LogSink, SourceFiles
from driver_builder.model.images import ImageRef
from driver_builder.model.toolchain import toolchain_image
from driver_builder.nodes.changes import StartBuild
from driver_builder.registry.registry import RegistryClient
from kube_api.client import Client


class JobBuilder:
    """Builds what ``action`` asks for; ``registry`` is the driver's own, through which the image comes back.

    ``templates`` is the folder of the templates (None: ours). While ``is_leaving`` gives true, a cancelled build is
    left to the next controller instead of being stopped. ``clock`` counts seconds.
    """

    def __init__(
        self,
        client: Client,
        action: StartBuild,
        *,
        settings: JobSettings,
        registry: RegistryClient,
        templates: Path | None = None,
        is_leaving: Callable[[], bool] = lambda: False,
        patience: Patience = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._action = action
        self._settings = settings
        self._registry = registry
        self._templates = templates
        self._is_leaving = is_leaving
        self._patience = patience
        self._clock = clock
        self._toolchain: ImageRef | None = None

    def from_toolchain(self, image: ImageRef) -> "JobBuilder":
        """Return a builder whose Jobs pull a toolchain and begin with it; see :class:`ToolchainBuilder`."""
        other = copy.copy(self)
        other._toolchain = image
        return other

    def build(self, request: BuildRequest, *, directory: Path, log: LogSink, cancelled: Event) -> BuiltImage:
        """Build in a Job and fetch the image as ``directory/image.tar``; see :class:`Builder`."""
        dockerfile = self._rendered(request)
        if self._toolchain is not None:
            dockerfile = from_toolchain(dockerfile, job_manifest.LOCAL_TOOLCHAIN)
        task = JobTask(key=request.key, toolchain=self._toolchain)
        self._run(request, task, dockerfile, directory=directory, log=log, cancelled=cancelled)
        facts = _facts(directory)
        return BuiltImage(
            archive=directory / IMAGE,
            module_symvers=fact(facts, SYMVERS),
            compiler=first_line(fact(facts, COMPILER)),
        )

    def toolchain(self, request: BuildRequest, *, directory: Path, log: LogSink, cancelled: Event) -> Path | None:
        """Build the stage of the kernel in a Job of its own, without any source; see :class:`ToolchainBuilder`.

        None as well for a build with Secrets: its packages may be installed with them, and what they are must not be
        pushed. What only pulls base images stays outside of images.
        """
        dockerfile, image = toolchain_dockerfile(self._rendered(request)), toolchain_image(request, self._action.image)
        if dockerfile is None or image is None or self._has_secrets(cancelled):
            return None
        without_source = replace(request, source=SourceFiles(files={}), depends=())
        # Drivers with another repository have another Job: it hands over to theirs.
        key = hashlib.sha256(str(image).encode()).hexdigest()[:20]
        task = JobTask(key=key, is_toolchain=True)
        self._run(without_source, task, dockerfile, directory=directory, log=log, cancelled=cancelled)
        return directory / IMAGE

    def _has_secrets(self, cancelled: Event) -> bool:
        cluster = JobCluster(self._client, self._action.namespace, pause=cancelled.wait)
        return any(cluster.secret_keys(name) != (DOCKER_CONFIG,) for name in self._action.build_secrets)

    def _rendered(self, request: BuildRequest) -> str:
        return render(request, templates_directory(self._templates), Variant.JOB)

    def _run(
        self,
        request: BuildRequest,
        task: JobTask,
        dockerfile: str,
        *,
        directory: Path,
        log: LogSink,
        cancelled: Event,
    ) -> None:
        """Run the Job of a task, and fetch what it made into ``directory``."""
        action = replace(self._action, request=request)
        cluster = JobCluster(self._client, action.namespace, pause=cancelled.wait)
        limits = BuildLimits(request.deadline_seconds, cancelled, self._clock)
        context = build_context(request, trusting(dockerfile) if action.ca_config_map else dockerfile)
        # A pod whose Secret or ConfigMap is missing would wait; what is in them is mounted there.
        proxy_password(action.namespace, action.proxy, self._client)
        read_build_ca(self._client, action.namespace, action.ca_config_map)
        authfile, minor = _authfile(action, cluster), cluster.server_minor(limits)
        manifest = job_manifest.job(action, self._settings, authfile=authfile, task=task, minor=minor)
        job, was_there = cluster.ensure_job(manifest, limits)
        run = JobRun(cluster, job, log=log, limits=limits, patience=self._patience, clock=self._clock)
        try:
            uid = job["metadata"]["uid"]
            config_map = job_manifest.config_map(action, self._settings, context=context, uid=uid, key=task.key)
            cluster.ensure_config_map(config_map, limits)
            name = f"Job {action.namespace}/{job['metadata']['name']}"
            log(f"following {name}, started by an earlier controller" if was_there else f"building in {name}")
            digest = run.follow()
            fetch_build(self._registry, action.image.repository, digest, directory)
        except DriverBuilderError as error:
            if run.is_spent or self._is_final(error):
                cluster.delete(job)
            raise
        cluster.delete(job)

    def _is_final(self, error: DriverBuilderError) -> bool:
        """Whether following the same Job again could have no other result."""
        if isinstance(error, BuildFailed) and error.reason is Reason.CANCELLED:
            return not self._is_leaving()
        return isinstance(error, BuildFailed | RegistryRefused)


def _authfile(action: StartBuild, cluster: JobCluster) -> str | None:
    """Where buildah finds its pull credentials: in the first build Secret that holds a Docker config."""
    keys = {name: cluster.secret_keys(name) for name in action.build_secrets}
    holder = next((name for name in action.build_secrets if DOCKER_CONFIG in keys[name]), None)
    return f"{job_manifest.secret_folder(holder)}/{DOCKER_CONFIG}" if holder is not None else None


def _facts(directory: Path) -> dict[str, str]:
    """The kernel metadata that exists, by file name."""
    found = {}
    for name in (SYMVERS, COMPILER):
        with suppress(FileNotFoundError), (directory / name).open("rb") as file:
            content = read_whole(file, LIMITS[name])
            if content is None:
                raise too_large(name)
            found[name] = content.decode(errors="replace")
    return found
