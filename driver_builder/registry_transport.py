"""Speaks HTTP to one registry: credentials, tokens, and one map from what goes wrong to our own errors.

Place in the flow: below ``registry``, which knows what manifests and blobs are; nothing of ``requests`` leaves here.

Sources: the OCI distribution specification 1.0 (codes of errors), and the token authentication of the Docker registry
(``WWW-Authenticate: Bearer realm=...,service=...,scope=...``), with Basic beside it for registries with a htpasswd.
"""

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import urljoin, urlsplit
from urllib.request import parse_http_list

import requests
import urllib3
from requests.auth import AuthBase, HTTPBasicAuth

from driver_builder.credentials import DOCKER_HUB, Credentials
from driver_builder.errors import RegistryRefused, RegistryUnavailable

CLIENT_ID = "driverwright"
MAX_ANSWER = 16 << 20
"""Bytes; manifests and configs are far smaller (registries refuse manifests above 4 MiB)."""
_SHOWN = 200


class RegistryUnauthorised(RegistryRefused):
    """The registry wants other credentials, or this user may not do this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A registry's whole answer; ``headers`` are found whatever their case, ``url`` is where it came from."""

    status: int
    url: str
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    def json(self) -> Any:
        """The body as JSON, None when it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    @property
    def error_codes(self) -> frozenset[str]:
        """``MANIFEST_UNKNOWN`` and the like; empty when the answer is not a registry's error."""
        return frozenset(code for code, _ in self._errors())

    @property
    def reason(self) -> str:
        """What the answer says, for a message: the registry's own words, or the beginning of any other text."""
        said = "; ".join(f"{code}: {message}" for code, message in self._errors())
        text = " ".join(self.body[:_SHOWN].decode(errors="replace").split())
        return f"{self.status} {said or text}".strip()

    def _errors(self) -> Iterator[tuple[str, str]]:
        content = self.json()
        errors = content.get("errors") if isinstance(content, dict) else None
        for error in errors if isinstance(errors, list) else ():
            if isinstance(error, dict) and isinstance(error.get("code"), str):
                yield error["code"], str(error.get("message", ""))


class _Authorization(AuthBase):
    """Sets one header. Always given, also when empty: without it, requests would look for a password in ~/.netrc."""

    def __init__(self, value: str) -> None:
        self._value = value

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._value:
            request.headers["Authorization"] = self._value
        return request


class RegistryTransport:
    """Requests to one registry, below ``https://host/v2/`` (``http`` with ``plain_http``).

    ``timeout`` in seconds, for the connection and for each wait for data.
    """

    def __init__(
        self,
        host: str,
        *,
        credentials: Credentials | None = None,
        plain_http: bool = False,
        ca_file: str | Path | None = None,
        timeout: float = 30,
    ) -> None:
        self.host = host
        self._base = f"{'http' if plain_http else 'https'}://{'registry-1.docker.io' if host == DOCKER_HUB else host}/"
        self._credentials = credentials or Credentials()
        self._timeout = timeout
        self._session = requests.Session()
        self._session.verify = str(ca_file) if ca_file else True
        self._authorizations: dict[str, str] = {}

    def request(
        self,
        method: str,
        path: str,
        *,
        scope: str = "",
        headers: Mapping[str, str] | None = None,
        body: bytes | Path | None = None,
    ) -> Answer:
        """Send a request and answer the registry's challenge once.

        ``path`` is relative to the host, or a whole URL that the registry gave. ``scope`` names what a token is for
        (the repository): tokens are kept by it. A file as ``body`` is streamed.

        Raises:
            RegistryUnavailable: no answer, 429 or 5xx.
            RegistryUnauthorised: 401 or 403.
            RegistryRefused: an answer that cannot be followed.
        """
        url = urljoin(self._base, path)
        answer = self._send(method, url, self._authorization(url, scope), headers=headers, body=body)
        if answer.status == 401 and self._is_own(url) and (authorization := self._answer_challenge(answer)):
            self._authorizations[scope] = authorization
            answer = self._send(method, url, self._authorization(url, scope), headers=headers, body=body)
        return self._checked(answer)

    def _authorization(self, url: str, scope: str) -> AuthBase:
        return _Authorization(self._authorizations.get(scope, "") if self._is_own(url) else "")

    def _is_own(self, url: str) -> bool:
        """Whether a URL is this registry's: credentials and tokens go nowhere else (uploads may go to a store)."""
        return url.startswith(self._base)

    def _send(
        self, method: str, url: str, auth: AuthBase, *, headers: Mapping[str, str] | None = None, body: Any = None
    ) -> Answer:
        try:
            with (
                _opened(body) as data,
                self._session.request(
                    method, url, headers=headers, data=data, auth=auth, stream=True, timeout=self._timeout
                ) as response,
            ):
                return Answer(
                    status=response.status_code,
                    url=response.url,
                    headers=response.headers,
                    body=_read(response, self.host),
                )
        except (
            requests.exceptions.ConnectionError,
            requests.Timeout,
            requests.exceptions.ChunkedEncodingError,
        ) as error:
            raise RegistryUnavailable(f"registry {self.host}: {self._describe(error)}") from error
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            raise RegistryRefused(f"registry {self.host} gave an answer that cannot be read: {error}") from error

    def _describe(self, error: Exception) -> str:
        causes = list(_chain(error))
        if isinstance(error, requests.exceptions.SSLError):
            return f"TLS failed: {causes[-1]}; give the registry's CA, or plain HTTP for a registry without TLS"
        if isinstance(error, requests.exceptions.ProxyError):
            return f"the proxy failed: {causes[-1]}"
        if isinstance(error, requests.Timeout):
            return f"no answer within {self._timeout:g} s"
        if any(isinstance(cause, socket.gaierror) for cause in causes):
            return f"its name cannot be resolved: {causes[-1]}"
        if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
            return "connection refused"
        return f"the connection failed: {causes[-1]}"

    def _checked(self, answer: Answer) -> Answer:
        if answer.status in (401, 403):
            who = f"user {self._credentials.username!r}" if self._credentials.username else "no credentials given"
            raise RegistryUnauthorised(f"registry {self.host} denies access ({who}): {answer.reason}")
        if answer.status == 429 or answer.status >= 500:
            raise RegistryUnavailable(f"registry {self.host} answered {answer.reason}")
        return answer

    def _answer_challenge(self, answer: Answer) -> str:
        """The Authorization header that the challenge in a 401 asks for; empty when there is nothing to give."""
        scheme, _, rest = answer.headers.get("WWW-Authenticate", "").partition(" ")
        if scheme.lower() == "bearer":
            return f"Bearer {self._fetch_token(parse_challenge(rest))}"
        if scheme.lower() == "basic" and self._credentials.username:
            return str(self._basic()(requests.Request("GET", self._base).prepare()).headers["Authorization"])
        return ""

    def _basic(self) -> HTTPBasicAuth:
        return HTTPBasicAuth(self._credentials.username.encode(), self._credentials.password.encode())

    def _fetch_token(self, challenge: Mapping[str, str]) -> str:
        realm = urljoin(self._base, challenge.get("realm", ""))
        if urlsplit(realm).scheme != "https" and self._base.startswith("https:"):
            raise RegistryRefused(f"registry {self.host} wants its password sent unencrypted to {realm}; refused")
        query = {name: value for name in ("service", "scope") if (value := challenge.get(name))}
        answer = self._checked(self._ask_for_token(realm, query))
        content = answer.json()
        token = (content.get("token") or content.get("access_token")) if isinstance(content, dict) else None
        if answer.status != 200 or not isinstance(token, str):
            raise RegistryRefused(f"the token service of registry {self.host}, {realm}, gave no token: {answer.status}")
        return token

    def _ask_for_token(self, realm: str, query: dict[str, str]) -> Answer:
        if self._credentials.identity_token:
            form = {"grant_type": "refresh_token", "refresh_token": self._credentials.identity_token}
            return self._send("POST", realm, _Authorization(""), body={**query, **form, "client_id": CLIENT_ID})
        auth = self._basic() if self._credentials.username else _Authorization("")
        url = requests.Request("GET", realm, params=query).prepare().url or realm
        return self._send("GET", url, auth)


def parse_challenge(text: str) -> dict[str, str]:
    """``realm="https://...",service="...",scope="a,b"`` as a mapping; a comma inside quotes is part of the value."""
    items = (item.partition("=") for item in parse_http_list(text))
    return {name.strip().lower(): value.strip().strip('"') for name, _, value in items}


def _opened(body: Any) -> AbstractContextManager[Any]:
    if isinstance(body, Path):
        file: IO[bytes] = body.open("rb")
        return file
    return nullcontext(body)


def _read(response: requests.Response, host: str) -> bytes:
    body = bytearray()
    for chunk in response.iter_content(1 << 16):
        body += chunk
        if len(body) > MAX_ANSWER:
            raise RegistryRefused(f"registry {host} answered with more than {MAX_ANSWER} bytes to {response.url}")
    return bytes(body)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
