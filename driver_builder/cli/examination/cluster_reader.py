"""Reads objects of the cluster one by one: what cannot be read is an answer, and stops nothing."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from driver_builder.checks.check_rights import Right
from driver_builder.checks.deployed import NAME_LABEL
from driver_builder.checks.finding import Unread
from kube_api.client import Client
from kube_api.errors import Forbidden, KubeApiError, NotFound
from kube_api.resources import ACCESS_REVIEWS, OWN_ACCESS_REVIEWS, PODS, Resource
from kube_api.text import printable

Json = dict[str, Any]
Value = TypeVar("Value")

AT_ONCE = 8
"""Requests: a namespace has forty permissions to ask about."""
LOG_LINES = 2000
MAX_LOG = 2 << 20
"""Bytes of one log."""
_ASKED_FOR_VERSION = 3
"""Pods of which the version is asked."""
_BUILD_INFO = re.compile(r'^\w+_build_info\{[^}\n]*version="([^"\n]{1,63})"', re.MULTILINE)


def attempt(read: Callable[[], Value]) -> Value | Unread | None:
    """Return what is read, None of what does not exist, and why something cannot be read."""
    try:
        return read()
    except NotFound:
        return None
    except KubeApiError as error:
        return Unread(message=printable(str(error)), is_forbidden=isinstance(error, Forbidden))


class ClusterReader:
    """Reads from one API server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> Json | Unread | None:
        """Read an object."""
        return attempt(lambda: self._client.get(resource.path(namespace=namespace, name=name)))

    def items(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        reduce: Callable[[Json], Value],
    ) -> tuple[Value, ...] | Unread:
        """Read a collection, of which ``reduce`` keeps what is needed; one that does not exist is empty."""

        def read() -> tuple[Value, ...]:
            pages = self._client.pages(resource.path(namespace=namespace), label_selector=label_selector)
            return tuple(reduce(item) for page in pages for item in page.items)

        return attempt(read) or ()

    def pods_of(self, program: str, namespace: str) -> tuple[Json, ...] | Unread:
        """Read the pods of one of our programs: names, ports and status."""
        return self.items(PODS, namespace, label_selector=f"{NAME_LABEL}={program}", reduce=_essential)

    def reviews(self, rights: Iterable[Right], account: tuple[str, str] | None) -> Mapping[Right, bool | Unread]:
        """Ask what a service account may do, given as namespace and name; without one, what we may do ourselves."""
        every = tuple(rights)
        with ThreadPoolExecutor(AT_ONCE) as threads:
            return dict(zip(every, threads.map(lambda right: self._review(right, account), every), strict=True))

    def _review(self, right: Right, account: tuple[str, str] | None) -> bool | Unread:
        resource = ACCESS_REVIEWS if account else OWN_ACCESS_REVIEWS
        spec: Json = {"resourceAttributes": right.as_attributes()}
        if account is not None:
            namespace, name = account
            groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
            spec |= {"user": f"system:serviceaccount:{namespace}:{name}", "groups": groups}
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        answer = attempt(lambda: self._client.create(resource.path(), body))
        if isinstance(answer, dict):
            return (answer.get("status") or {}).get("allowed") is True
        return answer or Unread(message=f"the API server has no {resource.kind}")

    def versions(self, pods: Iterable[Json]) -> Iterator[str]:
        """Ask the first pods which version runs there, by their metrics; those that do not answer are left out."""
        for pod in tuple(pods)[:_ASKED_FOR_VERSION]:
            metadata = pod["metadata"]
            named = f"{metadata['name']}:{_port(pod)}"
            path = PODS.path(namespace=metadata["namespace"], name=named, subresource="proxy/metrics")
            found = attempt(lambda path=path: self._client.get_text(path))  # type: ignore[misc]  # bound now
            if isinstance(found, str) and (match := _BUILD_INFO.search(found)):
                yield printable(match[1])

    def log(self, pod: Json, container: str, *, previous: bool) -> str | Unread | None:
        """Read the end of a container's log."""
        metadata = pod["metadata"]
        path = PODS.path(namespace=metadata["namespace"], name=metadata["name"], subresource="log")
        query = {"container": container, "tailLines": str(LOG_LINES), "limitBytes": str(MAX_LOG)}
        query |= {"previous": "true"} if previous else {}
        return attempt(lambda: self._client.get_text(path, query=query))


def _essential(pod: Json) -> Json:
    """Reduce a pod: a fleet has thousands of workers."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    return {
        "metadata": {key: metadata[key] for key in ("name", "namespace")},
        "spec": {
            "nodeName": spec.get("nodeName", ""),
            "containers": [{"ports": item.get("ports") or ()} for item in spec.get("containers") or ()],
        },
        "status": {key: status.get(key) for key in ("phase", "conditions", "containerStatuses")},
    }


def _port(pod: Json) -> int:
    """Return the port of the pod's metrics."""
    containers = (pod.get("spec") or {}).get("containers") or ()
    ports = [port for container in containers for port in container.get("ports") or ()]
    return int(next((port["containerPort"] for port in ports if port.get("name") == "http"), 8080))
