"""What a failed build leaves behind: redacted, bounded, one per target, gone with its driver."""

import argparse
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder import config
from driver_builder.builds import build_logs
from driver_builder.builds.build_logs import (
    LOG_FILE,
    LOG_LINES,
    MAX_LINE_CHARACTERS,
    MAX_LOGS,
    BuildLogs,
    Redactor,
    log_manifest,
    log_name,
    log_text,
    outdated,
    secrets_of,
)
from driver_builder.cli.commands import build_logs_command
from driver_builder.model.image_state import Absent
from driver_builder.model.kernels import KernelVersion
from driver_builder.model.setting import Group
from driver_builder.nodes.changes import StartBuild
from driver_builder.objects.manifests import KERNEL_ANNOTATION
from driver_builder.plan.plan import plan
from driver_builder.registry.credentials import Credentials
from driver_builder.snapshot.snapshot import FailedBuild
from kube_api.client import Client
from kube_api.errors import Forbidden, Unreachable
from kube_api.resources import CONFIG_MAPS, DRIVER_CONTAINERS
from tests.support.driver_builder.factories import (
    NAMESPACE,
    NOW,
    OTHER_KERNEL,
    SETTINGS,
    keyed,
    node,
    snapshot,
    with_images,
)
from tests.support.driver_builder.memory_client import MemoryClient
from tests.support.driver_builder.model_world import World

ACTION, OTHER = (
    action
    for action in plan(with_images(snapshot(node(), node("b", OTHER_KERNEL)), Absent()), SETTINGS).actions
    if isinstance(action, StartBuild)
)
KERNEL_A, KERNEL_B = (action.request.target.kernel_version for action in (ACTION, OTHER))
FAILURE = FailedBuild(reason="CompileError", message="no", at=NOW)
LOGS = CONFIG_MAPS.path(namespace=NAMESPACE)


def later(action: StartBuild, key: str) -> StartBuild:
    """Make the build of another key for the same target."""
    return replace(action, request=keyed(action.request, key))


# ---------------------------------------------------------------- redaction

PASSWORD = "correct.horse$battery"


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(f"docker login -u bob -p {PASSWORD} r.example.com", id="as an argument"),
        pytest.param(f"echo '{PASSWORD}' | skopeo login --password-stdin", id="quoted"),
        pytest.param("Authorization: Basic Ym9iOmNvcnJlY3QuaG9yc2UkYmF0dGVyeQ==", id="as Basic auth sends it"),
        pytest.param("X-Auth Ym9iOmNvcnJlY3QuaG9yc2UkYmF0dGVyeQ==", id="encoded, under no known name"),
        pytest.param("the token is refresh-me-1", id="an identity token"),
    ],
)
def test_registry_credentials_never_reach_a_log(line: str) -> None:
    """The password, the identity token, and user and password in base64, wherever they stand."""
    known = Credentials(username="bob", password=PASSWORD, identity_token="refresh-me-1")
    said = Redactor(secrets_of([known]))(line)
    assert "***" in said
    for secret in (PASSWORD, "refresh-me-1", "Ym9iOmNvcnJlY3QuaG9yc2UkYmF0dGVyeQ"):
        assert secret not in said


def test_anonymous_access_has_no_secrets() -> None:
    """Nothing to hide, so nothing is hidden: an empty secret would stand everywhere."""
    assert secrets_of([Credentials(username="bob")]) == ()
    assert Redactor(["", "\n"])("make: *** [all] Error 2") == "make: *** [all] Error 2"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        pytest.param("Err http://bob:pw@repo/ x", "Err http://bob:***@repo/ x", id="URL"),
        pytest.param("GET https://:pw@h:80/a", "GET https://:***@h:80/a", id="URL without user"),
        pytest.param("> Authorization: Bearer ey.J-x", "> Authorization: Bearer ***", id="bearer token"),
        pytest.param("X-Registry-Auth: abc=", "X-Registry-Auth: ***", id="engine header"),
        pytest.param("ARG REPO_PASSWORD=pw make", "ARG REPO_PASSWORD=*** make", id="variable"),
        pytest.param("curl ?token=abc&x=1", "curl ?token=***&x=1", id="query"),
        pytest.param('{"auth": "Ym9i", "a": 1}', '{"auth": "***", "a": 1}', id="docker config"),
        pytest.param("Password: pw", "Password: ***", id="prompt"),
    ],
)
def test_what_looks_like_a_secret_goes_too(line: str, said: str) -> None:
    """Although it is not among the known secrets."""
    assert Redactor()(line) == said


@pytest.mark.parametrize(
    "line",
    [
        "edudrv.c:12:5: error: expected identifier before '(' token",
        "  12 |         token = lookup(secret);",
        "make[1]: *** [/usr/src/linux-headers-6.1.0-55-common/Makefile:2034: /src] Error 2",
        "Get:1 http://archive.example/debian bookworm InRelease [151 kB]",
        "git@example.com:a/b.git",
        "https://example.com/a@b",
    ],
)
def test_what_a_compiler_says_stays(line: str) -> None:
    """A log that is hidden helps nobody."""
    assert Redactor()(line) == line


def test_a_long_secret_goes_before_its_parts() -> None:
    """Or its rest would stay."""
    assert Redactor(["abc", "abcdef"])("x abcdef y abc") == "x *** y ***"


@given(st.text(min_size=1), st.text(), st.text())
def test_no_secret_survives(secret: str, before: str, after: str) -> None:
    """Whatever it is made of and wherever it stands."""
    lines = {line.strip() for line in secret.splitlines() if line.strip()}
    said = Redactor([secret])(f"{before}{secret}{after}")
    assert not any(line in said for line in lines if not set(line) <= {"*"})


@given(st.text())
def test_what_is_said_is_one_printable_line(text: str) -> None:
    """Whatever it came from: it goes into the log, a status and an Event."""
    said = Redactor()(text)
    assert said.replace("\t", "").replace("\xa0", "").isprintable() or not said.isascii()
    assert len(said.splitlines()) <= 1
    said.encode()


def test_a_secret_is_hidden_though_it_is_broken_up() -> None:
    """What is taken out of a line must not put one together."""
    assert "hunter22" not in Redactor(["hunter22"])("x hun\x1b[0mter22 y")


def test_a_huge_line_is_cut() -> None:
    """Patterns are not run over megabytes."""
    assert len(Redactor()("x" * 1_000_000)) < 10_000


# ---------------------------------------------------------------- the text and the object


def test_the_last_lines_are_kept() -> None:
    """Not more than fit, the last one last."""
    text = log_text([f"line {number}" for number in range(1000)])
    assert text.splitlines() == [f"line {number}" for number in range(1000 - LOG_LINES, 1000)]


@given(st.lists(st.text(max_size=2000), max_size=300))
def test_any_log_is_bounded_and_printable(lines: list[str]) -> None:
    """Whatever a build prints, the object is small and a terminal that shows it is safe."""
    text = log_text(lines)
    assert len(text.split("\n")) <= LOG_LINES + 1
    assert all(len(line) <= MAX_LINE_CHARACTERS for line in text.split("\n"))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)


def test_colours_are_taken_out() -> None:
    """Escape sequences of colours are removed completely."""
    assert log_text(["\x1b[31;1mred\x1b[0m", "\x1b]0;title\x07a"]) == "red\na\n"


@pytest.mark.parametrize("driver", ["edu", "a" * 253, "a." * 126 + "b"])
def test_a_log_has_a_valid_name(driver: str) -> None:
    """The driver's, cut if need be, and ten digits of the key."""
    name = log_name(driver, ACTION.request.key)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name)
    assert len(name) <= 253
    assert name.endswith(f"-build-log-{ACTION.request.key[:10]}")


def test_names_of_long_drivers_differ() -> None:
    """What is cut away is not lost."""
    assert log_name("a" * 252 + "b", "k" * 20) != log_name("a" * 252 + "c", "k" * 20)


def test_the_object_says_what_it_is_of() -> None:
    """Driver, kernel, reason, key and time; its owner takes it along, and nobody can change it."""
    log = log_manifest(ACTION, FAILURE, ["a"], uid="u")
    assert log["metadata"]["ownerReferences"] == [
        {"apiVersion": "driverwright.io/v1alpha1", "kind": "DriverContainer", "name": "edu", "uid": "u"}
    ]
    assert log["immutable"] is True
    assert log["data"] == {LOG_FILE: "a\n"}
    said = set(log["metadata"]["annotations"].values())
    assert said == {"CompileError", KERNEL_A, ACTION.request.key, "2023-11-14T22:13:20Z"}


def test_a_new_log_replaces_that_of_its_target_and_the_oldest() -> None:
    """One per target, so many per driver; other drivers' logs are left alone."""
    kernels = [KernelVersion(f"6.1.0-{number}-amd64") for number in range(MAX_LOGS + 3)]
    targets = [replace(ACTION.request.target, kernel_version=kernel) for kernel in kernels]
    logs = [
        log_manifest(
            replace(ACTION, request=keyed(ACTION.request, f"{number:020}", target=target)),
            replace(FAILURE, at=NOW + number),
            [],
            uid="u",
        )
        for number, target in enumerate(targets)
    ]
    foreign = log_manifest(ACTION, FAILURE, [], uid="other")
    new = log_manifest(
        replace(ACTION, request=keyed(ACTION.request, "f" * 20, target=targets[5])), FAILURE, [], uid="u"
    )
    gone = outdated([foreign, *logs], new)
    assert [log["metadata"]["name"] for log in gone] == [logs[number]["metadata"]["name"] for number in (5, 2, 1, 0)]


# ---------------------------------------------------------------- in the cluster


@pytest.fixture
def world() -> World:
    """Make a cluster with the driver."""
    made = World()
    made.add_driver()
    return made


def kept(client: MemoryClient) -> dict[str, str]:
    """Return the logs in the cluster by their kernel."""
    return {
        obj["metadata"]["annotations"][KERNEL_ANNOTATION]: obj["data"][LOG_FILE]
        for path, obj in client.objects.items()
        if "-build-log-" in path
    }


def test_one_log_per_target_is_kept(world: World) -> None:
    """A later failure's log takes the place of the one before, of the same key or another; other targets' stay."""
    logs = BuildLogs(world.client)
    logs.keep(ACTION, FAILURE, ["first"])
    logs.keep(OTHER, FAILURE, ["other"])
    logs.keep(ACTION, FAILURE, ["second"])
    assert sorted(kept(world.client).values()) == ["other\n", "second\n"]
    logs.keep(later(ACTION, "0" * 20), FAILURE, ["third"])
    assert sorted(kept(world.client).values()) == ["other\n", "third\n"]


def test_a_log_goes_with_its_driver(world: World) -> None:
    """The garbage collector of the cluster sees to it."""
    BuildLogs(world.client).keep(ACTION, FAILURE, ["a"])
    world.delete_driver("edu")
    world.turn()
    assert kept(world.client) == {}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        pytest.param(None, "no longer exists", id="driver deleted"),
        pytest.param(Forbidden("403", status=403), "403", id="not allowed"),
        pytest.param(Unreachable("no answer"), "no answer", id="API server away"),
    ],
)
def test_a_log_that_cannot_be_kept_is_said(
    fault: Exception | None, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is no reason to lose the failure itself."""
    client = MemoryClient()
    client.faults = [fault] if fault else []  # type: ignore[list-item]
    caplog.set_level("INFO")
    BuildLogs(client).keep(ACTION, FAILURE, ["a"])
    assert words in caplog.text
    assert client.objects == {}


def test_an_overtaken_deletion_is_no_trouble(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else removed the old log meanwhile."""
    logs = BuildLogs(world.client)
    logs.keep(ACTION, FAILURE, ["first"])
    listing = world.client.list(LOGS, label_selector=build_logs.LOG_LABEL)
    world.client.objects = {path: obj for path, obj in world.client.objects.items() if "-build-log-" not in path}
    monkeypatch.setattr(world.client, "list", lambda *_args, **_kwargs: listing)
    logs.keep(ACTION, FAILURE, ["second"])
    assert list(kept(world.client).values()) == ["second\n"]


# ---------------------------------------------------------------- the command


def call(client: MemoryClient, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run ``driver-builder logs`` against a cluster."""
    monkeypatch.setattr(Client, "from_environment", lambda *_: client)
    parser = argparse.ArgumentParser()
    config.add_flags(parser, Group.CONNECTION)
    build_logs_command.add_flags(parser)
    flags = parser.parse_args(["-n", NAMESPACE, *words])
    return build_logs_command.run(flags, config.settings(flags, {}))


def test_logs_are_printed(world: World, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Each below a line that says of what, the newest last; a kernel picks its own."""
    logs = BuildLogs(world.client)
    logs.keep(ACTION, replace(FAILURE, at=NOW + 60), ["new"])
    logs.keep(OTHER, FAILURE, ["old"])
    assert call(world.client, monkeypatch, "edu") == 0
    old_head, old, _, new_head, new = capsys.readouterr().out.splitlines()
    assert (old, new) == ("old", "new")
    assert old_head.startswith(f"==> {NAMESPACE}/edu on {KERNEL_B}: CompileError at 2023-11-14T22:13:20Z (build ")
    assert KERNEL_A in new_head
    assert call(world.client, monkeypatch, "edu", KERNEL_B) == 0
    assert capsys.readouterr().out.splitlines() == [old_head, "old"]


def test_the_whole_log_is_printed_on_request(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All lines, each to its end, below the same head; by default the last 200."""
    lines = [f"line {number} {'x' * 600}" for number in range(1000)]
    BuildLogs(world.client).keep(ACTION, FAILURE, lines)
    assert call(world.client, monkeypatch, "edu") == 0
    head, *last = capsys.readouterr().out.splitlines()
    assert [line[:9] for line in last] == [line[:9] for line in lines[-200:]]
    assert call(world.client, monkeypatch, "edu", "--all") == 0
    assert capsys.readouterr().out.splitlines() == [head, *lines]


def test_a_log_of_an_older_controller_is_printed_as_far_as_it_goes(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has no more than its last lines."""
    BuildLogs(world.client).keep(ACTION, FAILURE, ["a"])
    (path,) = [path for path in world.client.objects if "-build-log-" in path]
    del world.client.objects[path]["binaryData"]
    assert call(world.client, monkeypatch, "edu", "--all") == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["a"]


@pytest.mark.parametrize(
    "words", [pytest.param(("other",), id="another driver"), pytest.param(("edu", "5.10.0"), id="another kernel")]
)
def test_without_a_log_it_says_where_to_look(
    words: tuple[str, ...], world: World, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Exit code 1, and the command that lists what failed."""
    BuildLogs(world.client).keep(ACTION, FAILURE, ["a"])
    assert call(world.client, monkeypatch, *words) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "driver-builder status" in printed.err
    assert all(word in printed.err for word in words)


def test_the_owner_is_the_driver(world: World) -> None:
    """By its uid, so that a driver made anew under the name does not inherit."""
    BuildLogs(world.client).keep(ACTION, FAILURE, ["a"])
    driver = world.client.get(DRIVER_CONTAINERS.path(namespace=NAMESPACE, name="edu"))
    (log,) = [obj for path, obj in world.client.objects.items() if "-build-log-" in path]
    assert log["metadata"]["ownerReferences"][0]["uid"] == driver["metadata"]["uid"]
