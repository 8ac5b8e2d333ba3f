"""A registry's responses as values, and its failures as our own errors. Pure.

Place in the flow: ``registry_transport`` returns and raises these; ``registry`` makes states of them.

Sources: the OCI distribution specification 1.1 (codes of errors), RFC 9110 section 10.2.3 (``Retry-After``: seconds or
a date).
"""

import json
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import Any

import requests
import urllib3

from driver_builder.base.errors import RegistryFull, RegistryRefused, RegistryRejected, RegistryUnavailable
from kube_api.text import printable

DEFAULT_PAUSE = 60.0
MIN_PAUSE = 1.0
MAX_PAUSE = 3600.0
"""Seconds: the pause for a rate limit that names none, and the least and the most that is accepted."""
_SHOWN = 200
_ERRORS_SHOWN = 3
_SEARCHED = 64 << 10
"""Bytes of a response that are searched for text."""
_NO_ROOM = re.compile(
    r"no space left on device|disk quota exceeded|insufficient storage|\bquota\b|exceed the configured upper limit"
    r"|\"Err\": ?(?:28|122)\b",
    re.IGNORECASE,
)
"""How registries report that they are full: the reference one by its disk's error (28 ENOSPC, 122 EDQUOT)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A registry's whole response; ``headers`` are found in any case, ``url`` is where it came from.

    ``is_own`` is false for a response of another host that the registry redirected to: it is never quoted.
    """

    status: int
    url: str
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    is_own: bool = True

    def json(self) -> Any:
        """The body as JSON, None if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    @property
    def error_codes(self) -> frozenset[str]:
        """``MANIFEST_UNKNOWN`` and the like; empty if the response is not a registry's error."""
        return frozenset(code for code, _ in self._errors())

    @property
    def reason(self) -> str:
        """The content of the response, for a message: a registry's own words, and nothing of any other text.

        Whoever names a host in a spec could read there what another service answers to the controller.
        """
        if not self.is_own:
            return f"{self.status} (from another host)"
        errors = islice(self._errors(), _ERRORS_SHOWN)
        said = "; ".join(f"{shown(code)}: {shown(message)}" for code, message in errors)
        return f"{self.status} {said or ('(no error of a registry)' if self.body else '')}".strip()

    @property
    def says_full(self) -> bool:
        """Whether it says that the registry, or this project, has no space left."""
        if self.status == 507:
            return True
        return self.status in (403, 412, 500, 503) and bool(
            _NO_ROOM.search(self.body[:_SEARCHED].decode(errors="replace"))
        )

    def _errors(self) -> Iterator[tuple[str, str]]:
        content = self.json()
        errors = content.get("errors") if isinstance(content, dict) else None
        for error in errors if isinstance(errors, list) else ():
            if isinstance(error, dict) and isinstance(error.get("code"), str):
                yield error["code"], str(error.get("message", ""))


def shown(text: str) -> str:
    """The beginning of another program's text, printable, in one line."""
    return " ".join(printable(text, _SHOWN).split())


class RegistryBusy(RegistryUnavailable):
    """The registry asks for a pause of ``retry_after`` seconds (a rate limit, maintenance)."""

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


def parse_retry_after(value: str, *, now: float) -> float | None:
    """The seconds from ``now`` (Unix time) that a ``Retry-After`` asks for, None if it cannot be read."""
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:12]), MAX_PAUSE)
    try:
        date = parsedate_to_datetime(text)
        # A date without a zone is in UTC, as HTTP writes all dates.
        seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
    return min(max(seconds, 0.0), MAX_PAUSE)


def unavailable(host: str, answer: Response, *, now: float) -> RegistryUnavailable:
    """The error for a 429, a 5xx or a quota that is used up, with the pause that it asks for."""
    if answer.says_full:
        return RegistryFull(f"registry {host} has no room left ({answer.reason})")
    pause = parse_retry_after(answer.headers.get("Retry-After", ""), now=now)
    if pause is None and answer.status != 429:
        return RegistryUnavailable(f"registry {host} answered {answer.reason}")
    seconds = max(DEFAULT_PAUSE if pause is None else pause, MIN_PAUSE)
    then = datetime.fromtimestamp(now + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if answer.status == 429:
        message = (
            f"registry {host} limits the rate of requests ({answer.reason}): the next request is sent after {then};"
            " an account in spec.registry.secretRef or a mirror may have a higher limit"
        )
    else:
        message = f"registry {host} answered {answer.reason}: the next request is sent after {then}"
    return RegistryBusy(message, retry_after=seconds)


def refused(host: str, what: str, answer: Response) -> RegistryRefused:
    """The error for a refusal: a registry's own, or that of something else in its place."""
    message = f"registry {host} {what}: {answer.reason}"
    if answer.status == 413:
        return RegistryRejected(f"{message}: too large for the registry, or for a proxy in front of it")
    return RegistryRejected(message) if answer.error_codes else RegistryRefused(message)


class RegistrySilent(RegistryUnavailable):
    """There was no response at all: other images of the registry are not asked for at once."""


def no_answer(host: str, error: Exception, *, timeout: float) -> RegistrySilent:
    """The error for a connection that failed: what went wrong, with a hint where to look."""
    return RegistrySilent(f"registry {host}: {_describe(error, timeout)}")


def too_slow(host: str, seconds: float) -> RegistrySilent:
    """The error for a response that was not complete in time."""
    return RegistrySilent(f"registry {host}: no response within {seconds:g} s")


def unreadable(host: str, error: Exception) -> RegistryRefused:
    """The error for a response, or an address, that cannot be read."""
    if isinstance(error, requests.exceptions.InvalidURL | urllib3.exceptions.LocationValueError):
        # Without the text: it may quote a proxy's URL with its password.
        return RegistryRefused(
            f"registry {host} cannot be asked: its address, or that of a proxy (HTTPS_PROXY, HTTP_PROXY), is not a URL"
        )
    if isinstance(error, OSError) and not isinstance(error, requests.RequestException):
        # A file of ours: requests looks for REQUESTS_CA_BUNDLE as late as this.
        return RegistryRefused(f"registry {host} cannot be reached: {error}")
    return RegistryRefused(f"registry {host} sent an invalid response: {shown(str(error))}")


def _describe(error: Exception, timeout: float) -> str:
    causes = list(_chain(error))
    if isinstance(error, requests.exceptions.SSLError):
        return (
            f"TLS failed: {causes[-1]}; set spec.registry.caConfigMap to the registry's CA, or"
            " spec.registry.plainHttp for a registry without TLS"
        )
    if isinstance(error, requests.exceptions.ProxyError):
        return f"the proxy failed: {causes[-1]}; check HTTPS_PROXY and NO_PROXY"
    if isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError):
        return f"no response within {timeout:g} s"
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return f"its name cannot be resolved: {causes[-1]}"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return "connection refused"
    return f"the connection failed: {causes[-1]}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
