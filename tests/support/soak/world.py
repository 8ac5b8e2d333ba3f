"""The world of a soak: a driver that is edited, rebuilt, deleted and comes back, and its nodes.

All of it is written to the API server itself, past the proxies.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from kube_api import names
from kube_api.client import Client
from kube_api.errors import NotFound
from kube_api.resources import CONFIG_MAPS, DRIVER_CONTAINERS
from testbed.testbed import Testbed
from tests.support.driver_builder import factories
from tests.support.real_parts.cluster_setup import make_namespace
from tests.support.soak.fleet import Fleet
from tests.support.soak.schedule import Act

Json = dict[str, Any]

DRIVER = "edu"
MODULES = Path(__file__).parents[2] / "data" / "modules"
BUILT_FOR = "6.1.0-55-cloud-amd64"
KERNELS = (BUILT_FOR, "6.1.0-56-cloud-amd64", "6.1.0-47-cloud-amd64")
"""Their names are of one length: the module is made for another one by writing another name into it."""
TEMPLATE_NAME = "soak"
MODULE_PATH = "updates/dw_helper.ko"

FEWEST, MOST = 2, 6

BUILD = f"""\
mkdir -p /facts /out/driver "/out/lib/modules/$1/updates"
base64 -d /src/module | LC_ALL=C sed "s/{BUILT_FOR}/$1/g" >"/out/lib/modules/$1/{MODULE_PATH}"
echo {MODULE_PATH}: >"/out/lib/modules/$1/modules.dep"
echo {{life}} >/out/driver/loader
cp /src/Module.symvers /facts/
echo gcc >/facts/compiler
"""


def module_for(kernel: str) -> bytes:
    """Return the module that an image for a kernel must have."""
    return (MODULES / "dw_helper.ko").read_bytes().replace(BUILT_FOR.encode(), kernel.encode())


class World:
    """A driver in a namespace of its own, and its nodes. What is wanted is in ``version`` and ``rebuild``.

    Nodes run KERNELS, or ``compiled`` and the first two of these. ``absences`` are the API server's versions at which
    the driver was deleted, until it came back.
    """

    def __init__(self, ground: Testbed, client: Client, *, namespace: str, registry: str, compiled: str = "") -> None:
        self.namespace = namespace
        self._possible = tuple(dict.fromkeys((compiled or KERNELS[0], *KERNELS)))[: len(KERNELS)]
        self.rebuild = ""
        self.absences: list[range] = []
        self.fleet = Fleet(ground, client, namespace=namespace)
        self._client = client
        self._repository = f"{registry}/{namespace}/{DRIVER}"
        self._edits = self._rebuilds = self._cosmetics = 0
        self._level = self._settled = 0
        self._deleted_at: int | None = None
        self._path = DRIVER_CONTAINERS.path(namespace=namespace, name=DRIVER)

    @property
    def label(self) -> str:
        """The driver's ready label."""
        return names.ready_label(self.namespace, DRIVER)

    @property
    def version(self) -> str:
        """The version that is wanted."""
        return f"{self._level}.0.0"

    @property
    def rebuilds(self) -> int:
        """How many rebuilds of the driver were requested until now."""
        return self._rebuilds

    @property
    def is_deleted(self) -> bool:
        """Tell whether the driver was deleted, and is not to be back yet."""
        return self._deleted_at is not None

    def begin(self, nodes: int) -> None:
        """Make namespace, source, nodes and driver."""
        make_namespace(self._client, self.namespace)
        files = {
            "build.sh": BUILD.format(life=self.namespace),
            "Module.symvers": (MODULES / f"{BUILT_FOR}.symvers").read_text(),
            "module": base64.encodebytes((MODULES / "dw_helper.ko").read_bytes()).decode(),
            "dw_helper.c": (MODULES / "dw_helper.c").read_text(),
            "Makefile": "obj-m := dw_helper.o\n",
        }
        source = {"metadata": {"name": "source"}, "data": files}
        self._client.create(CONFIG_MAPS.path(namespace=self.namespace), source)
        for number in range(nodes):
            self.fleet.come(self._possible[number % len(self._possible)])
        self.fleet.start()
        self.act(Act.EDIT, 0)

    def act(self, act: Act, draw: int) -> None:
        """Change the world; ``draw`` chooses the node."""
        match act:
            case Act.EDIT:
                self._edits += 1
                self._level = self._edits
                self._apply()
            case Act.COSMETIC:
                self._cosmetics += 1
                self._apply()
            case Act.REBUILD:
                self._rebuilds += 1
                self.rebuild = f"request-{self._rebuilds}"
                annotations = {names.REBUILD_ANNOTATION: self.rebuild}
                self._client.patch(self._path, {"metadata": {"annotations": annotations}})
            case Act.DELETE:
                self._delete()
            case _:
                self._act_on_nodes(act, draw)

    def _act_on_nodes(self, act: Act, draw: int) -> None:
        kernels = self.fleet.kernels
        nodes = sorted(kernels)
        node = nodes[draw % len(nodes)]
        match act:
            case Act.JOIN if len(nodes) < MOST:
                self.fleet.come(self._possible[draw % len(self._possible)])
            case Act.LEAVE if len(nodes) > FEWEST:
                self.fleet.go(node)
            case Act.REBOOT | Act.JOIN | Act.LEAVE:
                self.fleet.boot(node, kernels[node])
            case Act.MOVE:
                others = [other for other in self._possible if other != kernels[node]]
                self.fleet.boot(node, others[draw % len(others)])
            case Act.DRIFT if self.fleet.lose_module(node):
                pass
            case Act.DRIFT | Act.LATE_BOOT:
                self.fleet.boot(node, kernels[node], is_late=True)
            case Act.NODE_REBUILD:
                self.fleet.request_rebuild(node)
            case _:
                raise ValueError(f"{act} is no change of the world")

    def _delete(self) -> None:
        """Delete the driver, and forget all requests: one that is made anew would hear them as new ones."""
        going = self._client.delete(self._path)
        self._deleted_at = int(going["metadata"]["resourceVersion"])
        self.rebuild = ""
        self.fleet.forget_requests()

    def settle(self) -> None:
        """Remember the driver as it is: all is well."""
        self._settled = self._level

    def is_gone(self) -> bool:
        """Tell whether the driver that was deleted is gone."""
        try:
            self.driver()
        except NotFound:
            return True
        return False

    def come_back(self) -> None:
        """Let the driver that was deleted come back as it was when all was well the last time."""
        assert self._deleted_at is not None
        self._level = self._settled
        made = self._apply()
        self.absences.append(range(self._deleted_at, int(made["metadata"]["resourceVersion"])))
        self._deleted_at = None

    def _apply(self) -> Json:
        changes: Json = {
            "version": self.version,
            "nodeSelector": {"pool": self.namespace},
            "image": self._repository,
            "registry": {"plainHttp": True},
            "source": {"configMap": {"name": "source"}},
            "module": {"names": ["dw_helper"], "parameters": {"dw_helper": [f"level={self._level}"]}},
            "validation": {"taint": True},
            "build": {"template": TEMPLATE_NAME, "baseImage": "debian:bookworm-slim"},
            "kernelMappings": [{"literal": kernel} for kernel in self._possible],
            # Of pods alone: no node has anything of it.
            "tolerations": [{"operator": "Exists"}, {"key": f"cosmetic-{self._cosmetics}", "operator": "Exists"}],
        }
        body = factories.driver_object(DRIVER, spec_changes=changes)
        body["metadata"] = {"name": DRIVER, "namespace": self.namespace}
        del body["status"]
        return self._client.apply(self._path, body, field_manager="somebody")

    def driver(self) -> Json:
        """Read the driver."""
        return self._client.get(self._path)
