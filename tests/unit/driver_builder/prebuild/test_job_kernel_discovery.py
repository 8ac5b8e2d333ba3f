"""The Job that asks a repository: what it runs, as whom, and how its end is read."""

import json
import threading
from typing import Any

import pytest

from driver_builder.api.build_settings import ConfigMapKey
from driver_builder.base.errors import BuildFailed, DriverBuilderError, TemporaryError
from driver_builder.base.reasons import Reason
from driver_builder.builds.job.job_cluster import JobCluster
from driver_builder.builds.job.job_log import PodLog
from driver_builder.builds.job.job_state import Building, HandingOver, JobState, Lost, NotBuilt, TimedOut, Waiting
from driver_builder.builds.templates.trust import CA_FILE, runner
from driver_builder.model.build_proxy import BuildProxy
from driver_builder.model.repositories import Repository
from driver_builder.objects.tolerations import OURS
from driver_builder.prebuild.job_kernel_discovery import DiscoveryPod, JobKernelDiscovery, manifest
from driver_builder.prebuild.kernel_script import script_for
from driver_builder.prebuild.newest_kernel import STREAMS
from kube_api.client import Client
from kube_api.names import is_label_value

DEBIAN = Repository("debian", "registry.example.com/base:1", "arm64")


@pytest.mark.parametrize("family", [*STREAMS])
def test_the_job_runs_the_script_that_an_engine_runs(family: str) -> None:
    """With the same argument. Kubernetes expands nothing in it: it would make $ of $$, and of $(NAME) a variable."""
    repository = Repository(family, "registry.example.com/base:1", "amd64")
    script = script_for(repository)
    (asking,) = manifest(repository, "drivers", DiscoveryPod())["spec"]["template"]["spec"]["initContainers"]
    assert asking["command"] == ["/bin/bash", "-c", script.text, script.name, *script.arguments]
    assert "env" not in asking, "no variable of the pod can be meant"
    assert "$$" not in script.text


def test_the_script_goes_the_way_of_builds() -> None:
    """By their proxy, completed with its password in the pod, and with their CAs; no variable of the pod is meant."""
    proxy = BuildProxy(https="http://proxy.example.com:3128", secret="proxy")
    made = manifest(DEBIAN, "drivers", DiscoveryPod(proxy=proxy, ca=ConfigMapKey(name="build-ca", key="ca.crt")))
    pod = made["spec"]["template"]["spec"]
    (asking,), (end,) = pod["initContainers"], pod["containers"]
    *before, shell, option, text, name, family = asking["command"]
    assert (before, shell, option, name, family) == (runner(), "/bin/bash", "-c", "apt.sh", "debian")
    assert text.endswith(script_for(DEBIAN).text)
    assert {item["name"] for item in asking["env"]} == {"HTTPS_PROXY", "https_proxy"}
    assert not [item["name"] for item in asking["env"] if f"$({item['name']})" in "".join(asking["command"])]
    assert {mount["mountPath"]: mount["name"] for mount in asking["volumeMounts"]} == {
        "/proxy": "proxy", CA_FILE.rpartition("/")[0]: "build-ca",
    }  # fmt: skip
    assert {volume["name"] for volume in pod["volumes"]} == {"proxy", "build-ca"}
    assert not {"env", "volumeMounts"} & end.keys()


def test_the_pod_is_of_the_nodes_kind_and_may_little() -> None:
    """The repository's architecture, no token, no right but those of a package manager; and it is plain JSON."""
    taint = {"key": "build", "operator": "Exists"}
    wanted = DiscoveryPod(pull_secret="pull", node_selector={"pool": "build"}, tolerations=[taint], host_network=True)
    made = manifest(DEBIAN, "drivers", wanted)
    assert json.loads(json.dumps(made)) == made
    pod = made["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"kubernetes.io/arch": "arm64", "pool": "build"}
    assert pod["tolerations"] == [taint, *OURS]
    assert (pod["automountServiceAccountToken"], pod["imagePullSecrets"]) == (False, [{"name": "pull"}])
    (asking,), (end,) = pod["initContainers"], pod["containers"]
    assert {asking["image"], end["image"]} == {"registry.example.com/base:1"}
    assert asking["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert all(is_label_value(value) for value in made["metadata"]["labels"].values())
    assert manifest(DEBIAN, "drivers", DiscoveryPod())["metadata"]["name"] == made["metadata"]["name"], (
        "one Job for a repository"
    )


class Hasty(threading.Event):
    """An event that nobody waits for."""

    def wait(self, timeout: float | None = None) -> bool:
        """Return at once that it is not set."""
        assert timeout is not None
        return False


class Played:
    """A cluster in which a Job goes through states, with what its pod prints meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, states: list[JobState], lines: list[str]) -> None:
        self.now = 0.0
        self.deleted = 0
        self.states = states
        self.lines = lines
        self.manifests: list[dict[str, Any]] = []
        monkeypatch.setattr(JobCluster, "ensure_job", lambda _self, made, _limits: self._make(made))
        monkeypatch.setattr(JobCluster, "server_minor", lambda _self, _limits: 31)
        monkeypatch.setattr(JobCluster, "look", lambda _self, _job, _limits: self._next())
        monkeypatch.setattr(JobCluster, "delete", lambda _self, _job: self._delete())
        monkeypatch.setattr(PodLog, "lines", lambda _self: iter([self.lines.pop(0)] if self.lines else []))
        monkeypatch.setattr(
            PodLog, "is_whole", property(lambda _self: not self.lines, lambda _self, _value: None), raising=False
        )

    def ask(self) -> tuple[str, ...]:
        """Ask, with a clock that goes on by a minute whenever it is looked at."""
        asking = JobKernelDiscovery(Client.__new__(Client), "drivers", DiscoveryPod(), clock=self._clock)
        return asking.discover(DEBIAN, cancelled=Hasty())

    def _make(self, made: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        self.manifests.append(made)
        return made, False

    def _next(self) -> JobState:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def _delete(self) -> None:
        self.deleted += 1

    def _clock(self) -> float:
        self.now += 10
        return self.now


def test_what_the_pod_prints_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes between; and the Job is taken away."""
    states: list[JobState] = [Waiting(), Building(pod="p"), Building(pod="p"), HandingOver(pod="p")]
    played = Played(monkeypatch, states, ["Get:1", "driverwright-kernel: 6.1.0-9-arm64", "bye"])
    assert played.ask() == ("6.1.0-9-arm64",)
    assert played.deleted == 1
    assert "podFailurePolicy" in played.manifests[0]["spec"], "a drain of the node costs no answer"


def test_a_log_that_breaks_off_is_asked_for_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest kernel may be the last line; without it nothing would be prebuilt."""
    lines = ["driverwright-kernel: 6.1.0-8-arm64", "driverwright-kernel: 6.1.0-9-arm64"]
    assert Played(monkeypatch, [HandingOver(pod="p")], lines).ask() == ("6.1.0-8-arm64", "6.1.0-9-arm64")


@pytest.mark.parametrize(
    ("state", "error", "words"),
    [
        pytest.param(NotBuilt(pod="p", exit_code=67), BuildFailed, "cannot be reached", id="repository away"),
        pytest.param(TimedOut(), BuildFailed, "did not end within", id="too long"),
        pytest.param(Lost(why="evicted"), TemporaryError, "evicted", id="pod lost"),
        pytest.param(Waiting(why="ErrImagePull", is_hopeless=True), TemporaryError, "ErrImagePull", id="no base image"),
        pytest.param(Waiting(why="0/3 nodes"), TemporaryError, "0/3 nodes", id="no node"),
    ],
)
def test_what_else_it_comes_to_is_said(
    monkeypatch: pytest.MonkeyPatch, state: JobState, error: type[DriverBuilderError], words: str
) -> None:
    """Never an empty answer; and the Job is taken away all the same."""
    played = Played(monkeypatch, [state], ["driverwright: apt-get update failed: an archive cannot be reached"])
    with pytest.raises(error, match=words) as caught:
        played.ask()
    if isinstance(state, NotBuilt) and isinstance(caught.value, BuildFailed):
        assert caught.value.reason is Reason.REPOSITORY_UNAVAILABLE
    assert played.deleted == 1


def test_a_job_of_another_day_is_never_taken_for_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kernel discovery has a fingerprint of its own: an old Job is detected and replaced."""
    played = Played(monkeypatch, [HandingOver(pod="p")], [])
    played.ask()
    played.ask()
    first, second = (made["metadata"]["annotations"] for made in played.manifests)
    assert first != second
