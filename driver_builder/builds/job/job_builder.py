"""Builds driver images in Kubernetes Jobs, with buildah, on any node of the target's architecture.

Place in the flow: a :class:`~driver_builder.model.build.Builder`; the pipeline verifies the image.

Memory holds nothing that the cluster does not have: a Job is named by the build key, so a controller that
was killed finds it again and follows it (docs/decisions/0008-job-builder.md).
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event

from driver_builder.archives.bounded_tar import read_whole
from driver_builder.builds.build_limits import BuildLimits
from driver_builder.builds.job import job_manifest
from driver_builder.builds.job.job_cluster import JobCluster
from driver_builder.builds.job.job_manifest import DOCKER_CONFIG, JobSettings
from driver_builder.builds.job.job_run import PATIENCE, JobRun, Patience
from driver_builder.builds.job.upload import IMAGE, fetch_build
from driver_builder.builds.kernel_metadata import COMPILER, LIMITS, SYMVERS, fact, first_line, too_large
from driver_builder.errors import BuildFailed, DriverBuilderError, RegistryRefused
from driver_builder.model.build import BuildRequest, BuiltImage, LogSink
from driver_builder.planning.actions import StartBuild
from driver_builder.reasons import Reason
from driver_builder.registry.registry import RegistryClient
from driver_builder.templates.templates import Variant, build_context, render, templates_directory
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

    def build(self, request: BuildRequest, *, directory: Path, log: LogSink, cancelled: Event) -> BuiltImage:
        """Build in a Job and fetch the image as ``directory/image.tar``; see :class:`Builder`."""
        action = replace(self._action, request=request)
        cluster = JobCluster(self._client, action.namespace, pause=cancelled.wait)
        limits = BuildLimits(request.deadline_seconds, cancelled, self._clock)
        dockerfile = render(request, templates_directory(self._templates), Variant.JOB)
        context = build_context(request, dockerfile)
        manifest = job_manifest.job(action, self._settings, authfile=_authfile(action, cluster))
        job, was_there = cluster.ensure_job(manifest, limits)
        run = JobRun(cluster, job, log=log, limits=limits, patience=self._patience, clock=self._clock)
        try:
            uid = job["metadata"]["uid"]
            config_map = job_manifest.config_map(action, self._settings, context=context, uid=uid)
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
        facts = _facts(directory)
        return BuiltImage(
            archive=directory / IMAGE,
            module_symvers=fact(facts, SYMVERS),
            compiler=first_line(fact(facts, COMPILER)),
        )

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
