"""The annotation on a Node that records how the command of ``spec.validation`` ended there. Pure.

It says what was validated in which boot (``subject``), so that the command runs once, also when the controller is
killed and the validation pod is gone. A node's kubelet may write annotations of its Node, so everything that is read
here has a limit.
"""

import json
import re
from dataclasses import dataclass

from driver_builder.objects.loaded import words
from kube_api import names
from kube_api.timestamps import LATEST

PREFIX = f"validated.{names.GROUP}/"

MAX_BYTES = 2048
MAX_FAILURES = 100

_SUBJECT = re.compile(r"[0-9a-f]{16}")
_UID = re.compile(r"[A-Za-z0-9-]{0,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """How the command ended: it ``succeeded``, or failed so many times.

    ``pod`` is the uid of the validation pod that failed last, or did not run; ``failed_at`` when that was recorded, in
    whole seconds; ``message`` what it reported.
    """

    subject: str
    succeeded: bool = False
    failures: int = 0
    pod: str = ""
    failed_at: int = 0
    message: str = ""


def annotation(driver: str) -> str:
    """Return the annotation of a driver, given by ``namespace/name``."""
    return PREFIX + driver.replace("/", ".", 1)


def parse(text: str | None) -> Validated | None:
    """Read an annotation; None without one, or if it cannot be read: the command then runs again."""
    if text is None or len(text) > MAX_BYTES:
        return None
    try:
        content = json.loads(text)
        made = Validated(
            subject=str(content["subject"]),
            succeeded=content.get("succeeded") is True,
            failures=_number(content.get("failures", 0), MAX_FAILURES),
            pod=str(content.get("pod", "")),
            failed_at=_number(content.get("failedAt", 0), LATEST),
            message=words(str(content.get("message", ""))),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return made if _SUBJECT.fullmatch(made.subject) and _UID.fullmatch(made.pod) else None


def render(validated: Validated) -> str:
    """Write the annotation."""
    content: dict[str, object] = {"subject": validated.subject}
    if validated.succeeded:
        content["succeeded"] = True
    if validated.pod:
        content |= {"failures": validated.failures, "pod": validated.pod, "failedAt": validated.failed_at}
        content["message"] = validated.message
    return json.dumps(content, separators=(",", ":"))


def _number(value: object, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError("no number")
    return value
