"""A build as a Kubernetes Job: its pod and the ConfigMap that the pod builds from. Pure: values in, plain dicts out.

The pod has two containers, one after the other, so that what runs the driver's own source never sees the credentials
for a push. ``build`` has neither registry credentials nor a service account's token; ``hand-over`` has the registry's
Secret and runs our own program, which reads files and starts nothing (docs/decisions/0008-job-builder.md). Where the
kernel has a toolchain, ``toolchain`` comes first: it pulls that with the registry's Secret, and runs nothing of it.
"""

import base64
import gzip
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from driver_builder.api.build_settings import ConfigMapKey
from driver_builder.base.errors import BuildFailed
from driver_builder.base.reasons import Reason
from driver_builder.model import build_proxy, defaults, quantities
from driver_builder.model.build_proxy import BuildProxy
from driver_builder.model.images import ImageRef
from driver_builder.model.registry_reach import Reach
from driver_builder.nodes.changes import StartBuild
from driver_builder.objects.tolerations import with_ours
from kube_api import names
from kube_api.resources import CONFIG_MAPS, JOBS

Json = dict[str, Any]

TOOLCHAIN_CONTAINER = "toolchain"
BUILD_CONTAINER = "build"
HAND_OVER_CONTAINER = "hand-over"
SERVICE_ACCOUNT = "driver-builder-job"
BUILD_LABEL = f"{names.GROUP}/build"
"""On a build's Job, pod and ConfigMap: the build key."""
FINGERPRINT_ANNOTATION = f"{names.GROUP}/fingerprint"
DOCKER_CONFIG = ".dockerconfigjson"
"""A build Secret with this key is what buildah pulls with."""

_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
SCRIPTS = ("build.sh", "proxy.sh", "pull.sh", "storage.sh")
LOCAL_TOOLCHAIN = "localhost/driverwright-toolchain"
"""The name of a toolchain in the pod, once it is pulled."""

MAX_CONTEXT = 1_000_000
"""Bytes. A ConfigMap holds a mebibyte, including the names of its keys and the small files beside the context."""
DEFAULT_REQUESTS: Mapping[str, str] = {"cpu": "500m", "memory": "512Mi"}
_USUAL_LIMITS = ("cpu", "memory", "ephemeral-storage")
KEPT_SECONDS = 3600
"""Seconds after which the API server (since 1.23) deletes a finished Job that no controller deleted."""

POD_FAILURE_POLICY_MINOR, APPARMOR_MINOR = 26, 30
"""Of Kubernetes 1: from here on the API server has ``podFailurePolicy`` of Jobs, ``appArmorProfile`` of containers."""
POD_FAILURE_POLICY: Json = {
    "rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        # SIGKILL and SIGTERM: somebody deleted the pod. The other exit codes are the build's own. The schemas up to
        # 1.28 require the list of conditions.
        {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [137, 143]}, "onPodConditions": []},
    ]
}
"""A pod that a drain, an eviction or a deletion ends is replaced; a build that fails is not repeated."""

CAPABILITIES = ("SETFCAP", "SETGID", "SETUID")
"""What root needs to create a user namespace that maps all users, including root: in it buildah may do the rest."""
_NOBODY = 65534
_AS_NOBODY: Json = {
    "runAsNonRoot": True,
    "runAsUser": _NOBODY,
    "runAsGroup": _NOBODY,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
PROXY_MOUNT: Json = {"name": "proxy", "mountPath": "/proxy", "readOnly": True}
CA_VOLUME = "build-ca"
_BUILD_CA_MOUNTS: list[Json] = [
    {"name": CA_VOLUME, "mountPath": "/build-ca", "readOnly": True},
    {"name": CA_VOLUME, "mountPath": "/certificates/build-ca.crt", "subPath": "ca.crt", "readOnly": True},
]
"""For the commands of a build, and for buildah itself."""
_CA_MOUNT: Json = {"name": "context", "mountPath": "/certificates/ca.crt", "subPath": "ca.crt", "readOnly": True}
_AS_BUILDER: Json = {
    "runAsUser": 0,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"], "add": list(CAPABILITIES)},
    # The runtimes' default profiles forbid to create a user namespace and to mount in it.
    "seccompProfile": {"type": "Unconfined"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """What all build Jobs of a controller have in common.

    ``image`` has buildah, ``hand_over_image`` this program. ``node_selector`` is added to the target's architecture,
    ``tolerations`` to those that a driver's spec names (its default, which tolerates everything, is the driver pods'),
    ``host_network`` for clusters without a pod network. When a build has written ``work_size``, or ``output_size`` as
    its result, the kubelet evicts it. ``max_resources`` are the limits of builds that set none. ``ca`` are CA
    certificates for the registries (PEM), ``reach`` says which addresses registries may redirect to.
    """

    image: str
    hand_over_image: str
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Json, ...] = ()
    host_network: bool = False
    work_size: str = defaults.JOB_WORK_SIZE
    output_size: str = defaults.JOB_OUTPUT_SIZE
    max_resources: Mapping[str, str] = field(default_factory=dict)
    ca: str = ""
    reach: Reach = field(default_factory=Reach)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTask:
    """What a Job makes: the image of a driver, where ``toolchain`` says from which, or the toolchain itself.

    ``key`` names the Job. ``is_toolchain``: the result has hundreds of megabytes, and is handed over compressed.
    """

    key: str
    toolchain: ImageRef | None = None
    is_toolchain: bool = False


def job_name(key: str) -> str:
    """Return the name of a build's Job: always the same for one key."""
    return f"driver-build-{key}"


def job(
    action: StartBuild,
    settings: JobSettings,
    *,
    authfile: str | None = None,
    task: JobTask | None = None,
    minor: int | None = None,
) -> Json:
    """Build the Job of a task (None: to build the driver with a package manager).

    ``authfile`` is the path in the pod of the credentials that buildah pulls with. ``minor`` is that of the API server
    (None: unknown, and the Job has only what every one knows): it changes no fingerprint, so a build goes on while the
    control plane is upgraded.
    """
    task = task or JobTask(key=action.request.key)
    pod = _pod_spec(action, settings, authfile, task)
    # The containers that run buildah map users and mount.
    unconfined = {_APPARMOR + container["name"]: "unconfined" for container in pod["initContainers"]}
    template = {"metadata": {"labels": _labels(task.key), "annotations": unconfined}, "spec": pod}
    spec = job_spec(template, action.request.deadline_seconds, None)
    fingerprint = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]
    if minor is not None:
        known = _with_profiles(template) if minor >= APPARMOR_MINOR else template
        spec = job_spec(known, action.request.deadline_seconds, minor)
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": job_name(task.key),
            "namespace": action.namespace,
            "labels": _labels(task.key),
            "annotations": {FINGERPRINT_ANNOTATION: fingerprint},
        },
        "spec": spec,
    }


def _with_profiles(template: Json) -> Json:
    """Let containers run unconfined by the field, where the API server knows it, instead of by annotations."""
    profile = {"appArmorProfile": {"type": "Unconfined"}}
    containers = [
        {**container, "securityContext": {**container["securityContext"], **profile}}
        for container in template["spec"]["initContainers"]
    ]
    metadata = {"labels": template["metadata"]["labels"]}
    return {"metadata": metadata, "spec": {**template["spec"], "initContainers": containers}}


def job_spec(template: Json, deadline_seconds: float, minor: int | None) -> Json:
    """Build the spec of a Job that runs its pod once, and again where that was deleted or evicted.

    Before 1.23 a Job replaces such a pod by itself. Since then it counts as failed, unless a policy says otherwise.
    """
    is_known = minor is not None and minor >= POD_FAILURE_POLICY_MINOR
    return {
        **({"backoffLimit": 1, "podFailurePolicy": POD_FAILURE_POLICY} if is_known else {"backoffLimit": 0}),
        "activeDeadlineSeconds": math.ceil(deadline_seconds),
        "ttlSecondsAfterFinished": KEPT_SECONDS,
        "template": template,
    }


def pod_base(
    architecture: str, *, node_selector: Mapping[str, str], tolerations: Sequence[Json], host_network: bool
) -> Json:
    """Build what the pods of all our Jobs have in common: no permissions, and nodes that can run them."""
    pod: Json = {
        "restartPolicy": "Never",
        "serviceAccountName": SERVICE_ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "nodeSelector": {names.ARCHITECTURE_LABEL: architecture, **node_selector},
    }
    pod["tolerations"] = with_ours(tolerations)
    return pod | ({"hostNetwork": True} if host_network else {})


def config_map(action: StartBuild, settings: JobSettings, *, context: bytes, uid: str, key: str = "") -> Json:
    """Build the ConfigMap that the Job of ``uid`` builds from; the Job owns it. ``key`` is that of its task.

    Raises:
        BuildFailed: the context is too large for one.
    """
    packed = gzip.compress(context, mtime=0)
    if len(packed) > MAX_CONTEXT:
        raise BuildFailed(
            Reason.BUILD_ERROR,
            f"the source has {len(packed)} bytes, compressed; the limit for a Job is {MAX_CONTEXT}: take it from git,"
            " an archive, an image or a package (spec.source), which are fetched inside the build",
        )
    key = key or action.request.key
    name = job_name(key)
    owner = {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "name": name, "uid": uid}
    return {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "metadata": {
            "name": name,
            "namespace": action.namespace,
            "labels": _labels(key),
            "ownerReferences": [owner],
        },
        "immutable": True,
        "binaryData": {"context.tar.gz": base64.b64encode(packed).decode()},
        "data": {
            **{name: job_script(name) for name in SCRIPTS},
            "registries.conf": _registries(action),
            "ca.crt": settings.ca,
        },
    }


def job_script(name: str) -> str:
    """Read a script of ours."""
    return files("driver_builder.builds.job").joinpath(name).read_text()


def _labels(key: str) -> Json:
    return {"app.kubernetes.io/managed-by": "driver-builder", BUILD_LABEL: key}


def _registries(action: StartBuild) -> str:
    """What buildah may pull from: names without a host are Docker Hub's, as with an engine."""
    lines = ['unqualified-search-registries = ["docker.io"]', ""]
    if action.registry.plain_http:
        lines += ["[[registry]]", f"location = {json.dumps(action.image.host)}", "insecure = true", ""]
    return "\n".join(lines)


def _pod_spec(action: StartBuild, settings: JobSettings, authfile: str | None, task: JobTask) -> Json:
    secrets = dict(enumerate(dict.fromkeys(action.build_secrets)))
    volumes: list[Json] = [
        {"name": "context", "configMap": {"name": job_name(task.key)}},
        {"name": "work", "emptyDir": {"sizeLimit": settings.work_size}},
        {"name": "out", "emptyDir": {"sizeLimit": settings.output_size}},
        *({"name": f"secret-{number}", "secret": {"secretName": name}} for number, name in secrets.items()),
        *proxy_volumes(action.proxy),
        *ca_volumes(action.ca_config_map),
    ]
    if action.registry.secret is not None:
        volumes.append({"name": "registry", "secret": {"secretName": action.registry.secret}})
    base = pod_base(
        action.request.target.architecture,
        node_selector=settings.node_selector,
        tolerations=(*action.tolerations, *settings.tolerations),
        host_network=settings.host_network,
    )
    return {
        **base,
        "initContainers": [
            *([_pull(action, settings, task.toolchain)] if task.toolchain else []),
            _with_variables(_build(action, settings, secrets, authfile), action, task),
        ],
        "containers": [_hand_over(action, settings)],
        "volumes": volumes,
    }


def _with_variables(build: Json, action: StartBuild, task: JobTask) -> Json:
    """Add the form of the result, and the proxy, which ``proxy.sh`` completes with the password."""
    values = {"ARCHIVE": "oci-archive"} if task.is_toolchain else {}
    values |= build_proxy.variables(action.proxy) if action.proxy else {}
    return build | ({"env": environment(values)} if values else {})


def environment(values: Mapping[str, str]) -> list[Json]:
    """Build the variables of a container."""
    return [{"name": name, "value": value} for name, value in values.items()]


def proxy_volumes(proxy: BuildProxy | None) -> list[Json]:
    """Build the volume with the user name and password of a proxy, where it has any."""
    if proxy is None or proxy.secret is None:
        return []
    items = [{"key": key, "path": key} for key in (build_proxy.USERNAME, build_proxy.PASSWORD)]
    return [{"name": "proxy", "secret": {"secretName": proxy.secret, "items": items}}]


def ca_volumes(ca: ConfigMapKey | None) -> list[Json]:
    """Build the volume with the CAs that a build trusts, where it names any."""
    if ca is None:
        return []
    return [{"name": CA_VOLUME, "configMap": {"name": ca.name, "items": [{"key": ca.key, "path": "ca.crt"}]}}]


def _pull(action: StartBuild, settings: JobSettings, toolchain: ImageRef) -> Json:
    """Build the container that pulls a toolchain; it has the registry's Secret, and starts nothing of a driver."""
    options: list[str] = []
    mounts: list[Json] = [
        {"name": "context", "mountPath": "/context", "readOnly": True},
        {"name": "work", "mountPath": "/building"},
    ]
    if action.registry.secret is not None:
        options.append(f"--authfile=/registry/{DOCKER_CONFIG}")
        mounts.append({"name": "registry", "mountPath": "/registry", "readOnly": True})
    if settings.ca:
        options.append("--cert-dir=/certificates")
        mounts.append(_CA_MOUNT)
    return {
        "name": TOOLCHAIN_CONTAINER,
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "/context/pull.sh", str(toolchain), LOCAL_TOOLCHAIN, *options],
        "resources": _resources(action.resources, settings.max_resources),
        "securityContext": _AS_BUILDER,
        "volumeMounts": mounts,
    }


def _build(action: StartBuild, settings: JobSettings, secrets: Mapping[int, str], authfile: str | None) -> Json:
    options = [f"--volume=/secrets/{name}:/run/secrets/{name}:ro" for name in secrets.values()]
    options += [f"--authfile={authfile}"] if authfile else []
    options += ["--cert-dir=/certificates"] if settings.ca or action.ca_config_map else []
    mounts: list[Json] = [
        {"name": "context", "mountPath": "/context", "readOnly": True},
        {"name": "work", "mountPath": "/building"},
        {"name": "out", "mountPath": "/out"},
    ]
    if settings.ca:
        mounts.append(_CA_MOUNT)
    mounts += [PROXY_MOUNT] if proxy_volumes(action.proxy) else []
    mounts += _BUILD_CA_MOUNTS if action.ca_config_map else []
    mounts += (
        {"name": f"secret-{number}", "mountPath": secret_folder(name), "readOnly": True}
        for number, name in secrets.items()
    )
    return {
        "name": BUILD_CONTAINER,
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "/context/build.sh", *options],
        "resources": _resources(action.resources, settings.max_resources),
        "securityContext": _AS_BUILDER,
        "volumeMounts": mounts,
    }


def _resources(own: Json, most: Mapping[str, str]) -> Json:
    """Return a build's own resources, with the maximum as the limit where it sets none.

    Without a request, Kubernetes would request as much as the limit.
    """
    if not most:
        return own or {"requests": dict(DEFAULT_REQUESTS)}
    # Extended resources are requested by who needs them: their request and limit have to be equal.
    limits = {**{name: most[name] for name in _USUAL_LIMITS if name in most}, **own.get("limits", {})}
    usual = {
        name: min(quantity, limits.get(name, quantity), key=quantities.amount)
        for name, quantity in DEFAULT_REQUESTS.items()
    }
    usual |= {name: "0" for name in limits if name in _USUAL_LIMITS and name not in usual}
    return {"requests": {**usual, **own.get("requests", {})}, "limits": limits}


def secret_folder(name: str) -> str:
    """Return the path in the container ``build`` of a build Secret's keys, as files."""
    return f"/secrets/{name}"


def _hand_over(action: StartBuild, settings: JobSettings) -> Json:
    mounts: list[Json] = [
        {"name": "context", "mountPath": "/context", "readOnly": True},
        {"name": "out", "mountPath": "/out", "readOnly": True},
    ]
    words = ["hand-over", f"--host={action.image.host}", f"--repository={action.image.repository}", "--folder=/out"]
    if action.registry.secret is not None:
        mounts.append({"name": "registry", "mountPath": "/registry", "readOnly": True})
        words.append("--credentials=/registry")
    words += ["--plain-http"] if action.registry.plain_http else []
    words += ["--registry-ca-file=/context/ca.crt"] if settings.ca else []
    words += settings.reach.as_flags()
    return {
        "name": HAND_OVER_CONTAINER,
        "image": settings.hand_over_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["driver-builder", *words],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": _AS_NOBODY,
        "volumeMounts": mounts,
    }
