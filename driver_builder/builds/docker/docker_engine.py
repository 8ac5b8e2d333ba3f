"""The container engine that builds: local over its socket, or remote over TLS or SSH.

Addresses and certificates are those of the docker command: ``DOCKER_HOST``, and a folder with ``ca.pem``, ``cert.pem``
and ``key.pem``. Over SSH the remote machine needs the docker command; its host key must be known, and the user's key
comes from where the ssh command looks (``~/.ssh``, an agent).
"""

import errno
import logging
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import requests
import urllib3
from docker.errors import APIError, DockerException, TLSParameterError
from docker.tls import TLSConfig
from paramiko import SSHException

from driver_builder.base.errors import BuildFailed, ConfigurationError, TemporaryError
from driver_builder.base.reasons import Reason
from driver_builder.builds.failures import classify

SCHEMES = ("unix://", "tcp://", "ssh://")
TIMEOUT = 120
"""Seconds."""

_DENIED = repr(PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
_NOT_ROOT = (
    "; user {} may not use the socket of the engine, which is root's: set runAsUser: 0, as"
    " deploy/patches/builds-by-an-engine.yaml does"
)

logger = logging.getLogger(__name__)


@contextmanager
def docker_engine(
    address: str, *, certificates: Path | None = None, timeout: int = TIMEOUT
) -> Iterator[docker.APIClient]:
    """A client of the engine at ``address``, closed at the end of the block.

    ``unix:///var/run/docker.sock``, ``tcp://host:2376`` (``certificates`` is the folder for mutual TLS), or
    ``ssh://user@host``; ``timeout`` in seconds bounds every request but builds.

    Raises:
        ConfigurationError: when the address or the certificates cannot be used.
        TemporaryError: when the engine does not answer.
    """
    if not address.startswith(SCHEMES):
        raise ConfigurationError(f"--docker-host: {address!r}: begin it with one of {', '.join(SCHEMES)}")
    tls = _tls(certificates) if certificates is not None else False
    if address.startswith("tcp://") and tls is False:
        logger.warning(
            "the connection to the engine at %s does not use TLS: set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH", address
        )
    with engine_errors(f"connecting to {address}"):
        api = docker.APIClient(base_url=address, version="auto", timeout=timeout, tls=tls)
    try:
        yield api
    finally:
        api.close()


class _OurCertificates(TLSConfig):
    """Trusts only the given authority: requests would use REQUESTS_CA_BUNDLE of the environment instead."""

    def configure_client(self, client: docker.APIClient) -> None:
        super().configure_client(client)
        client.trust_env = False


def _tls(folder: Path) -> TLSConfig:
    ca, certificate, key = (folder / name for name in ("ca.pem", "cert.pem", "key.pem"))
    if missing := [str(path) for path in (ca, certificate, key) if not path.is_file()]:
        raise ConfigurationError(f"DOCKER_CERT_PATH: {', '.join(missing)} is missing: add it in PEM")
    try:
        return _OurCertificates(client_cert=(str(certificate), str(key)), ca_cert=str(ca), verify=True)
    except TLSParameterError as error:
        raise ConfigurationError(f"DOCKER_CERT_PATH: {folder}: {error}") from error


@contextmanager
def engine_errors(doing: str) -> Iterator[None]:
    """Translate what the engine's client and the local disk raise into our own errors."""
    try:
        yield
    except (
        DockerException,
        requests.RequestException,
        urllib3.exceptions.HTTPError,
        OSError,
        ValueError,
        tarfile.TarError,
        SSHException,
    ) as error:
        reason, message = classify(None, str(error), ())
        if reason is Reason.DISK_FULL:
            raise BuildFailed(reason, f"{message} (while {doing})") from error
        raise TemporaryError(f"the build engine failed while {doing}: {_words(error)}") from error


def _words(error: Exception) -> str:
    words = error.explanation if isinstance(error, APIError) and error.explanation else str(error)
    # The client quotes what the connection raised. The images run as another user than the socket's, which is root.
    return words + _NOT_ROOT.format(os.geteuid()) if _DENIED in words else words
