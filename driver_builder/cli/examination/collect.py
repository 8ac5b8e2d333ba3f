"""Collects what ``doctor --report`` packs: objects and logs, never a Secret. What cannot be read is named in it."""

import platform
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from driver_builder.base.check_result import CheckResult
from driver_builder.base.errors import DriverBuilderError, InternalError
from driver_builder.builds.build_logs import Redactor, secrets_of
from driver_builder.checks import check_registries, redaction
from driver_builder.checks.check_workers import is_ready
from driver_builder.checks.deployed import DEPLOYMENT, WORKERS
from driver_builder.checks.finding import Unread
from driver_builder.checks.redaction import Redact
from driver_builder.checks.report_archive import File, document_file, findings_files, list_file, text_file
from driver_builder.cli import common
from driver_builder.cli.examination.examine import Examination, Progress, apart
from kube_api.errors import KubeApiError
from kube_api.resources import DAEMON_SETS, DEPLOYMENTS, DRIVER_CONTAINERS, EVENTS, NODES, PODS, Resource
from kube_api.text import printable

Json = dict[str, Any]

MAX_WORKER_LOGS = 20
"""Of thousands of workers those that are not ready come first."""
_MANAGED = "app.kubernetes.io/managed-by=driver-builder"
"""The label of all that the controller creates."""
_PART = "app.kubernetes.io/part-of=driverwright"
"""The label of what ``deploy/`` creates, and of its pods."""


class ReportCollector:
    """The files of one report; ``unread`` says what is missing from it."""

    def __init__(self, examination: Examination, *, progress: Progress) -> None:
        self.unread: dict[str, Unread] = {}
        self._examined = examination
        self._reader = examination.reader
        self._progress = progress
        self._redact: Redact = Redactor()

    def files(self, findings: tuple[CheckResult, ...]) -> Iterator[File]:
        """Read everything, and return it redacted."""
        self._redact = Redactor(self._passwords())
        yield from findings_files(findings, self._redact)
        parts = (self._versions, self._configuration, self._snapshot, self._objects, self._logs)
        for name, part in zip(("versions", "configuration", "snapshot", "objects", "logs"), parts, strict=True):
            yield from apart(name, part, partial(self._lost, name))

    def _lost(self, name: str, error: InternalError) -> tuple[File, ...]:
        """Name what a bug of ours leaves out."""
        self.unread[name] = Unread(message=str(error))
        return ()

    def _passwords(self) -> Iterator[str]:
        """Return the passwords that the checks sent to registries, to find them in all texts."""
        for place in check_registries.places(self._examined.drivers):
            try:
                known = self._examined.registries.credentials(place.namespace, place.settings)
            except (DriverBuilderError, KubeApiError):
                continue
            yield from secrets_of(known.values())

    def _versions(self) -> Iterator[File]:
        versions = {
            "driver-builder": common.own_version(),
            "python": platform.python_version(),
            "kubernetes": {key: str(self._examined.version.get(key, "")) for key in ("gitVersion", "platform")},
            "image": self._examined.command.image,
        }
        yield document_file("versions.json", versions, self._redact)

    def _configuration(self) -> Iterator[File]:
        command = self._examined.command
        configuration = {
            "namespaces": list(self._examined.namespaces),
            "arguments": redaction.arguments(command.arguments, self._redact),
            "environment": {
                name: redaction.variable(name, value, self._redact) for name, value in command.environment.items()
            },
        }
        yield document_file("configuration.json", configuration, self._redact)

    def _snapshot(self) -> Iterator[File]:
        """Make the file of ``driver-builder snapshot``, which has no Secrets by itself; ``--snapshot`` reads it."""
        self._progress("the snapshot")
        try:
            document = common.document(self._examined.effective)
        except (DriverBuilderError, KubeApiError) as error:
            self.unread["snapshot.json"] = Unread(message=printable(str(error)))
            return
        # The variables that it has are those that a plan needs.
        yield document_file("snapshot.json", document, self._redact, hides_variables=False)

    def _objects(self) -> Iterator[File]:
        self._progress("objects")
        home, places = self._examined.home, dict.fromkeys((self._examined.home, *self._examined.namespaces))
        yield from self._list("nodes.json", NODES, None, reduce=redaction.node)
        yield from self._list("deployments.json", DEPLOYMENTS, home, label=_PART)
        for namespace in places:
            yield from self._list(f"{namespace}/drivercontainers.json", DRIVER_CONTAINERS, namespace)
            yield from self._list(f"{namespace}/daemonsets.json", DAEMON_SETS, namespace, label=_MANAGED)
            yield from self._list(f"{namespace}/pods.json", PODS, namespace, label=_MANAGED)
            yield from self._list(f"{namespace}/events.json", EVENTS, namespace)
        workers = self._examined.settings.feature_rules_namespace
        yield from self._list(f"{workers}/daemonsets-of-deploy.json", DAEMON_SETS, workers, label=_PART)
        yield from self._list(f"{workers}/pods-of-deploy.json", PODS, workers, label=_PART)

    def _list(
        self,
        name: str,
        resource: Resource,
        namespace: str | None,
        *,
        label: str = "",
        reduce: Callable[[Json], Json] = dict,
    ) -> Iterator[File]:
        found = self._reader.items(resource, namespace, label_selector=label, reduce=reduce)
        if isinstance(found, Unread):
            self.unread[name] = found
        else:
            # What does not fit is left out from the end: pods in trouble come first.
            ordered = sorted(found, key=is_ready) if resource is PODS else found
            yield list_file(name, ordered, self._redact)

    def _logs(self) -> Iterator[File]:
        workers = self._examined.settings.feature_rules_namespace
        pods = (*self._pods(DEPLOYMENT, self._examined.home), *self._pods(WORKERS, workers)[:MAX_WORKER_LOGS])
        for number, pod in enumerate(pods, start=1):
            self._progress(f"logs, pod {number} of {len(pods)}")
            for status in (pod.get("status") or {}).get("containerStatuses") or ():
                yield from self._log(pod, status["name"], previous=False)
                if status.get("restartCount"):
                    yield from self._log(pod, status["name"], previous=True)

    def _log(self, pod: Json, container: str, *, previous: bool) -> Iterator[File]:
        name = f"logs/{pod['metadata']['name']}-{container}{'-previous' if previous else ''}.log"
        found = self._reader.log(pod, container, previous=previous)
        if isinstance(found, str):
            yield text_file(name, found, self._redact)
        else:
            self.unread[name] = found or Unread(message="there is none")

    def _pods(self, program: str, namespace: str) -> tuple[Json, ...]:
        """Return the pods of one of our programs, those that are not ready first."""
        found = self._reader.pods_of(program, namespace)
        if isinstance(found, Unread):
            self.unread[f"logs of {program}"] = found
            return ()
        return tuple(sorted(found, key=lambda pod: (is_ready(pod), pod["metadata"]["name"])))
