"""What can be said of an engine's address before it is asked."""

from pathlib import Path

import pytest

from driver_builder.builds.docker.docker_engine import docker_engine
from driver_builder.errors import ConfigurationError


@pytest.mark.parametrize("address", ["", "/run/docker.sock", "http://host:2375", "npipe:////./pipe/docker"])
def test_an_address_of_another_kind_is_refused(address: str) -> None:
    """The words name the flag and the beginnings that there are."""
    with pytest.raises(ConfigurationError, match=r"--docker-host: .* unix://, tcp://, ssh://"), docker_engine(address):
        pass


def test_missing_certificates_are_named(tmp_path: Path) -> None:
    """The error names each file that TLS needs."""
    (tmp_path / "ca.pem").touch()
    words = f"--docker-cert-path: {tmp_path}/cert.pem, {tmp_path}/key.pem is missing"
    with pytest.raises(ConfigurationError, match=words), docker_engine("tcp://host:2376", certificates=tmp_path):
        pass
