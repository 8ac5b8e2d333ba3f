"""The device plugin of a driver: its DaemonSet, the ConfigMap of our agent, and both as they are. Pure.

Its pods run where the driver is proven and may be used: they select two labels of stages. An edit rolls out by
Kubernetes' own RollingUpdate. Our agent reads its configuration from the ConfigMap, whose digest is in the template, so
that a changed one rolls out as well.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from driver_builder.api.driver_container import DriverContainer
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.api.stage_settings import DevicePluginSettings
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.userspace import HOST_FOLDER, NVIDIA_FOLDER
from driver_builder.objects import agent_token, device_use, dra_plugin, gpu_profiles, nvidia_plugin
from driver_builder.objects.driver_keys import driver_keys
from driver_builder.objects.manifests import DRIVER_LABEL, FIELD_MANAGER, UNPRIVILEGED, owner_reference, short_name
from driver_builder.objects.stage_labels import TRUE, Stage
from driver_builder.objects.tolerations import with_ours
from kube_api import names
from kube_api.resources import CONFIG_MAPS, DAEMON_SETS

Json = dict[str, Any]

STAGE_LABEL = f"{names.GROUP}/stage"
"""On DaemonSet, pods and ConfigMap of a plugin, and on nothing else: ``plug``."""
CONFIG_ANNOTATION = f"{names.GROUP}/config"
"""On pods of our agent: the digest of its configuration."""
RESOURCE_ANNOTATION = f"{names.GROUP}/resource"
"""On the DaemonSet: what its pods claim, also while nothing else says so because the driver's spec is invalid."""
CONFIG_KEY = "config.yaml"
CONTAINER = "device-plugin"

_SOCKETS, _DEVICES, _PAGES = "/var/lib/kubelet/device-plugins", "/dev", "/run/device-agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSet:
    """The DaemonSet of a driver's plugin as it is; ``spec`` as the API server has it.

    ``resource`` is what its pods claim, empty for one that an earlier version wrote; ``written`` are the entries of
    ``managedFields`` that name fields of ``spec``.
    """

    namespace: str
    name: str
    uid: str
    driver: DriverKey
    spec: Json = field(default_factory=dict)
    resource: str = ""
    written: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StraySet:
    """A DaemonSet with the name of a plugin's that no driver controls; ``is_ours`` says that we have written it."""

    uid: str
    is_ours: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginPod:
    """One pod of such a DaemonSet, whose uid is ``owner``; ``ready_since`` is None while it is not ready.

    ``has_token`` says that it reports on its Node what it offers, ``started_at`` when its kubelet took it.
    """

    namespace: str
    name: str
    uid: str
    driver: DriverKey
    node: str
    owner: str
    ready_since: float | None = None
    deleting: bool = False
    has_token: bool = False
    started_at: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfig:
    """The ConfigMap with the name of our agent's, as it is; ``is_own`` says that the driver controls it."""

    uid: str
    digest: str
    is_own: bool


def name_of(driver: DriverContainer) -> str:
    """Return the name of the plugin's DaemonSet and ConfigMap."""
    return f"{short_name(driver)}-plug"


def config_text(settings: DevicePluginSettings) -> str:
    """Write the configuration of our agent: JSON, which is YAML."""
    text = {"resources": [settings.resource]} if settings.nvidia is None else {"nvidia": settings.nvidia}
    if settings.use is not None:
        text |= settings.use.config
    return json.dumps(text, indent=2, sort_keys=True) + "\n"


def config_digest(text: str) -> str:
    """Return the digest by which a configuration is known."""
    return hashlib.sha256(text.encode()).hexdigest()


def config_map(driver: DriverContainer, settings: DevicePluginSettings) -> Json:
    """Build the ConfigMap that our agent reads."""
    return {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "metadata": _metadata(driver),
        "data": {CONFIG_KEY: config_text(settings)},
    }


def daemon_set(
    driver: DriverContainer,
    spec: DriverSpec,
    settings: DevicePluginSettings,
    *,
    agent_image: str,
    has_token: bool = False,
) -> Json:
    """Build the DaemonSet of the plugin.

    ``agent_image`` is the image of our agent, ``has_token`` says whether it gets the token of its account.
    """
    labels = _labels(driver)
    annotations = {CONFIG_ANNOTATION: config_digest(config_text(settings))[:16]} if settings.is_of_agent else {}
    template: Json = {
        "metadata": {
            "labels": {**labels, **device_use.labels(settings.use)},
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": _with_more(_pod_spec(driver, spec, settings, agent_image), spec, settings, has_token=has_token),
    }
    return {
        "apiVersion": DAEMON_SETS.api_version,
        "kind": DAEMON_SETS.kind,
        "metadata": {**_metadata(driver), "annotations": {RESOURCE_ANNOTATION: settings.claim}},
        "spec": {
            "selector": {"matchLabels": {key: labels[key] for key in (DRIVER_LABEL, STAGE_LABEL)}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
            "template": template,
        },
    }


def replacing(known: PluginSet, manifest: Json) -> Json:
    """Return the manifest that is applied where a DaemonSet is ``known``, which may have a service account."""
    if has_additions(known, manifest):
        return manifest
    template = manifest["spec"]["template"]
    pod = agent_token.without_account(template["spec"], pod_of(known))
    return {**manifest, "spec": {**manifest["spec"], "template": {**template, "spec": pod}}}


def pod_of(known: PluginSet) -> Json:
    """Return the spec of its pods, as the API server has it."""
    pod: Json = (known.spec.get("template") or {}).get("spec") or {}
    return pod


def is_as_wanted(known: PluginSet, manifest: Json) -> bool:
    """Return whether a DaemonSet has all that the manifest says; what the API server fills in does not count."""
    offered = manifest["metadata"]["annotations"][RESOURCE_ANNOTATION]
    is_same = known.resource == offered and _contains(known.spec, manifest["spec"])
    return is_same and not has_additions(known, manifest)


def has_additions(known: PluginSet, manifest: Json) -> bool:
    """Return whether somebody has added a field of ``spec``. Metadata of pods do not count: ``rollout restart``."""
    others = (entry for entry in known.written if entry.get("manager") != FIELD_MANAGER)
    return any(_adds(entry["fieldsV1"]["f:spec"], manifest["spec"], ()) for entry in others)


def without_additions(known: PluginSet, manifest: Json) -> Json:
    """Build the merge patch that leaves nothing in ``spec`` but what the manifest says, and no writer of it but us.

    An apply takes no field away that another writer has added.
    """
    ours = [entry for entry in known.written if entry.get("manager") == FIELD_MANAGER]
    template = {key: value for key, value in known.spec.get("template", {}).items() if key != "metadata"}
    spec = _replacing({**known.spec, "template": template}, manifest["spec"])
    return {"metadata": {"uid": known.uid, "managedFields": ours or [{}]}, "spec": spec}


def _replacing(known: Any, wanted: Any) -> Any:
    if not isinstance(wanted, Mapping):
        return wanted
    there = known if isinstance(known, Mapping) else {}
    return {**dict.fromkeys(there), **{key: _replacing(there.get(key), value) for key, value in wanted.items()}}


def _adds(fields: Mapping[str, Any], wanted: Any, place: tuple[str, ...]) -> bool:
    """Return whether some of the fields (``fieldsV1``) are not in what is wanted."""
    for name, below in fields.items():
        kind, _, rest = name.partition(":")
        if kind == "f" and (*place, rest) != ("template", "metadata"):
            is_there = isinstance(wanted, Mapping) and rest in wanted
            if not is_there or _adds(below, wanted[rest], (*place, rest)):
                return True
        elif kind in ("k", "v"):
            key, items = json.loads(rest), wanted if isinstance(wanted, Sequence) else ()
            item = next((item for item in items if (_contains(item, key) if kind == "k" else item == key)), None)
            if item is None or _adds(below, item, place):
                return True
    return False


def _contains(known: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        is_mapping = isinstance(known, Mapping)
        return is_mapping and all(_contains(known.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, Sequence) and not isinstance(wanted, str) and wanted:
        is_list = isinstance(known, Sequence) and not isinstance(known, str) and len(known) == len(wanted)
        return is_list and all(map(_contains, known, wanted))
    # An empty value may be left out by the API server.
    return bool(known == wanted or not (known or wanted))


def _labels(driver: DriverContainer) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": driver.name,
        "app.kubernetes.io/managed-by": "driver-builder",
        DRIVER_LABEL: driver.name,
        STAGE_LABEL: Stage.PLUG.value,
    }


def _metadata(driver: DriverContainer) -> Json:
    return {
        "name": name_of(driver),
        "namespace": driver.namespace,
        "labels": _labels(driver),
        "ownerReferences": [owner_reference(driver)],
    }


def _pod_spec(driver: DriverContainer, spec: DriverSpec, settings: DevicePluginSettings, agent_image: str) -> Json:
    mounts, volumes = _folders(settings)
    if settings.is_of_agent:
        mounts.append({"name": "config", "mountPath": "/etc/device-agent", "readOnly": True})
        volumes.append({"name": "config", "configMap": {"name": name_of(driver)}})
        mounts.append({"name": "pages", "mountPath": _PAGES})
        volumes.append({"name": "pages", "emptyDir": {}})
    containers = [{**_container(settings, agent_image), "volumeMounts": mounts}]
    if settings.nvidia is not None:
        mounts += nvidia_plugin.mounts_of_agent(settings)
        volumes += nvidia_plugin.volumes(settings)
    elif settings.use is not None and settings.use.limits_memory:
        mount, volume = device_use.state_of(driver.key)
        mounts.append(mount)
        volumes.append(volume)
    if settings.has_nvml:
        places = {item["hostPath"]["path"]: item["name"] for item in volumes if "hostPath" in item}
        containers.append(nvidia_plugin.container(agent_image, {**places, _PAGES: "pages"}, shared=_PAGES))
    pod: Json = {
        "nodeSelector": {driver_keys(driver.key).stages[stage]: TRUE for stage in (Stage.RUN, Stage.VALID)},
        # A node gets its devices before its pod network is up, and where there is none.
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "priorityClassName": spec.priority_class_name or "system-node-critical",
        "tolerations": with_ours(spec.tolerations) if spec.tolerations else [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 10,
        "containers": containers,
        "volumes": volumes,
    }
    if spec.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in spec.image_pull_secrets]
    return pod


def _with_more(pod: Json, spec: DriverSpec, settings: DevicePluginSettings, *, has_token: bool) -> Json:
    if settings.dra is not None:
        return dra_plugin.with_dra(pod, settings.dra, driver_files=_folder_of_files(spec))
    if settings.profiles is not None:
        pod = gpu_profiles.with_profiles(pod, settings.profiles)
    if has_token and settings.mig is not None:
        pod = gpu_profiles.with_mig(pod, settings.mig)
    if has_token and settings.account is not None:
        pod = agent_token.with_token(pod, settings.account)
    return pod if settings.use is None else device_use.with_use(pod, settings.use)


def _folder_of_files(spec: DriverSpec) -> str | None:
    """Return the folder of the node that has the folder of the driver's user space, None without one."""
    if spec.userspace is None:
        return None
    return HOST_FOLDER if spec.userspace.host_path is None else NVIDIA_FOLDER


def _folders(settings: DevicePluginSettings) -> tuple[list[Json], list[Json]]:
    """Return the mounts and volumes of the folders of the node that a plugin has."""
    below = "/host" if settings.is_of_agent else ""
    seen = [_DEVICES, *(_of_agent(settings) if settings.is_of_agent else ())]
    places = {f"seen-{number}": path for number, path in enumerate(seen)}
    is_read_only = not settings.privileged
    writes = {} if settings.dra is not None else {"sockets": _SOCKETS}
    mounts: list[Json] = [{"name": name, "mountPath": path} for name, path in writes.items()]
    mounts += [
        {"name": name, "mountPath": f"{below}{path}", **({"readOnly": True} if is_read_only else {})}
        for name, path in places.items()
    ]
    volumes = [{"name": name, "hostPath": {"path": path}} for name, path in {**writes, **places}.items()]
    return mounts, volumes


def _of_agent(settings: DevicePluginSettings) -> list[str]:
    """Return what our agent looks at besides ``/dev``: sysfs, and the folders of files that it mounts."""
    groups = settings.resource["groups"] if settings.nvidia is None else ()
    paths = [item["path"] for group in groups for item in group["paths"]]
    folders = {"/".join(takewhile(_is_plain, path.split("/")[:-1])) or "/" for path in paths}
    known = ("/dev", "/sys")
    others = {folder for folder in folders if not any(f"{folder}/".startswith(f"{top}/") for top in known)}
    return ["/sys", *sorted(others)]


def _is_plain(part: str) -> bool:
    return not set(part) & set("*?[")


def _container(settings: DevicePluginSettings, agent_image: str) -> Json:
    container: Json = {
        "name": CONTAINER,
        "image": settings.image or agent_image,
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": {"cpu": "5m", "memory": "32Mi"}},
    }
    if settings.is_of_agent:
        # What deploy/device-agent has. Only root may write to the kubelet's folder. Under SELinux containers of other
        # types may neither do that, nor look at every device node.
        container["securityContext"] = {
            **UNPRIVILEGED,
            "runAsUser": 0,
            "runAsGroup": 0,
            "seccompProfile": {"type": "RuntimeDefault"},
            "seLinuxOptions": {"type": "spc_t"},
        }
        container["resources"]["limits"] = {"memory": "128Mi"}
        # A port would be one of the node, where each driver has an agent.
        container["args"] = ["run", "--port=0"]
        container["env"] = [{"name": "DEVICE_AGENT_SOCKET", "value": f"{_PAGES}/pages.sock"}]
        return {**container, **_probes(settings)}
    container["securityContext"] = {"privileged": True} if settings.privileged else {"allowPrivilegeEscalation": False}
    for name, words in (("command", settings.command), ("args", settings.args)):
        if words:
            container[name] = list(words)
    return container


def _probes(settings: DevicePluginSettings) -> Json:
    """Our agent is ready once the kubelet has its resource, and is asked from time to time whether it lives.

    Each question is a process of its own: that it is still registered is not asked again. The kubelet says so. With
    ``nvidia`` it is, as resources come and go there; one that is not registered is no reason for a restart, which would
    take the others away.
    """
    if settings.nvidia is not None:
        return {
            "startupProbe": {**_asks("/healthz"), "periodSeconds": 2, "failureThreshold": 150},
            "readinessProbe": {**_asks("/readyz"), "periodSeconds": 10},
            "livenessProbe": {**_asks("/healthz"), "periodSeconds": 60},
        }
    return {
        "startupProbe": {**_asks("/readyz"), "periodSeconds": 2, "failureThreshold": 150},
        "livenessProbe": {**_asks("/healthz"), "periodSeconds": 60},
    }


def _asks(page: str) -> Json:
    return {"exec": {"command": ["device-agent", "get", page]}, "timeoutSeconds": 10}
