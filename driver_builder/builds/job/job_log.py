"""The output of one container of a pod, line by line while it runs, each line once.

Place in the flow: the job builder follows the container ``build`` with it. The stream comes through the API server and
may break off or be silent; it continues where it stopped, by the time stamps that the kubelet adds to each line.
"""

import re
from collections import Counter
from collections.abc import Iterator

from kube_api.client import Client
from kube_api.errors import KubeApiError
from kube_api.resources import PODS
from kube_api.timestamps import parse_timestamp, timestamp

_STAMPED = re.compile(
    r"(?P<stamp>(?P<second>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\S*?(?P<zone>Z|[+-]\d\d:\d\d)) ?(?P<text>.*)"
)
_OVERLAP = 10.0
"""Seconds that a continued stream repeats.

Runtimes stamp a container's output and its errors side by side: a line may stand in the log after one with a later
stamp.
"""


class PodLog:
    """Follows one container. A stream without output for some seconds is closed, to be continued later.

    ``is_whole`` says that the last stream came to its own end.
    """

    def __init__(self, client: Client, *, namespace: str, pod: str, container: str) -> None:
        self.pod = pod
        self.is_whole = False
        self._client = client
        self._path = PODS.path(namespace=namespace, name=pod, subresource="log")
        self._container = container
        self._newest = 0.0
        self._given: dict[float, Counter[str]] = {}
        """The stamps of the lines of the last seconds, by the second that they are in."""

    def lines(self) -> Iterator[str]:
        """Yield what was printed since the last call, and what is printed now.

        It ends when the container has ended and all of its log was read, when nothing comes for a while, and when there
        is no log; the pod's state says which.
        """
        since = self._newest - _OVERLAP if self._newest else 0.0
        query = {
            "container": self._container,
            "follow": "true",
            "timestamps": "true",
            "sinceTime": timestamp(since) if since else "",
        }
        repeated = {second: stamps.copy() for second, stamps in self._given.items()}
        self.is_whole = False
        try:
            for line in self._client.follow(self._path, query=query):
                stamped = _STAMPED.fullmatch(line)
                second = _second(stamped) if stamped else None
                if stamped is None or second is None or second < since:
                    continue
                if repeated.get(second, Counter())[stamped["stamp"]] > 0:
                    repeated[second][stamped["stamp"]] -= 1
                    continue
                self._remember(second, stamped["stamp"])
                yield stamped["text"]
        except KubeApiError:
            return
        self.is_whole = True

    def _remember(self, second: float, stamp: str) -> None:
        """Keep the stamp of a line that is given, and forget those that no stream repeats."""
        self._given.setdefault(second, Counter())[stamp] += 1
        if second > self._newest:
            self._newest = second
            self._given = {kept: stamps for kept, stamps in self._given.items() if kept >= second - _OVERLAP}


def _second(stamped: re.Match[str]) -> float | None:
    """Return the second that a line is of, since the epoch; None where its stamp is no time."""
    try:
        return parse_timestamp(stamped["second"] + stamped["zone"])
    except ValueError:
        return None
