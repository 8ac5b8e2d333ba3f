"""The proxy and the CAs of a build: what its programs get, in a Job and with an engine, and who sees the password."""

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from driver_builder.api.build_settings import ConfigMapKey
from driver_builder.base.errors import BuildFailed, TemporaryError
from driver_builder.base.reasons import Reason
from driver_builder.builds.build_references import proxy_password, read_build_ca
from driver_builder.builds.job import job_builder
from driver_builder.builds.job.job_manifest import job
from driver_builder.cli.builder_choice import secret_values
from driver_builder.model.build_proxy import BuildProxy, ProxyPassword, variables
from kube_api.client import Client
from kube_api.errors import NotFound, ServerUnavailable
from kube_api.resources import CONFIG_MAPS
from tests.support.driver_builder.memory_client import MemoryClient
from tests.unit.driver_builder.builds.job.test_job_manifest import SETTINGS, action, containers, mounts, pod_of

URL = "http://proxy.example.com:3128"
PROXY = BuildProxy(http=URL, https=URL, no_proxy=".svc", secret="proxy")
PASSWORD = "p@ss/wörd %$'\""


class Cluster:
    """An API server with one Secret, or an error."""

    def __init__(self, entries: dict[str, str], error: Exception | None = None) -> None:
        self._entries = entries
        self._error = error

    def get(self, path: str) -> dict[str, Any]:
        """Read it."""
        if self._error is not None:
            raise self._error
        if not path.endswith("/proxy"):
            raise NotFound(path)
        return {"data": {key: base64.b64encode(text.encode()).decode() for key, text in self._entries.items()}}


def cluster(entries: dict[str, str], error: Exception | None = None) -> Client:
    """The same, for who wants a client."""
    return cast(Client, cast(Any, Cluster(entries, error)))


KNOWN = {"username": "me", "password": f"{PASSWORD}\n"}


def environment_of(container: dict[str, Any]) -> dict[str, str]:
    """Return the variables of a container."""
    return {item["name"]: item["value"] for item in container.get("env", ())}


def test_programs_get_both_spellings_and_nothing_that_is_not_given() -> None:
    """Apt reads lower case, others capitals; an empty variable would turn a proxy off."""
    assert variables(BuildProxy(http=URL, no_proxy=".svc")) == {
        "HTTP_PROXY": URL, "http_proxy": URL, "NO_PROXY": ".svc", "no_proxy": ".svc",
    }  # fmt: skip


def test_a_password_is_escaped_in_the_address() -> None:
    """Whatever it has."""
    assert variables(BuildProxy(https=URL), ProxyPassword("a:b", "c@d"))["HTTPS_PROXY"] == (
        "http://a%3Ab:c%40d@proxy.example.com:3128"
    )


def test_only_the_container_that_builds_has_the_proxy() -> None:
    """With its Secret as two files; what pushes reaches the registry as the controller does."""
    made = job(action(proxy=PROXY), SETTINGS)
    build, hand_over = containers(made)
    assert environment_of(build)["https_proxy"] == URL
    assert mounts(build)["/proxy"] == "proxy"
    assert ("env" in hand_over, "/proxy" in mounts(hand_over)) == (False, False)
    (volume,) = [item for item in pod_of(made)["volumes"] if item["name"] == "proxy"]
    assert [item["key"] for item in volume["secret"]["items"]] == ["username", "password"]


def test_a_proxy_changes_no_key_and_its_absence_no_job() -> None:
    """Another proxy builds nothing anew, and a Job of the version before is followed."""
    assert action(proxy=PROXY).request.key == action().request.key
    assert "env" not in containers(job(action(), SETTINGS))[0]


CA = ConfigMapKey(name="build-ca", key="bundle.pem")


def test_only_the_container_that_builds_has_the_certificates() -> None:
    """For its commands and for the pulls of buildah; what pushes knows the registry's CA only."""
    made = job(action(ca_config_map=CA), SETTINGS)
    build, hand_over = containers(made)
    assert {path: name for path, name in mounts(build).items() if name == "build-ca"} == {
        "/build-ca": "build-ca", "/certificates/build-ca.crt": "build-ca",
    }  # fmt: skip
    assert "--cert-dir=/certificates" in build["command"]
    assert "build-ca" not in mounts(hand_over).values()
    (volume,) = [item for item in pod_of(made)["volumes"] if item["name"] == "build-ca"]
    assert volume["configMap"] == {"name": "build-ca", "items": [{"key": "bundle.pem", "path": "ca.crt"}]}


def test_certificates_change_no_key_and_their_absence_no_job() -> None:
    """Other certificates build nothing anew, and a Job of the version before is followed."""
    assert action(ca_config_map=CA).request.key == action().request.key
    assert "build-ca" not in json.dumps(job(action(), SETTINGS))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param({"bundle.pem": "none"}, "holds no certificate in PEM", id="no certificate"),
        pytest.param({"ca.crt": ""}, "has no text 'bundle.pem'", id="another key"),
        pytest.param(None, "ConfigMap driverwright/build-ca does not exist", id="no ConfigMap"),
    ],
)
def test_a_config_map_that_cannot_be_used_ends_the_build(data: dict[str, str] | None, words: str) -> None:
    """Before it starts: a pod whose ConfigMap is missing would wait."""
    client = MemoryClient()
    if data is not None:
        client.create(CONFIG_MAPS.path(namespace="driverwright"), {"metadata": {"name": "build-ca"}, "data": data})
    with pytest.raises(BuildFailed, match=words) as caught:
        read_build_ca(client, "driverwright", CA)
    assert caught.value.reason is Reason.SOURCE_MISSING
    assert str(caught.value).startswith("spec.build.caConfigMap: ")


def test_without_an_answer_for_the_certificates_the_build_is_tried_again() -> None:
    """It is no fault of the ConfigMap; a build without one asks nobody."""
    away = cluster({}, ServerUnavailable("away"))
    with pytest.raises(TemporaryError, match="cannot be read"):
        read_build_ca(away, "driverwright", CA)
    assert read_build_ca(away, "driverwright", None) == ""


def test_the_script_of_the_job_writes_the_password_into_the_address(tmp_path: Path) -> None:
    """As the engine's builder does, byte by byte; the end of the file's last line is none of it."""
    for key, text in KNOWN.items():
        (tmp_path / key).write_text(text)
    part = Path(job_builder.__file__).with_name("proxy.sh").read_text().replace("/proxy/", f"{tmp_path}/")
    asked = f'set -eu\n{part}\nprintf "%s\\n" "$HTTP_PROXY" "$http_proxy" "${{HTTPS_PROXY:-none}}"'
    ended = subprocess.run(
        ["/bin/sh", "-c", asked],
        env={"PATH": os.environ["PATH"], "HTTP_PROXY": URL},
        capture_output=True,
        text=True,
        check=True,
    )
    expected = "me:" + "".join(f"%{byte:02x}" for byte in PASSWORD.encode()) + "@proxy.example.com:3128"
    first, second, third = ended.stdout.splitlines()
    assert first == second
    assert first.replace("http://%6d%65:", "http://me:") == f"http://{expected}"
    assert third == "none"


def test_the_log_hides_the_password_in_both_forms() -> None:
    """As it is, and as it stands in an address."""
    given = action(proxy=PROXY)
    known = ProxyPassword("me", PASSWORD)
    assert proxy_password(given.namespace, PROXY, cluster(KNOWN)) == known
    assert set(secret_values(given, cluster(KNOWN))) == {PASSWORD, known.in_url}
    assert secret_values(given, cluster({})) == ()


@pytest.mark.parametrize(
    ("entries", "error", "words"),
    [
        pytest.param({"username": "me"}, None, "Secret driverwright/proxy has no password", id="no password"),
        pytest.param({}, NotFound("x"), "Secret driverwright/proxy does not exist", id="no Secret"),
    ],
)
def test_a_secret_that_cannot_be_used_ends_the_build(
    entries: dict[str, str], error: Exception | None, words: str
) -> None:
    """Before it starts: a pod whose Secret is missing would wait."""
    with pytest.raises(BuildFailed, match=words) as caught:
        proxy_password("driverwright", PROXY, cluster(entries, error))
    assert caught.value.reason is Reason.SOURCE_MISSING
    assert str(caught.value).startswith("spec.build.proxy.secretRef: ")


def test_without_an_answer_the_build_is_tried_again() -> None:
    """It is no fault of the Secret."""
    with pytest.raises(TemporaryError, match="cannot be read"):
        proxy_password("driverwright", PROXY, cluster({}, ServerUnavailable("away")))
