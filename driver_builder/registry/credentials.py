"""Registry credentials from an image pull secret.

Place in the flow: ``observe`` reads the Secret, this module parses it, ``registry`` and ``docker_builder`` use
the result. The two formats are those of Kubernetes' Secret types ``kubernetes.io/dockerconfigjson`` (the newer
``~/.docker/config.json``: hosts below ``auths``) and ``kubernetes.io/dockercfg`` (the older ``~/.dockercfg``: hosts at
the top). No secret is ever part of a message, a repr or the cause of an exception.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from driver_builder.base.errors import ConfigurationError
from driver_builder.model.images import DOCKER_HUB, DOCKER_HUB_HOSTS, DOCKER_HUB_REGISTRY

"""Docker Hub's names: the usual one, the one in Docker's own config file, and the host that answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What one registry accepts: a user name with a password, or an identity token (an OAuth2 refresh token)."""

    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)


def registry_host(host: str) -> str:
    """The host that answers for ``host``: Docker Hub's registry has another name."""
    return DOCKER_HUB_REGISTRY if host in DOCKER_HUB_HOSTS else host


def registry_repository(host: str, repository: str) -> str:
    """The repository's whole name: Docker Hub keeps those without a user, such as ``debian``, below ``library/``."""
    return f"library/{repository}" if host in DOCKER_HUB_HOSTS and "/" not in repository else repository


def parse_docker_config(data: bytes) -> dict[str, Credentials]:
    """The credentials in a ``.dockerconfigjson`` or ``.dockercfg``, by host, host with port, or host with path.

    Raises:
        ConfigurationError: when it is not a JSON object of the known shape; names the host, never the content.
    """
    try:
        config = json.loads(data)
    except ValueError:
        # Without the cause: a JSONDecodeError carries the whole secret as ``doc``.
        raise ConfigurationError(
            "the registry secret is not JSON; create it with: kubectl create secret docker-registry"
        ) from None
    if not isinstance(config, dict):
        raise ConfigurationError("the registry secret is not a JSON object; expected {'auths': {HOST: {...}}}")
    auths = config.get("auths", config)
    if not isinstance(auths, dict):
        raise ConfigurationError("'auths' of the registry secret is not a JSON object; expected {HOST: {...}}")
    return {_normalised(host): _parse_entry(host, entry) for host, entry in auths.items()}


def credentials_for(auths: Mapping[str, Credentials], host: str, repository: str = "") -> Credentials | None:
    """The entry that fits ``host`` (``registry:5000``) and ``repository`` best: the longest key wins, as in kubelet.

    A key may name the beginning of the path (``host/team``) and use ``*`` in the host's name (``*.example.com``).
    """
    wanted = "/".join(part for part in (_normalised(host), repository) if part)
    longest_first = sorted(auths, key=lambda key: (-len(key), key))
    return next((auths[key] for key in longest_first if _fits(key, wanted)), None)


def _fits(key: str, wanted: str) -> bool:
    key_host, _, key_path = key.partition("/")
    host, _, path = wanted.partition("/")
    key_labels, labels = key_host.split("."), host.split(".")
    same_host = len(key_labels) == len(labels) and all(map(fnmatchcase, labels, key_labels))
    return same_host and f"{path}/".startswith(f"{key_path}/" if key_path else "")


def _normalised(host: str) -> str:
    """``https://index.docker.io/v1/`` is ``docker.io``: without scheme, API version and slash at the end."""
    bare = host.lower().removeprefix("https://").removeprefix("http://").rstrip("/")
    bare = bare.removesuffix("/v1").removesuffix("/v2")
    return DOCKER_HUB if bare in DOCKER_HUB_HOSTS else bare


def _parse_entry(host: str, entry: object) -> Credentials:
    if not isinstance(entry, dict):
        raise ConfigurationError(
            f"the registry secret's entry {host!r} is not a JSON object; expected 'auth' or 'username'"
        )
    username, password = _parse_auth(host, entry["auth"]) if entry.get("auth") else ("", "")
    return Credentials(
        username=_text(host, entry, "username") or username,
        password=_text(host, entry, "password") or password,
        identity_token=_text(host, entry, "identitytoken"),
    )


def _text(host: str, entry: Mapping[str, object], name: str) -> str:
    value = entry.get(name, "")
    if not isinstance(value, str):
        raise ConfigurationError(f"{name!r} of {host!r} in the registry secret is not a string")
    return value


def _parse_auth(host: str, auth: object) -> tuple[str, str]:
    """``auth`` is base64 of ``username:password``; some tools end it with NUL bytes."""
    problem = f"'auth' of {host!r} in the registry secret is not base64 of username:password"
    if not isinstance(auth, str):
        raise ConfigurationError(problem)
    try:
        username, colon, password = base64.b64decode(auth, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        # Without the cause: a UnicodeDecodeError carries the secret's bytes.
        raise ConfigurationError(problem) from None
    if not colon:
        raise ConfigurationError(problem)
    return username, password.rstrip("\0")
