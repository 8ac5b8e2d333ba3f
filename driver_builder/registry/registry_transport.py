"""HTTP requests to one registry: credentials, tokens, and one map from failures to our own errors.

Place in the flow: below ``registry``, which knows what manifests and blobs are; nothing of ``requests`` leaves here.

Sources: the OCI distribution specification 1.1 (codes of errors), and the token authentication of the Docker registry,
with Basic beside it for registries with a htpasswd.
"""

import base64
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Any
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from requests.auth import AuthBase

from driver_builder.base.errors import ConfigurationError, RegistryRefused, RegistryUnauthorized, RegistryUnavailable
from driver_builder.model.registry_reach import Reach
from driver_builder.registry.credentials import Credentials, registry_host
from driver_builder.registry.registry_auth import (
    READING,
    Authorizations,
    Challenge,
    Purpose,
    granted_actions,
    is_token,
    parse_challenges,
    token_seconds,
)
from driver_builder.registry.registry_connection import PORTS, Deadline, Guard, guarded_session
from driver_builder.registry.registry_responses import (
    RegistryBusy,
    Response,
    no_answer,
    shown,
    too_slow,
    unavailable,
    unreadable,
)

CLIENT_ID = "driverwright"
TIMEOUT_SECONDS = 30.0
MAX_ANSWER = 16 << 20
"""Bytes of a blob."""
MAX_DOCUMENT = 4 << 20
"""Bytes of a manifest or a config: registries refuse larger manifests."""
MAX_ERROR = 64 << 10
"""Bytes of an error or a token; of an error, the rest is not read."""
UPLOAD_RATE = 64 << 10
"""Bytes per second that an upload must reach."""
MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_NO_ANSWER = (
    requests.exceptions.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
    urllib3.exceptions.TimeoutError,
    urllib3.exceptions.ProtocolError,
)
_UNREADABLE = (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError)


class _Authorization(AuthBase):
    """Sets one header. Always given, even if empty: without it, requests would look for a password in ~/.netrc."""

    def __init__(self, value: str) -> None:
        self._value = value

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._value:
            request.headers["Authorization"] = self._value
        return request


class RegistryTransport:
    """Requests to one registry, below ``https://host/v2/`` (``http`` with ``plain_http``).

    ``timeout`` in seconds, for the connection and for each wait for data; ``deadline`` for a whole exchange with its
    tokens and redirects (the same unless it is given), to which the time that an upload needs is added. If a registry
    asks for a pause, the client waits with ``wait``, up to ``patience`` seconds in one request, or until that returns
    true. ``reach`` says where it may redirect to, besides ``host`` itself. Proxies are those of HTTPS_PROXY, HTTP_PROXY
    and NO_PROXY, which requests reads.

    Raises:
        ConfigurationError: when ``ca_file`` does not exist.
    """

    def __init__(
        self,
        host: str,
        *,
        credentials: Credentials | None = None,
        plain_http: bool = False,
        ca_file: str | Path | None = None,
        timeout: float = TIMEOUT_SECONDS,
        deadline: float | None = None,
        patience: float = 0,
        wait: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.time,
        reach: Reach | None = None,
    ) -> None:
        self.host = host
        self._base = f"{'http' if plain_http else 'https'}://{registry_host(host)}/"
        self._credentials = credentials or Credentials()
        self._timeout = timeout
        self._deadline = deadline or timeout
        self._patience = patience
        self._wait = wait
        self._clock = clock
        self._guard = Guard(host, _own_address(self._base), reach or Reach())
        self._session = guarded_session(self._guard)
        if ca_file and not Path(ca_file).exists():
            raise ConfigurationError(
                f"the CA file of the registries, {ca_file}, does not exist: see --registry-ca-file"
            )
        # Given with every request: as the session's own, REQUESTS_CA_BUNDLE of the environment would win over it.
        self._verify: bool | str = str(ca_file) if ca_file else True
        self._authorizations = Authorizations(clock)

    def request(
        self,
        method: str,
        path: str,
        *,
        repository: str = "",
        headers: Mapping[str, str] | None = None,
        body: bytes | Path | None = None,
        limit: int = MAX_DOCUMENT,
    ) -> Response:
        """Send a request, answer the registry's challenge once, and follow its redirects for reads.

        ``path`` is relative to the host, or a whole URL from the registry. ``repository`` says what a token is
        for. A file as ``body`` is streamed. An answer has at most ``limit`` bytes.

        Raises:
            RegistryUnavailable: no response, 429 or 5xx; RegistryBusy if the registry says how long to wait,
                RegistryFull if it has no space.
            RegistryUnauthorized: 401 or 403.
            RegistryRefused: a response that cannot be followed.
        """
        url = self.joined(self._base, path)
        if self._loses_tls(url):
            raise RegistryRefused(
                f"registry {self.host} requires uploads without TLS, to {_bare(url)}; if it is behind a proxy, make"
                " the proxy set X-Forwarded-Proto"
            )
        left = self._patience
        purpose = Purpose(repository=repository, writing=method not in READING)
        while True:
            try:
                with Deadline(self._deadline + _length(body) / UPLOAD_RATE) as self._guard.deadline:
                    return self._request(method, url, purpose, headers=headers, body=body, limit=limit)
            except RegistryBusy as busy:
                left -= busy.retry_after
                if left < 0 or self._wait(busy.retry_after):
                    raise

    def granted(self, repository: str) -> frozenset[str] | None:
        """Ask the token service what it grants in a repository for reading and writing; nothing is written.

        None where no token says it: the registry asks for a password, for nothing, or its tokens are opaque.

        Raises:
            RegistryUnavailable, RegistryUnauthorized, RegistryRefused: as :meth:`request` does.
        """
        with Deadline(self._deadline) as self._guard.deadline:
            answer = self._send("GET", self.joined(self._base, "/v2/"), "")
            for challenge in parse_challenges(answer.headers.get("WWW-Authenticate", "")):
                if answer.status == 401 and challenge.scheme == "bearer":
                    # The scope that a registry names for /v2/ is of something else.
                    service = {name: value for name, value in challenge.parameters.items() if name != "scope"}
                    asked = Challenge(scheme=challenge.scheme, parameters=service)
                    token, _ = self._fetch_token(asked, Purpose(repository=repository, writing=True))
                    return granted_actions(token, repository)
        return None

    def joined(self, base: str, location: str) -> str:
        """The URL that a registry redirects to.

        Raises:
            RegistryRefused: it is not a URL.
        """
        try:
            url = urljoin(base, location)
            if urlsplit(url).hostname and (urlsplit(url).port or 1):
                return url
        except ValueError:
            pass
        raise RegistryRefused(f"registry {self.host} refers to {shown(location)!r}, which is not a URL")

    def _request(
        self,
        method: str,
        url: str,
        purpose: Purpose,
        *,
        headers: Mapping[str, str] | None,
        body: bytes | Path | None,
        limit: int,
    ) -> Response:
        sent = self._authorization(url, purpose)
        answer = self._send(method, url, sent, headers=headers, body=body, limit=limit)
        if answer.status == 401 and self._is_own(url):
            asked = self._answer_challenge(answer, purpose)
            # Another try would send the same wrong password: some registries lock accounts for that.
            if asked not in ("", sent):
                answer = self._send(method, url, asked, headers=headers, body=body, limit=limit)
        for _ in range(MAX_REDIRECTS):
            if answer.status not in _REDIRECTS:
                return self._checked(answer)
            url = self._redirected(method, answer)
            answer = self._send(method, url, self._authorization(url, purpose), headers=headers, limit=limit)
            if 400 <= answer.status < 500 and not answer.is_own:
                raise RegistryRefused(
                    f"registry {self.host} refers to {_bare(url)}, which responds with {answer.status}"
                )
        raise RegistryRefused(f"registry {self.host} redirects more than {MAX_REDIRECTS} times, last to {_bare(url)}")

    def _redirected(self, method: str, answer: Response) -> str:
        """The target of a redirect: to another host without credentials, and never from TLS to plain HTTP."""
        url = self.joined(answer.url, answer.headers.get("Location", ""))
        if method not in READING or "Location" not in answer.headers or self._loses_tls(url):
            raise RegistryRefused(
                f"registry {self.host} answered {method} with a redirect to {_bare(url)!r}, which is not followed"
            )
        return url

    def _authorization(self, url: str, purpose: Purpose) -> str:
        return self._authorizations.get(purpose) if self._is_own(url) else ""

    def _is_own(self, url: str) -> bool:
        """Whether a URL is this registry's: credentials and tokens go nowhere else (uploads may go to a store)."""
        return url.startswith(self._base)

    def _loses_tls(self, url: str) -> bool:
        return self._base.startswith("https:") and urlsplit(url).scheme != "https"

    def _send(
        self,
        method: str,
        url: str,
        authorization: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        limit: int = MAX_ERROR,
    ) -> Response:
        try:
            answer = self._exchange(method, url, authorization, headers=headers, body=body, limit=limit)
        except (*_NO_ANSWER, *_UNREADABLE) as error:
            if (deadline := self._guard.deadline) is not None and deadline.has_passed:
                raise too_slow(self.host, deadline.seconds) from error
            if isinstance(error, _NO_ANSWER):
                raise no_answer(self.host, error, timeout=self._timeout) from error
            raise unreadable(self.host, error) from error
        # An answer without a length ends where its connection ends.
        if (deadline := self._guard.deadline) is not None and deadline.has_passed:
            raise too_slow(self.host, deadline.seconds)
        return answer

    def _exchange(
        self, method: str, url: str, authorization: str, *, headers: Mapping[str, str] | None, body: Any, limit: int
    ) -> Response:
        with (
            _opened(body) as data,
            self._session.request(
                method,
                url,
                # Not decompressed: nothing that unpacks to gigabytes, and digests are of what is sent.
                headers={"Accept-Encoding": "identity", **(headers or {})},
                data=data,
                auth=_Authorization(authorization),
                stream=True,
                timeout=self._timeout,
                allow_redirects=False,
                verify=self._verify,
            ) as response,
        ):
            return Response(
                status=response.status_code,
                url=response.url,
                headers=response.headers,
                body=_read(response, self.host, limit),
                is_own=self._is_own(url),
            )

    def _checked(self, answer: Response) -> Response:
        if answer.says_full:
            raise unavailable(self.host, answer, now=self._clock())
        if answer.status in (401, 403):
            who = f"user {self._credentials.username!r}" if self._credentials.username else "no credentials were sent"
            raise RegistryUnauthorized(f"registry {self.host} denies access ({who}): {answer.reason}")
        if answer.status == 407:
            raise RegistryUnavailable(
                f"registry {self.host}: the proxy requires a password ({answer.reason}); set it in HTTPS_PROXY"
            )
        if answer.status == 429 or answer.status >= 500:
            raise unavailable(self.host, answer, now=self._clock())
        return answer

    def _answer_challenge(self, answer: Response, purpose: Purpose) -> str:
        """The Authorization header for a 401, kept for later requests; empty without credentials or a token."""
        for challenge in parse_challenges(answer.headers.get("WWW-Authenticate", "")):
            if challenge.scheme == "bearer":
                token, seconds = self._fetch_token(challenge, purpose)
                self._authorizations.keep(purpose, f"Bearer {token}", seconds)
                return f"Bearer {token}"
            if challenge.scheme == "basic" and self._credentials.username:
                header = self._basic()
                self._authorizations.keep(purpose, header)
                return header
        return ""

    def _basic(self) -> str:
        """The header with user name and password, empty when there is no user."""
        pair = f"{self._credentials.username}:{self._credentials.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}" if self._credentials.username else ""

    def _fetch_token(self, challenge: Challenge, purpose: Purpose) -> tuple[str, float]:
        """A token for a purpose, and the seconds it is good for; without credentials an anonymous one."""
        realm = self.joined(self._base, challenge.parameters.get("realm", ""))
        if self._loses_tls(realm):
            raise RegistryRefused(
                f"registry {self.host} requires its password to be sent unencrypted to {shown(realm)}"
            )
        wanted = {"scope": purpose.scope, **challenge.parameters}
        query = {name: value for name in ("service", "scope") if (value := wanted.get(name))}
        answer = self._checked(self._ask_for_token(realm, query))
        content = answer.json()
        content = content if isinstance(content, dict) else {}
        token = content.get("token") or content.get("access_token")
        if answer.status != 200 or not is_token(token):
            where = shown(_bare(realm))
            raise RegistryRefused(
                f"the token service of registry {self.host}, {where}, returned no token: {answer.status}"
            )
        return token, token_seconds(content)

    def _ask_for_token(self, realm: str, query: dict[str, str]) -> Response:
        if self._credentials.identity_token:
            form = {"grant_type": "refresh_token", "refresh_token": self._credentials.identity_token}
            return self._send("POST", realm, "", body={**query, **form, "client_id": CLIENT_ID})
        try:
            url = requests.Request("GET", realm, params=query).prepare().url or realm
        except (requests.RequestException, ValueError) as error:
            raise unreadable(self.host, error) from error
        return self._send("GET", url, self._basic())


def _opened(body: Any) -> AbstractContextManager[Any]:
    if isinstance(body, Path):
        file: IO[bytes] = body.open("rb")
        return file
    return nullcontext(body)


def _length(body: Any) -> int:
    return body.stat().st_size if isinstance(body, Path) else len(body or b"")


def _read(response: requests.Response, host: str, limit: int) -> bytes:
    """The body, at most ``limit`` bytes; of an error the beginning."""
    is_error = response.status_code >= 400
    limit = min(limit, MAX_ERROR) if is_error else limit
    body = bytearray()
    for chunk in response.raw.stream(1 << 16, decode_content=False):
        body += chunk
        if len(body) > limit:
            if is_error:
                break
            raise RegistryRefused(
                f"registry {host} sent a response of more than {limit} bytes to {_bare(response.url)}"
            )
    return bytes(body[:limit])


def _own_address(base: str) -> tuple[str, int]:
    """Host and port of the registry itself; of a name that is none, what no connection has."""
    try:
        parts = urlsplit(base)
        return parts.hostname or "", parts.port or PORTS[parts.scheme]
    except ValueError:
        return "", 0


def _bare(url: str) -> str:
    """A URL without its query, which may contain a store's access token."""
    return shown(url.partition("?")[0])
