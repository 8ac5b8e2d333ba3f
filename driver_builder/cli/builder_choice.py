"""Which builder makes an image: the one that the driver's spec names, else the controller's default.

Place in the flow: ``run`` and ``preflight`` choose a builder for each build.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from driver_builder.api.build_settings import BuilderKind
from driver_builder.base.errors import BuildFailed, ConfigurationError, DriverBuilderError, TemporaryError
from driver_builder.builds.build_references import proxy_password, read_build_ca
from driver_builder.builds.job.job_builder import JobBuilder
from driver_builder.builds.job.job_manifest import JobSettings
from driver_builder.builds.own_disk import own_disk
from driver_builder.builds.signing_secrets import SigningSecrets
from driver_builder.config import Settings
from driver_builder.model.build import Builder, LogSink
from driver_builder.model.build_proxy import variables
from driver_builder.nodes.changes import StartBuild
from driver_builder.registry.named_objects import ReferenceNotFound, read_secret
from driver_builder.registry.registry_access import PUSH_PATIENCE, Registries
from driver_builder.registry.registry_ca import read_ca
from kube_api.client import Client, Reader
from kube_api.errors import KubeApiError

SHORTEST_SECRET = 4
"""Characters. Shorter lines of a Secret are not redacted: that would spoil every line of a log."""


@contextmanager
def builder_for(
    action: StartBuild,
    settings: Settings,
    *,
    client: Client,
    registries: Registries,
    is_leaving: Callable[[], bool] = lambda: False,
) -> Iterator[Builder]:
    """Return the builder of an action; ``is_leaving`` is true once builds are left to the next controller.

    Raises:
        ConfigurationError: when the controller is not set up for it.
        TemporaryError: when the engine does not answer.
        RegistryRefused: when the registry's Secret is missing.
    """
    if (action.builder or settings.builder) is BuilderKind.JOB:
        where = (action.namespace, action.registry, action.image.host, action.image.repository)
        yield JobBuilder(
            client,
            action,
            settings=job_settings(action, settings, client),
            registry=registries.connect(*where, patience=PUSH_PATIENCE),
            templates=settings.templates,
            is_leaving=is_leaving,
        )
        return
    with engine_builder(action, settings, registries, client) as builder:
        yield builder


def make_image(
    action: StartBuild,
    *,
    builder: Builder,
    registries: Registries,
    secrets: SigningSecrets,
    log: LogSink,
    is_kept: bool,
    use_toolchain: bool,
    keeps_toolchain: bool,
    redact: Callable[[str], str] = str,
) -> str:
    """Build and verify, and push an image that is kept; returns the digest of what was pushed, else nothing.

    With ``keeps_toolchain`` one that is missing is kept beside the driver's image, whether a build begins with it
    (``use_toolchain``) or not. One that cannot be pushed fails nothing, and is reported on standard error, without
    what ``redact`` hides.

    Raises:
        DriverBuilderError: as the pipeline.
    """
    # What reads, verifies and signs images needs 10 MiB, and only a process that builds has it.
    from driver_builder.builds.pipeline.pipeline import build_and_push, build_and_verify  # noqa: PLC0415 - see above
    from driver_builder.builds.pipeline.toolchain_image import keep_toolchain  # noqa: PLC0415 - see above

    make: Callable[..., str | None] = build_and_push if is_kept else build_and_verify
    given: dict[str, Any] = {
        "builder": builder,
        "registries": registries,
        "secrets": secrets,
        "log": log,
        "cancelled": threading.Event(),
    }
    digest = make(action, use_toolchain=use_toolchain, **given)
    if is_kept and keeps_toolchain:
        try:
            with own_disk():
                keep_toolchain(action, **given)
        except (DriverBuilderError, KubeApiError) as error:
            words = f"the toolchain of {action.request.target} is not pushed: {redact(str(error))}"
            print(f"driver-builder: {words}", file=sys.stderr)
    return digest or ""


@contextmanager
def engine_builder(action: StartBuild, settings: Settings, registries: Registries, client: Reader) -> Iterator[Builder]:
    """Return the builder that builds an action with the engine of the settings.

    Raises:
        TemporaryError: when the engine does not answer.
        RegistryRefused: when the registry's Secret is missing.
        BuildFailed: when the Secret of the proxy, or the ConfigMap with the CA, cannot be used.
    """
    # The SDK of engines needs 8 MiB, and only those who build with an engine have it.
    from driver_builder.builds.docker.docker_builder import DockerBuilder  # noqa: PLC0415 - see above
    from driver_builder.builds.docker.docker_engine import docker_engine  # noqa: PLC0415 - see above

    with docker_engine(settings.docker_host, certificates=settings.docker_cert_path) as api:
        known = registries.credentials(action.namespace, action.registry, action.image.host)
        password = proxy_password(action.namespace, action.proxy, client)
        ca = read_build_ca(client, action.namespace, action.ca_config_map)
        yield DockerBuilder(
            api,
            owner=action.owner,
            templates=settings.templates,
            credentials=known,
            network=settings.build_network,
            proxy=variables(action.proxy, password) if action.proxy else None,
            ca=ca,
        )


def job_settings(action: StartBuild, settings: Settings, client: Client) -> JobSettings:
    """Return the settings of this controller's Jobs.

    Raises:
        ConfigurationError: when an image is not given, or the CA of the registries cannot be read.
    """
    if not settings.job_image or not settings.hand_over_image:
        raise ConfigurationError(
            "builds in Jobs need the images of buildah and of this program: set --job-image and --hand-over-image"
        )
    return JobSettings(
        image=settings.job_image,
        hand_over_image=settings.hand_over_image,
        node_selector=settings.job_node_selector,
        tolerations=settings.job_tolerations,
        host_network=settings.job_host_network,
        work_size=settings.job_work_size,
        output_size=settings.job_output_size,
        max_resources=settings.permissions.max_resources or {},
        ca=_ca(action, settings, client),
        reach=settings.registry_reach,
    )


def _ca(action: StartBuild, settings: Settings, client: Client) -> str:
    if action.registry.ca_config_map is not None:
        return read_ca(client, action.namespace, action.registry.ca_config_map)
    try:
        return Path(settings.registry_ca_file).read_text() if settings.registry_ca_file else ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--registry-ca-file: {error}") from error


def secret_values(action: StartBuild, client: Reader) -> tuple[str, ...]:
    """Read all Secrets of a build, line by line, to redact them from the log; the builder reports missing Secrets."""
    lines: list[str] = []
    with suppress(BuildFailed, TemporaryError):
        known = proxy_password(action.namespace, action.proxy, client)
        lines += (known.password, known.in_url) if known else ()
    for name in action.build_secrets:
        with suppress(ReferenceNotFound):
            for value in read_secret(client, action.namespace, name, field="spec.build.secrets").values():
                lines += (line.strip() for line in value.decode(errors="replace").splitlines())
    return tuple(line for line in lines if len(line) >= SHORTEST_SECRET)
