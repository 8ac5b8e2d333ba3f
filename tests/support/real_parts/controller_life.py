"""A controller's real process between two proxies, and all that it lives through: killed where a test wants it.

API server, engine and registry are real; the kubelets of two nodes are played.
"""

from __future__ import annotations

import base64
import itertools
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from driver_builder.api import unloading
from driver_builder.objects import manifests
from kube_api import names
from kube_api.client import Client
from kube_api.errors import NotFound
from kube_api.resources import CONFIG_MAPS, DAEMON_SETS, DRIVER_CONTAINERS, EVENTS
from testbed import metrics
from testbed.kubeconfig import kubeconfig_text, token_user, write_kubeconfig
from testbed.ports import free_ports
from testbed.testbed import Testbed
from tests.support.driver_builder import factories
from tests.support.real_parts.cluster_setup import admin, install, make_namespace, remove_namespace
from tests.support.real_parts.played_nodes import PlayedNodes
from tests.support.real_parts.tapped import ANY_PORT, Tap, words_of, write_in_detail, write_name

Json = dict[str, Any]

ROOT = Path(__file__).parents[3]
MODULES = ROOT / "tests" / "data" / "modules"
KERNEL, SKIPPED_KERNEL = "6.1.0-55-cloud-amd64", "6.1.0-47-cloud-amd64"
WAIT_SECONDS = 600.0
_NUMBERS = itertools.count(1)
"""Of lives: the files of a session share an API server, where a namespace may still be on its way out."""
BUILD = """\
mkdir -p /facts /out/driver "/out/lib/modules/$1/updates"
base64 -d /src/module >"/out/lib/modules/$1/updates/dw_helper.ko"
echo updates/dw_helper.ko: >"/out/lib/modules/$1/modules.dep"
echo {life} >/out/driver/loader
cp /src/Module.symvers /facts/
echo gcc >/facts/compiler
"""
"""Of each life's own: lives share an engine, and one that is done with an image removes it."""
TEMPLATE = """\
{# recipe: 1 #}
FROM {{ base_image }} AS build
COPY source/ /src/
RUN sh /src/build.sh {{ kernel_version }}
FROM scratch
COPY --from=build /out/ /
"""
"""Takes a compiled module. The build keys of recorded landings have its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """The ``number``-th write of a name in a stage."""

    stage: str
    name: str
    number: int

    def __str__(self) -> str:
        return f"{self.stage}: {self.name}" + (f" ({self.number})" if self.number > 1 else "")


class Life:
    """One driver from its apply to its deletion, in a namespace of its own, with a controller that can be killed.

    ``registry_at`` is where its registry is to be, ``port`` where the controller is to tell its metrics,
    ``resync_seconds`` how often it is to look though nothing changes, ``spec`` what its driver has beside the rest.
    With ``detail`` the names of writes say what a Node gets and what a pod is for.
    """

    def __init__(
        self,
        parts: Parts,
        name: str,
        kills: frozenset[Boundary] = frozenset(),
        *,
        registry_at: tuple[str, int] = ANY_PORT,
        port: int = 0,
        resync_seconds: int = 5,
        spec: Json | None = None,
        detail: bool = False,
    ) -> None:
        self.name = name
        self._spec = spec or {}
        self._port = port
        self._resync_seconds = resync_seconds
        self.writes: list[Boundary] = []
        self.moments: list[Boundary] = []
        """One boundary of each write: a patch of a Node in detail has one for each thing that it changes."""
        self.killed: list[Boundary] = []
        self._stage = "born"
        self._kills = kills
        self._parts = parts
        self._lock = threading.Lock()
        self.root = parts.root
        self._controller: subprocess.Popen[bytes] | None = None
        self._started = 0
        self._ended = 0
        self.sources: tuple[Path, ...] = (ROOT,)
        """The trees whose controllers run, each until it is killed; the last one for good."""
        self.flags: dict[Path, tuple[str, ...]] = {}
        """By which a tree whose version has other ones is told how long to wait."""
        self._folder = parts.folder / name
        self._folder.mkdir()
        named = write_in_detail if detail else write_name
        self._api = Tap(parts.cluster.api_server, self._saw, ca_file=str(parts.cluster.ca_file), name=named)
        self.may_push = threading.Event()
        self.may_push.set()
        registry = f"http://{parts.builds.registry.host}"
        self._registry = Tap(registry, self._saw, coming=self._wait_to_push, at=registry_at)
        self.nodes = PlayedNodes(parts.cluster, self.root, namespace=name, pool=name)
        token = token_user(parts.cluster.admin_token)
        text = kubeconfig_text(f"http://{self._api.host}", parts.cluster.ca_file.read_bytes(), token)
        self._kubeconfig = write_kubeconfig(self._folder / "kubeconfig", text)

    @property
    def _build_script(self) -> str:
        return BUILD.format(life=self.name)

    # ------------------------------------------------------------ the controller

    def _saw(self, name: str) -> bool:
        """Note a write; at a boundary that is wanted the controller is dead before this returns."""
        with self._lock:
            boundaries = [self._next(word) for word in words_of(name)]
            self.writes += boundaries
            self.moments.append(boundaries[0])
            wanted = [item for item in boundaries if item in self._kills and item not in self.killed]
            if not wanted or self._controller is None:
                return False
            self.killed += wanted
            self.kill()
            return True

    def _next(self, name: str) -> Boundary:
        number = 1 + sum((known.stage, known.name) == (self._stage, name) for known in self.writes)
        return Boundary(stage=self._stage, name=name, number=number)

    def _wait_to_push(self, name: str) -> None:
        if name == "begin a blob":
            self.may_push.wait(WAIT_SECONDS)

    def kill(self) -> None:
        """SIGKILL."""
        assert self._controller is not None
        self._controller.kill()
        self._controller.wait()
        self._ended += 1

    def keep_running(self) -> None:
        """Start a controller where none runs, as the kubelet would: in the same pod, under the same name."""
        with self._lock:
            if self._controller is not None and self._controller.poll() is None:
                return
            killed = self._controller is None or self._controller.returncode == -9
            assert killed or self._has_lost_its_lease(), self.log()[-3000:]
            source = self.sources[min(self._ended, len(self.sources) - 1)]
            argv = [
                sys.executable, "-m", "driver_builder", "run", "--kubeconfig", str(self._kubeconfig),
                "--namespace", self.name, "--docker-host", self._parts.builds.engine.socket,
                "--templates", str(self._parts.templates), "--port", str(self._port),
                "--loader-image", "r.io/l:1", "--no-feature-rules", "--registry-allowed-hosts", self._registry.host,
                *self.flags.get(source, ("--test-waits", f"{self._resync_seconds},1,3600")),
            ]  # fmt: skip
            environment = os.environ | {"POD_NAME": "controller-0"}
            with (self._folder / "controller.log").open("ab") as log:
                self._controller = subprocess.Popen(argv, stdout=log, stderr=log, cwd=source, env=environment)
            self._started += 1

    def _has_lost_its_lease(self) -> bool:
        """Return whether the controller ended as it must when the API server takes seconds to answer."""
        return any("lease: not renewed for" in line for line in self.log().splitlines()[-10:])

    def log(self) -> str:
        """Return what all controllers of this life said."""
        path = self._folder / "controller.log"
        return path.read_text() if path.exists() else ""

    def builds(self) -> Counter[str]:
        """Count the builds that were started, by key."""
        return Counter(re.findall(r"build (\w+): starting ", self.log()))

    def passes(self) -> float:
        """Count the reconciles that the controller has done since it was started."""
        return metrics.read(self._port, "driver_builder_reconcile_seconds_count")

    def until(self, what: str, reached: Callable[[], object]) -> None:
        """Let controllers live, die and be started again until something is reached."""
        end, kills = time.monotonic() + WAIT_SECONDS, len(self.killed)
        while not reached():
            self.keep_running()
            if len(self.killed) > kills:
                end, kills = time.monotonic() + WAIT_SECONDS, len(self.killed)
            assert time.monotonic() < end, f"{self.name}: not reached: {what}: {self.log()[-3000:]}"
            time.sleep(0.3)

    def settle(self) -> None:
        """Wait until the controller that runs knows its image and does passes in which nothing moves."""
        checks = "driver_builder_registry_checks_total"
        self.until("a registry has answered", lambda: metrics.read(self._port, checks) > 0)
        self.until("what was built is rolled out", self._has_what_it_built)
        self.rest()

    def rest(self) -> None:
        """Wait until one controller has written nothing for a second and two passes: the first may have begun before.

        However long it takes from one write to the next, the last word of a pass is said by then.
        """
        writes, lives, passes, since = -1, 0, 0.0, 0.0

        def rests() -> bool:
            nonlocal writes, lives, passes, since
            now = self.passes()
            if (writes, lives) != (len(self.writes), self._started) or now < passes:
                writes, lives, passes, since = len(self.writes), self._started, now, time.monotonic()
            return now >= passes + 2 and time.monotonic() >= since + 1.0

        self.until("nothing moves", rests)

    def _has_what_it_built(self) -> bool:
        targets = (self._driver().get("status") or {}).get("targets") or ()
        ready = {target["buildKey"] for target in targets if target["state"] == "Ready"}
        return set(list(self.builds())[-1:]) <= ready

    # ------------------------------------------------------------ its stages

    def begin(self) -> None:
        """Make the namespace, the source and two nodes."""
        make_namespace(self.root, self.name)
        module = (MODULES / "dw_helper.ko").read_bytes()
        files = {"build.sh": self._build_script, "Module.symvers": (MODULES / f"{KERNEL}.symvers").read_text()}
        source = {"metadata": {"name": "source"}, "data": {**files, "module": _base64(module)}}
        self.root.create(CONFIG_MAPS.path(namespace=self.name), source)
        for letter in "ab":
            self.nodes.add(f"{self.name}-{letter}", KERNEL)
        self.nodes.start()

    def end(self) -> None:
        """Take everything away."""
        with self._lock:
            self._kills = frozenset()
            self.may_push.set()
            if self._controller is not None:
                self.kill()
        self.nodes.stop()
        self._api.close()
        self._registry.close()
        remove_namespace(self.root, self.name)

    def enter(self, stage: str, do: Callable[[Life], None]) -> Json:
        """Do what a stage is about, wait until nothing moves any more, and give the state then."""
        self._stage = stage
        do(self)
        # What is still under way is a part of the stage, too.
        self.rest()
        return self.state()

    def apply(self, version: str, **module: Any) -> None:
        """Ask for a version of the driver, and for what ``module`` says beside its parameters."""
        changes: Json = {
            "version": version,
            "nodeSelector": {"pool": self.name},
            "image": f"{self._registry.host}/{self.name}/edu",
            "registry": {"plainHttp": True},
            "source": {"configMap": {"name": "source"}},
            # What is on the node changes with the version: else no pod would be replaced.
            "module": {"names": ["dw_helper"], "parameters": {"dw_helper": [f"level={version[0]}"]}, **module},
            "build": {"template": "quick", "baseImage": "debian:bookworm-slim"},
            "kernelMappings": [{"literal": KERNEL}],
            **self._spec,
        }
        body = factories.driver_object("edu", spec_changes=changes)
        body["metadata"] = {"name": "edu", "namespace": self.name}
        del body["status"]
        self.root.apply(self._path, body, field_manager="somebody")

    def change_source(self) -> None:
        """Let somebody edit the source."""
        path = CONFIG_MAPS.path(namespace=self.name, name="source")
        self.root.patch(path, {"data": {"build.sh": f"{self._build_script}echo edited\n"}})

    def wait_for_version(self, version: str) -> None:
        """Wait until both nodes are proven to run a version, and the status says so."""
        label = names.ready_label(self.name, "edu")
        self.until(f"labels say {version}", lambda: set(self.nodes.ready_labels(label).values()) == {version})
        self.until("the status is Ready", lambda: self._ready() == ("True", "AllNodesReady"))

    def wait_for_end_of_wave(self) -> None:
        """Wait until every node has what is wanted, and nothing of the wave is left but what it brought."""

        def is_over() -> bool:
            moved = any(self.nodes.ready_labels(names.wave_label(self.name, "edu")).values())
            pods = len(self.nodes.pods()) == len(self.nodes.names())
            return pods and not moved and "rollout" not in (self._driver().get("status") or {})

        self.until("the wave is over", is_over)

    def _conditions(self) -> dict[str, Json]:
        status = self._driver().get("status") or {}
        return {item["type"]: item for item in status.get("conditions") or ()}

    def _ready(self) -> tuple[str, str]:
        condition = self._conditions().get("Ready", {})
        return condition.get("status", ""), condition.get("reason", "")

    def _is_unloaded(self) -> bool:
        condition = self._conditions().get(unloading.CONDITION)
        return condition is None or condition["status"] == "False"

    def move_nodes(self) -> None:
        """Boot both nodes into a kernel for which no mapping wants a driver."""
        for letter in "ab":
            self.nodes.reboot(f"{self.name}-{letter}", SKIPPED_KERNEL)
        self.until("no DaemonSet is left", lambda: self._daemon_sets() == [] and self.nodes.pods() == [])
        self.until("the status says so", lambda: self._ready() == ("False", "NoMatchingNodes"))
        # An unload pod may come after the DaemonSet has gone.
        self.until("nothing is left to unload", lambda: self._is_unloaded() and self.nodes.pods() == [])

    def delete(self) -> None:
        """Delete the driver and wait until it is gone."""
        self.root.delete(self._path)
        self.until("the driver is gone", lambda: self._driver() == {})

    # ------------------------------------------------------------ what can be seen

    @property
    def _path(self) -> str:
        return DRIVER_CONTAINERS.path(namespace=self.name, name="edu")

    def _driver(self) -> Json:
        try:
            return self.root.get(self._path)
        except NotFound:
            return {}

    def _daemon_sets(self) -> list[Json]:
        path = DAEMON_SETS.path(namespace=self.name)
        return self.root.list(path, label_selector=manifests.DRIVER_LABEL).items

    def tags(self) -> list[str]:
        """Return the tags in the driver's repository, and that of each list of documents."""
        answer = self._parts.tags(f"{self.name}/edu")
        return sorted("documents" if tag.startswith("sha256-") else tag.rpartition("-")[0] for tag in answer)

    def state(self) -> Json:
        """Return what is the same in every life that went the same way: no times, no names of its own."""
        status = self._driver().get("status") or {}
        targets, conditions = status.get("targets") or (), status.get("conditions") or ()
        events = self.root.list(EVENTS.path(namespace=self.name)).items
        pulled = {obj["spec"]["template"]["spec"]["containers"][0]["image"] for obj in self._daemon_sets()}
        digests = {target["imageDigest"] for target in targets if "imageDigest" in target}
        assert {image.partition("@")[2] for image in pulled} == digests
        return {
            "conditions": {item["type"]: (item["status"], item["reason"], item["message"]) for item in conditions},
            "targets": [{key: target.get(key) for key in _COMPARED} for target in targets],
            "finalizers": (self._driver().get("metadata") or {}).get("finalizers"),
            "nodes": [_ours(obj, self.name) for obj in self.nodes.objects()],
            "labels": list(self.nodes.ready_labels(names.ready_label(self.name, "edu")).values()),
            "daemon sets": len(pulled),
            "pods": len(self.nodes.pods()),
            "tags": self.tags(),
            "news": sorted({event["reason"] for event in events}.difference(_IN_PASSING)),
        }


_IN_PASSING = frozenset({"BuildStarted", "RollingOut"})
"""News of states that a controller may never see: another one may find them over."""
_COMPARED = ("kernel", "state", "reason", "nodes", "readyNodes", "failures")


def _ours(node: Json, life: str) -> list[str]:
    """Name what a Node has of the controller: labels, annotations and taints."""
    metadata, taints = node["metadata"], node["spec"].get("taints") or ()
    keys = [*metadata["labels"], *(metadata.get("annotations") or ()), *(f"taint {item['key']}" for item in taints)]
    return sorted(key.replace(f"{life}.", "life.") for key in keys if names.GROUP in key)


def _base64(content: bytes) -> str:
    return base64.encodebytes(content).decode()


@dataclass
class Parts:
    """What all lives share."""

    cluster: Testbed
    builds: Testbed
    root: Client
    templates: Path
    folder: Path
    lives: list[Life] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def on(cls, cluster: Testbed, builds: Testbed, folder: Path) -> Parts:
        """Take an API server, an engine and a registry, and install what controllers need of the cluster."""
        templates = folder / "templates"
        templates.mkdir()
        (templates / "quick.Dockerfile.j2").write_text(TEMPLATE)
        root = admin(cluster)
        install(root)
        return cls(cluster, builds, root, templates, folder)

    def tags(self, repository: str) -> list[str]:
        """List the tags of a repository."""
        answer = requests.get(f"http://{self.builds.registry.host}/v2/{repository}/tags/list", timeout=30)
        return list(answer.json().get("tags") or []) if answer.status_code == 200 else []

    def life(self, kills: frozenset[Boundary] = frozenset(), *, spec: Json | None = None, detail: bool = False) -> Life:
        """Begin a life."""
        with self.lock:
            name, (port,) = f"killed-{next(_NUMBERS)}", free_ports(1)
            made = Life(self, name, kills, port=port, resync_seconds=1, spec=spec, detail=detail)
            self.lives.append(made)
        made.begin()
        return made
