"""The connection with the token of the container ``agent``; and what is loaded without one."""

import subprocess
import sys
from pathlib import Path

import pytest

from device_agent.node.connect import connect_with_token

ENVIRONMENT = {"KUBERNETES_SERVICE_HOST": "192.0.2.1", "KUBERNETES_SERVICE_PORT": "443"}
LOOK = """
import sys
sys.path[:0] = [sys.argv[1]]
from device_agent.cli.start import without_tls
without_tls()
from device_agent import agent
print([name for name in ("kube_api.client", "device_agent.node") if name in sys.modules], sys.modules["ssl"])
from device_agent.node.connect import connect_with_token
print(connect_with_token({}, sys.argv[2]), sys.modules["ssl"])
connect_with_token({"KUBERNETES_SERVICE_HOST": "192.0.2.1", "KUBERNETES_SERVICE_PORT": "443"}, sys.argv[2])
import ssl
print(ssl.create_default_context is not None, "urllib3" in sys.modules, "kubernetes" in sys.modules)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make what a kubelet mounts."""
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text("c")
    return tmp_path


@pytest.mark.parametrize(
    ("environment", "missing"),
    [
        pytest.param(ENVIRONMENT, "token", id="no token"),
        pytest.param(ENVIRONMENT, "ca.crt", id="no authority"),
        pytest.param({}, "", id="no API server"),
        pytest.param({**ENVIRONMENT, "HTTPS_PROXY": "http://p"}, "", id="behind a proxy"),
    ],
)
def test_without_a_token_there_is_no_connection(folder: Path, environment: dict[str, str], missing: str) -> None:
    """Then no API server is spoken to."""
    if missing:
        (folder / missing).unlink()
    assert connect_with_token(environment, str(folder)) is None


def test_tls_is_loaded_only_with_a_token(folder: Path) -> None:
    """In a process as the script starts it; the resident agent has neither it nor the client before."""
    command = [sys.executable, "-c", LOOK, str(Path(__file__).parents[4]), str(folder)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
    without, none, with_token = printed.splitlines()
    assert without == "[] None"
    assert none == "None None"
    assert with_token == "True False False"
