"""Files for commands without a cluster: manifests of drivers as an admin keeps them, and what they name."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from driver_builder.model.build import Builder
from tests.support.driver_builder.factories import SOURCE
from tests.unit.driver_builder.builds.pipeline.test_pipeline import ReadyBuilder

Json = dict[str, Any]

HELPER: Json = {
    "version": "1",
    "nodeSelector": {"pool": "edu"},
    "image": "registry.example.com/team/helper",
    "source": {"configMap": {"name": "edu-source"}},
    "module": {"names": ["dw_helper"]},
    "build": {"template": "debian", "baseImage": "debian:bookworm-slim"},
}
"""The spec of a driver whose module is in ``tests/data/modules``."""


def driver_file(folder: Path, spec: Mapping[str, Any] = HELPER, *, name: str = "helper", **metadata: Any) -> Path:
    """Write a DriverContainer as people do: without uid, generation and status."""
    path = folder / f"{name}.json"
    document = {
        "apiVersion": "driverwright.io/v1alpha1",
        "kind": "DriverContainer",
        "metadata": {"name": name, **metadata},
        "spec": dict(spec),
    }
    path.write_text(json.dumps(document))
    return path


def source_folder(folder: Path) -> Path:
    """Write the files of ``factories.SOURCE``."""
    place = folder / "source"
    place.mkdir(exist_ok=True)
    for name, content in SOURCE.files.items():
        (place / name).write_bytes(content)
    return place


@contextmanager
def ready_engine(*_words: object) -> Iterator[Builder]:
    """Stand in for an engine: the image is there, and fits one kernel."""
    yield ReadyBuilder()
