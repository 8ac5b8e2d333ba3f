"""A real image registry on 127.0.0.1, with or without a password."""

from __future__ import annotations

import ctypes
import json
import secrets
import string
from collections.abc import Callable
from pathlib import Path

from testbed.pki import write_private
from testbed.ports import accepts_connections
from testbed.process import Processes
from testbed.progress import Progress

PACKAGES = ("docker-registry",)
_NAME = "registry"
_READY_TIMEOUT = 240.0


class Registry:
    """The registry of one testbed; its port and its content stay over restarts."""

    def __init__(
        self,
        processes: Processes,
        port: int,
        auth: tuple[str, str] | None = None,
        *,
        remember: Callable[[str, str], None] = lambda _username, _password: None,
    ) -> None:
        self._processes = processes
        self._folder = processes.folder / "registry"
        self._config = self._folder / "config.yml"
        self.port = port
        self.host = f"127.0.0.1:{port}"
        self.username: str | None
        self.password: str | None
        self.username, self.password = auth or (None, None)
        self._remember = remember
        self._deletes = True

    @property
    def url(self) -> str:
        """The address of the registry's HTTP interface."""
        return f"http://{self.host}"

    @property
    def auth_config(self) -> dict[str, str] | None:
        """What docker.APIClient's push and pull take as `auth_config`, or None for a registry without a password."""
        if self.username is None or self.password is None:
            return None
        return {"username": self.username, "password": self.password}

    def bring_up(self, progress: Progress) -> None:
        """Start the registry for the first time."""
        with progress.step("Start the image registry") as step:
            self._folder.mkdir(exist_ok=True)
            self._write_config()
            self._processes.spawn(_NAME, ["docker-registry", "serve", self._config])
            self._processes.wait_ready(_NAME, self.is_ready, _READY_TIMEOUT, step)

    def is_ready(self) -> bool:
        """Return whether the registry takes connections."""
        return accepts_connections(self.port)

    def start(self) -> None:
        """Start the registry again, on the same port and with the same content."""
        self._processes.start_again(_NAME)
        self._processes.wait_ready(_NAME, self.is_ready, _READY_TIMEOUT)

    def stop(self) -> None:
        """End the registry; connections are refused until it is started again."""
        self._processes.stop(_NAME)

    def set_auth(self, username: str | None, password: str = "") -> None:
        """Ask for a password from now on, or with None no longer; the registry is restarted on the same port."""
        self.username, self.password = (username, password) if username is not None else (None, None)
        self._remember(self.username or "", self.password or "")
        self._restart()

    def set_deletes(self, deletes: bool) -> None:
        """Remove images on request from now on, or refuse to; the registry is restarted on the same port."""
        self._deletes = deletes
        self._restart()

    def _restart(self) -> None:
        self._write_config()
        if self._processes.is_running(_NAME):
            self.stop()
            self.start()

    def _write_config(self) -> None:
        htpasswd: Path | None = None
        if self.username is not None and self.password is not None:
            htpasswd = self._folder / "htpasswd"
            write_private(htpasswd, f"{self.username}:{bcrypt(self.password)}\n")
        storage = self._folder / "storage"
        write_private(self._config, config_text(self.host, storage, htpasswd, deletes=self._deletes))


def config_text(address: str, storage: Path, htpasswd: Path | None, *, deletes: bool = True) -> str:
    """Return the registry's configuration (JSON is YAML too)."""
    config: dict[str, object] = {
        "version": 0.1,
        "log": {"level": "info"},
        "storage": {
            "filesystem": {"rootdirectory": str(storage)},
            "delete": {"enabled": deletes},
            # A cache would go on showing manifests that a test has deleted.
            "cache": {},
            "maintenance": {"uploadpurging": {"enabled": False}},
        },
        "http": {"addr": address, "secret": secrets.token_hex(16)},
    }
    if htpasswd is not None:
        config["auth"] = {"htpasswd": {"realm": "proving-ground", "path": str(htpasswd)}}
    return json.dumps(config, indent=1)


def bcrypt(password: str) -> str:
    """Hash a password in the one way that the registry reads, by the C library's crypt()."""
    salt = "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(22))
    crypt = ctypes.CDLL("libcrypt.so.1").crypt
    crypt.restype = ctypes.c_char_p
    hashed: bytes = crypt(password.encode(), f"$2y$05${salt}".encode())
    return hashed.decode()
