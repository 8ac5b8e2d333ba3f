"""When two builds share a toolchain, and what it is called."""

from dataclasses import replace
from typing import Any

import pytest

from driver_builder.model.build import BuildRequest, ModuleSpec, OwnTemplate, SourceFiles, SourceGit
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.images import KEY_LABEL, TOOLCHAIN_LABEL, ImageRef
from driver_builder.model.toolchain import toolchain_image, toolchain_key, toolchain_labels
from tests.support.driver_builder.factories import target

REQUEST = BuildRequest(
    recipe="debian:1",
    driver=DriverKey("team/edu"),
    version="1",
    target=target(),
    template="debian",
    base_image="debian:bookworm-slim",
    source=SourceFiles(files={}),
    modules=(ModuleSpec(name="edudrv"),),
    args={"HEADERS_MIRROR": "https://mirror.example.com/debian", "DEBUG": "1"},
)
IMAGE = ImageRef("registry.example.com:5000", "drivers/edu", "1-tag")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"driver": DriverKey("team/other")}, id="another driver"),
        pytest.param({"version": "2"}, id="a new version"),
        pytest.param({"source": SourceGit(url="https://a.example/x", commit="0" * 40)}, id="another source"),
        pytest.param({"modules": (ModuleSpec(name="other"),)}, id="other modules"),
        pytest.param({"args": {**REQUEST.args, "DEBUG": "2"}}, id="another argument of make"),
        pytest.param({"signing_certificate": b"certificate"}, id="a certificate"),
        pytest.param({"depends": (("team/base", "k"),)}, id="symbols of another driver"),
    ],
)
def test_what_is_the_drivers_does_not_count(change: dict[str, Any]) -> None:
    """Builds that differ in it begin with the same toolchain, although their images have other keys."""
    other = replace(REQUEST, **change)
    assert other.key != REQUEST.key
    assert toolchain_image(other, IMAGE) == toolchain_image(REQUEST, IMAGE)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"base_image": "debian:bookworm"}, id="another base image"),
        pytest.param({"driver": DriverKey("stranger/edu")}, id="another tenant"),
        pytest.param({"target": target("6.1.0-9-amd64")}, id="another kernel"),
        pytest.param({"target": target(architecture="arm64")}, id="another architecture"),
        pytest.param({"target": target(os_version="13")}, id="another release of the distribution"),
        pytest.param({"recipe": "debian:2"}, id="another recipe"),
        pytest.param({"args": {}}, id="another place of packages"),
        pytest.param({"rebuild": "0a"}, id="a requested rebuild"),
    ],
)
def test_what_is_installed_counts(change: dict[str, Any]) -> None:
    """A toolchain of anything else is not used."""
    other = replace(REQUEST, **change)
    assert toolchain_key(other) not in (None, toolchain_key(REQUEST))


def test_it_is_beside_the_drivers_image() -> None:
    """In the same repository, for which the driver's password serves; no driver image has its labels or its tag."""
    key = toolchain_key(REQUEST)
    assert str(toolchain_image(REQUEST, IMAGE)) == f"registry.example.com:5000/drivers/edu:toolchain-{key}"
    labels = toolchain_labels(REQUEST)
    assert labels[TOOLCHAIN_LABEL] == key
    assert KEY_LABEL not in labels


def test_a_custom_template_has_none() -> None:
    """Nobody knows what is in its stages; a secret of the build may be."""
    own = replace(REQUEST, own_template=OwnTemplate(place="ConfigMap a/b/c", text="FROM x AS headers"))
    assert toolchain_key(own) is None
    assert toolchain_image(own, IMAGE) is None


def test_the_key_stays() -> None:
    """Another one would leave all toolchains unused, and headers that have left the archives are in no other place."""
    assert toolchain_key(replace(REQUEST, target=target("6.1.0-55-cloud-amd64"))) == "8c7e8ce30bf3718d69e9"
