"""The scenario on the user's own cluster: no node is made, rebooted or looked into, and nothing is left behind.

Which steps run depends on the cluster: labels always; the driver where a node has the edu device. Jobs build it, or an
engine that the cluster's owner names.
"""

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from demo import deploy, removal
from demo.cluster import NAMESPACE, Cluster, Json, ScenarioError
from demo.own_nodes import ARCHITECTURE, OwnNode, Surroundings
from demo.own_settings import OwnSettings
from demo.patient import PatientClient
from demo.stage import CONTROLLER, DRIVER, EDU_LABEL, LOAD_SECONDS, NODE_SECONDS, WORKER, WORKER_CONFIG, Seen, Stage
from demo.steps import Steps
from driver_builder.model.image_state import Invalid, Unauthorized, Unreachable
from driver_builder.model.registry_reach import Reach
from driver_builder.objects import load_report
from driver_builder.registry.registry import RegistryClient
from kube_api import names
from kube_api.errors import KubeApiError, NotFound
from kube_api.resources import DRIVER_CONTAINERS, EVENTS, NODES, SECRETS
from kube_api.resources import of as resource_of
from testbed.progress import Progress
from tools import product_images

BUILDER_LABEL = f"{names.GROUP}/builder"
PULL_SECRET = "registry-credentials"

_ALL_PODS = "app.kubernetes.io/part-of=driverwright"
_WORKLOADS = ("driver-builder", "nfd-worker")
_HOST_PORTS = {"driver-builder": 9810, "nfd-worker": 9809}
_OUR_PLATFORM = {"kubernetes.io/os": "linux", "kubernetes.io/arch": ARCHITECTURE}


class OwnClusterScenario(Steps[OwnNode]):
    """The scenario on the user's own cluster, as far as its nodes allow."""

    def __init__(self, settings: OwnSettings, progress: Progress) -> None:
        client = PatientClient.from_environment(str(settings.kubeconfig))
        stage = Stage(
            cluster=Cluster(client),
            engine=product_images.local_engine(),
            registry=settings.registry,
            plain_http=settings.plain_http,
            pull_secret=PULL_SECRET if settings.pull_secret else None,
        )
        super().__init__(stage, progress)
        self.settings = settings
        self._before: Mapping[str, Json] = {}

    # -------------------------------------------------------------- before anything is done

    def look_around(self) -> Surroundings:
        """Reach API server, engine and registry, and say what they are."""
        with self.progress.step("Reach the API server, the container engine and the registry"):
            version = self.stage.engine.version()
            if version["Arch"] != ARCHITECTURE:
                raise ScenarioError(
                    f"the container engine builds for {version['Arch']}, the demo's images are {ARCHITECTURE}"
                )
            nodes = tuple(self.all_nodes())
            if not any(node.can_run_us for node in nodes):
                raise ScenarioError(f"no node is Ready and linux/{ARCHITECTURE}: {len(nodes)} nodes in all")
            return Surroundings(
                server=str(self.cluster.client.get("/version")["gitVersion"]),
                engine=str(version["Version"]),
                registry=f"{self.settings.registry} {self._ask_registry()}",
                nodes=nodes,
            )

    def _ask_registry(self) -> str:
        host, _, path = self.settings.registry.partition("/")
        repository = f"{path}/driverwright/nfd-worker".lstrip("/")
        match RegistryClient(host, plain_http=self.settings.plain_http, reach=Reach(local=True)).inspect(
            repository, "latest"
        ):
            case Unauthorized():
                return "answers, and wants credentials"
            case Unreachable() | Invalid() as refusal:
                hint = "" if self.settings.plain_http else "; DEMO_PLAIN_HTTP=1 speaks to a registry without TLS"
                raise ScenarioError(f"DEMO_REGISTRY: {refusal.message}{hint}")
            case _:
                return "answers"

    def all_nodes(self) -> list[OwnNode]:
        """List every node of the cluster."""
        return [OwnNode.of(item) for item in self._raw_nodes()]

    def _raw_nodes(self) -> list[Json]:
        return self.cluster.client.list(NODES.path()).items

    def make_room(self) -> None:
        """Make sure that nothing of ours is there; with DEMO_FORCE=1 take away what an earlier demo left.

        Raises:
            ScenarioError: it names what is there.
        """
        with self.progress.step("Check that nothing of an earlier demo is left"):
            there = self._what_is_there()
            if there and not self.settings.force:
                raise ScenarioError(
                    f"the cluster already has: {', '.join(there)}. Nothing was changed. Remove what an earlier"
                    f" demo left with {self.settings.removal_command}; DEMO_FORCE=1 does that and continues; it"
                    " overwrites objects of others with these names"
                )
        if there:
            removal.remove(self.cluster, self.progress)
            self._refuse_a_driver_of_others()
        self._before = {node["metadata"]["name"]: node["metadata"] for node in self._raw_nodes()}

    def _refuse_a_driver_of_others(self) -> None:
        path = DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=DRIVER)
        if not self._is_gone(path):
            raise ScenarioError(
                f"there is a DriverContainer {NAMESPACE}/{DRIVER} that the demo did not make: delete it first"
            )

    def _what_is_there(self) -> list[str]:
        ours = [obj for obj in self.manifests() if not resource_of(obj).namespaced]
        there = [f"{obj['kind']} {obj['metadata']['name']}" for obj in ours if self._existing(obj) is not None]
        labelled = [node.name for node in self.all_nodes() if node.worker_labels]
        return there + [f"labels of an nfd-worker on node {name}" for name in labelled]

    # -------------------------------------------------------------- what the shared steps ask

    def nodes(self) -> Sequence[OwnNode]:
        """List the nodes with an edu device."""
        return [node for node in self.all_nodes() if node.can_run_us and EDU_LABEL in node.labels]

    def overlay(self) -> deploy.Overlay:
        """What this cluster needs changed in ``deploy/``: what its owner says, and a controller that looks often."""
        settings = self.settings
        api = dict(zip(("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"), settings.api or (), strict=False))
        # The demo's owner has said both: a registry without TLS, and what it wants to be shown.
        in_the_clear = settings.plain_http and settings.pull_secret is not None
        passwords = {"DRIVER_BUILDER_REGISTRY_PLAIN_HTTP_PASSWORDS": "true"} if in_the_clear else {}
        ports = _HOST_PORTS if settings.host_network else {}
        port_flags = {name: (f"--port={port}",) for name, port in ports.items()}
        # It may be on the nodes themselves.
        host = {"DRIVER_BUILDER_REGISTRY_ALLOWED_HOSTS": settings.registry.partition("/")[0]}
        jobs = {"DRIVER_BUILDER_JOB_HOST_NETWORK": "true"} if settings.host_network else {}
        # They would stay in the owner's registry, and the demo ends before they save anything.
        toolchains = {"DRIVER_BUILDER_TOOLCHAINS": "false"}
        often = {"DRIVER_BUILDER_TEST_WAITS": "10,30,3600"}
        where = {BUILDER_LABEL: "true"} if settings.engine_socket else {}
        return deploy.Overlay(
            images=self.images,
            host_network=settings.host_network,
            environment={
                **dict.fromkeys(_WORKLOADS, api),
                "driver-builder": {**api, **passwords, **host, **jobs, **toolchains, **often},
            },
            arguments=port_flags,
            probe_ports=ports,
            engine_socket=settings.engine_socket,
            node_selectors={"nfd-worker": _OUR_PLATFORM, "driver-builder": {**where, **_OUR_PLATFORM}},
            worker_config=WORKER_CONFIG,
            pull_secret=self.stage.pull_secret,
        )

    def manifests(self) -> Iterator[Json]:
        """Yield what is deployed; the registry's credentials follow the namespace."""
        for obj in super().manifests():
            yield obj
            if obj["kind"] == "Namespace" and self.settings.pull_secret is not None:
                yield {
                    "apiVersion": SECRETS.api_version,
                    "kind": SECRETS.kind,
                    "metadata": {"name": PULL_SECRET, "namespace": NAMESPACE},
                    "type": "kubernetes.io/dockerconfigjson",
                    "stringData": {".dockerconfigjson": self.settings.pull_secret.read_text()},
                }

    def apply(self, objects: Iterable[Json]) -> None:
        """Apply objects; those that are not there yet are marked as the demo's, to be taken away at the end."""
        super().apply(self._marked(obj) for obj in objects)

    def _marked(self, obj: Json) -> Json:
        existing = self._existing(obj)
        if existing is not None and not removal.is_marked(existing):
            return obj
        labels = {**(obj["metadata"].get("labels") or {}), **removal.MARK}
        return {**obj, "metadata": {**obj["metadata"], "labels": labels}}

    def _existing(self, obj: Json) -> Json | None:
        try:
            return self.cluster.client.get(deploy.path_of(obj))
        except NotFound:
            return None

    def look_at(self, node: OwnNode) -> Seen:
        """Read what the loader on the node has reported."""
        for pod in self.cluster.driver_pods(DRIVER):
            if pod["spec"].get("nodeName") == node.name:
                verdict = _verdict(pod)
                if verdict is not None:
                    return Seen(
                        kernel=verdict.kernel,
                        module=" ".join(f"{module.name} {module.identity}" for module in verdict.modules),
                        device=" ".join(device for module in verdict.modules for device in module.devices),
                    )
        return Seen(kernel=node.kernel.release, module="", device="")

    # -------------------------------------------------------------- steps of this scenario alone

    def build_product(self) -> None:
        """Build and push the images; nodes are given their digests, as they may have older ones of these names."""
        super().build_product()
        self.images = {name: self._by_digest(reference) for name, reference in self.images.items()}

    def _by_digest(self, reference: str) -> str:
        repository = reference.rpartition(":")[0]
        known = self.stage.engine.inspect_image(reference).get("RepoDigests") or []
        return next((name for name in known if name.startswith(f"{repository}@")), reference)

    def wait_for_labels(self) -> list[OwnNode]:
        """Wait until nfd-worker has labelled every Ready Linux node with the kernel that its kubelet reports."""
        with self.progress.step("nfd-worker labels the nodes") as step:
            return self.cluster.wait(
                "every Ready Linux node is labelled",
                lambda: None if self._unlabelled() else [node for node in self.all_nodes() if node.worker_labels],
                timeout=NODE_SECONDS,
                seen=lambda: f"not yet: {', '.join(self._unlabelled())}; workers: {self.describe_pods(WORKER)}",
                detail=step.detail,
            )

    def _unlabelled(self) -> list[str]:
        return [node.name for node in self.all_nodes() if node.can_run_us and not node.is_labelled]

    def wait_until_observed(self) -> None:
        """Wait until driver-builder has said something about the driver."""
        with self.progress.step("driver-builder looks at the DriverContainer") as step:
            self.cluster.wait(
                "the DriverContainer has a status",
                lambda: self.cluster.condition(DRIVER, "Ready") or None,
                timeout=LOAD_SECONDS,
                seen=lambda: self.describe_pods(CONTROLLER),
                detail=step.detail,
            )

    def driver_builder(self, command: str) -> str:
        """Run ``driver-builder plan`` or ``status`` here, as an admin would; gives what it prints."""
        argv = [sys.executable, "-m", "driver_builder", "--log-level=warning", command, "--kubeconfig"]
        argv += [str(self.settings.kubeconfig), "--namespace", NAMESPACE]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
        return (done.stdout + done.stderr).strip()

    def evidence(self) -> list[str]:
        """Collect what may say why a step failed: pods, warnings, the programs' last words."""
        readers: dict[str, Callable[[], str]] = {
            "pods": lambda: self.describe_pods(_ALL_PODS).replace("; ", "\n"),
            "targets": lambda: self.cluster.describe_targets(DRIVER),
            "warnings": self._warnings,
            "driver-builder": lambda: self.cluster.log_tail(CONTROLLER, 10),
            "nfd-worker": lambda: self.cluster.log_tail(WORKER, 10),
        }
        return [f"{what}:\n{said}" for what, read in readers.items() if (said := _or_error(read))]

    def _warnings(self) -> str:
        events = self.cluster.client.list(EVENTS.path(namespace=NAMESPACE), field_selector="type=Warning").items
        lines = [
            f"{item['involvedObject'].get('name')}: {item.get('reason')}: {item.get('message')}" for item in events
        ]
        return "\n".join(lines[-10:])

    def remove(self) -> None:
        """Take everything away that the demo made, and give nodes back what labels of theirs it had changed."""
        removal.remove(self.cluster, self.progress, before=self._before)


def _or_error(read: Callable[[], str]) -> str:
    try:
        return read()
    except KubeApiError as error:
        return str(error)


def _verdict(pod: Json) -> load_report.LoadReport | None:
    for container in (pod.get("status") or {}).get("initContainerStatuses") or ():
        ended = container["state"].get("terminated") or {}
        verdict = load_report.parse(ended.get("message", ""))
        if verdict is not None:
            return verdict
    return None
