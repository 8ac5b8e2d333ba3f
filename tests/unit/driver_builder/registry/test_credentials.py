"""Registry credentials out of the two kinds of image pull secret."""

import base64
import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.base.errors import ConfigurationError
from driver_builder.registry.credentials import (
    Credentials,
    credentials_for,
    parse_docker_config,
    registry_host,
    registry_repository,
)

ANNA = Credentials(username="anna", password="s3cret")


def auth(text: str) -> str:
    """Encode as docker login does."""
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param({"auths": {"reg:5000": {"auth": auth("anna:s3cret")}}}, {"reg:5000": ANNA}, id="auth in base64"),
        pytest.param(
            {"auths": {"reg": {"username": "anna", "password": "s3cret"}}}, {"reg": ANNA}, id="two plain fields"
        ),
        pytest.param({"reg": {"auth": auth("anna:s3cret"), "email": "a@b"}}, {"reg": ANNA}, id="old dockercfg"),
        pytest.param(
            {"auths": {"https://index.docker.io/v1/": {"auth": auth("anna:s3cret")}}},
            {"docker.io": ANNA},
            id="docker hub",
        ),
        pytest.param(
            {"auths": {"https://Reg.example.com/": {"auth": auth("anna:s3cret\0\0")}}},
            {"reg.example.com": ANNA},
            id="padded",
        ),
        pytest.param(
            {"auths": {"reg": {"auth": auth("anna:a:b")}}},
            {"reg": Credentials(username="anna", password="a:b")},
            id="colon in the password",
        ),
        pytest.param(
            {"auths": {"reg": {"identitytoken": "t0ken", "auth": auth("<token>:")}}},
            {"reg": Credentials(username="<token>", identity_token="t0ken")},
            id="identity token",
        ),
        pytest.param({"auths": {"reg": {}}}, {"reg": Credentials()}, id="a host without credentials"),
        pytest.param({"auths": {}}, {}, id="no host"),
        pytest.param({}, {}, id="empty object"),
    ],
)
def test_both_formats_give_the_same_credentials(config: object, expected: dict[str, Credentials]) -> None:
    """Whatever tool wrote the secret, each host has its user and password."""
    assert parse_docker_config(json.dumps(config).encode()) == expected


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"hunter2", "is not JSON;", id="no JSON"),
        pytest.param(b'["hunter2"]', "not a JSON object", id="a list"),
        pytest.param(b'{"auths": "hunter2"}', "'auths'", id="auths is text"),
        pytest.param(b'{"auths": {"reg": "hunter2"}}', "'reg'", id="entry is text"),
        pytest.param(b'{"auths": {"reg": {"auth": "hunter2!"}}}', "'reg'", id="auth is not base64"),
        pytest.param(b'{"auths": {"reg": {"auth": "aHVudGVyMg=="}}}', "'reg'", id="auth has no colon"),
        pytest.param(b'{"auths": {"reg": {"auth": "/2h1bnRlcjI="}}}', "'reg'", id="auth is not a string"),
        pytest.param(b'{"auths": {"reg": {"auth": 5}}}', "'reg'", id="auth is a number"),
        pytest.param(b'{"auths": {"reg": {"username": {"hunter2": 1}}}}', "'username'", id="user name is an object"),
    ],
)
def test_an_error_names_the_place_and_never_the_secret(data: bytes, message: str) -> None:
    """The message helps, and neither it nor its cause carries the content."""
    with pytest.raises(ConfigurationError) as caught:
        parse_docker_config(data)
    assert message in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_representation_hides_the_secrets() -> None:
    """Logging credentials by accident shows the user name only."""
    shown = repr(Credentials(username="anna", password="s3cret", identity_token="t0ken"))
    assert "anna" in shown
    assert "s3cret" not in shown
    assert "t0ken" not in shown


@given(st.binary())
def test_any_bytes_give_credentials_or_a_configuration_error(data: bytes) -> None:
    """No foreign exception escapes, whatever is in the secret."""
    with contextlib.suppress(ConfigurationError):
        assert isinstance(parse_docker_config(data), dict)


@given(
    username=st.text().filter(lambda text: ":" not in text),
    password=st.text().filter(lambda text: not text.endswith("\0")),
)
def test_every_user_and_password_survives_the_encoding(username: str, password: str) -> None:
    """Encoding as docker login does and parsing gives the same pair back."""
    config = {"auths": {"reg": {"auth": auth(f"{username}:{password}")}}}
    assert parse_docker_config(json.dumps(config).encode()) == {
        "reg": Credentials(username=username, password=password)
    }


AUTHS = {
    name: Credentials(username=name)
    for name in (
        "docker.io",
        "reg.example.com",
        "reg.example.com/team",
        "*.example.com",
        "reg:5000",
        "reg.example.com/team/a",
    )
}


@pytest.mark.parametrize(
    ("host", "repository", "expected"),
    [
        pytest.param("reg:5000", "a/b", "reg:5000", id="host with port"),
        pytest.param("reg:5001", "a/b", None, id="other port"),
        pytest.param("reg.example.com", "other/driver", "reg.example.com", id="host"),
        pytest.param("reg.example.com", "team/driver", "reg.example.com/team", id="a path is nearer than its host"),
        pytest.param("reg.example.com", "team/a/b", "reg.example.com/team/a", id="the longest path"),
        pytest.param("reg.example.com", "teams/driver", "reg.example.com", id="a path ends at a slash"),
        pytest.param("new.example.com", "driver", "*.example.com", id="a star stands for a part of the name"),
        pytest.param("a.new.example.com", "driver", None, id="a star stands for one part only"),
        pytest.param("registry-1.docker.io", "library/debian", "docker.io", id="docker hub by its other name"),
        pytest.param("quay.io", "a", None, id="unknown host"),
    ],
)
def test_the_nearest_entry_is_chosen(host: str, repository: str, expected: str | None) -> None:
    """As the kubelet does: the longest key that fits."""
    chosen = credentials_for(AUTHS, host, repository)
    assert (chosen.username if chosen else None) == expected


@pytest.mark.parametrize(
    ("host", "repository", "asked"),
    [
        pytest.param("docker.io", "debian", ("registry-1.docker.io", "library/debian"), id="docker hub's own images"),
        pytest.param("index.docker.io", "anna/edu", ("registry-1.docker.io", "anna/edu"), id="a user's"),
        pytest.param("reg:5000", "edu", ("reg:5000", "edu"), id="any other registry"),
    ],
)
def test_docker_hub_has_names_of_its_own(host: str, repository: str, asked: tuple[str, str]) -> None:
    """What people write is not what answers."""
    assert (registry_host(host), registry_repository(host, repository)) == asked
