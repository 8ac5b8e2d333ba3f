"""The trees drawn in the docstrings are the trees of the code."""

import inspect
import re
from types import ModuleType

import pytest

import device_agent.errors
import driver_builder.base.errors
import feature_rules.errors
import kube_api.errors
import nfd_worker.errors
import nvml_inventory.errors

MODULES = [
    pytest.param(kube_api.errors, id="kube_api"),
    pytest.param(driver_builder.base.errors, id="driver_builder"),
    pytest.param(nfd_worker.errors, id="nfd_worker"),
    pytest.param(device_agent.errors, id="device_agent"),
    pytest.param(nvml_inventory.errors, id="nvml_inventory"),
    pytest.param(feature_rules.errors, id="feature_rules"),
]


def drawn(module: ModuleType) -> dict[str, str | None]:
    """Read class name to parent's name from the tree in a module's docstring."""
    parents: dict[str, str | None] = {}
    stack: list[tuple[int, str]] = []
    for line in (module.__doc__ or "").splitlines():
        match = re.match(r"^(?P<lead>[ │├└─]*)(?P<name>[A-Z]\w+)(\s|$)", line)
        if match is None or not (match["lead"].endswith("── ") or (match["lead"].strip() == "" and match["lead"])):
            continue
        depth = len(match["lead"])
        while stack and stack[-1][0] >= depth:
            stack.pop()
        parents[match["name"]] = stack[-1][1] if stack else None
        stack.append((depth, match["name"]))
    return parents


def defined(module: ModuleType) -> dict[str, str | None]:
    """Return class name to parent's name of the exceptions a module defines."""
    classes = [
        cls
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if issubclass(cls, Exception) and cls.__module__ == module.__name__
    ]
    return {cls.__name__: base.__name__ if (base := cls.__base__) in classes else None for cls in classes}


@pytest.mark.parametrize("module", MODULES)
def test_the_docstring_draws_every_error_under_its_parent(module: ModuleType) -> None:
    """Who reads the docstring knows every class there is and what it is a kind of."""
    assert drawn(module) == defined(module)


@pytest.mark.parametrize("module", MODULES)
def test_there_is_one_root(module: ModuleType) -> None:
    """One except clause catches everything a package raises on purpose."""
    assert sum(parent is None for parent in defined(module).values()) == 1


@pytest.mark.parametrize("module", MODULES)
def test_every_error_says_what_it_means(module: ModuleType) -> None:
    """Each class has a docstring of its own."""
    for name in defined(module):
        assert getattr(module, name).__doc__
