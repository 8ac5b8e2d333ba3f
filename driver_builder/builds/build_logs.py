"""The output of a failed build, kept as a ConfigMap beside its driver until the driver is deleted.

The last lines are plain text, all of them compressed. They are not kept in the registry: a build may fail because of
the registry.

Place in the flow: the build queue redacts each line with a :class:`Redactor` before it is shown and passes all of them
to :class:`BuildLogs`; ``driver-builder logs`` reads them. Everything but :class:`BuildLogs` is pure.

A log is never changed, only replaced by a new object. So the controller needs no permission to update ConfigMaps:
sources and rules are in the same namespace.
"""

import base64
import hashlib
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from driver_builder.builds.bounded_log import packed
from driver_builder.builds.build_output import cut, plain
from driver_builder.builds.linear_patterns import compiled
from driver_builder.nodes.changes import StartBuild
from driver_builder.objects.manifests import DRIVER_LABEL, KERNEL_ANNOTATION, TARGET_LABEL
from driver_builder.registry.credentials import Credentials
from driver_builder.snapshot.snapshot import FailedBuild
from kube_api import names
from kube_api.client import Client
from kube_api.errors import Conflict, KubeApiError, NotFound
from kube_api.resources import CONFIG_MAPS, DRIVER_CONTAINERS
from kube_api.timestamps import timestamp

LOG_LINES = 200
MAX_LINE_CHARACTERS = 500
MAX_LOGS = 20
"""Logs that one driver keeps: those of its latest failed targets."""

LOG_LABEL = f"{names.GROUP}/build-log"
REASON_ANNOTATION = f"{names.GROUP}/reason"
KEY_ANNOTATION = f"{names.GROUP}/build-key"
TIME_ANNOTATION = f"{names.GROUP}/failed-at"
LOG_FILE = "build.log"
WHOLE_LOG_FILE = "build.log.gz"
MAX_PACKED = 256 << 10
"""Bytes of a whole log: some megabytes of text, and all logs of a driver together stay small for etcd."""

_HIDDEN = "***"
_LONGEST_DRIVER = 200

_TELLTALES = tuple(
    compiled(rf"(?i)(?P<before>{before}){value}(?P<after>{after})")
    for before, value, after in (
        (r"\b[a-z][a-z0-9+.-]*://[^\s/@:]*:", r"[^\s/@]+", "@"),
        (r"\b(?:Authorization|X-Registry-Auth|X-Registry-Config)\W+(?:(?:Basic|Bearer) )?", r"[^\s'\",;]+", ""),
        (r"\b\w*(?:password|passwd|secret|token)\w*=['\"]?", r"[^\s'\",;&]+", ""),
        (r"\"(?:\w*(?:password|passwd|secret|token)|auth)\"\s*:\s*\"", r"[^\"]+", ""),
        (r"\b(?:password|passwd)\s*:\s*", r"[^\s'\",;&]+", ""),
    )
)
"""What looks like a secret although it was not given to us: in a URL, a header, or after its name."""

Json = dict[str, Any]

logger = logging.getLogger(__name__)


class Redactor:
    """Removes secrets from lines: those it was given, and what looks like one."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Add secrets; of one with several lines, each line is a secret."""
        lines = {line.strip() for secret in secrets for line in secret.splitlines()}
        self._secrets |= {form for line in lines for form in (line, plain(line).strip()) if form}

    def __call__(self, text: str) -> str:
        """Return the text as one printable line, cut to a reasonable length, with every secret replaced by ``***``."""
        text = plain(text)
        # The longest first: a secret may contain another one.
        for secret in sorted(self._secrets, key=lambda secret: (-len(secret), secret)):
            text = text.replace(secret, _HIDDEN)
        text = cut(text)
        for telltale in _TELLTALES:
            text = telltale.sub(rf"\g<before>{_HIDDEN}\g<after>", text)
        return text


def secrets_of(credentials: Iterable[Credentials]) -> tuple[str, ...]:
    """Return all forms of registry credentials in a log: as they are, and as Basic auth sends them."""
    found: list[str] = []
    for known in credentials:
        pair = base64.b64encode(f"{known.username}:{known.password}".encode()).decode()
        found += [secret for secret in (known.password, known.identity_token) if secret]
        found += [pair] if known.password else []
    return tuple(found)


def log_text(lines: Sequence[str]) -> str:
    """Return the last lines, printable, none longer than ``MAX_LINE_CHARACTERS``: at most 100,000 characters."""
    return "".join(
        f"{line if len(line) <= MAX_LINE_CHARACTERS else line[: MAX_LINE_CHARACTERS - 3] + '...'}\n"
        for line in printable(lines[-LOG_LINES:])
    )


def printable(lines: Iterable[str]) -> list[str]:
    """Return the lines without colours and other sequences for the reader's terminal."""
    return [plain(line) for line in lines]


def log_name(driver: str, key: str) -> str:
    """Name the log of a build: ``driver`` without its namespace; of the key the first ten digits."""
    if len(driver) > _LONGEST_DRIVER:
        driver = f"{driver[: _LONGEST_DRIVER - 9].rstrip('-.')}-{hashlib.sha256(driver.encode()).hexdigest()[:8]}"
    return f"{driver}-build-log-{key[:10]}"


def log_manifest(action: StartBuild, failure: FailedBuild, lines: Sequence[str], *, uid: str) -> Json:
    """Build the ConfigMap of a failed build; its owner is the DriverContainer with this ``uid``."""
    request = action.request
    driver = request.driver.name
    return {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "metadata": {
            "name": log_name(driver, request.key),
            "namespace": action.namespace,
            "labels": {
                "app.kubernetes.io/managed-by": "driver-builder",
                LOG_LABEL: "true",
                DRIVER_LABEL: names.label_value(driver),
                TARGET_LABEL: request.target.short_hash,
            },
            "annotations": {
                KERNEL_ANNOTATION: request.target.kernel_version,
                KEY_ANNOTATION: request.key,
                REASON_ANNOTATION: failure.reason,
                TIME_ANNOTATION: timestamp(failure.at),
            },
            "ownerReferences": [
                {
                    "apiVersion": DRIVER_CONTAINERS.api_version,
                    "kind": DRIVER_CONTAINERS.kind,
                    "name": driver,
                    "uid": uid,
                }
            ],
        },
        "immutable": True,
        "data": {LOG_FILE: log_text(lines)},
        "binaryData": {WHOLE_LOG_FILE: base64.b64encode(packed(printable(lines), MAX_PACKED)).decode()},
    }


def outdated(logs: Iterable[Json], new: Json) -> tuple[Json, ...]:
    """Pick the logs that a new one replaces: those of its target and, beyond ``MAX_LOGS`` of its driver, the oldest."""
    mine = sorted((log for log in logs if _owner(log) == _owner(new)), key=failed_at, reverse=True)
    same = [log for log in mine if _target(log) == _target(new)]
    others = [log for log in mine if _target(log) != _target(new)]
    return (*same, *others[MAX_LOGS - 1 :])


def _owner(log: Json) -> tuple[str, ...]:
    return tuple(owner["uid"] for owner in log["metadata"].get("ownerReferences") or ())


def _target(log: Json) -> str:
    return str(log["metadata"]["labels"].get(TARGET_LABEL, ""))


def owner_name(log: Json) -> str:
    """Name the DriverContainer that a log belongs to."""
    return next((str(owner["name"]) for owner in log["metadata"].get("ownerReferences") or ()), "")


def failed_at(log: Json) -> str:
    """Return when the build of a log failed; sorts by time."""
    return str((log["metadata"].get("annotations") or {}).get(TIME_ANNOTATION, ""))


class BuildLogs:
    """Keeps logs in the cluster."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def keep(self, action: StartBuild, failure: FailedBuild, lines: Sequence[str]) -> None:
        """Replace the log of the build's target; a log that cannot be kept stops nothing, and a warning is logged."""
        try:
            self._replace(action, failure, lines)
        except NotFound:
            logger.info("build %s: log not stored: %s no longer exists", action.request.key, action.request.driver)
        except KubeApiError as error:
            logger.warning("build %s: log not stored: %s", action.request.key, error)

    def _replace(self, action: StartBuild, failure: FailedBuild, lines: Sequence[str]) -> None:
        name = action.request.driver.name
        owner = self._client.get(DRIVER_CONTAINERS.path(namespace=action.namespace, name=name))
        new = log_manifest(action, failure, lines, uid=owner["metadata"]["uid"])
        collection = CONFIG_MAPS.path(namespace=action.namespace)
        kept = self._client.list(collection, label_selector=LOG_LABEL, metadata_only=True).items
        for log in outdated(kept, new):
            self._delete(action.namespace, log["metadata"])
        self._client.create(collection, new)

    def _delete(self, namespace: str, metadata: Json) -> None:
        try:
            self._client.delete(CONFIG_MAPS.path(namespace=namespace, name=metadata["name"]), uid=metadata["uid"])
        except (NotFound, Conflict) as error:
            logger.debug("build log: conflict: %s", error)
