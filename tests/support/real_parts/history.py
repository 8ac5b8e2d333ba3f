"""What became of a collection's objects in the meantime, also of those that came and went."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Self

from kube_api.client import Client
from kube_api.errors import Unreachable

Json = dict[str, Any]


class History(threading.Thread):
    """Watches a collection while a ``with`` block runs: ``faces`` are all that ``face`` said of its objects."""

    def __init__(self, client: Client, path: str, face: Callable[[Json], object], *, label_selector: str = "") -> None:
        super().__init__(name=f"history of {path}", daemon=True)
        self.faces: set[object] = set()
        self._client = client
        self._path = path
        self._face = face
        self._selector = label_selector
        self._version = ""
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        found = self._client.list(self._path, label_selector=self._selector)
        self.faces.update(map(self._face, found.items))
        self._version = found.resource_version
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        """Watch on, a second each time, from where the watch before ended, however it did."""
        while not self._ended.is_set():
            try:
                self._follow()
            except Unreachable as error:
                print(f"{self.name}: {error}")
                self._ended.wait(0.5)

    def _follow(self) -> None:
        for event in self._client.watch(
            self._path, resource_version=self._version, label_selector=self._selector, seconds=1
        ):
            self._version = event.object["metadata"]["resourceVersion"]
            if event.kind != "BOOKMARK":
                self.faces.add(self._face(event.object))
