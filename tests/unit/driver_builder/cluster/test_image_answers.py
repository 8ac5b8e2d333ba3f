"""What a pass knows of images while registries are asked in the background."""

import queue
import threading
from collections.abc import Callable, Iterator

import pytest

from driver_builder.api.build_settings import ConfigMapKey
from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.cluster.image_answers import KEPT_SECONDS, ImageAnswers, after, settled
from driver_builder.model.image_state import Absent, ImageState, Invalid, NotAsked, Present, Unauthorized, Unreachable
from driver_builder.model.images import ImageRef
from driver_builder.registry.turns import HANGING_SECONDS, MOST, MOST_HANGING, MOST_OF_A_HOST, MOST_PROBES
from kube_api.errors import ServerUnavailable
from tests.support.driver_builder.factories import DIGEST

IMAGE = ImageRef("r.io", "edu", "1")
PRESENT = Present(digest=DIGEST)
PLAIN = RegistrySettings()
PATIENCE = 30.0


class Bench:
    """Answers in the background, given when the test wants; a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.wakes: queue.Queue[None] = queue.Queue()
        self.asked: queue.Queue[tuple[str, ImageRef]] = queue.Queue()
        self.replies: dict[str, queue.Queue[ImageState | Exception]] = {}
        self.delayed: queue.Queue[tuple[float, Callable[[], None]]] = queue.Queue()
        self.answers = ImageAnswers(
            self,
            wake=lambda: self.wakes.put(None),
            clock=lambda: self.now,
            later=lambda seconds, work: self.delayed.put((seconds, work)),
        )
        self._lock = threading.Lock()

    def inspect(
        self,
        namespace: str,
        settings: RegistrySettings,
        image: ImageRef,
        architecture: str = "",
        *,
        signed_by: str | None = None,
    ) -> ImageState:
        """Stand for the registries: wait for the reply that the test gives for the host."""
        assert (type(settings), architecture, signed_by) == (RegistrySettings, "amd64", None)
        self.asked.put((namespace, image))
        reply = self.replies_of(image.host).get(timeout=PATIENCE)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def replies_of(self, host: str) -> "queue.Queue[ImageState | Exception]":
        """What a host answers next."""
        with self._lock:
            return self.replies.setdefault(host, queue.Queue())

    def look(self, image: ImageRef = IMAGE, namespace: str = "n", settings: RegistrySettings = PLAIN) -> ImageState:
        """Ask as a pass does."""
        return self.answers.inspect(namespace, settings, image, "amd64")

    def reply(self, state: ImageState | Exception, host: str = "r.io", *, wakes: bool = True) -> None:
        """Let a registry answer, and wait until that is known."""
        self.asked.get(timeout=PATIENCE)
        self.replies_of(host).put(state)
        if wakes:
            self.wakes.get(timeout=PATIENCE)


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A bench whose threads end with the test."""
    made = Bench()
    yield made
    made.answers.stop()
    for replies in list(made.replies.values()):
        for _ in range(MOST + MOST_HANGING):
            replies.put(Absent())


def settle(bench: Bench) -> None:
    """Wait until no thread of the answers is left."""
    for thread in threading.enumerate():
        if thread.name.startswith("registry-"):
            thread.join(PATIENCE)
    assert bench.answers is not None


def test_an_image_that_was_not_asked_about_is_nothing_known(bench: Bench) -> None:
    """The pass goes on without waiting; the answer wakes the next one."""
    assert bench.look() == NotAsked()
    assert bench.look() == NotAsked()
    bench.reply(PRESENT)
    assert bench.look() == PRESENT
    assert bench.asked.empty()


def test_a_presence_is_asked_for_again_after_a_minute(bench: Bench) -> None:
    """Until the answer is there the old one is given; the same again wakes nobody."""
    bench.look()
    bench.reply(PRESENT)
    for bench.now in (0.0, 59.9):
        assert bench.look() == PRESENT
    assert bench.asked.empty()
    bench.now = 60.0
    assert bench.look() == PRESENT
    bench.reply(PRESENT, wakes=False)
    settle(bench)
    assert bench.wakes.empty()
    bench.now = 130.0
    assert bench.look() == PRESENT
    bench.reply(Absent())
    assert bench.look() == Absent()


def test_news_is_counted(bench: Bench) -> None:
    """An answer that differs from what was given, and an image that is not believed any more; not the same again."""
    bench.look()
    bench.reply(PRESENT)
    assert bench.answers.news == 1
    bench.look()
    bench.now = 60.0
    bench.look()
    bench.reply(PRESENT, wakes=False)
    settle(bench)
    assert bench.answers.news == 1
    bench.answers.forget(IMAGE)
    assert bench.answers.news == 2


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(Unreachable(message="x"), id="unreachable"),
        pytest.param(Unauthorized(message="x"), id="unauthorised"),
        pytest.param(Invalid(message="x"), id="invalid"),
    ],
)
def test_a_negative_answer_is_kept_for_seconds(bench: Bench, state: ImageState) -> None:
    """Reconciles that follow each other do not ask each time; what is fixed is seen soon."""
    bench.look()
    bench.reply(state)
    for bench.now in (0.0, 5.0, 9.9):
        assert bench.look() == state
    assert bench.asked.empty()
    bench.now = 10.0
    assert bench.look() == state
    bench.reply(PRESENT)
    assert bench.look() == PRESENT


def test_an_absence_is_fresh_for_seconds(bench: Bench) -> None:
    """After that it starts no build until the registry has said so again; then it does at once."""
    bench.look()
    bench.reply(Absent())
    bench.now = 50.0
    assert bench.look() == Absent(), "no pass has seen it yet, however long the last one took"
    bench.reply(Absent(), wakes=False)
    settle(bench)
    bench.now = 59.9
    assert bench.look() == Absent()
    bench.now = 61.0
    assert bench.look() == Absent(is_fresh=False)
    bench.reply(Absent())
    assert bench.look() == Absent()


def test_confirmed_absences_wake_one_pass_for_all(bench: Bench) -> None:
    """Else each such pass asks for the images that are old by then, whose answers wake the next one, without end."""
    images = [ImageRef(f"r{number}.io", "edu", "1") for number in range(4)]
    for image in images:
        bench.look(image)
        bench.reply(Absent(), image.host)
        bench.look(image)
    bench.now = 10.0
    assert [bench.look(image) for image in images] == [Absent(is_fresh=False)] * 4
    bench.now = 11.0
    bench.reply(Absent(), images[0].host)
    bench.now = 12.0
    for image in images[1:]:
        bench.reply(Absent(), image.host, wakes=False)
    settle(bench)
    assert bench.wakes.empty()
    seconds, wake = bench.delayed.get(timeout=PATIENCE)
    assert (seconds, bench.delayed.empty()) == (9.0, True)
    bench.now = 21.0
    wake()
    bench.wakes.get(timeout=PATIENCE)
    assert [bench.look(image) for image in images] == [Absent()] * 4, "no pass has seen them yet: they start builds"


def test_a_delayed_pass_starts_without_a_timer_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has no thread left wakes the pass at once."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    done: list[str] = []
    after(PATIENCE, lambda: done.append("woken"))
    assert done == ["woken"]


def test_what_was_just_built_is_asked_for_anew(bench: Bench) -> None:
    """Also when the registry was being asked meanwhile: that answer is of before, and is dropped."""
    bench.look()
    bench.reply(Absent())
    bench.now = 10.0
    bench.look()
    bench.answers.forget(IMAGE)
    bench.reply(Absent(), wakes=False)
    settle(bench)
    assert bench.look() == NotAsked()
    bench.reply(PRESENT)
    assert bench.look() == PRESENT


@pytest.mark.parametrize(
    ("namespace", "settings"),
    [
        pytest.param("other", PLAIN, id="another namespace"),
        pytest.param("n", RegistrySettings(secret="push"), id="a Secret"),
        pytest.param("n", RegistrySettings(plain_http=True), id="plain HTTP"),
        pytest.param("n", RegistrySettings(ca_config_map=ConfigMapKey(name="ca", key="ca.crt")), id="a CA"),
    ],
)
def test_an_answer_is_for_those_who_ask_alike(bench: Bench, namespace: str, settings: RegistrySettings) -> None:
    """What one driver's password or CA saw is not believed of another's."""
    bench.look()
    bench.reply(PRESENT)
    assert bench.look(namespace=namespace, settings=settings) == NotAsked()
    bench.reply(Unauthorized(message="no"))
    assert bench.look(namespace=namespace, settings=settings) == Unauthorized(message="no")
    assert bench.look() == PRESENT


def test_a_silent_registry_holds_up_nobody_else(bench: Bench) -> None:
    """Of one host a few images are asked for at a time; another host is asked meanwhile."""
    for number in range(40):
        assert bench.look(ImageRef("silent.io", "edu", str(number)), namespace=f"n{number}") == NotAsked()
    assert bench.look() == NotAsked()
    hosts = [bench.asked.get(timeout=PATIENCE)[1].host for _ in range(MOST_OF_A_HOST)]
    assert sorted(hosts) == sorted(["silent.io"] * (MOST_OF_A_HOST - 1) + ["r.io"])
    assert bench.asked.empty()
    bench.replies_of("r.io").put(PRESENT)
    bench.wakes.get(timeout=PATIENCE)
    assert bench.look() == PRESENT
    for _ in range(40):
        bench.replies_of("silent.io").put(Unreachable(message="x"))


def test_one_namespace_does_not_take_all_turns(bench: Bench) -> None:
    """One with an image on each of many hosts leaves room for the others."""
    for number in range(40):
        bench.look(ImageRef(f"r{number}.io", "edu", "1"), namespace="greedy")
    bench.look(namespace="modest")
    begun = [bench.asked.get(timeout=PATIENCE)[0] for _ in range(MOST_PROBES + 1)]
    assert sorted(begun) == ["greedy"] * MOST_PROBES + ["modest"]
    assert bench.asked.empty()
    for number in range(40):
        bench.replies_of(f"r{number}.io").put(Absent())


def test_a_registry_that_does_not_answer_is_asked_one_question_at_a_time(bench: Bench) -> None:
    """Once it answers, more of them, until it does not any more."""
    images = [ImageRef("r.io", "edu", str(number)) for number in range(MOST_OF_A_HOST + 1)]
    bench.look(images[0])
    bench.look(images[1])
    bench.reply(PRESENT)
    assert bench.asked.get(timeout=PATIENCE)[1] == images[1]
    for image in images:
        bench.look(image)
    begun = [bench.asked.get(timeout=PATIENCE)[1] for _ in range(MOST_OF_A_HOST - 1)]
    assert sorted(begun) == images[2:]
    for _ in begun:
        bench.replies_of("r.io").put(Unreachable(message="x"))
        bench.wakes.get(timeout=PATIENCE)
    bench.replies_of("r.io").put(Unreachable(message="x"))
    bench.wakes.get(timeout=PATIENCE)
    bench.now = 10.0
    for image in images:
        bench.look(image)
    assert bench.asked.get(timeout=PATIENCE)[1] == images[1]
    assert bench.asked.empty()


def test_silent_registries_leave_room_for_those_of_their_namespace_that_answer(bench: Bench) -> None:
    """However many there are: drivers of a namespace do not block each other."""
    bench.look()
    bench.reply(Absent())
    for number in range(40):
        bench.look(ImageRef(f"silent{number}.io", "edu", "1"))
    assert {bench.asked.get(timeout=PATIENCE)[1].host for _ in range(MOST_PROBES)} == {
        f"silent{number}.io" for number in range(MOST_PROBES)
    }
    bench.now = 10.0
    bench.look()
    bench.reply(PRESENT)
    assert bench.look() == PRESENT
    for number in range(40):
        bench.replies_of(f"silent{number}.io").put(Unreachable(message="x"))


def test_a_registry_behind_many_that_hang_does_not_wait_for_their_deadlines(bench: Bench) -> None:
    """After a restart nobody knows which are which: each gives its turn to the next without a pass or an answer."""
    for number in range(2 * MOST_PROBES):
        bench.look(ImageRef(f"silent{number}.io", "edu", "1"))
    bench.look()
    for _ in range(2):
        seconds, work = bench.delayed.get(timeout=PATIENCE)
        assert HANGING_SECONDS <= seconds < 2 * HANGING_SECONDS
        bench.now += seconds
        work()
    asked = [bench.asked.get(timeout=PATIENCE)[1] for _ in range(2 * MOST_PROBES + 1)]
    assert IMAGE in asked
    bench.replies_of("r.io").put(PRESENT)
    bench.wakes.get(timeout=PATIENCE)
    assert bench.look() == PRESENT
    assert bench.delayed.empty(), "nothing waits any more"
    for number in range(2 * MOST_PROBES):
        bench.replies_of(f"silent{number}.io").put(Unreachable(message="x"))


def test_what_no_pass_wants_is_not_known_to_answer(bench: Bench) -> None:
    """Hosts that somebody once named do not pile up."""
    bench.look()
    bench.reply(PRESENT)
    bench.now = KEPT_SECONDS - 1
    bench.answers.prune()
    assert bench.answers._turns._answered
    bench.now = KEPT_SECONDS
    bench.answers.prune()
    assert bench.answers._turns._answered == {}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        pytest.param(ServerUnavailable("503", status=503), Unreachable, id="the Secret cannot be read now"),
        pytest.param(RuntimeError("a bug"), Invalid, id="a bug of ours"),
    ],
)
def test_what_goes_wrong_concerns_one_image(bench: Bench, error: Exception, kind: type) -> None:
    """The thread that asks ends with a state, not with an exception."""
    bench.look()
    bench.reply(error)
    assert isinstance(bench.look(), kind)


def test_nothing_is_asked_once_stopped(bench: Bench) -> None:
    """Without the Lease another controller asks."""
    bench.answers.stop()
    assert bench.look() == NotAsked()
    assert bench.asked.empty()


def test_a_question_without_a_thread_waits_for_the_next_pass(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes no turn from the others, and is asked once threads can be started again."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for _ in range(MOST_OF_A_HOST + 1):
            assert bench.look() == NotAsked()
    assert bench.look() == NotAsked()
    bench.reply(PRESENT)
    assert bench.look() == PRESENT


FIRST = "registry r.io denies access: 401 UNAUTHORIZED: CorrelationId: 0b7a6c1e-5f0e-4a7e-9a51-3f6f0c5d9f10"
AGAIN = "registry r.io denies access: 401 UNAUTHORIZED: CorrelationId: 7c1d2b3a-1111-2222-3333-444455556666"
OTHER = "registry r.io denies access: 403 DENIED"


@pytest.mark.parametrize(
    ("before", "now", "is_young", "expected"),
    [
        pytest.param(Unauthorized(message=FIRST), Unauthorized(message=AGAIN), False, FIRST, id="another id"),
        pytest.param(Unauthorized(message=FIRST), Unauthorized(message=OTHER), False, OTHER, id="other words"),
        pytest.param(Unauthorized(message=FIRST), Unauthorized(message=OTHER), True, FIRST, id="other words, at once"),
        pytest.param(Unauthorized(message=FIRST), Unreachable(message=AGAIN), True, AGAIN, id="another answer"),
        pytest.param(None, Invalid(message=AGAIN), True, AGAIN, id="the first answer"),
        pytest.param(
            Unreachable(message="after 2026-11-22T13:00:00Z", retry_after=1.0),
            Unreachable(message="after 2026-11-22T14:00:00Z", retry_after=1.0),
            False,
            "after 2026-11-22T14:00:00Z",
            id="another pause",
        ),
    ],
)
def test_the_same_answer_keeps_its_words(
    before: ImageState | None, now: ImageState, is_young: bool, expected: str
) -> None:
    """A correlation id is no news, and words that change each time are news once a minute."""
    made = settled(before, now, is_young=is_young)
    assert isinstance(made, Unauthorized | Unreachable | Invalid)
    assert (type(made), made.message) == (type(now), expected)


def test_words_that_change_each_time_wake_nobody(bench: Bench) -> None:
    """Each wake is a pass, and each new message a status written."""
    bench.look()
    bench.reply(Unauthorized(message=FIRST))
    for number in range(1, 4):
        bench.now = 10.0 * number
        assert bench.look() == Unauthorized(message=FIRST)
        bench.reply(Unauthorized(message=f"words no {'x' * number}"), wakes=False)
        settle(bench)
    assert bench.wakes.empty()
