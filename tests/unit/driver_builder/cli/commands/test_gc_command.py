"""The command ``gc`` against a cluster in memory and a registry that answers by a script."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.cli import main
from driver_builder.model.driver_key import DriverKey
from driver_builder.model.images import ImageRef
from driver_builder.registry.referrers import fallback_tag, push_referrer
from driver_builder.registry.registry import RegistryClient
from driver_builder.retention import record
from driver_builder.retention.record import PushedImage, Record
from driver_builder.retention.recorder import record_path
from kube_api.client import Client
from kube_api.resources import CONFIG_MAPS, DAEMON_SETS
from tests.support.driver_builder.factories import NAMESPACE, driver_object
from tests.support.driver_builder.installation import InstalledClient, as_client
from tests.support.driver_builder.scripted_registry import MemoryRegistry, Reply, Request, scripted_registry
from tests.support.loopback import ALLOWED, LOOPBACK
from tests.unit.driver_builder.registry.test_image_removal import digest_of, manifest

PATH = record_path(NAMESPACE)
LONG_AGO = timedelta(days=100)


@dataclass
class World:
    """A cluster that has pushed images, and their registry, which ``fault`` may keep from answering."""

    cluster: InstalledClient
    memory: MemoryRegistry
    host: str = ""
    record: Record = field(default_factory=Record)
    fault: Callable[[Request], Reply | None] = lambda _request: None
    requests: list[Request] = field(default_factory=list)

    def __call__(self, request: Request) -> Reply:
        """Answer the registry's requests."""
        self.requests.append(request)
        return self.fault(request) or self.memory(request)

    def client(self) -> RegistryClient:
        """Connect to the registry."""
        return RegistryClient(self.host, plain_http=True, reach=LOOPBACK)

    def push(self, tag: str, age: timedelta = LONG_AGO, repository: str = "drivers/edu", **changes: Any) -> PushedImage:
        """Push an image and record it."""
        self.client().put_manifest(repository, manifest(tag), tag=tag)
        image = PushedImage(
            image=ImageRef(self.host, repository, tag),
            digest=digest_of(manifest(tag)),
            driver=DriverKey(f"{NAMESPACE}/gone"),
            registry=RegistrySettings(plain_http=True),
            last_needed=date.today() - age,
        )
        image = replace(image, **changes)
        self.keep(replace(self.record, images=(*self.record.images, image)))
        return image

    def keep(self, content: Record) -> None:
        """Write the record."""
        self.record = content
        metadata = {"name": record.CONFIG_MAP, "namespace": NAMESPACE}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": record.render(content)}
        self.cluster.put(body)

    def recorded(self) -> set[str]:
        """Read the tags of the images in the record."""
        return {image.image.reference for image in record.parse(self.cluster.get(PATH)["data"]).images}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Let the command line see it."""
    made = World(InstalledClient(), MemoryRegistry())
    monkeypatch.setattr(Client, "from_environment", as_client(made.cluster))
    with scripted_registry(made) as server:
        made.host = server.host
        made.keep(Record(observed=date.today(), namespaces=(NAMESPACE,)))
        monkeypatch.setenv("DRIVER_BUILDER_GC_REPOSITORIES", f"{server.host}/drivers/*")
        yield made


@pytest.fixture
def gc(world: World, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, tuple[str, str]], str]]:
    """Run the command; gives its exit code, action and reason by tag, and what it says of failures."""

    def run(*flags: str) -> tuple[int, dict[str, tuple[str, str]], str]:
        del world.requests[:]
        code = main.main(["gc", "-n", NAMESPACE, "-o", "json", "--registry-allowed-hosts", ALLOWED, *flags])
        said = capsys.readouterr()
        rows = json.loads(said.out) if said.out else []
        return code, {row["image"].rpartition(":")[2]: (row["action"], row["reason"]) for row in rows}, said.err

    return run


Gc = Callable[..., tuple[int, dict[str, tuple[str, str]], str]]


def test_a_dry_run_shows_everything_and_changes_nothing(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """As a table, with size and the reason of each image."""
    world.push("old")
    world.push("young", timedelta(days=3))
    before = (dict(world.memory.manifests), len(world.cluster.writes))
    assert main.main(["gc", "-n", NAMESPACE, "--registry-allowed-hosts", ALLOWED]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].split() == ["IMAGE", "DIGEST", "SIZE", "LAST", "NEEDED", "ACTION", "WHY"]
    assert "0.0 MiB" in said[1]
    assert "delete   not needed since" in said[1]
    assert "keep     needed in the last 90 days" in said[2]
    assert said[-1] == "dry run: --delete would remove 1 of 2 images, up to 0.0 MiB of layers"
    assert before == (world.memory.manifests, len(world.cluster.writes))


def test_only_what_may_go_is_removed_with_what_refers_to_it(world: World, gc: Gc) -> None:
    """From the registry and from the record; everything else stays as it is."""
    old = world.push("old")
    push_referrer(
        world.client(), "drivers/edu", subject=manifest("old"), artifact_type="application/spdx+json", content=b"x"
    )
    world.push("young", timedelta(days=3))
    world.push("tagged")
    world.client().put_manifest("drivers/edu", manifest("tagged"), tag="stable")
    world.push("else", repository="others/edu")
    code, rows, said = gc("--delete")
    assert (code, said) == (0, "")
    assert {tag: action for tag, (action, _) in rows.items()} == {
        "old": "deleted", "young": "keep", "tagged": "keep", "else": "keep",
    }  # fmt: skip
    assert rows["tagged"][1] == "also named by stable"
    assert rows["else"][1] == "not in --gc-repositories"
    assert world.memory.tags == ["else", "stable", "tagged", "young"]
    assert old.digest not in world.memory.manifests
    assert world.recorded() == {"young", "tagged", "else"}
    assert gc("--delete")[1].keys() == {"young", "tagged", "else"}


def test_what_a_driver_needs_stays(world: World, gc: Gc) -> None:
    """What its status names, and what a DaemonSet of it runs, in a namespace that only the record names."""
    rolled_out, running = world.push("rolled-out"), world.push("running")
    world.keep(replace(world.record, namespaces=(NAMESPACE, "other")))
    driver = driver_object(namespace="other", status={"targets": [{"imageDigest": rolled_out.digest}]})
    world.cluster.put(driver)
    image = f"{world.host}/drivers/edu@{running.digest}"
    labels = {"driverwright.io/driver-container": "edu", "driverwright.io/target": "x"}
    owner = {"controller": True, "uid": "uid-edu", "name": "edu", "kind": "DriverContainer"}
    world.cluster.put(
        {
            "apiVersion": DAEMON_SETS.api_version,
            "kind": DAEMON_SETS.kind,
            "metadata": {"namespace": "other", "name": "edu-x", "labels": labels, "ownerReferences": [owner]},
            "spec": {"template": {"spec": {"containers": [{"name": "hold", "image": image}]}}},
        }
    )
    _, rows, _ = gc("--delete")
    assert {action for action, _ in rows.values()} == {"keep"}
    assert {why for _, why in rows.values()} == {"a DriverContainer, a DaemonSet or a pod names it"}
    assert world.requests == []


def test_what_became_needed_while_the_registry_was_asked_stays(world: World, gc: Gc) -> None:
    """A pool that was scaled to zero may come back at any moment."""
    old = world.push("old")

    def back(request: Request) -> None:
        if request.path.endswith("/tags/list"):
            world.cluster.put(driver_object(status={"targets": [{"imageDigest": old.digest}]}))

    world.fault = back
    code, rows, _ = gc("--delete")
    assert (code, rows["old"][0], world.memory.tags) == (0, "keep", ["old"])


@pytest.mark.parametrize(
    ("part", "code"), [pytest.param("/nodes", 1, id="nodes"), pytest.param("/daemonsets", 1, id="DaemonSets")]
)
def test_nothing_is_removed_where_the_cluster_cannot_be_read(world: World, gc: Gc, part: str, code: int) -> None:
    """What was not seen may be needed."""
    world.push("old")
    world.cluster.forbidden = (part,)
    assert gc("--delete")[0] == code
    assert world.memory.tags == ["old"]


def test_nothing_is_removed_by_a_record_that_is_not_kept_up(world: World, gc: Gc) -> None:
    """The controller has not run for weeks: what was needed meanwhile is not known."""
    world.push("old")
    world.keep(replace(world.record, observed=date.today() - timedelta(days=30)))
    code, rows, _ = gc("--delete")
    assert (code, rows["old"][0], world.memory.tags) == (1, "keep", ["old"])
    assert "the controller recorded last on" in rows["old"][1]


def test_without_a_record_there_is_nothing_to_do(world: World, gc: Gc) -> None:
    """A controller that has pushed nothing has none."""
    del world.cluster.objects[PATH]
    code, rows, said = gc()
    assert (code, rows) == (1, {})
    assert "has not recorded any pushed image" in said


def test_nothing_is_removed_without_a_setting(world: World, gc: Gc, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dry run says so for each image; --delete is wrong usage."""
    world.push("old")
    monkeypatch.delenv("DRIVER_BUILDER_GC_REPOSITORIES")
    assert gc()[:2] == (0, {"old": ("keep", "not in --gc-repositories")})
    code, _, said = gc("--delete")
    assert (code, world.memory.tags) == (2, ["old"])
    assert "--gc-repositories" in said


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(["--keep-days", "3"], id="too short"),
        pytest.param(["--keep-days", "x"], id="no number"),
        pytest.param(["--gc-repositories", "drivers/*"], id="no host"),
        pytest.param(["--gc-repositories", "*"], id="everything"),
        pytest.param(["--registry-config", "/no/such/file"], id="no file"),
    ],
)
def test_settings_that_are_wrong_are_refused(world: World, gc: Gc, flags: list[str]) -> None:
    """Before anything is read of a registry."""
    world.push("old")
    try:
        code = gc("--delete", *flags)[0]
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert (code, world.requests) == (2, [])


def error(status: int, code: str) -> Reply:
    """A registry's error."""
    return Reply(status=status, body=json.dumps({"errors": [{"code": code, "message": "no"}]}).encode())


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(error(405, "UNSUPPORTED"), id="removal switched off"),
        pytest.param(error(403, "DENIED"), id="denied"),
        pytest.param(error(401, "UNAUTHORIZED"), id="another password"),
        pytest.param(error(500, "UNKNOWN"), id="broken"),
        pytest.param(error(429, "TOOMANYREQUESTS"), id="too many requests"),
    ],
)
def test_a_registry_that_refuses_is_asked_once(world: World, gc: Gc, answer: Reply) -> None:
    """Its words are printed once, and every image stays, in the record too."""
    for tag in ("a", "b", "c"):
        world.push(tag)
    world.fault = lambda request: answer if request.method == "DELETE" else None
    code, rows, said = gc("--delete")
    assert code == 1
    assert {action for action, _ in rows.values()} == {"keep"}
    assert [request.method for request in world.requests].count("DELETE") == 1
    assert said.count(json.loads(answer.body)["errors"][0]["code"]) == 1
    assert (world.memory.tags, world.recorded()) == (["a", "b", "c"], {"a", "b", "c"})


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(error(503, "UNAVAILABLE"), id="away"),
        pytest.param(error(403, "DENIED"), id="denied"),
        pytest.param(Reply(body=b"<html>"), id="a web page"),
        pytest.param(Reply(status=404, body=b"nginx"), id="something else"),
    ],
)
@pytest.mark.parametrize("path", ["/tags/list", "/manifests/b"])
def test_nothing_is_removed_from_a_repository_that_is_not_read_whole(
    world: World, gc: Gc, answer: Reply, path: str
) -> None:
    """One tag that could not be read may be that of any image."""
    for tag in ("a", "b"):
        world.push(tag)
    world.fault = lambda request: answer if request.path.endswith(path) else None
    code, rows, _ = gc("--delete")
    assert (code, {action for action, _ in rows.values()}) == (1, {"keep"})
    assert "DELETE" not in {request.method for request in world.requests}


def test_a_removal_that_is_interrupted_goes_on(world: World, gc: Gc) -> None:
    """The image is gone, and what refers to it is not: the record keeps it until both are."""
    world.push("old")
    push_referrer(
        world.client(), "drivers/edu", subject=manifest("old"), artifact_type="application/spdx+json", content=b"x"
    )
    gone: list[str] = []

    def once(request: Request) -> Reply | None:
        if request.method == "DELETE":
            gone.append(request.path)
        return error(500, "UNKNOWN") if len(gone) == 2 and request.method == "DELETE" else None

    world.fault = once
    code, rows, _ = gc("--delete")
    assert (code, rows["old"]) == (1, ("keep", "removed without what refers to it"))
    assert world.recorded() == {"old"}
    code, rows, _ = gc("--delete")
    assert (code, rows["old"]) == (0, ("deleted", "was not in the registry any more"))
    assert (world.memory.tags, world.recorded()) == ([], set())
    assert not any(name.startswith(fallback_tag("sha256:")) for name in world.memory.manifests)


@pytest.mark.parametrize("is_allowed", [True, False])
def test_passwords_come_from_a_file(world: World, gc: Gc, tmp_path: Path, is_allowed: bool) -> None:
    """So that no Secret of a driver needs the permission to remove; without TLS only where a setting allows it."""
    world.push("old", registry=RegistrySettings(secret="no-such-secret", plain_http=True))
    auths = {world.host: {"username": "anna", "password": "s3cret"}}
    (tmp_path / "config.json").write_text(json.dumps({"auths": auths}))

    def guard(request: Request) -> Reply | None:
        if request.headers.get("Authorization") == "Basic YW5uYTpzM2NyZXQ=":
            return None
        return Reply(status=401, headers={"WWW-Authenticate": 'Basic realm="r"'})

    world.fault = guard
    flags = ["--registry-plain-http-passwords"] if is_allowed else []
    code, rows, _ = gc("--delete", "--registry-config", str(tmp_path / "config.json"), *flags)
    assert (code, rows["old"][0]) == ((0, "deleted") if is_allowed else (1, "keep"))


def test_a_repository_is_read_as_the_spec_says_now(world: World, gc: Gc) -> None:
    """The settings of the day of the push hold only where the driver is gone or its registry is another one."""
    world.cluster.put(
        driver_object(spec_changes={"image": f"{world.host}/drivers/edu", "registry": {"plainHttp": True}})
    )
    source = {"metadata": {"namespace": NAMESPACE, "name": "edu-source"}, "data": {"edudrv.c": "int x;"}}
    world.cluster.put({"apiVersion": "v1", "kind": CONFIG_MAPS.kind, **source})
    world.push("old", driver=f"{NAMESPACE}/edu", registry=RegistrySettings(secret="gone"))
    code, rows, _ = gc("--delete")
    assert (code, rows["old"][0]) == (0, "deleted")
