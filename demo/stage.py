"""What the scenario is about and where it runs: names, nodes, and the values that its steps pass on."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import docker
import yaml

from demo.cluster import NAMESPACE, Cluster
from driver_builder.base.reasons import SECTIONS, Reason
from kube_api import names

EXAMPLE = Path(__file__).parents[1] / "examples/edu-driver"
DRIVER = "edu"
SOURCE = "edu-driver-source"
EDU_LABEL = f"{names.FEATURE_LABEL_PREFIX}/pci-00ff_1234.present"
READY_LABEL = names.ready_label(NAMESPACE, DRIVER)
CONTROLLER = "app.kubernetes.io/name=driver-builder"
WORKER = "app.kubernetes.io/name=nfd-worker"
REPOSITORY = "drivers/edu"
BASE_IMAGE = "debian:bookworm-slim"
WORKER_CONFIG = yaml.safe_dump({"sources": {"pci": {"deviceClassWhitelist": ["00ff", "03", "0b40", "12"]}}})
"""Class 00ff is edu's."""

NODE_SECONDS = 600.0
BUILD_SECONDS = 600.0
LOAD_SECONDS = 600.0

MANY_FAILURES = 3
_UNMENDABLE = {Reason.HEADERS_MISSING, Reason.COMPILE_ERROR, Reason.TEMPLATE_INVALID}


class Kernel(Protocol):
    """A kernel that a node runs."""

    @property
    def release(self) -> str:
        """All of ``uname -r``."""


class Node(Protocol):
    """A node that the driver is for."""

    @property
    def name(self) -> str:
        """Its name in the cluster."""

    @property
    def kernel(self) -> Kernel:
        """The kernel it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where the scenario runs.

    ``registry`` is ``host[:port][/path]``; ``pull_secret`` names a Secret with its credentials, for the controller and
    the nodes.
    """

    cluster: Cluster
    engine: docker.APIClient
    registry: str
    plain_http: bool = False
    pull_secret: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What runs on a node: its kernel, the driver's module in it, and the devices that are bound to that."""

    kernel: str
    module: str
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One line of the final table."""

    node: str
    kernel: str
    image: str
    digest: str
    module: str
    device: str
    ready: str


def hopeless(target: Mapping[str, Any]) -> str | None:
    """Say why waiting for a target's image is in vain; None while it is not."""
    state, reason, failures = target.get("state"), target.get("reason"), int(target.get("failures") or 0)
    in_vain = (
        failures >= MANY_FAILURES
        or state == "Skipped"
        or (state == "Failed" and reason in {*_UNMENDABLE, *SECTIONS["Verification of what was built"]})
    )
    if not in_vain:
        return None
    times = f" ({failures} times)" if failures > 1 else ""
    return f"{reason}{times}: {target.get('message')}"
