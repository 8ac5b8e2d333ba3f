"""What a registry's answers say about trying again."""

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
import requests
import urllib3
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.base.errors import RegistryFull, RegistryRefused, RegistryRejected
from driver_builder.registry.registry_responses import (
    MAX_PAUSE,
    RegistryBusy,
    Response,
    parse_retry_after,
    refused,
    unavailable,
    unreadable,
)

NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("30", 30, id="seconds"),
        pytest.param(" 0 ", 0, id="at once"),
        pytest.param("99999999999999999999999999", MAX_PAUSE, id="for ever"),
        pytest.param("Mon, 12 Jan 1970 13:48:20 GMT", 1100 - 1000, id="a date"),
        pytest.param("Mon, 12 Jan 1970 13:48:20", 100, id="a date without a zone"),
        pytest.param("Mon, 12 Jan 1970 13:00:00 GMT", 0, id="a date gone by"),
        pytest.param("Tue, 12 Jan 2038 13:00:00 GMT", MAX_PAUSE, id="a date far away"),
        pytest.param("soon", None, id="a word"),
        pytest.param("-5", None, id="a negative number"),
        pytest.param("", None, id="nothing"),
        pytest.param("٣", None, id="digits of another script"),
    ],
)
def test_a_pause_is_seconds_or_a_date(value: str, expected: float | None) -> None:
    """Seconds from now, never more than an hour; None where nothing can be read."""
    assert parse_retry_after(value, now=NOW) == expected


@given(st.text())
def test_any_text_is_a_pause_or_none(value: str) -> None:
    """A registry may send anything."""
    pause = parse_retry_after(value, now=NOW)
    assert pause is None or 0 <= pause <= MAX_PAUSE


@given(st.integers(0, 3600))
def test_a_date_says_what_seconds_say(seconds: int) -> None:
    """The two forms of the header are the same pause."""
    date = format_datetime(datetime.fromtimestamp(NOW + seconds, UTC), usegmt=True)
    assert parse_retry_after(date, now=NOW) == parse_retry_after(str(seconds), now=NOW) == seconds


def answer(status: int, **headers: str) -> Response:
    """An answer in the registries' own format."""
    body = b'{"errors": [{"code": "TOOMANYREQUESTS", "message": "slow down"}]}'
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(status=status, url="https://r.io/v2/", headers=names, body=body)


@pytest.mark.parametrize(
    ("status", "retry_after", "pause"),
    [
        pytest.param(429, "30", 30, id="a rate limit that names its end"),
        pytest.param(429, "", 60, id="a rate limit that does not"),
        pytest.param(429, "0", 1, id="a rate limit that is over already"),
        pytest.param(503, "5", 5, id="maintenance"),
        pytest.param(503, "", None, id="out of order"),
    ],
)
def test_an_error_carries_the_pause(status: int, retry_after: str, pause: float | None) -> None:
    """Where the registry asked for one, and always where it limits."""
    error = unavailable("r.io", answer(status, Retry_After=retry_after), now=NOW)
    assert (error.retry_after if isinstance(error, RegistryBusy) else None) == pause
    assert "TOOMANYREQUESTS: slow down" in str(error)


def test_a_rate_limit_has_a_message_of_its_own() -> None:
    """It says when the registry is asked again, and what raises the limit."""
    assert str(unavailable("r.io", answer(429, Retry_After="30"), now=NOW)) == (
        "registry r.io limits the rate of requests (429 TOOMANYREQUESTS: slow down): the next request is sent after"
        " 1970-01-12T13:47:10Z; an account in spec.registry.secretRef or a mirror may have a higher limit"
    )


FULL_WRITE = (
    b'{"errors":[{"code":"UNKNOWN","message":"unknown error","detail":"write /var/lib/registry/data: no space left on'
    b' device"}]}'
)
FULL_START = (
    b'{"errors":[{"code":"UNKNOWN","message":"unknown error","detail":{"DriverName":"filesystem","Enclosed":{"Op":'
    b'"write","Path":"/var/lib/registry/startedat","Err":28}}}]}'
)
QUOTA = (
    b'{"errors":[{"code":"DENIED","message":"adding 1.2 MiB of storage resource, which when updated to current usage of'
    b' 99.1 MiB will exceed the configured upper limit of 100.0 MiB."}]}'
)
NO_RIGHT = b'{"errors":[{"code":"DENIED","message":"requested access to the resource is denied"}]}'


@pytest.mark.parametrize(
    ("status", "body", "full"),
    [
        pytest.param(500, FULL_WRITE, True, id="disk full in the middle, words of registry 2.8"),
        pytest.param(500, FULL_START, True, id="disk full at the start, words of registry 2.8"),
        pytest.param(403, QUOTA, True, id="quota, words of Harbor"),
        pytest.param(507, b"", True, id="insufficient storage"),
        pytest.param(403, NO_RIGHT, False, id="no right to push"),
        pytest.param(500, b'{"errors":[{"code":"UNKNOWN","message":"unknown error","detail":{"Err":2}}]}', False,
                     id="another error of its disk"),
        pytest.param(200, FULL_WRITE, False, id="an image that speaks of it"),
    ],
)  # fmt: skip
def test_a_registry_without_room_is_distinguished(status: int, body: bytes, full: bool) -> None:
    """From one that is out of order, and from a user without the right."""
    said = Response(status=status, url="https://r.io/v2/", headers={}, body=body)
    assert said.says_full is full
    error = unavailable("r.io", said, now=NOW)
    assert isinstance(error, RegistryFull) is full
    assert ("no room left" in str(error)) is full


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        pytest.param(400, b'{"errors":[{"code":"MANIFEST_INVALID","message":"m"}]}', RegistryRejected,
                     "400 MANIFEST_INVALID: m", id="its own rule"),
        pytest.param(413, b"<html>", RegistryRejected, "too large", id="too large for a proxy before it"),
        pytest.param(404, b"<html>Not found</html>", RegistryRefused, "404 (no error of a registry)", id="a web page"),
    ],
)  # fmt: skip
def test_a_registry_that_refuses_is_not_something_else_in_its_place(
    status: int, body: bytes, kind: type[Exception], words: str
) -> None:
    """The one has the registries' own words for it."""
    error = refused("r.io", "did not take it", Response(status=status, url="https://r.io/", headers={}, body=body))
    assert type(error) is kind
    assert words in str(error)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(requests.exceptions.InvalidProxyURL("http://anna:s3cret@"), id="requests"),
        pytest.param(urllib3.exceptions.LocationParseError("http://anna:s3cret@proxy:x"), id="urllib3"),
    ],
)
def test_a_wrong_proxy_is_named_without_its_password(error: Exception) -> None:
    """The variable is named, its value is not quoted."""
    message = str(unreadable("r.io", error))
    assert "HTTPS_PROXY" in message
    assert "s3cret" not in message
