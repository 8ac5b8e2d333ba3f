"""The command ``doctor``: what it prints, how it ends, and that no secret is in its report."""

import base64
import gzip
import json
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from driver_builder.builds.build_logs import Redactor
from driver_builder.cli import main
from driver_builder.cli.examination import collect
from kube_api.client import Client
from kube_api.errors import Unreachable
from kube_api.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DRIVER_CONTAINERS,
    NAMESPACES,
    NODES,
    SECRETS,
)
from tests.support import loopback
from tests.support.driver_builder.factories import NAMESPACE
from tests.support.driver_builder.installation import InstalledClient, as_client, log_path, pod
from tests.support.driver_builder.scripted_registry import MemoryRegistry, Reply, Request, scripted_registry

DEFINITION = CUSTOM_RESOURCE_DEFINITIONS.path(name="drivercontainers.driverwright.io")
DEPLOYMENT = DEPLOYMENTS.path(namespace=NAMESPACE, name="driver-builder")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> InstalledClient:
    """Let the command line see a cluster in which everything is in place, and no engine of this machine."""
    made = InstalledClient()
    monkeypatch.setattr(Client, "from_environment", as_client(made))
    for name in ("DOCKER_HOST", "POD_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    return made


def container(cluster: InstalledClient) -> dict[str, Any]:
    """Return the controller's container."""
    found: dict[str, Any] = cluster.objects[DEPLOYMENT]["spec"]["template"]["spec"]["containers"][0]
    return found


def build_by_an_engine(cluster: InstalledClient) -> None:
    """Do what ``deploy/patches/builds-by-an-engine.yaml`` does to the controller's environment."""
    env = container(cluster)["env"]
    env[:] = [item for item in env if item["name"] != "DRIVER_BUILDER_BUILDER"]
    env += [
        {"name": "DRIVER_BUILDER_BUILDER", "value": "docker"},
        {"name": "DOCKER_HOST", "value": "unix:///run/docker.sock"},
    ]


def examined(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, list[str]]:
    """Run the command; return what it found that is not well, by check."""
    assert main.main(["doctor", "-o", "json", *words]) == code
    found: dict[str, list[str]] = {}
    for item in json.loads(capsys.readouterr().out)["findings"]:
        if item["verdict"] != "ok":
            found.setdefault(item["check"], []).append(f"{item['verdict']}: {item['found']}")
    return found


def test_a_cluster_with_everything_in_place_has_no_findings(
    cluster: InstalledClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0, a line for each check, and nothing is written."""
    assert main.main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["ok", "server", "Kubernetes", "v1.31.2"]
    assert lines[-1] == "15 ok, 1 unknown"
    assert not any(line.startswith(("warning", "FAILED")) for line in lines)
    assert cluster.writes == []


def test_what_is_wrong_is_reported_with_what_to_do(
    cluster: InstalledClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """One failure does not stop the other checks; the exit code is 1."""
    del cluster.objects[DEFINITION]
    cluster.refused = {"patch daemonsets"}
    cluster.ahead = 60
    assert main.main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert "FAILED   definitions  drivercontainers.driverwright.io is not installed" in printed
    assert "next: kubectl apply -f deploy/crds/drivercontainers.yaml" in printed
    assert "may not, in namespace driverwright: patch daemonsets.apps" in printed
    assert "warning  clock" in printed
    assert "ok       workers" in printed


@pytest.mark.parametrize(
    ("path", "check"),
    [
        pytest.param(CUSTOM_RESOURCE_DEFINITIONS.path(), "definitions", id="definitions"),
        pytest.param(DEPLOYMENTS.path(namespace=NAMESPACE), "controller", id="Deployments"),
        pytest.param(DAEMON_SETS.path(namespace=NAMESPACE), "workers", id="DaemonSets"),
        pytest.param(NODES.path(), "labels", id="Nodes"),
        pytest.param(NAMESPACES.path(name=NAMESPACE), "namespaces", id="Namespaces"),
        pytest.param(DRIVER_CONTAINERS.path(namespace=NAMESPACE), "drivers", id="DriverContainers"),
    ],
)
def test_what_may_not_be_read_is_unknown(
    cluster: InstalledClient, capsys: pytest.CaptureFixture[str], path: str, check: str
) -> None:
    """It says so, stops no other check, and is no failure."""
    cluster.forbidden = (path,)
    found = examined(capsys)
    assert found[check][0].startswith("unknown: ")
    assert "cannot be read: no permission" in found[check][0]


def test_an_account_that_may_ask_only_about_itself_does_that(
    cluster: InstalledClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the controller's pod that is the controller's account."""
    cluster.may_review_others = False
    cluster.refused = {"get secrets"}
    assert examined(capsys, code=1)["rights"] == [
        "FAILED: the identity that doctor runs with may not, in namespace driverwright: get secrets"
    ]
    assert {review["kind"] for review in cluster.reviewed} == {"SelfSubjectAccessReview"}


def test_the_rights_to_drain_are_asked_about_where_a_driver_drains(
    cluster: InstalledClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are a warning: drivers are replaced without a drain."""
    cluster.refused = {"create pods"}
    assert not any("drain" in line for line in examined(capsys, code=1)["rights"])
    cluster.refused = {"list pods"}
    cluster.add_driver(rollout={"drain": {"resources": ["example.com/fpga"]}})
    drain = examined(capsys, code=1)["rights"][-1]
    assert drain.startswith(
        "warning: service account driverwright/driver-builder may not, in all namespaces: list pods;"
    )
    assert drain.endswith("rollout.drain of driverwright/edu drains nothing")


def test_the_right_to_claims_is_asked_about_where_a_driver_names_dra_drivers(
    cluster: InstalledClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without it nothing is said to drivers that do not need it."""
    cluster.refused = {"get resourceclaims"}
    cluster.add_driver(rollout={"drain": {"resources": ["example.com/fpga"]}})
    assert "rights" not in examined(capsys, code=1)
    cluster.add_driver(rollout={"drain": {"draDrivers": ["fpga.example.com"]}})
    assert "may not, in all namespaces: get resourceclaims.resource.k8s.io" in examined(capsys, code=1)["rights"][-1]


def test_permissions_are_those_of_the_controllers_account(
    cluster: InstalledClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one that its Deployment names, unless another one is given."""
    cluster.objects[DEPLOYMENT]["spec"]["template"]["spec"]["serviceAccountName"] = "own"
    examined(capsys)
    examined(capsys, "--service-account", "x/y")
    users = {review["spec"]["user"] for review in cluster.reviewed}
    assert users == {"system:serviceaccount:driverwright:own", "system:serviceaccount:x:y"}


def test_the_controllers_own_settings_are_examined(
    cluster: InstalledClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its namespaces, its builder and its images, as arguments and variables of the Deployment have them."""
    container(cluster)["args"] = [
        "run",
        "--namespace=driverwright",
        "--namespace=more",
        "--builder=job",
        "--new-flag=1",
    ]
    container(cluster)["env"] = []
    found = examined(capsys, code=1)
    assert found["namespaces"] == ["FAILED: missing: more"]
    assert found["jobs"] == [
        "FAILED: --job-image and --hand-over-image not set",
        "FAILED: the ServiceAccount driver-builder-job is missing in more",
    ]
    assert found["controller"] == ["FAILED: --loader-image is not set: the controller does not start"]
    assert "engine" not in found


def test_wrong_settings_of_the_controller_are_a_finding(
    cluster: InstalledClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are still checked."""
    container(cluster)["args"] = ["run", "--port=many"]
    (found, *_) = examined(capsys, code=1)["controller"]
    assert found.startswith("FAILED: its settings are wrong: --port: 'many' is not a port")


def test_a_retired_setting_of_the_controller_is_a_finding(
    cluster: InstalledClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the next version, which does not know it any more."""
    container(cluster)["args"] = ["run", "--lease-name=driver-builder"]
    (found, *_) = examined(capsys, code=0)["controller"]
    assert found.startswith("warning: --lease-name is retired since 0.2, and applies for the last time")


def test_a_namespace_that_the_controller_does_not_watch_is_a_finding(
    cluster: InstalledClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """A DriverContainer there would wait for ever."""
    cluster.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "more"}})
    found = examined(capsys, "-n", "driverwright", "-n", "more", code=1)
    assert found["namespaces"] == ["FAILED: the controller does not watch more"]


def test_a_driver_with_an_invalid_spec_is_a_finding(
    cluster: InstalledClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the field, as status does."""
    cluster.add_driver(version=1)
    assert "FAILED: driverwright/edu: spec.version" in examined(capsys, code=1)["drivers"][0]


def test_a_check_with_a_bug_stops_no_other(
    cluster: InstalledClient, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It is unknown then, and the report has everything else."""
    workers = DAEMON_SETS.path(namespace=NAMESPACE, name="nfd-worker")
    cluster.objects[workers]["status"] = {"desiredNumberScheduled": "many"}
    found = examined(capsys, "--report", str(tmp_path / "r.tar.gz"))
    assert found["workers"][0].startswith("unknown: internal error: TypeError")
    assert "registry" in found


def test_an_api_server_that_is_away_is_the_only_finding(
    cluster: InstalledClient, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing else can be checked."""
    cluster.faults = [Unreachable("GET /version: connection refused")]
    assert examined(capsys, code=1) == {"server": ["FAILED: GET /version: connection refused"]}


def test_an_engine_that_does_not_answer_fails(cluster: InstalledClient, capsys: pytest.CaptureFixture[str]) -> None:
    """It is asked where its address is given; otherwise it is the controller's alone."""
    build_by_an_engine(cluster)
    assert "unix:///run/docker.sock is the controller's" in examined(capsys)["engine"][0]
    (found,) = examined(capsys, "--docker-host", "tcp://127.0.0.1:1", code=1)["engine"]
    assert found.startswith("FAILED: the build engine failed while connecting to tcp://127.0.0.1:1")


# ---------------------------------------------------------------- registries

PASSWORD = "pony-of-the-registry"
LOGIN: dict[str, Any] = {"registry": {"plainHttp": True, "secretRef": {"name": "regcred"}}}
ALLOWED = "--registry-plain-http-passwords"
LOCAL = f"--registry-allowed-hosts={loopback.ALLOWED}"


def put_secret(cluster: InstalledClient, host: str, password: str = PASSWORD) -> None:
    """Store the password of a registry."""
    auths = {"auths": {host: {"username": "anna", "password": password}}}
    data = {".dockerconfigjson": base64.b64encode(json.dumps(auths).encode()).decode()}
    name = {"namespace": NAMESPACE, "name": "regcred"}
    cluster.put({"apiVersion": "v1", "kind": SECRETS.kind, "metadata": name, "data": data})


def with_password(request: Request) -> Reply:
    """Answer as a registry that demands a password."""
    sent = request.headers.get("Authorization", "").removeprefix("Basic ")
    if base64.b64decode(sent).decode() != f"anna:{PASSWORD}":
        return Reply(status=401, headers={"WWW-Authenticate": 'Basic realm="r"'})
    return MemoryRegistry()(request)


@pytest.mark.parametrize(
    ("password", "code", "words"),
    [
        pytest.param(PASSWORD, 0, "", id="accepted"),
        pytest.param("wrong", 1, "denies access (user 'anna')", id="refused"),
        pytest.param(None, 1, "regcred", id="no Secret"),
    ],
)
def test_the_registries_of_drivers_are_asked(
    cluster: InstalledClient, capsys: pytest.CaptureFixture[str], password: str | None, code: int, words: str
) -> None:
    """With the password of their Secret, and without a write."""
    container(cluster)["args"] = ["run", ALLOWED, LOCAL]
    with scripted_registry(with_password) as registry:
        cluster.add_driver(image=f"{registry.host}/drivers/edu", **LOGIN)
        if password is not None:
            put_secret(cluster, registry.host, password)
        found = examined(capsys, code=code)
    assert words in "".join(found.get("registry", []))
    assert PASSWORD not in json.dumps(found)
    assert {request.method for request in registry.requests} <= {"GET", "HEAD"}


def test_a_registry_without_a_driver_is_asked(cluster: InstalledClient, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the first DriverContainer, with the settings of the controller."""
    container(cluster)["args"] = ["run", LOCAL]
    with scripted_registry(MemoryRegistry()) as registry:
        words = ["--registry", f"{registry.host}/drivers/edu", "--registry-plain-http"]
        assert main.main(["doctor", *words]) == 0
    assert f"{registry.host}/drivers/edu: reachable, it asks for no password" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["--service-account", "x"], id="account"),
        pytest.param(["--registry", "Not A Host"], id="registry"),
        pytest.param(["--registry-secret", "x"], id="a Secret of no registry"),
        pytest.param(["--report", "/no/such/folder/x.tar.gz"], id="folder"),
    ],
)
def test_wrong_flags_are_wrong_usage(cluster: InstalledClient, words: list[str]) -> None:
    """Before anything is asked."""
    cluster.faults = [Unreachable("never raised")]
    assert main.main(["doctor", *words]) == 2
    assert cluster.faults


# ---------------------------------------------------------------- the report

SECRETS_OF_OTHERS = ("pony-in-a-variable", "pony-in-a-url", "pony-in-an-argument", "pony-in-a-log", "pony-in-an-event")


def report_of(path: Path) -> str:
    """Return all of an archive as one text."""
    return gzip.decompress(path.read_bytes()).decode()


def fill(cluster: InstalledClient, host: str) -> None:
    """Put a known secret everywhere where one may stand."""
    variable, url, argument, log, event = SECRETS_OF_OTHERS
    put_secret(cluster, host)
    container(cluster)["args"] = ["run", ALLOWED, LOCAL, f"--registry-token={argument}"]
    container(cluster)["env"] += [
        {"name": "SOMETHING", "value": variable},
        {"name": "HTTPS_PROXY", "value": f"http://anna:{url}@proxy.example.com:3128"},
    ]
    source = {"git": {"url": f"https://anna:{url}@git.example.com/x.git", "commit": "a" * 40}}
    build = {"args": {"API_TOKEN": variable}}
    cluster.add_driver(image=f"{host}/drivers/edu", build=build, **LOGIN)
    cluster.add_driver("other", image=f"{host}/drivers/edu", source=source, **LOGIN)
    driver_pod = pod("edu", "edu-x")
    driver_pod["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "driver-builder"
    driver_pod["spec"]["containers"][0]["env"] = [{"name": "X", "value": variable}]
    cluster.put(driver_pod)
    message = f"Failed to pull: Authorization: Bearer {event}; {PASSWORD}"
    name = {"namespace": NAMESPACE, "name": "e"}
    cluster.put({"apiVersion": "v1", "kind": "Event", "metadata": name, "message": message})
    cluster.texts[log_path("driver-builder")] = f"password={log}\nlogging in with {PASSWORD}\nall is well\n"
    cluster.texts[log_path("nfd-worker")] = f"GET https://anna:{url}@example.com/x\nlabelled\n"


def test_no_secret_is_in_a_report(cluster: InstalledClient, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Of Secrets, URLs, variables, arguments, Events and logs; Secrets are not read for it."""
    path = tmp_path / "report.tar.gz"
    with scripted_registry(with_password) as registry:
        fill(cluster, registry.host)
        assert main.main(["doctor", "--report", str(path)]) == 1
    text = report_of(path)
    pair = base64.b64encode(f"anna:{PASSWORD}".encode()).decode()
    for secret in (*SECRETS_OF_OTHERS, PASSWORD, pair):
        assert secret not in text
        assert secret not in capsys.readouterr().out
    for words in ("all is well", "labelled", "git.example.com", "proxy.example.com", '"regcred"', "Failed to pull"):
        assert words in text
    assert "dockerconfigjson" not in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_without_a_redactor_the_secrets_would_be_found(
    cluster: InstalledClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The test above looks where they are: most of them go by the redactor alone."""
    monkeypatch.setattr(Redactor, "__call__", lambda _self, text: text)
    path = tmp_path / "report.tar.gz"
    with scripted_registry(with_password) as registry:
        fill(cluster, registry.host)
        main.main(["doctor", "--report", str(path)])
    text = report_of(path)
    assert [secret for secret in (*SECRETS_OF_OTHERS, PASSWORD) if secret in text] == [
        "pony-in-a-url", "pony-in-a-log", "pony-in-an-event", PASSWORD
    ]  # fmt: skip


def test_the_snapshot_of_a_report_makes_the_plan_of_the_cluster(
    cluster: InstalledClient, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It is the file of ``snapshot``, and redacted it is still one."""
    with scripted_registry(with_password) as registry:
        fill(cluster, registry.host)
        cluster.add_driver(image=f"{registry.host}/drivers/edu", **LOGIN)
        cluster.add_driver("top", image=f"{registry.host}/drivers/top", dependsOn=[{"name": "edu"}])
        main.main(["doctor", "--report", str(tmp_path / "r.tar.gz")])
        capsys.readouterr()
        assert main.main(["plan", ALLOWED, LOCAL]) == 0
    live = capsys.readouterr().out
    file = tmp_path / "snapshot.json"
    with tarfile.open(tmp_path / "r.tar.gz") as archive:
        (member,) = [item for item in archive.getmembers() if item.name.endswith("/snapshot.json")]
        content = archive.extractfile(member)
        assert content is not None
        file.write_bytes(content.read())
    assert main.main(["plan", "--snapshot", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[1:4] == live.splitlines()[1:4]


def test_a_report_has_the_end_of_bounded_logs(cluster: InstalledClient, tmp_path: Path) -> None:
    """Of a container that was restarted both; the kubelet is asked for no more than is kept."""
    cluster.texts[log_path("driver-builder")] = "now\n"
    path = tmp_path / "r.tar.gz"
    assert main.main(["doctor", "--report", str(path)]) == 0
    asked = [query for query in cluster.queries if "container" in query]
    assert {(query["tailLines"], query["limitBytes"]) for query in asked} == {("2000", str(2 << 20))}
    assert "logs/driver-builder-x-driver-builder.log" in report_of(path)


def test_of_many_workers_those_in_trouble_come_first(
    cluster: InstalledClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A fleet has thousands of logs."""
    monkeypatch.setattr(collect, "MAX_WORKER_LOGS", 1)
    cluster.put(pod("nfd-worker", "nfd-worker-z", conditions=[]))
    path = tmp_path / "r.tar.gz"
    main.main(["doctor", "--report", str(path)])
    assert "logs/nfd-worker-z-nfd-worker.log" in report_of(path)
    assert "logs/nfd-worker-x-nfd-worker.log" not in report_of(path)


def test_a_report_says_what_it_lacks(
    cluster: InstalledClient, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What may not be read stops nothing."""
    cluster.forbidden = ("/events", "/nodes")
    path = tmp_path / "r.tar.gz"
    assert main.main(["doctor", "--report", str(path)]) == 0
    text = report_of(path)
    assert "driverwright/events.json: not read" in text
    assert "snapshot.json: not read" in text
    assert "could not be read (README.txt)" in capsys.readouterr().err
