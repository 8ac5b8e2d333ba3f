"""A build's Job in the cluster: made or found again, looked at, and taken away. The only writer of build Jobs.

An API server that does not answer is asked again for a while: the Job goes on without us.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from driver_builder.builds.build_limits import BuildLimits
from driver_builder.builds.job.job_log import PodLog
from driver_builder.builds.job.job_manifest import BUILD_CONTAINER, BUILD_LABEL, FINGERPRINT_ANNOTATION
from driver_builder.builds.job.job_state import JobState, Lost, job_state
from driver_builder.errors import BuildFailed, TemporaryError
from driver_builder.reasons import Reason
from driver_builder.references.named_objects import ReferenceNotFound, read_secret
from kube_api.client import Client
from kube_api.errors import Conflict, Invalid, KubeApiError, NotFound
from kube_api.resources import CONFIG_MAPS, JOBS, PODS

Json = dict[str, Any]
T = TypeVar("T")

TRIES = 60
"""How often the API server is asked before it counts as gone, a second apart and more."""


class JobCluster:
    """Build Jobs of one namespace. ``pause`` waits for the given seconds, or until the build is cancelled."""

    def __init__(self, client: Client, namespace: str, *, pause: Callable[[float], object]) -> None:
        self._client = client
        self._namespace = namespace
        self.pause = pause

    def secret_keys(self, name: str) -> tuple[str, ...]:
        """Name the keys of a build Secret, sorted.

        Raises:
            BuildFailed: when there is no such Secret.
            TemporaryError: when the API server does not say.
        """
        try:
            secret = read_secret(self._client, self._namespace, name, field="spec.build.secrets")
        except ReferenceNotFound as error:
            raise BuildFailed(Reason.SOURCE_MISSING, str(error)) from error
        except KubeApiError as error:
            raise TemporaryError(f"spec.build.secrets: Secret {name} cannot be read: {error}") from error
        return tuple(sorted(secret))

    def ensure_job(self, manifest: Json, limits: BuildLimits) -> tuple[Json, bool]:
        """Make the Job, or take the one that is there when it is to the letter the same; tells whether it was there.

        Raises:
            BuildFailed: the API server refuses it, or a limit was reached.
            TemporaryError: no answer, or another Job of that name that does not go away.
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
        """Give the Job that has the manifest's name where it is the same; one that is not is deleted."""
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
        """Make the ConfigMap of a Job; one that a Job before it left is replaced.

        Raises:
            BuildFailed: a limit was reached.
            TemporaryError: the API server does not make it.
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
        """Say how far a Job is.

        Raises:
            BuildFailed: a limit was reached while nobody answered.
            TemporaryError: when the API server does not answer for long.
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

        return self._patiently(ask, limits)

    def _patiently(self, ask: Callable[[], T], limits: BuildLimits) -> T:
        for _ in range(TRIES):
            try:
                return ask()
            except KubeApiError as error:
                if not error.is_temporary:
                    raise TemporaryError(f"cannot read the build's Job: {error}") from error
                last = error
            limits.check()
            self.pause(1.0)
        raise TemporaryError(f"cannot read the build's Job: {last}") from last

    def log_of(self, pod: str) -> PodLog:
        """Give the log of the container that builds."""
        return PodLog(self._client, namespace=self._namespace, pod=pod, container=BUILD_CONTAINER)

    def delete(self, job: Json) -> None:
        """Take a Job away, and with it its pods and its ConfigMap; nothing comes of it when that fails."""
        path = JOBS.path(namespace=self._namespace, name=job["metadata"]["name"])
        try:
            self._client.delete(path, uid=job["metadata"]["uid"])
        except KubeApiError:
            # It is found by its name the next time, and ends by its own deadline.
            return
