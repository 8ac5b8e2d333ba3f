"""A cluster that fits into a test: objects in memory, and what controllers, kubelets and builders make of them.

Objects are in ``memory_client``, builds and registries in ``model_parts``. ``World`` moves on in rounds: DaemonSets
make and remove pods, nodes load what their pods carry, builds end. The controller's own code runs on it unchanged, from
``observe`` to ``report``.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from operator import is_not
from typing import Any

from driver_builder.api import driver_container
from driver_builder.cluster.cluster_cache import ClusterCache
from driver_builder.cluster.kept_writes import KeptWrites
from driver_builder.cluster.observe import Observer
from driver_builder.cluster.pods_of_drivers import PodReader
from driver_builder.controller.execute import Executor
from driver_builder.controller.read_images import ImageReader
from driver_builder.controller.reconcile import decide
from driver_builder.controller.report import Reporter
from driver_builder.model.build import BuildRequest
from driver_builder.model.images import (
    ARCHITECTURE_LABEL,
    DRIVER_LABEL,
    KERNEL_LABEL,
    KEY_LABEL,
    MODULES_LABEL,
    OS_LABEL,
)
from driver_builder.model.repositories import Discovery
from driver_builder.nodes.changes import Change, StartBuild
from driver_builder.nodes.plan_view import PlanSettings
from driver_builder.objects import manifests, plugin
from driver_builder.plan.plan import Plan
from driver_builder.plan.plan_memory import PlanMemory
from driver_builder.prebuild.prebuild import DAY_SECONDS
from driver_builder.snapshot.by_driver import pods_of
from driver_builder.snapshot.inspector import Inspector
from driver_builder.snapshot.node_pods import EvictionRefused
from driver_builder.snapshot.snapshot import FailedBuild, Snapshot
from driver_builder.targets.resolve_all import ResolveMemory
from driver_builder.tasks import pull_pod, unload_pod, validation_pod
from kube_api import names
from kube_api.client import Object, Writer
from kube_api.resources import CONFIG_MAPS, DRIVER_CONTAINERS, NODES, PODS
from kube_api.timestamps import timestamp
from tests.support.driver_builder.factories import NAMESPACE, NOW, SETTINGS, driver_object, node_labels
from tests.support.driver_builder.journal import is_for
from tests.support.driver_builder.memory_client import MemoryClient, copied
from tests.support.driver_builder.model_parts import ModelBuilds, ModelDiscoveries, ModelRegistries, identity_of
from tests.support.driver_builder.plans import plan_in_detail
from tests.support.examples import IS_FAST

COMPARED = 3 if IS_FAST else 1
"""Of a world's plans every so-manieth is compared with one that remembers nothing, which takes twice its time."""


class World:
    """A cluster with its registry, and a controller that may be killed at any moment.

    Where it ``is_followed``, the controller knows the cluster by watches, not by listing it for each reconcile.
    """

    is_followed = False
    kills = 0
    """How often the controller was killed."""
    _decided = 0
    refused_evictions: dict[str, EvictionRefused]
    locks_seen: dict[str, tuple[str, float]]
    resource = "example.com/edu"
    """What nodes have where a plugin runs."""

    def __init__(self, settings: PlanSettings = SETTINGS) -> None:
        self.client = MemoryClient()
        self.client.clock = lambda: self.now
        self.registries = ModelRegistries()
        self.inspector: Inspector | None = None
        """Whom passes ask instead of ``registries``."""
        self.settings = settings
        self.now = NOW
        self.kernels: dict[str, str] = {}
        self.live: dict[str, dict[str, str]] = {}
        """The modules that are live on each node, with their identities."""
        self.owners: dict[tuple[str, str], str] = {}
        """Which driver loaded a module, by node and module: what the loader records on the node."""
        self.loads: list[tuple[str, str]] = []
        """Which driver's pod loaded its modules on which node, in this order."""
        self.missing: set[str] = set()
        """Nodes without the device nodes that drivers expect."""
        self.invalid: dict[str, int] = {}
        """How often the command of a validation fails on a node, from now on."""
        self.validations: list[tuple[str, str, str]] = []
        """Which driver's command ran on which node, in which boot, in this order."""
        self.plugin_validations: list[tuple[str, str, str]] = []
        """The same of the commands that validate plugins."""
        self.without_devices, self.plugged = set[str](), dict[str, tuple[str, ...]]()
        """Nodes where plugins find no device, and by node what its plugin offers in place of ``resource``."""
        self.stuck, self.late = set[str](), set[str]()
        """Nodes where the pods of plugins do not end, and those whose kubelet has not reported yet what has changed."""
        self.in_use, self.validating = set[str](), set[str]()
        """Nodes on which somebody uses the modules, and those where the command of a validation does not end."""
        self.dead: set[str] = set()
        """Nodes whose kubelet does not answer."""
        self.without_images: set[str] = set()
        """Nodes on which no image can be pulled that is not there."""
        self.unpulled: set[str] = set()
        """Drivers whose images no node can pull before they are replaced."""
        self.leaves_modules = True
        """Whether driver pods leave their modules when they end; those of older versions unload them."""
        self.refuses = False
        """Whether the API server may refuse an action."""
        self.boots: dict[str, str] = {}
        self.identity = ""
        self.pushed: list[str] = []
        self.built_present: list[str] = []
        self.fail_builds, self.asked = 0, 0
        self.builds, self.discoveries = ModelBuilds(), ModelDiscoveries()
        self.offered: tuple[str, ...] = ()
        self.refused_evictions, self.locks_seen = {}, {}
        self.namespaces: tuple[str, ...] = (NAMESPACE,)
        self._cache: ClusterCache | None = None
        self._observer: tuple[tuple[object, ...], Observer] | None = None
        self._plan_memory, self._resolve_memory = PlanMemory(), ResolveMemory()

    # ------------------------------------------------------------ what people do

    def add_node(self, name: str, kernel: str, *, pool: str = "edu") -> None:
        """Let a node join."""
        self.live[name] = {}
        labels = {**node_labels(kernel), "pool": pool}
        annotations = {names.BOOT_ID_ANNOTATION: self._boot(name, kernel)}
        body = {"metadata": {"name": name, "labels": labels, "annotations": annotations}}
        self.client.create(NODES.path(), body)

    def reboot(self, name: str, kernel: str) -> None:
        """Boot a node into another kernel; its pods report anew, then its labels follow."""
        boot_id = self._boot(name, kernel)
        self.live[name] = {}
        self.in_use.discard(name)
        for pod in self.pods_on(name):
            if _is_driver_pod(pod):
                pod["status"] = {}
            elif validation_pod.VALIDATION.label in _labels(pod) and not pod.get("status"):
                pod["status"] = {"phase": "Failed", "message": "the node has booted"}
        annotations = {names.BOOT_ID_ANNOTATION: boot_id}
        body = {"metadata": {"labels": {names.KERNEL_VERSION_LABEL: kernel}, "annotations": annotations}}
        self.client.patch(NODES.path(name=name), body)

    def _boot(self, name: str, kernel: str) -> str:
        self.kernels[name] = kernel
        number = int(self.boots.get(name, "0-").partition("-")[0]) + 1
        self.boots[name] = f"{number}-boot-{name}"
        return self.boots[name]

    def pods_on(self, name: str) -> list[Object]:
        """Return the pods of a node, to be changed as its kubelet would."""
        return [pod for _, pod in self._objects("pods") if pod["spec"]["nodeName"] == name]

    def silence(self, name: str) -> None:
        """Let a node's kubelet report no more: its pods are not ready any more."""
        for pod in filter(_is_driver_pod, self.pods_on(name)):
            pod["status"]["conditions"] = [
                {"type": "Ready", "status": "False", "lastTransitionTime": timestamp(self.now)}
            ]

    def hear(self, name: str) -> None:
        """Let a node's kubelet report again."""
        for pod in filter(_is_driver_pod, self.pods_on(name)):
            pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]

    def remove_module(self, name: str, result: str = "NotLive") -> None:
        """Let somebody remove the module on a node: the containers that hold it end with a verdict."""
        verdict = {"result": result, "kernel": self.kernels[name], "bootID": self.boots[name],
                   "module": "edudrv", "message": "module edudrv is not live"}  # fmt: skip
        self.silence(name)
        self.live.get(name, {}).pop("edudrv", None)
        for pod in filter(_is_driver_pod, self.pods_on(name)):
            (hold,) = pod["status"]["containerStatuses"]
            hold["state"] = {"terminated": {"exitCode": 1, "message": json.dumps(verdict)}}

    def update_os(self, name: str, os_version: str) -> None:
        """Update a node's operating system without a reboot: its kernel runs on."""
        self.client.patch(NODES.path(name=name), {"metadata": {"labels": {names.OS_VERSION_LABEL: os_version}}})

    def remove_node(self, name: str) -> None:
        """Take a node away for good."""
        self.client.delete(NODES.path(name=name))
        del self.kernels[name], self.live[name]

    def move_node(self, name: str, pool: str) -> None:
        """Let somebody give a node to another pool."""
        self.client.patch(NODES.path(name=name), {"metadata": {"labels": {"pool": pool}}})

    def add_driver(self, name: str = "edu", **changes: Any) -> None:
        """Ask for a driver of a module of its own, with its source."""
        changes = {"module": {"names": [f"{name}drv"]}, **changes}
        body = driver_object(name, spec_changes=changes, finalizer=False)
        self.client.create(DRIVER_CONTAINERS.path(namespace=NAMESPACE), body)
        source = CONFIG_MAPS.path(namespace=NAMESPACE, name="edu-source")
        if source not in self.client.objects:
            self.client.create(
                CONFIG_MAPS.path(namespace=NAMESPACE),
                {"metadata": {"name": "edu-source"}, "data": {"edudrv.c": "int x;"}},
            )

    def change_source(self, text: str) -> None:
        """Let somebody edit the driver's source."""
        path = CONFIG_MAPS.path(namespace=NAMESPACE, name="edu-source")
        self.client.patch(path, {"data": {"edudrv.c": text}})

    def follow_repository(self, name: str = "edu", *, follows: bool = True) -> None:
        """Turn prebuilds on or off."""
        path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=name)
        self.client.patch(path, {"spec": {"preflight": {"followRepository": follows}}})

    def annotate_driver(self, name: str, value: str) -> None:
        """Ask for a rebuild."""
        path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=name)
        self.client.patch(path, {"metadata": {"annotations": {names.REBUILD_ANNOTATION: value}}})

    def delete_driver(self, name: str) -> None:
        """Let somebody delete the driver."""
        self.client.delete(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=name))

    # ------------------------------------------------------------ what the controller does

    def observe(self) -> Snapshot:
        """Take a snapshot."""
        return self.images().read(self.observer().observe())

    def observer(self) -> Observer:
        """Make what reads the cluster; of one that is followed it knows what it read before."""
        cache = self._followed()
        parts = (self.client, cache, self.builds, self.discoveries, self.refused_evictions, self.locks_seen)
        if self._observer is None or cache is None or any(map(is_not, self._observer[0], parts)):
            observer = Observer(
                self.client,
                namespaces=self.namespaces,
                cache=cache,
                builds=self.builds,
                discoveries=self.discoveries,
                clock=lambda: self.now,
                refused_evictions=self.refused_evictions,
                locks_seen=self.locks_seen,
                accounts=self.settings.plugin_accounts,
                agent_drains=self.settings.agent_drains,
            )
            self._observer = (parts, observer)
        return self._observer[1]

    def writer(self) -> Writer:
        """Make what writes to the cluster."""
        return KeptWrites(self.client, self._cache) if self._cache else self.client

    def _followed(self) -> ClusterCache | None:
        """Give the cache that watches have brought up to date."""
        if not self.is_followed:
            return None
        if self._cache is None or [item.namespace for item in self._cache.namespaces] != list(self.namespaces):
            self._cache = ClusterCache(self.client, namespaces=self.namespaces)
        self.client.catch_up()
        for follower in self._cache.followers:
            follower.repair()
            follower.watch(lambda: None, lambda: False)
        return self._cache

    def images(self) -> ImageReader:
        """Make what asks the registries."""
        return ImageReader(
            self.inspector or self.registries, self.settings.template_versions, memory=self._resolve_memory
        )

    def decide(self) -> Plan:
        """Observe and plan, and do nothing.

        What is remembered of the plans before changes nothing of this one, nor that most nodes are ordinary, and what
        is remembered of the pods before nothing of these.
        """
        observer, images = self.observer(), self.images()
        seen = observer.observe()
        resolved = images.resolve(seen)
        snapshot = images.read(seen, resolved)
        snapshot, decided = decide(observer, snapshot, self.settings, resolved, self._plan_memory)
        if self._decided % COMPARED == 0:
            self._assert_pods_are(seen)
            assert decided == plan_in_detail(snapshot, self.settings)
        self._decided += 1
        return decided

    def _assert_pods_are(self, seen: Snapshot) -> None:
        if self._cache is None:
            return
        anew = PodReader().read(self._cache, seen.drivers, seen.daemon_sets)
        assert seen.pods == anew.pods
        for driver in seen.drivers:
            assert pods_of(seen.pods, driver.key).by_node == pods_of(anew.pods, driver.key).by_node

    def reconcile(self, after_each: Callable[[Change], bool] = lambda _action: False) -> Plan:
        """Do one pass; ``after_each`` is called after every action, and True from it kills the controller."""
        decided, unwritten = Reporter(self.writer()).acknowledged(self.decide())
        assert unwritten == {}
        executor = Executor(self.writer(), self.builds, self.discoveries, refused_evictions=self.refused_evictions)
        for action in decided.actions:
            if isinstance(action, StartBuild) and action.image in self.registries.images:
                self.built_present.append(action.request.key)
            assert executor.perform((action,)) == () or self.refuses
            if after_each(action):
                self.kill()
                return decided
        assert Reporter(self.writer()).report(decided, now=self.now) == {}
        for part in decided.drivers:
            self.builds.forget(part.failures)
        return decided

    def look(self, _action: Change) -> bool:
        """Check an action that was done."""
        return False

    def rounds(self, number: int, look: Callable[[Change], bool] | None = None) -> None:
        """Let so many passes and rounds follow each other."""
        for _ in range(number):
            self.reconcile(look or self.look)
            self.finish_builds()
            self.turn()
            self.now += 5.0

    def kill(self) -> None:
        """Kill the controller: builds that ran are lost with everything else in its memory."""
        self.kills += 1
        self.builds = ModelBuilds()
        self.discoveries = ModelDiscoveries()
        self.refused_evictions, self.locks_seen = {}, {}
        self._cache = None
        self._plan_memory, self._resolve_memory = PlanMemory(), ResolveMemory()

    # ------------------------------------------------------------ what the rest of the cluster does

    def identity_of(self, request: BuildRequest) -> str:
        """Return the srcversion of what a request builds."""
        return self.identity or identity_of(request)

    def finish_builds(self) -> None:
        """Let every running build end, the next ``fail_builds`` of them badly."""
        for key, action in list(self.builds.running.items()):
            del self.builds.running[key]
            if not self.fail_builds:
                self.builds.failed.pop(key, None)
            if self.fail_builds:
                self.fail_builds -= 1
                driver = action.request.driver
                failure = FailedBuild(reason="CompileError", message="error: x", at=self.now, driver=driver)
                self.builds.fail(key, failure)
                continue
            facts = [
                {"name": module.name, "identity": self.identity_of(action.request)} for module in action.request.modules
            ]
            self.registries.images[action.image] = {
                KEY_LABEL: key,
                MODULES_LABEL: json.dumps(facts),
                DRIVER_LABEL: action.request.driver,
                KERNEL_LABEL: action.request.target.kernel_version,
                OS_LABEL: action.request.target.os,
                ARCHITECTURE_LABEL: action.request.target.architecture,
            }
            self.pushed.append(key)

    def finish_discoveries(self) -> None:
        """Let every repository that is being asked answer with the kernels that are ``offered``."""
        for repository in self.discoveries.running:
            self.asked += 1
            self.discoveries.done[repository] = Discovery(releases=self.offered, at=self.now)
        self.discoveries.running = set()

    def turn(self) -> None:
        """Let one round pass: owners are collected, DaemonSets make and remove pods, nodes load them."""
        for step in self.steps():
            step()

    def steps(self) -> tuple[Callable[[], None], ...]:
        """Return the parts of a round, between any two of which a pass may happen."""
        return (
            self._collect_orphans,
            self._evict,
            self._schedule,
            self._pull,
            self._load,
            self._unload,
            self._validate,
            self._plug,
        )

    def _objects(self, plural: str) -> Iterator[tuple[str, Object]]:
        """Give the objects of a kind, and of pods those that are ours."""
        found = [(path, obj) for path, obj in self.client.objects.items() if path.split("/")[-2] == plural]
        yield from ((path, obj) for path, obj in found if plural != "pods" or f"/namespaces/{NAMESPACE}/" in path)

    def _collect_orphans(self) -> None:
        uids = {obj["metadata"]["uid"] for obj in self.client.objects.values()}
        for path, obj in list(self.client.objects.items()):
            owners = obj["metadata"].get("ownerReferences") or []
            if owners and not any(owner["uid"] in uids for owner in owners):
                if plugin.STAGE_LABEL in _labels(obj) and obj.get("spec", {}).get("nodeName") in self.stuck:
                    self.client.delete(path)
                else:
                    del self.client.objects[path]

    def _evict(self) -> None:
        """Take pods away as the DaemonSet controller does: it judges by the template of now, not by the pod's own."""
        templates = {obj["metadata"]["uid"]: obj["spec"]["template"] for _, obj in self._objects("daemonsets")}
        for path, pod in self._objects("pods"):
            node = self.client.objects.get(NODES.path(name=pod["spec"]["nodeName"]))
            template = templates.get(pod["metadata"]["ownerReferences"][0]["uid"], pod)
            is_stuck = plugin.STAGE_LABEL in _labels(pod) and pod["spec"]["nodeName"] in self.stuck
            if "deletionTimestamp" in pod["metadata"] and is_stuck and node is not None:
                continue
            if "deletionTimestamp" in pod["metadata"] or node is None:
                self._end(pod)
                del self.client.objects[path]
            elif not is_for(template["spec"], node) or _is_of_before(pod, template):
                self.client.delete(path)

    def _end(self, pod: Object) -> None:
        """End a pod: one of an older version unloads what it carries."""
        names_of = [item["name"] for item in pod["spec"].get("initContainers", [])]
        if manifests.LOAD_CONTAINER in names_of and manifests.LOADER_CONTAINER not in names_of:
            self.live.get(pod["spec"]["nodeName"], {}).clear()

    def _schedule(self) -> None:
        taken = {
            (pod["metadata"]["ownerReferences"][0]["uid"], pod["spec"]["nodeName"]) for _, pod in self._objects("pods")
        }
        for _, owner in self._objects("daemonsets"):
            template = owner["spec"]["template"]
            uid = owner["metadata"]["uid"]
            for _, node in self._objects("nodes"):
                name = node["metadata"]["name"]
                if (uid, name) in taken or not is_for(template["spec"], node):
                    continue
                self.client.create(
                    PODS.path(namespace=NAMESPACE),
                    {
                        "metadata": {
                            **template["metadata"],
                            "name": f"{owner['metadata']['name']}-{name}",
                            "ownerReferences": [{"kind": "DaemonSet", "controller": True, "uid": uid}],
                        },
                        "spec": {**_pod_spec(template["spec"], self.leaves_modules), "nodeName": name},
                    },
                )

    def _pull(self) -> None:
        """Let each new pull pod bring its image, but for images that registries refuse to nodes."""
        for _, pod in self._objects("pods"):
            has_ended = (pod.get("status") or {}).get("phase") == "Succeeded"
            if pull_pod.PULL.label in _labels(pod) and not has_ended and pod["spec"]["nodeName"] not in self.dead:
                is_refused = pod["spec"]["nodeName"] in self.without_images
                is_refused = is_refused or _labels(pod)[manifests.DRIVER_LABEL] in self.unpulled
                waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
                ended = {"terminated": {"exitCode": 0, "finishedAt": timestamp(self.now)}}
                container = {"name": pull_pod.PULL.container, "state": waiting if is_refused else ended}
                container |= {} if is_refused else {"imageID": pod["spec"]["containers"][0]["image"]}
                phase = "Pending" if is_refused else "Succeeded"
                pod["status"] = {"phase": phase, "containerStatuses": [container]}

    def _load(self) -> None:
        """Play the loader of each pod that is new or was refused: by its node, its image and whose modules are live."""
        for _, pod in self._objects("pods"):
            if (pod.get("status") and not _is_refused(pod)) or not _is_driver_pod(pod):
                continue
            node = pod["spec"]["nodeName"]
            kernel = self.kernels[node]
            annotations = pod["metadata"]["annotations"]
            verdict: Object = {"result": "WrongKernel", "kernel": kernel, "bootID": self.boots[node]}
            fits = annotations[manifests.KERNEL_ANNOTATION] == kernel
            driver = f"{NAMESPACE}/{_labels(pod)[manifests.DRIVER_LABEL]}"
            modules = json.loads(annotations[manifests.MODULES_ANNOTATION])
            taken = next((name for name in modules if self._is_of_other(driver, node, name, modules[name])), None)
            missing = next(self._missing(pod), None)
            if fits and missing is not None and not modules.items() <= self.live[node].items():
                words = f"driver {missing} has not loaded its modules on this node"
                verdict |= {"result": "WaitingForDependency", "message": words}
            elif fits and taken is not None:
                other = self.owners[node, taken]
                words = (
                    f"module {taken} was loaded on this node by driver {other}, and driver {driver} would replace it"
                )
                verdict |= {"result": "ModuleConflict", "module": taken, "message": words}
            elif fits:
                verdict |= {
                    "result": "Loaded",
                    "modules": [{"name": name, "srcversion": identity} for name, identity in modules.items()],
                }
                self.loads.append((driver, node))
                for name in modules:
                    if name not in self.live[node] or (node, name) not in self.owners:
                        self.owners[node, name] = driver
                self.live[node] |= modules
                expected = _environment(pod["spec"]["initContainers"][-1]).get(manifests.DEVICE_NODES)
                if expected and node in self.missing:
                    verdict |= {"result": "DeviceNodeMissing", "message": f"device node {expected} is missing"}
            pod["status"] = pod_status(verdict, ready=verdict["result"] == "Loaded")

    def _missing(self, pod: Object) -> Iterator[str]:
        """Return the drivers that a pod waits for, as far as they have not loaded their modules on its node."""
        node = pod["spec"]["nodeName"]
        load = next(item for item in pod["spec"]["initContainers"] if item["name"] == manifests.LOAD_CONTAINER)
        environment = {item["name"]: item.get("value", "") for item in load["env"]}
        for word in environment.get("DEPENDS", "").split():
            first, _, modules = word.partition(":")
            driver = first.replace(".", "/", 1)
            names_ = modules.split(",")
            if any(self.owners.get((node, name)) != driver or name not in self.live[node] for name in names_):
                yield driver

    def _is_of_other(self, driver: str, node: str, module: str, identity: str) -> bool:
        """Return whether another driver's build of a module is live."""
        is_other = self.owners.get((node, module), driver) != driver
        return is_other and self.live[node].get(module, identity) != identity

    def _unload(self) -> None:
        """Play each new unload pod: it takes all of its modules, or none while somebody uses them."""
        for _, pod in self._objects("pods"):
            if pod.get("status") or unload_pod.UNLOAD.label not in _labels(pod):
                continue
            if pod["spec"]["nodeName"] in self.dead:
                continue
            node = pod["spec"]["nodeName"]
            environment = _environment(pod["spec"]["containers"][0])
            named = dict(word.split(":") for word in environment["UNLOAD"].split())
            ours = [name for name, identity in named.items() if self.live[node].get(name) == identity]
            same_boot = environment["BOOT_ID"] == self.boots[node]
            driver = f"{NAMESPACE}/{_labels(pod)[manifests.DRIVER_LABEL]}"
            if same_boot:
                self.owners = {key: owner for key, owner in self.owners.items() if (key[0], owner) != (node, driver)}
            verdict: Object = {"result": "Unloaded"}
            if ours and same_boot and node in self.in_use:
                verdict = {"result": "InUse", "module": ours[0], "message": "refcnt 1", "remaining": ours}
            elif same_boot:
                self.live[node] = {name: it for name, it in self.live[node].items() if name not in ours}
            ended = {"exitCode": 0, "message": json.dumps(verdict), "finishedAt": timestamp(self.now)}
            pod["status"] = {
                "phase": "Succeeded",
                "startTime": timestamp(self.now),
                "containerStatuses": [{"name": unload_pod.UNLOAD.container, "state": {"terminated": ended}}],
            }

    def _validate(self) -> None:
        """Play each new validation pod: its command ends at once."""
        for _, pod in self._objects("pods"):
            node = pod["spec"]["nodeName"]
            is_new = not pod.get("status") and "deletionTimestamp" not in pod["metadata"]
            is_of_plugin = validation_pod.PLUGIN_VALIDATION.label in _labels(pod)
            is_ours = is_of_plugin or validation_pod.VALIDATION.label in _labels(pod)
            if not is_new or not is_ours or node in self.dead | self.validating:
                continue
            done = self.plugin_validations if is_of_plugin else self.validations
            done.append((_labels(pod)[manifests.DRIVER_LABEL], node, self.boots[node]))
            fails = self.invalid.get(node, 0) > 0
            self.invalid[node] = self.invalid.get(node, 0) - fails
            ended = {"exitCode": int(fails), "message": "no answer" if fails else "", "finishedAt": timestamp(self.now)}
            pod["status"] = {
                "phase": "Failed" if fails else "Succeeded",
                "startTime": timestamp(self.now),
                "containerStatuses": [{"name": validation_pod.VALIDATION.container, "state": {"terminated": ended}}],
            }

    def _plug(self) -> None:
        """Play the plugins: a new pod is ready, and its node has the resource for as long as it runs."""
        for _, node in self._objects("nodes"):
            name = node["metadata"]["name"]
            pods = [pod for pod in self.pods_on(name) if plugin.STAGE_LABEL in _labels(pod)]
            for pod in pods:
                if not pod.get("status") and name not in self.dead:
                    ready = {"type": "Ready", "status": "True", "lastTransitionTime": timestamp(self.now)}
                    pod["status"] = {"phase": "Running", "conditions": [ready]}
            if pods or "status" in node:
                count = sum("deletionTimestamp" not in pod["metadata"] and bool(pod.get("status")) for pod in pods)
                is_there = count and name not in self.without_devices
                self._report(node, dict.fromkeys(self.plugged.get(name, (self.resource,)), str(int(bool(is_there)))))

    def _report(self, node: Object, allocatable: Object) -> None:
        """Play a kubelet: it reports what has changed."""
        if node["metadata"]["name"] in self.late or (node.get("status") or {}).get("allocatable") == allocatable:
            return
        heard = {"type": "Ready", "status": "True", "lastHeartbeatTime": timestamp(self.now)}
        node["status"] = {"allocatable": allocatable, "conditions": [heard]}

    # ------------------------------------------------------------ what can be said about it

    def settle(self, rounds: int = 60) -> int:
        """Let passes and rounds follow each other until a pass finds nothing to do and nothing moves; count them."""
        for number in range(rounds):
            before = copied(self.client.objects)
            decided = self.reconcile()
            self.finish_builds()
            self.finish_discoveries()
            self.turn()
            if not decided.actions and before == self.client.objects:
                return number
            # Tomorrow's kernel discovery is not waited for.
            due = decided.requeue_at or 0.0
            self.now = max(self.now + 1.0, due if due < self.now + DAY_SECONDS / 2 else 0.0)
        raise AssertionError(f"still moving after {rounds} rounds: {[str(action) for action in self.decide().actions]}")

    def nodes(self) -> dict[str, dict[str, str]]:
        """Return the ready labels of each node."""
        return {
            obj["metadata"]["name"]: {
                key: value for key, value in obj["metadata"]["labels"].items() if key.startswith(names.GROUP)
            }
            for _, obj in self._objects("nodes")
        }

    def selected(self) -> set[str]:
        """Name the nodes of the pool that drivers select."""
        return {
            obj["metadata"]["name"] for _, obj in self._objects("nodes") if obj["metadata"]["labels"]["pool"] == "edu"
        }

    def status(self, name: str = "edu") -> Object:
        """Return a driver's status."""
        status: Object = self.client.get(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=name))["status"]
        return status

    def working(self) -> set[str]:
        """Name the nodes on which a pod is ready and staying."""
        return {
            pod["spec"]["nodeName"]
            for _, pod in self._objects("pods")
            if "deletionTimestamp" not in pod["metadata"]
            and any(item["status"] == "True" for item in (pod.get("status") or {}).get("conditions", ()))
        }

    def daemon_sets(self) -> list[str]:
        """Name the kernels that have a DaemonSet."""
        return sorted(
            obj["metadata"]["annotations"][manifests.KERNEL_ANNOTATION] for _, obj in self._objects("daemonsets")
        )

    def read_driver(self, name: str = "edu") -> driver_container.DriverContainer:
        """Return a driver as the controller reads it."""
        return driver_container.parse(self.client.get(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=name)))


def pod_status(verdict: Object, *, ready: bool) -> Object:
    """Make the status that a kubelet writes when the loader has ended."""
    ended = {"exitCode": 0, "message": json.dumps(verdict)}
    return {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        "initContainerStatuses": [{"name": manifests.LOAD_CONTAINER, "state": {"terminated": ended}}],
        "containerStatuses": [{"name": manifests.HOLD_CONTAINER, "state": {"running": {}}}],
    }


def _pod_spec(spec: Object, leaves_modules: bool) -> Object:
    """Make a pod as it is wanted, or one of an older version, which unloads its modules when it ends."""
    older = [item for item in spec.get("initContainers", ()) if item["name"] != manifests.LOADER_CONTAINER]
    return spec if leaves_modules else {**spec, "initContainers": older}


def _environment(container: Object) -> dict[str, str]:
    return {item["name"]: item.get("value", "") for item in container.get("env") or ()}


def _is_refused(pod: Object) -> bool:
    """Return whether a pod did not load, and its loader is started again by the kubelet."""
    ended = pod["status"].get("initContainerStatuses") or [{}]
    message = ((ended[0].get("state") or {}).get("terminated") or {}).get("message") or "{}"
    return json.loads(message).get("result") in ("ModuleConflict", "DeviceNodeMissing", "WaitingForDependency")


def _labels(obj: Object) -> Mapping[str, str]:
    labels: Mapping[str, str] = obj["metadata"].get("labels") or {}
    return labels


def _is_of_before(pod: Object, template: Object) -> bool:
    """Return whether a rolling update replaces a pod: of ours those of plugins."""
    if plugin.STAGE_LABEL not in _labels(pod):
        return False
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return bool(
        spec != template["spec"] or pod["metadata"].get("annotations") != template["metadata"].get("annotations")
    )


def _is_driver_pod(pod: Object) -> bool:
    return manifests.TARGET_LABEL in _labels(pod)
