"""What a node gets of a driver, as one word."""

from typing import Any

import pytest

from driver_builder.api.driver_container import DriverContainer
from driver_builder.objects import fingerprint as fingerprints
from tests.support.driver_builder.factories import DIGEST, IDENTITY, driver, spec_of

OTHER_DIGEST = "sha256:" + "e" * 64


USERSPACE = {"packages": [{"name": "libedu1", "version": "1.0-1"}]}


def made(container: DriverContainer | None = None, **changes: Any) -> str:
    """Make the fingerprint of a driver."""
    words: dict[str, Any] = {"identities": {"edudrv": IDENTITY}, "image_digest": DIGEST, **changes}
    return fingerprints.fingerprint(spec_of(container or driver()), **words)


def with_module(**changes: Any) -> DriverContainer:
    """Make a driver whose module is asked for with more."""
    return driver(spec_changes={"module": {"names": ["edudrv"], **changes}})


@pytest.mark.parametrize(
    ("container", "changes"),
    [
        pytest.param(driver(status={"readyNodes": 1}), {}, id="status"),
        pytest.param(driver(spec_changes={"version": "2"}), {}, id="version"),
        pytest.param(driver(spec_changes={"nodeSelector": {"a": "b"}}), {}, id="node selector"),
        pytest.param(driver(spec_changes={"priorityClassName": "low"}), {}, id="priority"),
        pytest.param(driver(spec_changes={"tolerations": [{"key": "a"}]}), {}, id="tolerations"),
        pytest.param(driver(spec_changes={"imagePullSecrets": [{"name": "pull"}]}), {}, id="pull secrets"),
        pytest.param(driver(spec_changes={"build": {"resources": {"limits": {"cpu": "2"}}}}), {}, id="resources"),
        pytest.param(driver(), {"image_digest": OTHER_DIGEST}, id="image with the same modules"),
        pytest.param(driver(), {"firmware": "sha256:1"}, id="firmware that nobody asked for"),
        pytest.param(driver(), {"userspace": "sha256:1"}, id="user space that nobody asked for"),
    ],
)
def test_what_changes_nothing_on_a_node_replaces_no_pod(container: DriverContainer, changes: dict[str, Any]) -> None:
    """An admin may edit it while the driver is in use."""
    assert made(container, **changes) == made()


@pytest.mark.parametrize(
    ("container", "changes"),
    [
        pytest.param(driver(), {"identities": {"edudrv": "other"}}, id="identity"),
        pytest.param(driver(), {"identities": {"edudrv": IDENTITY, "edulib": "A"}}, id="one module more"),
        pytest.param(driver(), {"needed": {"edu-core": "A"}}, id="module that a named one needs"),
        pytest.param(driver(), {"rebuild": "a1"}, id="rebuild that was asked for"),
        pytest.param(with_module(parameters={"edudrv": ["debug=1"]}), {}, id="parameters"),
        pytest.param(with_module(blacklist=["nouveau"]), {}, id="blacklist"),
        pytest.param(with_module(inTreeModulesToRemove=["nouveau"]), {}, id="modules that make room"),
        pytest.param(with_module(inTreeModulesToLoad=["mii"]), {}, id="modules that are loaded before"),
        pytest.param(with_module(firmwarePath="/source/fw"), {"firmware": "sha256:1"}, id="firmware"),
        pytest.param(driver(spec_changes={"userspace": USERSPACE}), {"userspace": "sha256:1"}, id="user space"),
    ],
)
def test_what_changes_a_node_replaces_pods(container: DriverContainer, changes: dict[str, Any]) -> None:
    """A pod that was made before does not have it."""
    assert made(container, **changes) != made()


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        pytest.param({"firmware": "sha256:1"}, {"firmware": "sha256:2"}, False, id="other firmware"),
        pytest.param(
            {"firmware": "sha256:1"},
            {"firmware": "sha256:1", "image_digest": OTHER_DIGEST},
            True,
            id="the same firmware in another image",
        ),
        pytest.param({}, {"image_digest": OTHER_DIGEST}, False, id="image that does not say what firmware it has"),
    ],
)
def test_firmware_is_distinguished_by_its_digest(first: dict[str, Any], second: dict[str, Any], same: bool) -> None:
    """The image's label says it; where there is none, another image may have other firmware."""
    container = with_module(firmwarePath="/source/fw")
    assert (made(container, **first) == made(container, **second)) is same


@pytest.mark.parametrize("identities", [{}, {"other": "A"}])
def test_an_image_that_does_not_say_what_it_holds_is_distinguished_by_its_digest(identities: dict[str, str]) -> None:
    """Nothing else distinguishes its modules from those of another image."""
    assert made(identities=identities) != made(identities=identities, image_digest=OTHER_DIGEST)


def test_dashes_and_order_make_no_difference() -> None:
    """The kernel knows underscores only, and lists are sets here."""
    one, other = (with_module(names=[name], blacklist=list(words)) for name, words in (("a-b", "xy"), ("a_b", "yx")))
    assert made(one, identities={"a-b": "1"}) == made(other, identities={"a_b": "1"})


def test_the_form_is_fixed() -> None:
    """A value that changes here replaces pods in every cluster: see docs/decisions/0040-fingerprint.md."""
    assert made() == "v2:625c4a96a49647d6"
    assert fingerprints.is_of_this_form(made())
    assert not fingerprints.is_of_this_form("0123456789abcdef")


def test_a_user_space_is_told_from_another_one_and_from_another_place() -> None:
    """An image without the label counts as a whole."""
    asked = driver(spec_changes={"userspace": USERSPACE})
    elsewhere = driver(spec_changes={"userspace": {**USERSPACE, "hostPath": "/run/nvidia/driver"}})
    known = {
        made(asked, userspace="sha256:1"),
        made(asked, userspace="sha256:2"),
        made(elsewhere, userspace="sha256:1"),
        made(asked),
        made(asked, image_digest=OTHER_DIGEST),
    }
    assert len(known) == 5
    assert made(asked, userspace="sha256:1", image_digest=OTHER_DIGEST) == made(asked, userspace="sha256:1")
