"""Ask the testbed's API server a few plain questions, without the client library that the product uses.

A testbed must not be wrong together with the code it proves.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote


class ApiError(Exception):
    """The API server answered with an error."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"HTTP {status}: {body[:500]}")
        self.status = status
        self.body = body


class Api:
    """The API server, spoken to as the testbed's administrator."""

    def __init__(self, server: str, token: str, ca_file: Path) -> None:
        self.server = server
        self._token = token
        self._context = ssl.create_default_context(cafile=str(ca_file))
        # The testbed speaks to 127.0.0.1; a proxy in the environment must not come in between.
        handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._context))
        self._opener = urllib.request.build_opener(*handlers)

    def text(self, path: str, *, method: str = "GET", body: object = None, kind: str = "application/json") -> str:
        """Send a request and return the answer's text."""
        return self._answer(path, method, body, kind)[0]

    def warnings(self, path: str, *, method: str, body: object, kind: str = "application/json") -> list[str]:
        """Send a request and return what the server warns of, as kubectl shows it."""
        return self._answer(path, method, body, kind)[1]

    def _answer(self, path: str, method: str, body: object, kind: str) -> tuple[str, list[str]]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind, "Accept": "application/json, */*"}
        request = urllib.request.Request(self.server + path, data=data, headers=headers, method=method)  # noqa: S310
        try:
            with self._opener.open(request, timeout=30) as response:
                answer: bytes = response.read()
                warned: list[str] = response.headers.get_all("Warning") or []
        except urllib.error.HTTPError as error:
            with error:
                raise ApiError(error.code, error.read().decode(errors="replace")) from error
        return answer.decode(errors="replace"), warned

    def request(self, path: str, *, method: str = "GET", body: object = None, kind: str = "application/json") -> Any:
        """Send a request and return the answer's JSON."""
        return json.loads(self.text(path, method=method, body=body, kind=kind))

    def is_ready(self) -> bool:
        """Return whether the API server calls itself ready."""
        try:
            return self.text("/readyz") == "ok"
        except (OSError, ApiError):
            return False

    def get(self, path: str) -> Any | None:
        """Return an object, or None when there is none."""
        try:
            return self.request(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def apply(self, path: str, body: dict[str, Any]) -> Any:
        """Create or change an object by server-side apply."""
        query = "?fieldManager=proving-ground&force=true"
        return self.request(path + query, method="PATCH", body=body, kind="application/apply-patch+yaml")

    def create(self, path: str, body: dict[str, Any]) -> Any:
        """Create an object."""
        return self.request(path, method="POST", body=body)

    def delete(self, path: str) -> None:
        """Delete an object, if it is there."""
        try:
            self.request(path, method="DELETE")
        except ApiError as error:
            if error.status != 404:
                raise

    def pod_log(self, namespace: str, pod: str, container: str = "") -> str:
        """Return the log of a pod's container."""
        query = f"?container={quote(container)}" if container else ""
        return self.text(f"/api/v1/namespaces/{namespace}/pods/{pod}/log{query}")


def is_node_ready(node: dict[str, Any] | None) -> bool:
    """Return whether a Node object says that it is Ready."""
    conditions = (node or {}).get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
