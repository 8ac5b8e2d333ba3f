"""What is said of ConfigMaps and Secrets that a spec names."""

import base64
from collections.abc import Callable

import pytest

from driver_builder.api.build_settings import ConfigMapKey
from driver_builder.registry.named_objects import (
    ReferenceNotFound,
    read_config_map,
    read_entry,
    read_secret,
    read_text,
)
from kube_api.client import Client
from kube_api.resources import CONFIG_MAPS, SECRETS
from tests.support.driver_builder.memory_client import MemoryClient

FIELD = "spec.some.field"
MAKE = "does not exist: create it with kubectl -n team create"


@pytest.fixture
def client() -> MemoryClient:
    """A namespace with one ConfigMap and one Secret, which both are called ``there``."""
    client = MemoryClient()
    metadata = {"name": "there"}
    client.create(CONFIG_MAPS.path(namespace="team"), {"metadata": metadata, "data": {"a": "text"}})
    entries = {"a": base64.b64encode(b"\0secret").decode(), "empty": "", "wrong": "a"}
    client.create(SECRETS.path(namespace="team"), {"metadata": metadata, "data": entries})
    return client


def test_what_is_there_is_read(client: MemoryClient) -> None:
    """Secrets are decoded; of several keys the first with a content counts."""
    assert read_config_map(client, "team", "there", field=FIELD)["data"] == {"a": "text"}
    assert read_text(client, "team", ConfigMapKey(name="there", key="a"), field=FIELD) == "text"
    assert read_secret(client, "team", "there", field=FIELD) == {"a": b"\0secret", "empty": b"", "wrong": b""}
    assert read_entry(client, "team", "there", ("empty", "b", "a"), field=FIELD) == b"\0secret"


@pytest.mark.parametrize(
    ("read", "message"),
    [
        pytest.param(
            lambda client: read_config_map(client, "team", "gone", field=FIELD),
            f"ConfigMap team/gone {MAKE} configmap gone --from-file=DIRECTORY",
            id="a ConfigMap",
        ),
        pytest.param(
            lambda client: read_text(client, "team", ConfigMapKey(name="gone", key="x"), field=FIELD),
            f"ConfigMap team/gone {MAKE} configmap gone --from-file=x",
            id="the ConfigMap of a text",
        ),
        pytest.param(
            lambda client: read_text(client, "team", ConfigMapKey(name="there", key="x"), field=FIELD),
            "ConfigMap team/there has no text 'x' (it has a)",
            id="a text",
        ),
        pytest.param(
            lambda client: read_secret(client, "team", "gone", field=FIELD),
            f"Secret team/gone {MAKE} secret generic gone --from-file=...",
            id="a Secret",
        ),
        pytest.param(
            lambda client: read_secret(client, "team", "gone", field=FIELD, make="docker-registry gone"),
            f"Secret team/gone {MAKE} secret docker-registry gone",
            id="a Secret of a kind",
        ),
        pytest.param(
            lambda client: read_entry(client, "team", "there", ("b", "empty"), field=FIELD),
            "Secret team/there has neither b nor empty (it has a, empty, wrong)",
            id="an entry of a Secret",
        ),
    ],
)
def test_what_is_missing_is_reported(client: MemoryClient, read: Callable[[Client], object], message: str) -> None:
    """With the field that names it, and the command that makes it or what is there instead."""
    with pytest.raises(ReferenceNotFound) as caught:
        read(client)
    assert str(caught.value) == f"{FIELD}: {message}"
