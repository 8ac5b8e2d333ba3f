"""Asks a package repository for its kernels from a Job: the base image runs on a node, and no engine is needed.

The script is the one that an engine would run. Each kernel discovery creates a Job, reads its log and deletes it.
"""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from driver_builder.api.build_settings import ConfigMapKey
from driver_builder.base.errors import BuildFailed
from driver_builder.builds.build_limits import BuildLimits
from driver_builder.builds.build_output import BuildOutput
from driver_builder.builds.build_references import proxy_password, read_build_ca
from driver_builder.builds.failures import classify
from driver_builder.builds.job.job_cluster import JobCluster
from driver_builder.builds.job.job_manifest import (
    BUILD_CONTAINER,
    BUILD_LABEL,
    CA_VOLUME,
    FINGERPRINT_ANNOTATION,
    HAND_OVER_CONTAINER,
    PROXY_MOUNT,
    ca_volumes,
    environment,
    job_script,
    job_spec,
    pod_base,
    proxy_volumes,
)
from driver_builder.builds.job.job_run import JobRun, Patience
from driver_builder.builds.templates.trust import CA_FILE, runner
from driver_builder.model import build_proxy
from driver_builder.model.build_proxy import BuildProxy
from driver_builder.model.repositories import Repository
from driver_builder.prebuild.kernel_discovery import DEADLINE_SECONDS, ReleaseLines
from driver_builder.prebuild.kernel_script import script_for
from kube_api.client import Client
from kube_api.resources import JOBS

Json = dict[str, Any]

PATIENCE = Patience(start=300.0)
"""Shorter than for a build: the repository is asked again later."""

CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID")
"""What package managers need to write their lists as root and to fetch them as another user."""

_CA_MOUNT: Json = {"name": CA_VOLUME, "mountPath": CA_FILE.rpartition("/")[0], "readOnly": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryPod:
    """What the pods of discoveries have: ``pull_secret`` is for the base image, ``proxy`` and ``ca`` as for builds.

    ``node_selector`` is added to the repository's architecture, ``host_network`` is for clusters without a pod network.
    """

    pull_secret: str | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Json] = ()
    host_network: bool = False
    proxy: BuildProxy | None = None
    ca: ConfigMapKey | None = None


class JobKernelDiscovery:
    """Asks from Jobs in ``namespace``; ``clock`` counts seconds."""

    def __init__(
        self, client: Client, namespace: str, pod: DiscoveryPod, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._pod = pod
        self._clock = clock

    def discover(self, repository: Repository, *, cancelled: Event) -> tuple[str, ...]:
        """Run a Job and read the releases from its log, in order.

        Raises:
            BuildFailed: the repository, or the base image, cannot be reached; it was cancelled; or the Secret of the
                proxy, or the ConfigMap with the CAs, cannot be used.
            TemporaryError: the cluster is unavailable.
            ConfigurationError: such a repository cannot be asked.
        """
        # A pod whose Secret or ConfigMap is missing would wait.
        proxy_password(self._namespace, self._pod.proxy, self._client)
        read_build_ca(self._client, self._namespace, self._pod.ca)
        cluster = JobCluster(self._client, self._namespace, pause=cancelled.wait)
        limits = BuildLimits(DEADLINE_SECONDS, cancelled, self._clock)
        wanted = manifest(repository, self._namespace, self._pod, minor=cluster.server_minor(limits))
        # A Job that an earlier controller left has another date: it is replaced.
        wanted["metadata"]["annotations"] = {FINGERPRINT_ANNOTATION: str(time.time_ns())}
        job, _ = cluster.ensure_job(wanted, limits)
        lines = ReleaseLines()
        run = JobRun(
            cluster, job, log=lines.take, limits=limits, patience=PATIENCE, clock=self._clock, failure=_failure
        )
        try:
            run.follow_first()
        finally:
            cluster.delete(job)
        return lines.releases()


def _failure(exit_code: int, output: BuildOutput) -> BuildFailed:
    """Make the error of a script that ended with ``exit_code``."""
    reason, message = classify(exit_code, "", tuple(output.lines))
    return BuildFailed(reason, message, log_tail=output.tail)


def manifest(repository: Repository, namespace: str, pod: DiscoveryPod, *, minor: int | None = None) -> Json:
    """Build the Job of a kernel discovery: its only container runs the script in the base image.

    ``minor`` is the API server's, as for a build.

    Raises:
        ConfigurationError: as :func:`~driver_builder.prebuild.kernel_script.script_for`.
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
    volumes = [*proxy_volumes(pod.proxy), *ca_volumes(pod.ca)]
    text = f"{job_script('proxy.sh')}\n{script.text}" if proxy_volumes(pod.proxy) else script.text
    command = ["/bin/bash", "-c", text, script.name, *script.arguments]
    asking: Json = {
        "name": BUILD_CONTAINER,
        "command": [*runner(), *command] if pod.ca else command,
        **({"env": environment(build_proxy.variables(pod.proxy))} if pod.proxy else {}),
    }
    mounts = [*([PROXY_MOUNT] if proxy_volumes(pod.proxy) else []), *([_CA_MOUNT] if pod.ca else [])]
    asking |= {"volumeMounts": mounts} if mounts else {}
    base = pod_base(
        repository.architecture,
        node_selector=pod.node_selector,
        tolerations=pod.tolerations,
        host_network=pod.host_network,
    )
    spec: Json = {
        **base,
        "initContainers": [{**container, **asking}],
        "containers": [{**container, "name": HAND_OVER_CONTAINER, "command": ["/bin/bash", "-c", ":"]}],
        **({"imagePullSecrets": [{"name": pod.pull_secret}]} if pod.pull_secret else {}),
        **({"volumes": volumes} if volumes else {}),
    }
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"name": f"driver-{key}", "namespace": namespace, "labels": labels},
        "spec": job_spec({"metadata": {"labels": labels}, "spec": spec}, DEADLINE_SECONDS, minor),
    }
