"""Toolchains are pushed one at a time, beside builds, and whatever becomes of them fails nothing."""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace

import pytest
from prometheus_client import REGISTRY

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.base.errors import RegistryRejected, RegistryUnauthorized, RegistryUnavailable, VerificationFailed
from driver_builder.base.reasons import Reason
from driver_builder.builds.pipeline import toolchain_queue
from driver_builder.builds.pipeline.toolchain_queue import ToolchainQueue
from driver_builder.model.build import LogSink, OwnTemplate
from driver_builder.model.images import ImageRef
from driver_builder.nodes.changes import StartBuild
from tests.unit.driver_builder.builds.pipeline.test_pipeline import REQUEST

ACTION = StartBuild(
    namespace="team",
    request=REQUEST,
    image=ImageRef("registry.example.com", "team/helper", "1"),
    registry=RegistrySettings(),
    waiting=0,
)


def a_version(version: str, **changes: object) -> StartBuild:
    """Another version of the driver, which has the same toolchain."""
    return replace(ACTION, request=replace(REQUEST, version=version, **changes))  # type: ignore[arg-type]


def work(what: Callable[[StartBuild, threading.Event], None]) -> Callable[[StartBuild, LogSink, threading.Event], None]:
    """What is done, without its log."""
    return lambda action, _log, cancelled: what(action, cancelled)


def submitted(queue: ToolchainQueue, pool: Executor, *actions: StartBuild) -> None:
    """Submit one after the other, each when the one before it has ended."""
    for action in actions:
        queue.submit(action)
        pool.submit(lambda: None).result()


def test_one_that_is_under_way_is_not_pushed_twice() -> None:
    """Drivers and versions of one kernel have the same one; later it is looked for again."""
    begun, may_end, pushed, done = threading.Event(), threading.Event(), threading.Semaphore(0), list[str]()

    def push(action: StartBuild, _cancelled: threading.Event) -> None:
        begun.set()
        assert may_end.wait(60)
        done.append(action.request.version)
        pushed.release()

    queue = ToolchainQueue(work(push))
    queue.submit(a_version("1"))
    assert begun.wait(60)
    queue.submit(a_version("2"))
    queue.submit(a_version("3", base_image="debian:bookworm"))
    may_end.set()
    assert pushed.acquire(timeout=60)
    assert pushed.acquire(timeout=60)
    queue.submit(a_version("4"))
    assert pushed.acquire(timeout=60)
    queue.stop()
    assert done == ["1", "3", "4"]


@pytest.mark.parametrize("error", [RegistryUnavailable("password s3cret-word refused"), RuntimeError("a bug")])
def test_a_failure_is_logged_and_counted(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """Without the secrets of the driver; the next one is pushed all the same."""
    pushed = threading.Event()

    def push(action: StartBuild, _cancelled: threading.Event) -> None:
        if action.request.version == "1":
            raise error
        pushed.set()

    labels = ("driver_builder_toolchains_total", {"result": "NotPushed"})
    before = REGISTRY.get_sample_value(*labels) or 0.0
    with caplog.at_level(logging.WARNING):
        queue = ToolchainQueue(work(push), secrets=lambda _action: ["s3cret-word"])
        queue.submit(a_version("1"))
        queue.submit(a_version("2", base_image="debian:bookworm"))
        assert pushed.wait(60)
        queue.stop()
    assert "toolchain registry.example.com/team/helper:toolchain-" in caplog.text
    assert "s3cret-word" not in caplog.text
    assert REGISTRY.get_sample_value(*labels) == before + 1


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        pytest.param(RegistryRejected("too large"), 1, id="too large"),
        pytest.param(VerificationFailed(Reason.WRONG_VERMAGIC, "of another kernel"), 1, id="wrong"),
        pytest.param(RegistryUnavailable("away"), 2, id="away"),
        pytest.param(RegistryUnauthorized("another password"), 2, id="password"),
    ],
)
def test_what_is_refused_for_good_is_not_made_again(error: Exception, tries: int) -> None:
    """It would install and push hundreds of megabytes after each build; what may pass is tried after the next one."""
    tried: list[str] = []

    def push(action: StartBuild, _cancelled: threading.Event) -> None:
        tried.append(action.request.version)
        raise error

    with ThreadPoolExecutor(max_workers=1) as pool:
        submitted(ToolchainQueue(work(push), pool=pool), pool, a_version("1"), a_version("2"))
    assert len(tried) == tries


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """When there is no room for more, everything is tried once more."""
    tried: list[str] = []

    def push(action: StartBuild, _cancelled: threading.Event) -> None:
        tried.append(action.request.version)
        raise RegistryRejected("too large")

    monkeypatch.setattr(toolchain_queue, "MAX_REFUSED", 1)
    actions = [
        a_version(version, base_image=image) for version, image in (("1", "a"), ("2", "a"), ("3", "b"), ("4", "a"))
    ]
    with ThreadPoolExecutor(max_workers=1) as pool:
        submitted(ToolchainQueue(work(push), pool=pool), pool, *actions)
    assert tried == ["1", "3", "4"]


def test_a_controller_that_leaves_waits_for_none(caplog: pytest.LogCaptureFixture) -> None:
    """What is under way is cancelled, what waits is dropped, and that is no failure."""
    begun, done = threading.Event(), list[str]()

    def push(action: StartBuild, cancelled: threading.Event) -> None:
        begun.set()
        done.append(action.request.version)
        assert cancelled.wait(60)
        raise RegistryUnavailable("cancelled")

    with ThreadPoolExecutor(max_workers=1) as pool:
        queue = ToolchainQueue(work(push), pool=pool)
        queue.submit(a_version("1"))
        queue.submit(a_version("2", base_image="debian:bookworm"))
        assert begun.wait(60)
        queue.stop()
        queue.submit(a_version("3"))
    assert done == ["1"]
    assert caplog.records == []


def test_a_driver_without_a_toolchain_is_not_queued() -> None:
    """A custom template has none."""
    done: list[str] = []
    queue = ToolchainQueue(work(lambda action, _cancelled: done.append(action.request.version)))
    queue.submit(a_version("1", own_template=OwnTemplate(place="ConfigMap a/b/c", text="FROM x AS headers")))
    queue.stop()
    assert done == []
