"""What a person says about a cluster of theirs: environment variables in, frozen settings out."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from demo.cluster import ScenarioError

_REGISTRY = re.compile(r"[a-zA-Z0-9.-]+(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*")
_YES_AND_NO = {"1": True, "0": False, "": False}


class SettingsError(ScenarioError):
    """A variable of the demo is wrong; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSettings:
    """Where the scenario runs, and what is special about that cluster."""

    kubeconfig: Path
    registry: str
    """``host[:port][/path]``: the engine pushes to it, the nodes pull from it."""
    plain_http: bool = False
    """The registry has no TLS."""
    pull_secret: Path | None = None
    """A Docker configuration file with the registry's credentials, for controller and nodes."""
    engine_socket: str | None = None
    """Where a Docker Engine's socket is on the nodes labelled for builds; without it Jobs build."""
    api: tuple[str, str] | None = None
    """Host and port of the API server as pods reach it, when not by the service network."""
    host_network: bool = False
    """Pods run in the node's network."""
    keep: bool = False
    """Leave everything in place at the end."""
    force: bool = False
    """Go on though something of ours is there already."""

    @property
    def removal_command(self) -> str:
        """The command that takes away what a demo left."""
        return f"DEMO_KUBECONFIG={self.kubeconfig} .venv/bin/python -m demo remove"

    def kubectl(self, words: str) -> str:
        """Write a kubectl command for this cluster."""
        return f"kubectl --kubeconfig {self.kubeconfig} {words}"


def from_environment(environment: Mapping[str, str]) -> OwnSettings | None:
    """Read the DEMO_ variables; None when no cluster is named.

    Raises:
        SettingsError: for a variable that is wrong or missing.
    """
    kubeconfig, registry = environment.get("DEMO_KUBECONFIG", ""), environment.get("DEMO_REGISTRY", "")
    if not kubeconfig and not registry:
        return None
    if not kubeconfig or not registry:
        missing = "DEMO_REGISTRY" if kubeconfig else "DEMO_KUBECONFIG"
        raise SettingsError(
            f"{missing} is not set: a cluster of your own needs both, DEMO_KUBECONFIG=FILE and"
            " DEMO_REGISTRY=host[:port][/path]; without either the demo brings up a cluster of its own"
        )
    if not _REGISTRY.fullmatch(registry):
        raise SettingsError(
            f"DEMO_REGISTRY: {registry!r} is not host[:port][/path], without https:// and in lower case"
        )
    secret = environment.get("DEMO_PULL_SECRET")
    return OwnSettings(
        kubeconfig=existing_file("DEMO_KUBECONFIG", kubeconfig),
        registry=registry,
        plain_http=_flag(environment, "DEMO_PLAIN_HTTP"),
        pull_secret=existing_file("DEMO_PULL_SECRET", secret) if secret else None,
        engine_socket=environment.get("DEMO_ENGINE_SOCKET", "").removeprefix("unix://") or None,
        api=_host_and_port(environment.get("DEMO_API", "")),
        host_network=_flag(environment, "DEMO_HOST_NETWORK"),
        keep=_flag(environment, "DEMO_KEEP"),
        force=_flag(environment, "DEMO_FORCE"),
    )


def existing_file(name: str, text: str) -> Path:
    """Read the variable ``name`` as the path of a file.

    Raises:
        SettingsError: when there is none.
    """
    if not text:
        raise SettingsError(f"{name} is not set: it names a file")
    path = Path(text).expanduser().absolute()
    if not path.is_file():
        raise SettingsError(f"{name}: there is no file {path}")
    return path


def _flag(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name, "")
    if text not in _YES_AND_NO:
        raise SettingsError(f"{name}: {text!r} is neither 1 nor 0")
    return _YES_AND_NO[text]


def _host_and_port(text: str) -> tuple[str, str] | None:
    if not text:
        return None
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit():
        raise SettingsError(f"DEMO_API: {text!r} is not host:port")
    return host.strip("[]"), port
