"""Asks a package repository for its kernels from a Job: the base image runs on a node, and no engine is needed.

The script is the one that an engine would run. Each kernel discovery creates a Job, reads its log and deletes it.
"""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from threading import Event
from typing import Any

from driver_builder.builds.build_limits import BuildLimits
from driver_builder.builds.build_output import BuildOutput
from driver_builder.builds.failures import classify
from driver_builder.builds.job.job_cluster import JobCluster
from driver_builder.builds.job.job_manifest import (
    BUILD_CONTAINER,
    BUILD_LABEL,
    FINGERPRINT_ANNOTATION,
    HAND_OVER_CONTAINER,
    job_spec,
    pod_base,
)
from driver_builder.builds.job.job_run import JobRun, Patience
from driver_builder.discovery.kernel_discovery import DEADLINE_SECONDS, ReleaseLines
from driver_builder.discovery.kernel_script import script_for
from driver_builder.errors import BuildFailed
from driver_builder.model.repositories import Repository
from kube_api.client import Client
from kube_api.resources import JOBS

Json = dict[str, Any]

PATIENCE = Patience(start=300.0)
"""Shorter than for a build: the repository is asked again later."""

CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID")
"""What package managers need to write their lists as root and to fetch them as another user."""


class JobKernelDiscovery:
    """Asks from Jobs in ``namespace``; ``pull_secret`` is for the base image, ``clock`` counts seconds.

    ``node_selector`` is added to the repository's architecture, ``tolerations`` are the pod's, ``host_network`` is for
    clusters without a pod network.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        *,
        pull_secret: str | None = None,
        node_selector: Mapping[str, str] | None = None,
        tolerations: Sequence[Json] = (),
        host_network: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._pull_secret = pull_secret
        self._node_selector = dict(node_selector or {})
        self._tolerations = tuple(tolerations)
        self._host_network = host_network
        self._clock = clock

    def discover(self, repository: Repository, *, cancelled: Event) -> tuple[str, ...]:
        """Run a Job and read the releases from its log, in order.

        Raises:
            BuildFailed: the repository, or the base image, cannot be reached; or it was cancelled.
            TemporaryError: the cluster is unavailable.
            ConfigurationError: such a repository cannot be asked.
        """
        cluster = JobCluster(self._client, self._namespace, pause=cancelled.wait)
        limits = BuildLimits(DEADLINE_SECONDS, cancelled, self._clock)
        job, _ = cluster.ensure_job(self._manifest(repository, cluster.server_minor(limits)), limits)
        lines = ReleaseLines()
        run = JobRun(
            cluster, job, log=lines.take, limits=limits, patience=PATIENCE, clock=self._clock, failure=_failure
        )
        try:
            run.follow_first()
        finally:
            cluster.delete(job)
        return lines.releases()

    def _manifest(self, repository: Repository, minor: int | None) -> Json:
        made = manifest(
            repository,
            self._namespace,
            pull_secret=self._pull_secret,
            node_selector=self._node_selector,
            tolerations=self._tolerations,
            host_network=self._host_network,
            minor=minor,
        )
        # A Job that an earlier controller left has another date: it is replaced.
        made["metadata"]["annotations"] = {FINGERPRINT_ANNOTATION: str(time.time_ns())}
        return made


def _failure(exit_code: int, output: BuildOutput) -> BuildFailed:
    """Make the error of a script that ended with ``exit_code``."""
    reason, message = classify(exit_code, "", tuple(output.lines))
    return BuildFailed(reason, message, log_tail=output.tail)


def manifest(
    repository: Repository,
    namespace: str,
    *,
    pull_secret: str | None = None,
    node_selector: Mapping[str, str] | None = None,
    tolerations: Sequence[Json] = (),
    host_network: bool = False,
    minor: int | None = None,
) -> Json:
    """Build the Job of a kernel discovery: its only container runs the script in the base image.

    ``minor`` is the API server's, as for a build.

    Raises:
        ConfigurationError: as :func:`~driver_builder.discovery.kernel_script.script_for`.
    """
    key = "look-up-" + hashlib.sha256(repr(repository).encode()).hexdigest()[:20]
    labels = {"app.kubernetes.io/managed-by": "driver-builder", BUILD_LABEL: key}
    script = script_for(repository)
    container: Json = {
        "image": repository.base_image,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
        "securityContext": {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": list(CAPABILITIES)},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    asking = {
        "name": BUILD_CONTAINER,
        "command": ["/bin/bash", "-c", script.text, script.name, *script.arguments],
    }
    base = pod_base(
        repository.architecture,
        node_selector=node_selector or {},
        tolerations=tolerations,
        host_network=host_network,
    )
    pod: Json = {
        **base,
        "initContainers": [{**container, **asking}],
        "containers": [{**container, "name": HAND_OVER_CONTAINER, "command": ["/bin/bash", "-c", ":"]}],
        **({"imagePullSecrets": [{"name": pull_secret}]} if pull_secret else {}),
    }
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"name": f"driver-{key}", "namespace": namespace, "labels": labels},
        "spec": job_spec({"metadata": {"labels": labels}, "spec": pod}, DEADLINE_SECONDS, minor),
    }
