"""The CA of a driver's registry: certificates of a ConfigMap, in a file, because requests reads them from files.

Place in the flow: ``registry_access`` passes a driver's client the file; without a ConfigMap the controller's is used.
"""

import hashlib
import shutil
import ssl
import tempfile
import threading
import weakref
from pathlib import Path

from driver_builder.api.build_settings import ConfigMapKey
from driver_builder.base.errors import ConfigurationError
from driver_builder.registry.named_objects import read_text
from kube_api.client import Reader

FIELD = "spec.registry.caConfigMap"
MAX_FILES = 200


def read_ca(client: Reader, namespace: str, wanted: ConfigMapKey, *, field: str = FIELD) -> str:
    """Read the certificates that a field names, in PEM.

    Raises:
        ConfigurationError: naming the ConfigMap and what is wrong with it.
    """
    text = read_text(client, namespace, wanted, field=field)
    if (wrong := _why_unusable(text)) is not None:
        place = f"{field}: ConfigMap {namespace}/{wanted.name}, key {wanted.key!r}"
        raise ConfigurationError(f"{place}, holds no certificate in PEM: {wrong}")
    return text


def _why_unusable(pem: str) -> str | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # Comments of bundles name authorities in their own languages.
        context.load_verify_locations(cadata=pem.encode("ascii", "replace").decode())
    except (ssl.SSLError, ValueError) as error:
        return str(error)
    return None if context.cert_store_stats()["x509"] else "it is empty"


class CaFiles:
    """A file for each set of certificates, in a folder that is removed with this object.

    Certificates are replaced now and then: beyond ``MAX_FILES`` the least recently used file is removed.
    """

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._used: dict[Path, None] = {}
        """The most recently used file is last."""
        self._lock = threading.Lock()

    def file(self, pem: str) -> Path:
        """Return the file with these certificates; it does not change while others are requested."""
        with self._lock:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="driver-builder-ca-"))
                weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        path = self._folder / f"{hashlib.sha256(pem.encode()).hexdigest()}.pem"
        if not path.exists():
            # Written whole or not at all: another thread may be about to read it.
            with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=self._folder, delete=False) as file:
                file.write(pem)
            Path(file.name).rename(path)
        with self._lock:
            self._used.pop(path, None)
            self._used[path] = None
            unused = list(self._used)[:-MAX_FILES]
            for old in unused:
                del self._used[old]
                old.unlink(missing_ok=True)
        return path
