"""The state of a build Job, from the Job and its pods as the API server returns them. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driver_builder.builds.failures import KILLED
from driver_builder.builds.job.job_manifest import BUILD_CONTAINER, HAND_OVER_CONTAINER, TOOLCHAIN_CONTAINER

Json = Mapping[str, Any]

_HOPELESS = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
"""Reasons of a waiting container that seldom resolve themselves."""

NO_TOOLCHAIN = 125
"""The exit code of a build that could not begin, as buildah's own: without a command that failed."""

_SIGNALS = frozenset({KILLED, 143})
"""Exit codes of a container that SIGKILL or SIGTERM ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The build or the second container has not started yet; ``why`` in Kubernetes' own words, if there are any."""

    why: str = ""
    is_hopeless: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Building:
    """The container ``build`` of ``pod`` runs or gets its toolchain, or was killed because somebody deleted the pod."""

    pod: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HandingOver:
    """The container ``build`` has succeeded, the next one runs, or was killed because somebody deleted the pod."""

    pod: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotBuilt:
    """The container ``build`` failed, or the one before it that gets its toolchain."""

    pod: str
    exit_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """All containers ended; ``digest`` is what was uploaded, None if that failed, and ``why`` says so."""

    pod: str
    digest: str | None
    why: str = ""
    is_refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut:
    """The Job's deadline passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The pod disappeared: evicted, deleted, or gone with its node. ``is_full``: it wrote too much."""

    why: str
    is_full: bool = False


JobState = Waiting | Building | HandingOver | NotBuilt | HandedOver | TimedOut | Lost


def job_state(job: Json, pods: Sequence[Json]) -> JobState:
    """Return the state of a Job; pods of other owners are ignored."""
    failed = next((item for item in _status(job).get("conditions") or () if _is_true(item, "Failed")), None)
    if failed is not None and failed.get("reason") == "DeadlineExceeded":
        return TimedOut()
    mine = [pod for pod in pods if _is_of(pod, job)]
    if not mine:
        return Lost(why="its pod was deleted") if failed is not None else Waiting(why="no pod was created for the Job")
    newest = max(mine, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")))
    state = _pod_state(newest)
    if failed is None and isinstance(state, Lost) and not state.is_full and _is_disrupted(newest):
        return Waiting(why=f"{state.why}; the Job creates another pod")
    if failed is not None and isinstance(state, Building | HandingOver) and _has_failed(newest):
        return _lost(newest)
    return state


def _pod_state(pod: Json) -> JobState:
    status, name = _status(pod), str(pod["metadata"]["name"])
    toolchain = _container(status, "initContainerStatuses", TOOLCHAIN_CONTAINER)
    if status.get("reason") == "Evicted":
        why = str(status.get("message") or "it was evicted")
        return Lost(why=why, is_full="emptydir" in why.lower() or "ephemeral" in why.lower())
    build = _container(status, "initContainerStatuses", BUILD_CONTAINER)
    if failure := _failed(toolchain):
        # Never as its exit code says: that it was killed, or had no room, is no end of the driver's build.
        return (
            Building(pod=name) if _is_killed_by_deletion(pod, failure) else NotBuilt(pod=name, exit_code=NO_TOOLCHAIN)
        )
    if ended := build.get("terminated"):
        if _is_killed_by_deletion(pod, ended):
            return Building(pod=name)
        code = KILLED if ended.get("reason") == "OOMKilled" else int(ended.get("exitCode", 1))
        return NotBuilt(pod=name, exit_code=code) if code else _after_build(pod, name)
    if "running" in build or "running" in toolchain:
        return Building(pod=name)
    return _waiting(pod, toolchain if "waiting" in toolchain else build)


def _after_build(pod: Json, name: str) -> JobState:
    hand_over = _container(_status(pod), "containerStatuses", HAND_OVER_CONTAINER)
    if ended := hand_over.get("terminated"):
        return HandingOver(pod=name) if _is_killed_by_deletion(pod, ended) else _handed_over(name, ended)
    return HandingOver(pod=name) if "running" in hand_over else _waiting(pod, hand_over)


def _failed(container: Json) -> Json:
    """Return how a container failed; empty if it did not."""
    ended: Json = container.get("terminated") or {}
    return ended if ended.get("exitCode") else {}


def _waiting(pod: Json, container: Json) -> Waiting | Lost:
    status = _status(pod)
    if _has_failed(pod):
        return _lost(pod)
    waiting = container.get("waiting") or {}
    reason, message = str(waiting.get("reason") or ""), str(waiting.get("message") or "")
    if reason in _HOPELESS:
        return Waiting(why=f"{reason}: {message}" if message else reason, is_hopeless=True)
    unscheduled: Json = next((item for item in status.get("conditions") or () if _is_false(item, "PodScheduled")), {})
    return Waiting(why=str(unscheduled.get("message") or message))


def _handed_over(pod: str, terminated: Json) -> HandedOver:
    """Read the termination message that ``upload_command`` left."""
    text = str(terminated.get("message") or "")
    try:
        result = json.loads(text)
        digest = str(result["digest"]) if "digest" in result else None
        why, is_refused = str(result.get("error", "")), result.get("refused") is True
    except (ValueError, TypeError, AttributeError):
        digest, why, is_refused = None, text, False
    if digest is not None:
        return HandedOver(pod=pod, digest=digest)
    reason = terminated.get("reason") or "Error"
    return HandedOver(
        pod=pod, digest=None, why=why or f"{reason}, exit code {terminated.get('exitCode')}", is_refused=is_refused
    )


def _is_killed_by_deletion(pod: Json, terminated: Json) -> bool:
    """Whether a container was killed because its pod ends: by a drain, an eviction, by hand, at the Job's deadline.

    This says nothing about the build; once the pod is gone, the Job says the rest.
    """
    is_signal = terminated.get("exitCode") in _SIGNALS and terminated.get("reason") != "OOMKilled"
    return is_signal and ("deletionTimestamp" in pod["metadata"] or _is_disrupted(pod))


def _has_failed(pod: Json) -> bool:
    return _status(pod).get("phase") == "Failed"


def _lost(pod: Json) -> Lost:
    status = _status(pod)
    return Lost(why=f"{status.get('reason') or 'its pod failed'}: {status.get('message') or 'no reason given'}")


def _is_disrupted(pod: Json) -> bool:
    """Whether the cluster ended the pod for reasons of its own (since 1.26): the Job's policy creates another one."""
    return any(_is_true(item, "DisruptionTarget") for item in _status(pod).get("conditions") or ())


def _status(obj: Json) -> Json:
    status: Json = obj.get("status") or {}
    return status


def _container(status: Json, kind: str, name: str) -> Json:
    found: Json = next((item for item in status.get(kind) or () if item["name"] == name), {})
    state: Json = found.get("state") or {}
    return state


def _is_of(pod: Json, job: Json) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == job["metadata"]["uid"] for owner in owners)


def _is_true(condition: Json, kind: str) -> bool:
    return condition.get("type") == kind and condition.get("status") == "True"


def _is_false(condition: Json, kind: str) -> bool:
    return condition.get("type") == kind and condition.get("status") == "False"
