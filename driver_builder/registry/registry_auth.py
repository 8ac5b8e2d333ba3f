"""Authentication at a registry: its challenges as values, and the headers that answered them.

Place in the flow: ``registry_transport`` parses the challenge of a 401 here and keeps what answered it, so that a token
is fetched once for all requests that it is valid for. Nothing here does I/O.

Sources: RFC 9110 section 11.6.1 (``WWW-Authenticate``), and the token authentication of the Docker registry
(``Bearer realm=...,service=...,scope=...``; a token without ``expires_in`` is good for 60 seconds).
"""

import base64
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeGuard
from urllib.request import parse_http_list

TOKEN_SECONDS = 60.0
MAX_TOKEN_SECONDS = 86400.0
MAX_TOKEN_LENGTH = 16 << 10
_MAX_CHALLENGES = 8 << 10
"""Characters of a ``WWW-Authenticate`` that are read."""
_MARGIN_SECONDS = 15.0
READING = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """One way to authenticate: ``scheme`` in lower case (``bearer``, ``basic``), parameters by lower-case name."""

    scheme: str
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Purpose:
    """What an Authorization header allows: reading a repository, or also writing to it."""

    repository: str
    writing: bool

    @property
    def scope(self) -> str:
        """The scope of a token, for a registry whose challenge names none; empty for ``/v2/`` itself."""
        actions = "pull,push" if self.writing else "pull"
        return f"repository:{self.repository}:{actions}" if self.repository else ""


class Authorizations:
    """Authorization headers by purpose, each until shortly before it expires; ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: dict[Purpose, tuple[float, str]] = {}

    def get(self, purpose: Purpose) -> str:
        """The header to send, empty without a valid one."""
        ends, header = self._kept.get(purpose, (0.0, ""))
        return header if self._clock() < ends else ""

    def keep(self, purpose: Purpose, header: str, seconds: float = math.inf) -> None:
        """Remember a header that is valid for these seconds."""
        margin = min(_MARGIN_SECONDS, seconds / 4)
        self._kept[purpose] = (self._clock() + seconds - margin, header)


def parse_challenges(text: str) -> tuple[Challenge, ...]:
    """``Bearer realm="https://...",scope="a,b", Basic realm="r"`` as values, in the order of the header.

    A comma inside quotes is part of the value; an item that begins with a word and a blank begins a new challenge.
    """
    challenges: list[tuple[str, dict[str, str]]] = []
    for item in parse_http_list(text[:_MAX_CHALLENGES]):
        name, equals, value = item.partition("=")
        scheme, _, parameter = name.strip().rpartition(" ") if equals else (name, "", "")
        if scheme:
            challenges.append((scheme.strip().lower(), {}))
        if parameter and challenges:
            challenges[-1][1][parameter.lower()] = value.strip().strip('"')
    return tuple(Challenge(scheme=scheme, parameters=parameters) for scheme, parameters in challenges)


def token_seconds(content: Mapping[str, object]) -> float:
    """How long a token is valid according to its service, at most a day."""
    seconds = content.get("expires_in")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        return TOKEN_SECONDS
    return float(seconds) if seconds < MAX_TOKEN_SECONDS else MAX_TOKEN_SECONDS


def is_token(token: object) -> TypeGuard[str]:
    """Whether a value can stand in an Authorization header."""
    return isinstance(token, str) and len(token) <= MAX_TOKEN_LENGTH and token.isascii() and token.isprintable()


def granted_actions(token: str, repository: str) -> frozenset[str] | None:
    """Read what a token allows in a repository, such as ``pull`` and ``push``; None of a token that does not say it.

    Docker's token services issue a JSON Web Token with ``access``, and leave out what they do not grant.
    """
    try:
        payload = token.split(".")[1]
        content = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        entries = [entry for entry in content["access"] if entry["type"] == "repository"]
        return frozenset(str(word) for entry in entries if entry["name"] == repository for word in entry["actions"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
