"""The key of a driver: made of its parts, read from a text, and written as it always was."""

import json

import pytest

from driver_builder.model.driver_key import DriverKey, driver_key, parse_driver_key


def test_a_key_is_written_as_namespace_and_name() -> None:
    """In messages and in JSON, with both parts at hand; thousands of pods share one object."""
    key = driver_key("ns", "nic.ready")
    assert (key, str(key), f"{key}", json.dumps(key)) == (
        "ns/nic.ready",
        "ns/nic.ready",
        "ns/nic.ready",
        '"ns/nic.ready"',
    )
    assert (key.namespace, key.name) == ("ns", "nic.ready")
    assert driver_key("ns", "nic.ready") is key
    assert {DriverKey("ns/nic.ready"): 1}[key] == 1


def test_keys_have_the_order_of_their_texts() -> None:
    """Where one namespace begins like another, as well: what is written in their order stays the same."""
    assert sorted([driver_key("a", "x"), driver_key("a-b", "x")]) == ["a-b/x", "a/x"]


@pytest.mark.parametrize("text", [None, 7, "", "/", "ns", "ns/", "/name"])
def test_what_has_no_namespace_or_no_name_is_no_key(text: object) -> None:
    """A text from outside, whatever it is."""
    assert parse_driver_key(text) is None


def test_a_text_from_outside_is_read() -> None:
    """The same key as one that is made of its parts."""
    assert parse_driver_key("ns/edu") is driver_key("ns", "edu")
