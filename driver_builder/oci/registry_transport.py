"""Speaks HTTP to one registry: credentials, tokens, and one map from what goes wrong to our own errors.

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

from driver_builder.errors import ConfigurationError, RegistryRefused, RegistryUnauthorised, RegistryUnavailable
from driver_builder.oci.credentials import Credentials, registry_host
from driver_builder.oci.registry_answers import (
    Answer,
    RegistryBusy,
    no_answer,
    unavailable,
    unreadable,
)
from driver_builder.oci.registry_auth import (
    READING,
    Authorizations,
    Challenge,
    Purpose,
    parse_challenges,
    token_seconds,
)

CLIENT_ID = "driverwright"
MAX_ANSWER = 16 << 20
"""Bytes; manifests and configs are far smaller (registries refuse manifests above 4 MiB)."""
MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


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

    ``timeout`` in seconds, for the connection and for each wait for data. A registry that asks to be left alone is
    waited for with ``wait``, up to ``patience`` seconds in one request, or until that gives true. Proxies are those of
    HTTPS_PROXY, HTTP_PROXY and NO_PROXY, which requests reads.

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
        timeout: float = 30,
        patience: float = 0,
        wait: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.host = host
        self._base = f"{'http' if plain_http else 'https'}://{registry_host(host)}/"
        self._credentials = credentials or Credentials()
        self._timeout = timeout
        self._patience = patience
        self._wait = wait
        self._clock = clock
        self._session = requests.Session()
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
    ) -> Answer:
        """Send a request, answer the registry's challenge once, and follow where it sends a reader.

        ``path`` is relative to the host, or a whole URL that the registry gave. ``repository`` says what a token is
        for. A file as ``body`` is streamed.

        Raises:
            RegistryUnavailable: no answer, 429 or 5xx; RegistryBusy where the registry says how long to wait,
                RegistryFull where it has no room.
            RegistryUnauthorised: 401 or 403.
            RegistryRefused: an answer that cannot be followed.
        """
        url = urljoin(self._base, path)
        if self._loses_tls(url):
            raise RegistryRefused(
                f"registry {self.host} wants to be written to without TLS, at {_bare(url)}; if a proxy stands before"
                " it, let that set X-Forwarded-Proto"
            )
        left = self._patience
        purpose = Purpose(repository=repository, writing=method not in READING)
        while True:
            try:
                return self._request(method, url, purpose, headers=headers, body=body)
            except RegistryBusy as busy:
                left -= busy.retry_after
                if left < 0 or self._wait(busy.retry_after):
                    raise

    def _request(
        self, method: str, url: str, purpose: Purpose, *, headers: Mapping[str, str] | None, body: bytes | Path | None
    ) -> Answer:
        sent = self._authorization(url, purpose)
        answer = self._send(method, url, sent, headers=headers, body=body)
        if answer.status == 401 and self._is_own(url):
            asked = self._answer_challenge(answer, purpose)
            # The same again would be the same wrong password again: some registries lock accounts for that.
            if asked not in ("", sent):
                answer = self._send(method, url, asked, headers=headers, body=body)
        for _ in range(MAX_REDIRECTS):
            if answer.status not in _REDIRECTS:
                return self._checked(answer)
            url = self._redirected(method, answer)
            answer = self._send(method, url, self._authorization(url, purpose), headers=headers)
            if 400 <= answer.status < 500 and not self._is_own(url):
                raise RegistryRefused(f"registry {self.host} sends readers to {_bare(url)}, which says {answer.reason}")
        raise RegistryRefused(f"registry {self.host} redirects more than {MAX_REDIRECTS} times, last to {_bare(url)}")

    def _redirected(self, method: str, answer: Answer) -> str:
        """Where a reader is sent: to another host without credentials, and never from TLS to plain HTTP."""
        url = urljoin(answer.url, answer.headers.get("Location", ""))
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
        self, method: str, url: str, authorization: str, *, headers: Mapping[str, str] | None = None, body: Any = None
    ) -> Answer:
        try:
            with (
                _opened(body) as data,
                self._session.request(
                    method,
                    url,
                    headers=headers,
                    data=data,
                    auth=_Authorization(authorization),
                    stream=True,
                    timeout=self._timeout,
                    allow_redirects=False,
                    verify=self._verify,
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
            raise no_answer(self.host, error, timeout=self._timeout) from error
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise unreadable(self.host, error) from error

    def _checked(self, answer: Answer) -> Answer:
        if answer.says_full:
            raise unavailable(self.host, answer, now=self._clock())
        if answer.status in (401, 403):
            who = f"user {self._credentials.username!r}" if self._credentials.username else "no credentials given"
            raise RegistryUnauthorised(f"registry {self.host} denies access ({who}): {answer.reason}")
        if answer.status == 407:
            raise RegistryUnavailable(
                f"registry {self.host}: the proxy wants a password ({answer.reason}); give it in HTTPS_PROXY"
            )
        if answer.status == 429 or answer.status >= 500:
            raise unavailable(self.host, answer, now=self._clock())
        return answer

    def _answer_challenge(self, answer: Answer, purpose: Purpose) -> str:
        """The Authorization header that a 401 asks for, kept for what follows; empty when there is nothing to give."""
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
        realm = urljoin(self._base, challenge.parameters.get("realm", ""))
        if self._loses_tls(realm):
            raise RegistryRefused(f"registry {self.host} wants its password sent unencrypted to {realm}; refused")
        wanted = {"scope": purpose.scope, **challenge.parameters}
        query = {name: value for name in ("service", "scope") if (value := wanted.get(name))}
        answer = self._checked(self._ask_for_token(realm, query))
        content = answer.json()
        content = content if isinstance(content, dict) else {}
        token = content.get("token") or content.get("access_token")
        if answer.status != 200 or not isinstance(token, str) or not token.isprintable():
            raise RegistryRefused(f"the token service of registry {self.host}, {realm}, gave no token: {answer.status}")
        return token, token_seconds(content)

    def _ask_for_token(self, realm: str, query: dict[str, str]) -> Answer:
        if self._credentials.identity_token:
            form = {"grant_type": "refresh_token", "refresh_token": self._credentials.identity_token}
            return self._send("POST", realm, "", body={**query, **form, "client_id": CLIENT_ID})
        url = requests.Request("GET", realm, params=query).prepare().url or realm
        return self._send("GET", url, self._basic())


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
            raise RegistryRefused(
                f"registry {host} answered with more than {MAX_ANSWER} bytes to {_bare(response.url)}"
            )
    return bytes(body)


def _bare(url: str) -> str:
    """A URL without its query, in which stores carry what lets anybody read."""
    return url.partition("?")[0]
