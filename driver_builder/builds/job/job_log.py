"""The output of one container of a pod, line by line while it runs, each line once.

Place in the flow: the job builder follows the container ``build`` with it. The stream comes through the API server and
may break off or be silent; it continues where it stopped, by the time stamps that the kubelet adds to each line.
"""

import re
from collections.abc import Iterator

from kube_api.client import Client
from kube_api.errors import KubeApiError
from kube_api.resources import PODS

_STAMPED = re.compile(r"(?P<stamp>\d{4}-\d\d-\d\dT\S+) ?(?P<text>.*)")


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
        self._stamp = ""
        self._given_of_stamp = 0

    def lines(self) -> Iterator[str]:
        """Yield what was printed since the last call, and what is printed now.

        It ends when the container has ended and all of its log was read, when nothing comes for a while, and when there
        is no log; the pod's state says which.
        """
        query = {"container": self._container, "follow": "true", "timestamps": "true", "sinceTime": self._stamp}
        seen_of_stamp = 0
        self.is_whole = False
        try:
            for line in self._client.follow(self._path, query=query):
                stamped = _STAMPED.fullmatch(line)
                if stamped is None or stamped["stamp"] < self._stamp:
                    continue
                if stamped["stamp"] > self._stamp:
                    self._stamp, self._given_of_stamp, seen_of_stamp = stamped["stamp"], 0, 0
                seen_of_stamp += 1
                if seen_of_stamp > self._given_of_stamp:
                    self._given_of_stamp = seen_of_stamp
                    yield stamped["text"]
        except KubeApiError:
            return
        self.is_whole = True
