"""A build's Job in the cluster: created or found again, read, and deleted. The only writer of build Jobs.

If the API server does not answer, requests are repeated for a while: the Job goes on without us.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from driver_builder.base.errors import BuildFailed, TemporaryError
from driver_builder.base.reasons import Reason
from driver_builder.builds.build_limits import BuildLimits
from driver_builder.builds.build_references import build_secret
from driver_builder.builds.job.job_log import PodLog
from driver_builder.builds.job.job_manifest import BUILD_CONTAINER, BUILD_LABEL, FINGERPRINT_ANNOTATION
from driver_builder.builds.job.job_state import JobState, Lost, job_state
from driver_builder.model.server_version import minor_of
from kube_api.client import Client
from kube_api.errors import Conflict, Forbidden, Invalid, KubeApiError, NotFound
from kube_api.resources import CONFIG_MAPS, JOBS, PODS

Json = dict[str, Any]
T = TypeVar("T")

TRIES = 60
"""Attempts before the API server counts as unavailable, a second or more apart."""


class JobCluster:
    """Build Jobs of one namespace. ``pause`` waits for the given seconds, or until the build is cancelled."""

    def __init__(self, client: Client, namespace: str, *, pause: Callable[[float], object]) -> None:
        self._client = client
        self._namespace = namespace
        self.pause = pause

    def secret_keys(self, name: str) -> tuple[str, ...]:
        """Return the keys of a build Secret, sorted.

        Raises:
            BuildFailed, TemporaryError: as :func:`build_secret`.
        """
        return tuple(sorted(build_secret(self._client, self._namespace, name)))

    def server_minor(self, limits: BuildLimits) -> int | None:
        """Return the minor version of the API server; None if it does not say.

        Raises:
            BuildFailed: a limit was reached while it did not answer.
            TemporaryError: it does not answer for a long time.
        """

        def ask() -> int | None:
            try:
                return minor_of(self._client.get("/version"))
            except (Forbidden, NotFound):
                return None

        return self._patiently(ask, limits, "the version of the API server")

    def ensure_job(self, manifest: Json, limits: BuildLimits) -> tuple[Json, bool]:
        """Create the Job, or take the existing one if it is exactly the same; returns whether it existed.

        Raises:
            BuildFailed: the API server refuses it, or a limit was reached.
            TemporaryError: no answer, or another Job of that name is not deleted in time.
        """
        path = JOBS.path(namespace=self._namespace)
        name = manifest["metadata"]["name"]
        for _ in range(TRIES):
            limits.check()
            try:
                return self._client.create(path, manifest), False
            except Conflict:
                found = self._same_or_deleted(manifest)
            except Invalid as error:
                raise BuildFailed(
                    Reason.BUILD_ERROR,
                    f"the build's Job was rejected: {error}; check spec.build.resources and spec.tolerations",
                ) from error
            except KubeApiError as error:
                raise TemporaryError(f"cannot create the build's Job: {error}") from error
            if found is not None:
                return found, True
            self.pause(1.0)
        raise TemporaryError(f"Job {self._namespace}/{name} belongs to another build and is not deleted: delete it")

    def _same_or_deleted(self, manifest: Json) -> Json | None:
        """Return the Job with the manifest's name if it is the same; another one is deleted."""
        path = JOBS.path(namespace=self._namespace, name=manifest["metadata"]["name"])
        try:
            found = self._client.get(path)
            metadata = found["metadata"]
            if "deletionTimestamp" in metadata:
                return None
            wanted = manifest["metadata"]["annotations"][FINGERPRINT_ANNOTATION]
            if (metadata.get("annotations") or {}).get(FINGERPRINT_ANNOTATION) == wanted:
                return found
            self._client.delete(path, uid=metadata["uid"])
        except (NotFound, Conflict):
            return None
        except KubeApiError as error:
            raise TemporaryError(f"cannot read the build's Job: {error}") from error
        return None

    def ensure_config_map(self, manifest: Json, limits: BuildLimits) -> None:
        """Create the ConfigMap of a Job; that of an earlier Job is replaced.

        Raises:
            BuildFailed: a limit was reached.
            TemporaryError: the API server does not create it.
        """
        collection = CONFIG_MAPS.path(namespace=self._namespace)
        path = CONFIG_MAPS.path(namespace=self._namespace, name=manifest["metadata"]["name"])
        for _ in range(TRIES):
            limits.check()
            try:
                try:
                    self._client.create(collection, manifest)
                except Conflict:
                    metadata = self._client.get(path)["metadata"]
                    if metadata.get("ownerReferences") != manifest["metadata"]["ownerReferences"]:
                        self._client.delete(path, uid=metadata["uid"])
                        raise
            except (Conflict, NotFound):
                self.pause(0.2)
                continue
            except KubeApiError as error:
                raise TemporaryError(f"cannot create the build's ConfigMap: {error}") from error
            return
        raise TemporaryError(f"ConfigMap {path} belongs to another build and is not deleted: delete it")

    def look(self, job: Json, limits: BuildLimits) -> JobState:
        """Return the state of a Job.

        Raises:
            BuildFailed: a limit was reached while the API server did not answer.
            TemporaryError: the API server does not answer for a long time.
        """
        metadata = job["metadata"]
        path = JOBS.path(namespace=self._namespace, name=metadata["name"])
        selector = f"{BUILD_LABEL}={metadata['labels'][BUILD_LABEL]}"

        def ask() -> JobState:
            try:
                now = self._client.get(path)
            except NotFound:
                return Lost(why=f"Job {metadata['name']} was deleted")
            if now["metadata"]["uid"] != metadata["uid"]:
                return Lost(why=f"Job {metadata['name']} was replaced")
            pods = self._client.list(PODS.path(namespace=self._namespace), label_selector=selector).items
            return job_state(now, pods)

        return self._patiently(ask, limits, "the build's Job")

    def _patiently(self, ask: Callable[[], T], limits: BuildLimits, what: str) -> T:
        for _ in range(TRIES):
            try:
                return ask()
            except KubeApiError as error:
                if not error.is_temporary:
                    raise TemporaryError(f"cannot read {what}: {error}") from error
                last = error
            limits.check()
            self.pause(1.0)
        raise TemporaryError(f"cannot read {what}: {last}") from last

    def log_of(self, pod: str) -> PodLog:
        """Return the log of the container that builds."""
        return PodLog(self._client, namespace=self._namespace, pod=pod, container=BUILD_CONTAINER)

    def delete(self, job: Json) -> None:
        """Delete a Job, and with it its pods and its ConfigMap; a failure is ignored."""
        path = JOBS.path(namespace=self._namespace, name=job["metadata"]["name"])
        try:
            self._client.delete(path, uid=job["metadata"]["uid"])
        except KubeApiError:
            # It is found by its name the next time, and its own deadline ends it.
            return
