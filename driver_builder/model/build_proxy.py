"""The proxy by which a build reaches package repositories, git servers, archives and images. Pure.

Place in the flow: ``api`` reads it, builders give it to a build as the variables that its programs know. It is no part
of the build key, and in no image: neither an engine nor buildah writes these variables to an image's history.
"""

from dataclasses import dataclass
from urllib.parse import quote

USERNAME, PASSWORD = "username", "password"
"""The keys of its Secret, as those of the type ``kubernetes.io/basic-auth``."""

PROXY_FIELD = "spec.build.proxy.secretRef"
CA_FIELD = "spec.build.caConfigMap"
"""Certificates that builds trust besides those of their images, also for what is behind a proxy that ends TLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildProxy:
    """Addresses without a password; ``secret`` is the name of the Secret that has one, for both."""

    http: str = ""
    https: str = ""
    no_proxy: str = ""
    secret: str | None = None


@dataclass(frozen=True, slots=True)
class ProxyPassword:
    """Who a proxy is used as."""

    username: str
    password: str

    @property
    def in_url(self) -> str:
        """The password as a URL has it."""
        return quote(self.password, safe="")


def variables(proxy: BuildProxy, known: ProxyPassword | None = None) -> dict[str, str]:
    """Return the variables of a proxy; programs differ in whether they read capitals."""
    values = {
        "HTTP_PROXY": _with(known, proxy.http),
        "HTTPS_PROXY": _with(known, proxy.https),
        "NO_PROXY": proxy.no_proxy,
    }
    given = {name: value for name, value in values.items() if value}
    return given | {name.lower(): value for name, value in given.items()}


def _with(known: ProxyPassword | None, url: str) -> str:
    if known is None or not url:
        return url
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{quote(known.username, safe='')}:{known.in_url}@{rest}"
