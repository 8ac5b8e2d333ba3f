"""Passwords of registries from docker's own configuration."""

import base64
import json
from pathlib import Path

import pytest

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.base.errors import ConfigurationError
from driver_builder.cli.offline.docker_passwords import accounts, read_docker_config
from driver_builder.registry.credentials import Credentials
from driver_builder.registry.given_objects import GivenObjects

AUTH = base64.b64encode(b"anna:s3cret").decode()
ANNA = Credentials(username="anna", password="s3cret")


def written(folder: Path, content: object) -> Path:
    """Write a configuration."""
    path = folder / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_helpers_are_named_and_not_run(tmp_path: Path) -> None:
    """An entry whose password a helper has is none; those with a password are taken."""
    content = {"auths": {"r.io": {"auth": AUTH}, "h.io": {}}, "credHelpers": {"h.io": "x"}, "credsStore": "y"}
    known, remark = read_docker_config(written(tmp_path, content))
    assert known == {"r.io": ANNA}
    assert remark.endswith("names credential helpers (credHelpers, credsStore), which are not run")


@pytest.mark.parametrize("content", [{"credsStore": "desktop"}, {"auths": None, "HttpHeaders": {"a": "b"}}, {}])
def test_a_configuration_without_passwords_has_none(content: object, tmp_path: Path) -> None:
    """What stands beside ``auths`` is no host."""
    assert read_docker_config(written(tmp_path, content))[0] == {}


@pytest.mark.parametrize("content", ["s3cret", "[]", '{"auths": {"r.io": {"auth": "s3cret"}}}', '{"auths": "s3cret"}'])
def test_a_broken_configuration_is_not_quoted(content: str, tmp_path: Path) -> None:
    """The file is named, its content is not."""
    with pytest.raises(ConfigurationError, match=r"--registry-config: .*config\.json") as caught:
        read_docker_config(written(tmp_path, content))
    assert "s3cret" not in str(caught.value)


def test_a_given_secret_goes_before_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the drivers that name it; all others get docker's."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    written(tmp_path, {"auths": {"r.io": {"auth": AUTH}}})
    secret = {"kind": "Secret", "metadata": {"namespace": "team", "name": "push"}, "data": {}}
    choose, _ = accounts(None, GivenObjects([secret]))
    assert choose("team", RegistrySettings(secret="push")) is None
    assert choose("other", RegistrySettings(secret="push")) == choose("team", RegistrySettings()) == {"r.io": ANNA}


def test_without_a_configuration_there_are_no_passwords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker may not be here at all."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "none"))
    choose, remark = accounts(None, GivenObjects())
    assert (choose("team", RegistrySettings()), remark) == ({}, "")
