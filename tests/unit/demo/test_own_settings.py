"""What a person may say about a cluster of theirs, and what they are told when it makes no sense."""

from pathlib import Path

import pytest

from demo.own_settings import OwnSettings, SettingsError, existing_file, from_environment


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """A file to name."""
    path = tmp_path / "config"
    path.write_text("{}")
    return path


def test_without_variables_the_demo_makes_a_cluster_of_its_own() -> None:
    """None means: no cluster is named."""
    assert from_environment({"DEMO_KEEP": "1"}) is None


def test_all_variables(kubeconfig: Path) -> None:
    """Every DEMO_ variable sets its own field."""
    settings = from_environment(
        {
            "DEMO_KUBECONFIG": str(kubeconfig),
            "DEMO_REGISTRY": "registry.example.com:5000/team",
            "DEMO_PULL_SECRET": str(kubeconfig),
            "DEMO_API": "[::1]:6443",
            "DEMO_ENGINE_SOCKET": "unix:///var/run/docker.sock",
            "DEMO_HOST_NETWORK": "1",
            "DEMO_PLAIN_HTTP": "1",
            "DEMO_KEEP": "0",
            "DEMO_FORCE": "1",
        }
    )
    assert settings == OwnSettings(
        kubeconfig=kubeconfig,
        registry="registry.example.com:5000/team",
        pull_secret=kubeconfig,
        api=("::1", "6443"),
        engine_socket="/var/run/docker.sock",
        host_network=True,
        plain_http=True,
        force=True,
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"DEMO_REGISTRY": ""}, "DEMO_REGISTRY is not set", id="a cluster without a registry"),
        pytest.param({"DEMO_KUBECONFIG": ""}, "DEMO_KUBECONFIG is not set", id="a registry without a cluster"),
        pytest.param({"DEMO_KUBECONFIG": "/no/such/file"}, "there is no file /no/such/file", id="no kubeconfig"),
        pytest.param({"DEMO_REGISTRY": "https://r.example.com"}, "without https://", id="a registry as URL"),
        pytest.param({"DEMO_REGISTRY": "r.example.com/Team"}, "in lower case", id="a repository in capitals"),
        pytest.param({"DEMO_API": "10.0.0.1"}, "DEMO_API: '10.0.0.1' is not host:port", id="an address without port"),
        pytest.param({"DEMO_KEEP": "yes"}, "DEMO_KEEP: 'yes' is neither 1 nor 0", id="a flag in words"),
    ],
)
def test_a_wrong_variable_is_named(kubeconfig: Path, changes: dict[str, str], words: str) -> None:
    """The message says which and why."""
    environment = {"DEMO_KUBECONFIG": str(kubeconfig), "DEMO_REGISTRY": "r.example.com", **changes}
    with pytest.raises(SettingsError, match="DEMO_") as caught:
        from_environment(environment)
    assert words in str(caught.value)


def test_a_file_that_is_not_named() -> None:
    """An unset variable is said to be unset, not to be a missing file."""
    with pytest.raises(SettingsError, match="DEMO_KUBECONFIG is not set"):
        existing_file("DEMO_KUBECONFIG", "")
