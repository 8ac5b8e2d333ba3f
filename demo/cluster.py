"""What the scenario reads from a cluster, and how it waits: with a deadline, and with words for what it saw last."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from kube_api import names
from kube_api.client import Client
from kube_api.errors import KubeApiError, NotFound
from kube_api.resources import DAEMON_SETS, DRIVER_CONTAINERS, EVENTS, JOBS, NODES, PODS

Json = dict[str, Any]
T = TypeVar("T")

NAMESPACE = "driverwright"


class ScenarioError(Exception):
    """A step of the scenario failed; the message says what was waited for and what was seen last."""


class Cluster:
    """Reads a cluster for the scenario and its assertions."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def wait(
        self,
        what: str,
        check: Callable[[], T | None],
        *,
        timeout: float,
        seen: Callable[[], str] = str,
        detail: Callable[[str], None] | None = None,
        every: float = 0.5,
    ) -> T:
        """Call ``check`` until it gives something else than None.

        ``seen`` describes the present state, for ``detail`` while waiting and for the error at the end.

        Raises:
            ScenarioError: after ``timeout`` seconds.
        """
        end = time.monotonic() + timeout
        while True:
            is_last = time.monotonic() > end
            last = ""
            try:
                found = check()
                if found is not None:
                    return found
                if detail is not None or is_last:
                    last = seen()
            except KubeApiError as error:
                last = str(error)
            if detail is not None and last:
                detail(last)
            if is_last:
                raise ScenarioError(f"{what}: timed out after {timeout:.0f} s; last seen: {last or 'nothing'}")
            time.sleep(every)

    def node(self, name: str) -> Json:
        """Read a node whole."""
        return self.client.get(NODES.path(name=name))

    def labels(self, node: str) -> dict[str, str]:
        """Read a node's labels."""
        labels: dict[str, str] = self.node(node)["metadata"].get("labels") or {}
        return labels

    def driver(self, name: str) -> Json:
        """Read a DriverContainer."""
        return self.client.get(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name=name))

    def targets(self, driver: str) -> dict[str, Json]:
        """Read a driver's target statuses by kernel release."""
        status = self.driver(driver).get("status") or {}
        return {target["kernel"]: target for target in status.get("targets") or ()}

    def condition(self, driver: str, kind: str) -> Json:
        """Read one condition of a driver; empty when it is not there yet."""
        status = self.driver(driver).get("status") or {}
        return next((item for item in status.get("conditions") or () if item["type"] == kind), {})

    def describe_targets(self, driver: str) -> str:
        """Say how far a driver's targets are, in one line."""
        try:
            targets = self.targets(driver)
        except NotFound:
            return "no DriverContainer yet"
        words = [f"{kernel}: {target['state']} ({target['message']})" for kernel, target in targets.items()]
        return "; ".join(words) or "not observed yet"

    def daemon_sets(self, driver: str) -> list[Json]:
        """List a driver's DaemonSets."""
        selector = f"{names.GROUP}/driver-container={driver}"
        return self.client.list(DAEMON_SETS.path(namespace=NAMESPACE), label_selector=selector).items

    def driver_pods(self, driver: str) -> list[Json]:
        """List a driver's pods, without those that only pull its next image, or prove what another one has loaded."""
        selector = f"{names.GROUP}/driver-container={driver},!{names.GROUP}/pull,!{names.GROUP}/proof"
        return self.client.list(PODS.path(namespace=NAMESPACE), label_selector=selector).items

    def pods(self, selector: str) -> list[Json]:
        """List pods by label."""
        return self.client.list(PODS.path(namespace=NAMESPACE), label_selector=selector).items

    def events(self, driver: str) -> list[Json]:
        """List the Events on a driver, oldest first."""
        selector = f"involvedObject.kind=DriverContainer,involvedObject.name={driver}"
        items = self.client.list(EVENTS.path(namespace=NAMESPACE), field_selector=selector).items
        return sorted(items, key=lambda item: item["firstTimestamp"])

    def log_tail(self, selector: str, lines: int = 1) -> str:
        """Read the last lines of a pod's log; empty when there is none to read yet."""
        for pod in self.pods(selector):
            path = PODS.path(namespace=NAMESPACE, name=pod["metadata"]["name"], subresource="log")
            try:
                return "\n".join(self.client.follow(path, query={"tailLines": str(lines)})).strip()
            except KubeApiError:
                continue
        return ""

    def job_result(self, name: str) -> Json | None:
        """Give the terminated state of a Job's finished container, None while it runs."""
        job = self.client.get(JOBS.path(namespace=NAMESPACE, name=name))
        status = job.get("status") or {}
        if not status.get("succeeded") and not status.get("failed"):
            return None
        for pod in self.pods(f"job-name={name}"):
            for container in (pod.get("status") or {}).get("containerStatuses") or ():
                ended: Json | None = container["state"].get("terminated")
                if ended is not None:
                    return ended
        return None
