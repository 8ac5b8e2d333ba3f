"""Keeps the workers' ConfigMap in line with the cluster's NodeFeatureRule objects, in a thread of its own.

Apart from the reconciler, because the one has nothing to do with the other: a broken driver does not keep rules from
the nodes, nor a broken rule a driver.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping

from driver_builder.api.status import Event
from driver_builder.base.reasons import Reason
from driver_builder.cluster.collection import Json
from driver_builder.cluster.follower import Follower, Source
from driver_builder.controller import events
from driver_builder.controller.rule_compiler import CONFIG_MAP, RuleObject, compile_rules
from driver_builder.controller.sync_loop import keep_in_line
from feature_rules.model import RuleProblem
from kube_api.client import Client
from kube_api.errors import NotFound
from kube_api.resources import CONFIG_MAPS, NODE_FEATURE_RULES

SETTLE_SECONDS = 0.2

logger = logging.getLogger(__name__)

Reported = Mapping[RuleObject, tuple[RuleProblem, ...]]


class FeatureRulesSync:
    """Compiles the rules whenever :attr:`wake` is set, until ``stop`` is."""

    name = "feature-rules"

    def __init__(
        self, client: Client, *, namespace: str, stop: threading.Event, clock: Callable[[], float] = time.time
    ) -> None:
        self.wake = threading.Event()
        self.rules: Follower[Json] = Follower(client, Source(resource=NODE_FEATURE_RULES), _read_rules)
        """The objects, which another thread follows."""
        self._client = client
        self._namespace = namespace
        self._stopping = stop
        self._clock = clock
        self._reported: Reported = {}

    def run(self) -> None:
        """Work until stopped, with back-off while the API server is away."""
        keep_in_line("feature rules", self.sync, self._wait, stopping=self._stopping, logger=logger)

    def sync(self) -> None:
        """Do it once.

        Raises:
            KubeApiError: when the rules cannot be read, or the ConfigMap or an Event cannot be written.
        """
        try:
            self.rules.repair()
        except NotFound:
            logger.debug("feature rules: this cluster has no NodeFeatureRule definition")
            return
        compiled = compile_rules(self.rules.collection.values())
        self._write(compiled.data)
        self._report(compiled.problems)

    def _wait(self) -> None:
        while not self._stopping.is_set():
            if self.wake.wait(0.5):
                self._stopping.wait(SETTLE_SECONDS)
                self.wake.clear()
                return

    def _write(self, data: Mapping[str, str]) -> None:
        path = CONFIG_MAPS.path(namespace=self._namespace, name=CONFIG_MAP)
        try:
            before = self._client.get(path).get("data") or {}
        except NotFound:
            if data:
                logger.warning(
                    "feature rules: ConfigMap %s/%s does not exist: apply deploy/nfd-worker/",
                    self._namespace, CONFIG_MAP,
                )  # fmt: skip
            return
        if before != data:
            # null first: a merge patch would keep the keys of objects that are gone.
            self._client.patch(path, {"data": {**dict.fromkeys(before), **data}})
            logger.info("feature rules: %d objects written for the workers", len(data))

    def _report(self, problems: Reported) -> None:
        """Post a Warning for what is wrong, once per object and controller unless it changes."""
        for subject, wrong in problems.items():
            if self._stopping.is_set():
                return
            if self._reported.get(subject) != wrong:
                self._post(subject, wrong)
        self._reported = problems

    def _post(self, subject: RuleObject, wrong: tuple[RuleProblem, ...]) -> None:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        about = events.Subject(resource=NODE_FEATURE_RULES, namespace="", name=subject.name, uid=subject.uid)
        event = Event(kind="Warning", reason=Reason.INVALID_RULE, message=f"left out: {wrong[0]}{more}")
        events.post(self._client, about, event, now=self._clock())


def _read_rules(obj: Json) -> Json:
    """Keep what the rules are made of, and whose they are."""
    metadata = obj["metadata"]
    return {"metadata": {"name": metadata["name"], "uid": metadata.get("uid", "")}, "spec": obj.get("spec")}
