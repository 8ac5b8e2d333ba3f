"""Operating systems that a driver has no further packages for are reported where it has some for others."""

from typing import Any

import pytest

from driver_builder.checks.lint_packages import without_packages
from tests.support.driver_builder.factories import driver, node, spec_of

DEBIAN = {"debian": ["g++"]}


def said(packages: dict[str, list[str]], **changes: Any) -> list[str]:
    """Return what is said of a driver, with a node of Debian and one of Rocky."""
    spec = spec_of(driver(spec_changes={"build": {"packages": packages}, **changes}))
    return list(without_packages(spec, (node("a"), node("b", os_id="rocky", os_version="9.4"))))


def test_an_operating_system_without_an_entry_is_named() -> None:
    """Its packages have other names there."""
    assert said(DEBIAN) == [
        "nodes run rocky, for which it names none: add rocky: [NAME], or rocky: [] if none is needed"
    ]


@pytest.mark.parametrize(
    ("packages", "changes"),
    [
        pytest.param({}, {}, id="no packages at all"),
        pytest.param({**DEBIAN, "rocky": ["gcc-c++"]}, {}, id="both"),
        pytest.param({**DEBIAN, "rocky": []}, {}, id="none is meant"),
        pytest.param(DEBIAN, {"nodeSelector": {"pool": "other"}}, id="another pool"),
        pytest.param(DEBIAN, {"kernelMappings": [{"regexp": ".*", "skip": True}]}, id="nothing is built"),
    ],
)
def test_where_nothing_is_missing_nothing_is_said(packages: dict[str, list[str]], changes: dict[str, Any]) -> None:
    """A driver that needs nothing writes so."""
    assert said(packages, **changes) == []
