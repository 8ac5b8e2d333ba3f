"""A DriverContainer object as a value, also where its spec cannot be acted on."""

from typing import Any

import pytest

from driver_builder.api import driver_container
from driver_builder.api.driver_container import FINALIZER
from driver_builder.api.driver_spec import DriverSpec
from driver_builder.base.errors import InvalidDriver
from driver_builder.objects.driver_keys import driver_keys
from kube_api import names
from tests.support.driver_builder.factories import driver_object


def test_an_object_with_a_wrong_spec_stays_readable() -> None:
    """Its spec is the error; everything else can be used to say so in its status."""
    read = driver_container.parse(driver_object(spec_changes={"version": "?"}, status={"readyNodes": 1}))
    assert isinstance(read.spec, InvalidDriver)
    assert (read.key, read.status) == ("driverwright/edu", {"readyNodes": 1})


def test_an_object_without_spec_is_invalid() -> None:
    """No spec at all is a wrong spec."""
    obj = driver_object()
    del obj["spec"]
    assert isinstance(driver_container.parse(obj).spec, InvalidDriver)


@pytest.mark.parametrize(
    ("name", "good"), [pytest.param("e" * 44, True, id="fits"), pytest.param("e" * 45, False, id="one too many")]
)
def test_names_leave_room_for_the_ready_label(name: str, good: bool) -> None:
    """Namespace and name together make a label key; names that do not fit are refused with the limit."""
    read = driver_container.parse(driver_object(name))
    assert isinstance(read.spec, DriverSpec) is good
    if good:
        assert names.is_qualified_name(driver_keys(read.key).ready)
    else:
        assert "56" in str(read.spec)


@pytest.mark.parametrize(
    ("metadata", "field", "expected"),
    [
        pytest.param({"annotations": {names.REBUILD_ANNOTATION: "7"}}, "rebuild", "7", id="rebuild"),
        pytest.param({"annotations": {names.REBUILD_ANNOTATION: ""}}, "rebuild", None, id="empty rebuild"),
        pytest.param({"annotations": None}, "rebuild", None, id="no annotations"),
        pytest.param({"annotations": {names.PAUSE_ANNOTATION: "true"}}, "paused", True, id="paused"),
        pytest.param({"annotations": {names.PAUSE_ANNOTATION: "false"}}, "paused", False, id="not paused"),
        pytest.param({"deletionTimestamp": "2023-11-14T22:13:20Z"}, "deleting", True, id="deleting"),
        pytest.param({}, "deleting", False, id="not deleting"),
        pytest.param({"finalizers": [FINALIZER, "other"]}, "has_finalizer", True, id="finalizer"),
        pytest.param({"finalizers": ["other"]}, "has_finalizer", False, id="another finalizer"),
        pytest.param({"finalizers": None}, "has_finalizer", False, id="no finalizer"),
    ],
)
def test_metadata_becomes_facts(metadata: dict[str, Any], field: str, expected: object) -> None:
    """Annotations, deletion and finalizer are read from the metadata."""
    obj = driver_object(finalizer=False)
    obj["metadata"] |= metadata
    assert getattr(driver_container.parse(obj), field) == expected
