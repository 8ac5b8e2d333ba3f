"""The passwords of registries for commands without a cluster: Secrets in files, else docker's own configuration."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.base.errors import ConfigurationError
from driver_builder.registry.credentials import Credentials, parse_docker_config
from driver_builder.registry.given_objects import GivenObjects
from driver_builder.registry.registry_access import Accounts

_HELPERS = ("credHelpers", "credsStore")


def accounts(file: Path | None, given: GivenObjects) -> tuple[Accounts, str]:
    """Return which passwords a driver's registry gets, and what is to be known about them.

    A driver whose Secret is given gets that one; all others get those of ``file`` (None: docker's own place).

    Raises:
        ConfigurationError: the file cannot be read.
    """
    known, remark = _docker_config(file)

    def choose(namespace: str, settings: RegistrySettings) -> Mapping[str, Credentials] | None:
        is_given = settings.secret is not None and given.has_secret(namespace, settings.secret)
        return None if is_given else known

    return choose, remark


def _docker_config(file: Path | None) -> tuple[dict[str, Credentials], str]:
    folder = os.environ.get("DOCKER_CONFIG") or str(Path.home() / ".docker")
    path = file or Path(folder, "config.json")
    if file is None and not path.exists():
        return {}, ""
    return read_docker_config(path)


def read_docker_config(path: Path) -> tuple[dict[str, Credentials], str]:
    """Read the passwords in a file like Docker's ``config.json``, and what is to be known about them.

    Raises:
        ConfigurationError: it cannot be read; never quotes it.
    """
    try:
        config = json.loads(path.read_bytes())
        # Unlike a Secret of the older form it has settings beside `auths`.
        auths = parse_docker_config(json.dumps({"auths": config.get("auths") or {}}).encode())
    except OSError as error:
        raise ConfigurationError(f"--registry-config: {error}") from error
    except ConfigurationError as error:
        words = str(error).replace("the registry secret", "it")
        raise ConfigurationError(f"--registry-config: {path}: {words}") from None
    except (ValueError, AttributeError):
        # Without the cause: it carries the whole content.
        raise ConfigurationError(f"--registry-config: {path} is not JSON as docker login writes it") from None
    used = [name for name in _HELPERS if config.get(name)]
    remark = f"{path} names credential helpers ({', '.join(used)}), which are not run" if used else ""
    # What a helper keeps the password of has an entry without one.
    return {host: entry for host, entry in auths.items() if entry != Credentials()}, remark
