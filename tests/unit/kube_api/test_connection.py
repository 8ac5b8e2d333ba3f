"""Where the API server is looked for, and who we say we are."""

import subprocess
import sys
from pathlib import Path

import pytest
from kubernetes.client import Configuration

from kube_api.connection import CONNECTIONS
from kube_api.credentials import ServiceAccount, service_account
from kube_api.errors import Unreachable
from kube_api.kubeconfig import connection_of, load_kubeconfig
from kube_api.pooled import PooledConnection

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a pod's folder; the CA is read when the first connection is made."""
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("host", "server"),
    [
        pytest.param("10.0.0.1", "https://10.0.0.1:443", id="IPv4"),
        pytest.param("fd00::1", "https://[fd00::1]:443", id="IPv6"),
        pytest.param("api.internal", "https://api.internal:443", id="a name"),
    ],
)
def test_the_address_is_what_the_kubelet_says(folder: Path, host: str, server: str) -> None:
    """Host and port come from the pod's environment."""
    found = service_account({**POD, "KUBERNETES_SERVICE_HOST": host}, str(folder))
    assert found is not None
    assert found.server == server


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param({}, id="no pod"),
        pytest.param({**POD, "KUBERNETES_SERVICE_HOST": ""}, id="empty host"),
        pytest.param({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, id="no port"),
        pytest.param({**POD, "HTTPS_PROXY": "http://proxy:3128"}, id="behind a proxy"),
    ],
)
def test_what_is_no_pod_of_ours(folder: Path, environment: dict[str, str]) -> None:
    """Then the official client looks for credentials."""
    assert service_account(environment, str(folder)) is None


def test_a_file_that_is_no_token_is_an_error_of_the_file(folder: Path) -> None:
    """It is told as one that is missing: no program ends by it."""
    (folder / "token").write_bytes(b"\xff\xfe")
    found = ServiceAccount("https://x", ca_file=str(folder / "ca.crt"), token_file=str(folder / "token"))
    with pytest.raises(OSError, match="token is not a token: it has characters that are not ASCII"):
        found.authorization()


@pytest.mark.parametrize("file", ["token", "ca.crt"])
def test_a_pod_without_a_mounted_account(folder: Path, file: str) -> None:
    """automountServiceAccountToken: false leaves the variables and takes the files."""
    (folder / file).unlink()
    assert service_account(POD, str(folder)) is None


def test_a_token_that_the_kubelet_replaced_is_used_at_once(folder: Path) -> None:
    """Bound tokens live for an hour; an old one would be refused."""
    found = ServiceAccount("https://x", ca_file=str(folder / "ca.crt"), token_file=str(folder / "token"))
    assert found.authorization() == {"Authorization": "Bearer first"}
    (folder / "token").write_text("second")
    assert found.authorization() == {"Authorization": "Bearer second"}


def test_a_pod_does_not_pay_for_the_official_client() -> None:
    """It costs a quarter of a second of CPU and 20 MiB, each time a publish child starts."""
    program = (
        "import sys, kube_api.client, kube_api.once; "
        "sys.exit(any(name.split('.')[0] in ('kubernetes', 'urllib3', 'email', 'http') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("kind", ["service account", "kubeconfig"])
def test_a_pool_keeps_a_connection_for_each_thread(folder: Path, kind: str) -> None:
    """urllib3 would keep one, throw the others away, and warn of each."""
    connection = (
        ServiceAccount("https://x", ca_file=str(folder / "ca.crt"), token_file=str(folder / "token")).pooled()
        if kind == "service account"
        else connection_of(Configuration(host="https://x"))
    )
    assert isinstance(connection, PooledConnection)
    assert connection.pool.connection_pool_kw["maxsize"] == CONNECTIONS


@pytest.mark.parametrize("text", ["[]", "{", '"\\UFFFFFFFF"'], ids=["a list", "no YAML", "an escape of no character"])
def test_a_file_that_is_no_kubeconfig_is_no_foreign_error(tmp_path: Path, text: str) -> None:
    """The message says what can be given."""
    file = tmp_path / "config"
    file.write_text(text)
    with pytest.raises(Unreachable, match="no API server is configured"):
        load_kubeconfig(str(file))
