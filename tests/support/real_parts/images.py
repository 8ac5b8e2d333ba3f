"""Small images for tests, made in the ground's engine."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping

import docker

from driver_builder.builds.docker.docker_engine import docker_engine
from testbed.testbed import Testbed


def derive(
    ground: Testbed,
    name: str,
    files: Mapping[str, bytes],
    *commands: str,
    base: str | None = None,
    network: str = "none",
) -> None:
    """Make an image of another one, the Debian one if none is named, by lines of a Dockerfile and files beside it."""
    dockerfile = "\n".join((f"FROM {base or ground.base_image}", *commands, "")).encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, content in {**files, "Dockerfile": dockerfile}.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    buffer.seek(0)
    with docker_engine(ground.engine.socket) as api:
        for line in api.build(
            fileobj=buffer, custom_context=True, tag=name, network_mode=network, rm=True, decode=True
        ):
            assert "error" not in line, line


def said(api: docker.APIClient, image: str, script: str) -> str:
    """Run a piece of shell in a container of an image, without a network; return what it printed."""
    container = api.create_container(
        image, entrypoint=["sh", "-ec", script], network_disabled=True, host_config=api.create_host_config()
    )["Id"]
    try:
        api.start(container)
        status = api.wait(container)["StatusCode"]
        text: str = api.logs(container).decode()
    finally:
        api.remove_container(container, force=True)
    assert status == 0, text
    return text
