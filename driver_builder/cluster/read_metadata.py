"""What an object says of whose it is: its place, its driver, its controller, the modules it expects. Pure."""

import json
import sys
from collections.abc import Mapping
from typing import Any

from driver_builder.base.memo import remembers_texts
from driver_builder.model.driver_key import DriverKey, driver_key
from driver_builder.objects import manifests

Json = dict[str, Any]


def place(obj: Json) -> str:
    """Name an object in messages."""
    metadata = obj.get("metadata") or {}
    return f"{metadata.get('namespace')}/{metadata.get('name')}"


def driver_of(metadata: Json) -> DriverKey:
    """Name the driver that an object of ours is labelled with."""
    return driver_key(metadata["namespace"], metadata["labels"][manifests.DRIVER_LABEL])


def shared(text: str) -> str:
    """Return the one object for a text that thousands of objects have."""
    return sys.intern(text)


def controller_of(obj: Json) -> Json:
    """Give the owner reference that names the object's controller, empty where it has none."""
    references = obj["metadata"].get("ownerReferences") or ()
    return next((item for item in references if item.get("controller")), {})


def expected_modules(annotations: Mapping[str, str]) -> Mapping[str, str]:
    """Read which modules, with their identities, an image is said to have."""
    return _modules(annotations.get(manifests.MODULES_ANNOTATION, "{}"))


def needed_modules(annotations: Mapping[str, str]) -> Mapping[str, str]:
    """Read which modules, with their identities, the expected ones need of the image."""
    return _modules(annotations.get(manifests.NEEDED_ANNOTATION, "{}"))


@remembers_texts
def _modules(text: str) -> Mapping[str, str]:
    try:
        return {str(name): str(value) for name, value in json.loads(text).items()}
    except (ValueError, AttributeError, RecursionError):
        return {}
