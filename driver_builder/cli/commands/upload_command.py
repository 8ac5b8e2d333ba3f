"""The command ``hand-over``: the second container of a build Job. Only that pod calls it."""

import argparse
import json
from pathlib import Path

from driver_builder.base.errors import DriverBuilderError, RegistryRefused, TemporaryError
from driver_builder.builds.job.upload import push_build
from driver_builder.cli.common import EXIT_FAILED, EXIT_OK
from driver_builder.config import Settings
from driver_builder.registry.credentials import Credentials, credentials_for, parse_docker_config
from driver_builder.registry.registry import RegistryClient
from driver_builder.registry.registry_access import PUSH_PATIENCE

_FORMATS = (".dockerconfigjson", ".dockercfg")
_MAX_WORDS = 2000
"""Characters; the kubelet keeps 4096 bytes of a termination message."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that the Job's manifest sets."""
    parser.add_argument("--host", required=True, help="the registry")
    parser.add_argument("--repository", required=True, help="the driver's repository")
    parser.add_argument("--folder", required=True, type=Path, help="output of the build")
    parser.add_argument("--credentials", type=Path, help="folder where the registry's Secret is mounted")
    parser.add_argument("--plain-http", action="store_true", help="use HTTP without TLS")
    parser.add_argument(
        "--message", type=Path, default=Path("/dev/termination-log"), help="file for the termination message"
    )


def run(flags: argparse.Namespace, settings: Settings) -> int:
    """Push, and report the digest or the error."""
    try:
        registry = RegistryClient(
            flags.host,
            credentials=_credentials(flags),
            plain_http=flags.plain_http,
            ca_file=settings.registry_ca_file,
            deadline=PUSH_PATIENCE,
            patience=PUSH_PATIENCE,
            reach=settings.registry_reach,
        )
        result: dict[str, object] = {"digest": push_build(registry, flags.repository, flags.folder)}
    except DriverBuilderError as error:
        result = {"error": str(error)[:_MAX_WORDS], "refused": not isinstance(error, TemporaryError)}
    text = json.dumps(result)
    flags.message.write_text(text)
    print(text)
    return EXIT_OK if "digest" in result else EXIT_FAILED


def _credentials(flags: argparse.Namespace) -> Credentials | None:
    """Read the credentials for the registry from the Secret.

    Raises:
        RegistryRefused: it has none.
    """
    if flags.credentials is None:
        return None
    texts = [path.read_bytes() for path in (flags.credentials / name for name in _FORMATS) if path.exists()]
    found = credentials_for(parse_docker_config(texts[0]), flags.host, flags.repository) if texts else None
    if found is None:
        raise RegistryRefused(f"spec.registry.secretRef: the Secret has no credentials for {flags.host}")
    return found
