"""What can be said of an engine's address before it is asked."""

import gc
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from driver_builder.base.errors import ConfigurationError, TemporaryError
from driver_builder.builds.docker.docker_engine import docker_engine


@pytest.mark.parametrize("address", ["", "/run/docker.sock", "http://host:2375", "npipe:////./pipe/docker"])
def test_an_address_of_another_kind_is_refused(address: str) -> None:
    """The words name the flag and the beginnings that there are."""
    with pytest.raises(ConfigurationError, match=r"--docker-host: .* unix://, tcp://, ssh://"), docker_engine(address):
        pass


def test_missing_certificates_are_named(tmp_path: Path) -> None:
    """The error names each file that TLS needs."""
    (tmp_path / "ca.pem").touch()
    words = f"DOCKER_CERT_PATH: {tmp_path}/cert.pem, {tmp_path}/key.pem is missing"
    with pytest.raises(ConfigurationError, match=words), docker_engine("tcp://host:2376", certificates=tmp_path):
        pass


@contextmanager
def _sockets_left_by_the_client() -> Iterator[None]:
    """The docker client leaves a socket that it could not connect to the collector."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_socket_that_is_roots_is_explained() -> None:
    """The image's user is another one: who has a Deployment of before learns what to set."""
    with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as engine:
        Path(folder).chmod(0o755)
        engine.bind(f"{folder}/docker.sock")
        engine.listen()
        Path(f"{folder}/docker.sock").chmod(0o600)
        os.seteuid(65534)
        try:
            with (
                _sockets_left_by_the_client(),
                pytest.raises(TemporaryError, match=r"user 65534 may not use the socket .* set runAsUser: 0"),
                docker_engine(f"unix://{folder}/docker.sock"),
            ):
                pass
        finally:
            os.seteuid(0)
