"""What registries reported about images, asked in threads of their own: a reconcile uses what is known and never waits.

Place in the flow: ``observe`` calls :meth:`ImageAnswers.inspect` as it would :meth:`Registries.inspect`. An image that
was not asked about yet is :class:`NotAsked`; once its answer is there, and differs from what a reconcile was given, the
next reconcile is woken. Commands ask :class:`Registries` itself and wait.

An answer belongs to a namespace and all its settings: what one driver's password, CA or plain HTTP saw is not believed
of another's. A presence is asked for again after :data:`PRESENT_SECONDS`, everything else after
:data:`NEGATIVE_SECONDS`, in each case when a reconcile wants it. An absence starts builds, so it is given as fresh for
:data:`NEGATIVE_SECONDS` only.

How many are asked at the same time, and who waits: ``turns``.

An absence that is confirmed wakes a reconcile as well, but at most one per :data:`NEGATIVE_SECONDS` for all images:
that reconcile asks for other images again, whose answers would otherwise wake the next one, without end.
"""

import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from driver_builder.api.driver_spec import RegistrySettings
from driver_builder.base import telemetry
from driver_builder.base.boundary import contained
from driver_builder.base.errors import InternalError
from driver_builder.model.image_state import Absent, ImageState, Invalid, NotAsked, Present, Unauthorized, Unreachable
from driver_builder.model.images import ImageRef
from driver_builder.registry.turns import Place, Turn, Turns
from driver_builder.snapshot.inspector import Inspector
from kube_api.errors import KubeApiError

PRESENT_SECONDS = 60.0
NEGATIVE_SECONDS = 10.0
WORDS_SECONDS = 60.0
"""So long the words of an answer stay though the registry says the same in others: each change is a status written."""
KEPT_SECONDS = 600.0
"""What no reconcile has wanted for so long is forgotten."""
_TIMER_SECONDS = 0.1

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Everything an answer depends on."""

    namespace: str
    settings: RegistrySettings
    image: ImageRef
    architecture: str
    signed_by: str | None

    @property
    def place(self) -> Place:
        """Whom it is asked, and for whom."""
        return Place(self.namespace, self.image.host)


@dataclass(slots=True)
class _Entry:
    wanted: float
    state: ImageState | None = None
    at: float = 0.0
    said: float = 0.0
    """When the words of ``state`` were new."""
    given: ImageState | None = None
    """What the last reconcile was given; None before it was given ``state``."""
    is_asked: bool = False
    """Whether the question waits for its turn or for its answer."""


def after(seconds: float, work: Callable[[], None]) -> None:
    """Do ``work`` later, in a thread that holds no process up; at once where no thread can be started."""
    timer = threading.Timer(seconds, work)
    timer.daemon = True
    try:
        timer.start()
    except RuntimeError as error:
        logger.warning("no timer: %s", error)
        work()


class ImageAnswers:
    """Asks ``registries`` in the background and calls ``wake`` when an answer is news."""

    def __init__(
        self,
        registries: Inspector,
        *,
        wake: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        later: Callable[[float, Callable[[], None]], None] = after,
    ) -> None:
        self._registries = registries
        self._wake = wake
        self._clock = clock
        self._later = later
        self._lock = threading.Lock()
        self.news = 0
        """Counts the answers that differ from what a pass was given, and those that are not believed any more."""
        self._entries: dict[Question, _Entry] = {}
        self._waiting: dict[Question, _Entry] = {}
        self._turns = Turns()
        self._turns_at = float("-inf")
        """When turns are taken from what hangs, though nothing else happens."""
        self._confirmed_at = float("-inf")
        """When a confirmed absence last woke a reconcile, or is going to."""
        self._is_stopped = False

    def inspect(
        self,
        namespace: str,
        settings: RegistrySettings,
        image: ImageRef,
        architecture: str = "",
        *,
        signed_by: str | None = None,
    ) -> ImageState:
        """Give what is known of an image, and ask where that is old."""
        question = Question(
            namespace=namespace, settings=settings, image=image, architecture=architecture, signed_by=signed_by
        )
        with self._lock:
            now = self._clock()
            entry = self._entries.setdefault(question, _Entry(wanted=now))
            entry.wanted = now
            if not entry.is_asked and is_due(entry.state, now - entry.at):
                entry.is_asked = True
                self._waiting[question] = entry
            given = self._known(entry, now)
            entry.given = given
            is_waiting = bool(self._waiting)
        if is_waiting:
            self._start()
        return given

    def forget(self, image: ImageRef) -> None:
        """Believe nothing of an image any more, such as one that was just built; what is being asked is dropped."""
        with self._lock:
            self.news += 1
            for question in [question for question in self._entries if question.image == image]:
                del self._entries[question]
                self._waiting.pop(question, None)

    def prune(self) -> None:
        """Forget what no reconcile has wanted for long."""
        with self._lock:
            now = self._clock()
            self._entries = {
                question: entry
                for question, entry in self._entries.items()
                if entry.is_asked or now - entry.wanted < KEPT_SECONDS
            }
            self._turns.keep(question.place for question in self._entries)

    def stop(self) -> None:
        """Ask nothing any more. What is being asked ends by its own deadline, in threads that hold no process up."""
        with self._lock:
            self._is_stopped = True
            self._waiting.clear()

    def _known(self, entry: _Entry, now: float) -> ImageState:
        if entry.state is None:
            return NotAsked()
        if isinstance(entry.state, Absent):
            # One that no reconcile has seen yet is fresh: it woke the next one, however long the last one takes.
            age, is_new = now - entry.at, entry.given is None
            return Absent(is_fresh=age < NEGATIVE_SECONDS or (is_new and age < PRESENT_SECONDS))
        return entry.state

    def _start(self) -> None:
        """Begin to ask what may be asked now, the oldest question first."""
        begun: list[tuple[Question, _Entry, Turn]] = []
        with self._lock:
            now = self._clock()
            self._turns.release_hanging(now)
            for question, entry in list(self._waiting.items()):
                if not self._is_stopped and self._turns.has_room(question.place):
                    del self._waiting[question]
                    begun.append((question, entry, self._turns.begin(question.place, now)))
            self._count()
            again = self._when_to_start_again(now)
        for question, entry, turn in begun:
            name = f"registry-{question.image.host}"
            try:
                threading.Thread(target=self._ask, args=(question, entry, turn), name=name, daemon=True).start()
            except RuntimeError as error:
                logger.warning("cannot queue a request for %s: %s", question.image, error)
                self._put_back(question, entry, turn)
        if again is not None:
            self._later(again - now, self._start)

    def _when_to_start_again(self, now: float) -> float | None:
        """Return when questions may begin that wait only for others that hang; None where that was said already."""
        due = self._turns.release_hanging(now)
        if not self._waiting or due is None or self._turns_at > now:
            return None
        # A timer may be a little early.
        self._turns_at = due + _TIMER_SECONDS
        return self._turns_at

    def _put_back(self, question: Question, entry: _Entry, turn: Turn) -> None:
        """Queue a question again for which there is no thread: the next reconcile, or the next answer, starts it."""
        with self._lock:
            self._turns.end(turn)
            if self._entries.get(question) is entry and not self._is_stopped:
                self._waiting[question] = entry
            self._count()

    def _count(self) -> None:
        telemetry.REGISTRY_QUESTIONS.labels("Waiting").set(len(self._waiting))
        telemetry.REGISTRY_QUESTIONS.labels("Asked").set(len(self._turns))

    def _ask(self, question: Question, entry: _Entry, turn: Turn) -> None:
        state = self._answer(question)
        telemetry.REGISTRY_CHECKS.labels(type(state).__name__).inc()
        with self._lock:
            self._turns.end(turn)
            self._turns.saw(question.place, is_answer=not isinstance(state, Unreachable))
            is_confirmed = isinstance(entry.state, Absent) and isinstance(state, Absent)
            is_news = self._entries.get(question) is entry and self._keep(entry, state)
        self._start()
        if is_news and is_confirmed:
            self._wake_seldom()
        elif is_news:
            self._wake()

    def _wake_seldom(self) -> None:
        """Wake a reconcile for a confirmed absence, at once or when the last one is old enough; one for all."""
        with self._lock:
            now = self._clock()
            if self._confirmed_at > now:
                return
            due = max(now, self._confirmed_at + NEGATIVE_SECONDS)
            self._confirmed_at = due
        if due > now:
            self._later(due - now, self._wake)
        else:
            self._wake()

    def _answer(self, question: Question) -> ImageState:
        try:
            return contained("image", str(question.image), partial(self._inspect, question), _invalid)
        except KubeApiError as error:
            return Unreachable(message=f"the registry {question.image.host} cannot be reached: {error}")

    def _inspect(self, question: Question) -> ImageState:
        return self._registries.inspect(
            question.namespace,
            question.settings,
            question.image,
            question.architecture,
            signed_by=question.signed_by,
        )

    def _keep(self, entry: _Entry, state: ImageState) -> bool:
        """Remember an answer; return whether it differs from what a reconcile was given."""
        now = self._clock()
        kept = settled(entry.state, state, is_young=now - entry.said < WORDS_SECONDS)
        if kept != entry.state:
            entry.said = now
        entry.state, entry.at, entry.is_asked = kept, now, False
        given = entry.given
        entry.given = None
        if given == self._known(entry, now):
            entry.given = given
            return False
        self.news += 1
        return True


def _invalid(error: InternalError) -> ImageState:
    return Invalid(message=str(error))


def is_due(state: ImageState | None, age: float) -> bool:
    """Whether to ask anew when an answer of that age is wanted. Pure."""
    if state is None:
        return True
    return age >= (PRESENT_SECONDS if isinstance(state, Present) else NEGATIVE_SECONDS)


_Said = Unauthorized | Invalid | Unreachable
_LONG_NUMBER = re.compile(r"\S*\d\S*")
_SHORT = 8


def settled(before: ImageState | None, now: ImageState, *, is_young: bool) -> ImageState:
    """An answer in the words of the one before where it says the same. Pure.

    Registries put another correlation id into each of their errors. Words that differ in more than such an id are kept
    while ``is_young``: some registries write other words each time.
    """
    if not isinstance(now, _Said) or not isinstance(before, _Said) or type(before) is not type(now):
        return now
    pauses = isinstance(now, Unreachable) and now.retry_after is not None
    is_same = not pauses and _without_ids(before.message) == _without_ids(now.message)
    return replace(now, message=before.message) if is_same or is_young else now


def _without_ids(message: str) -> str:
    return _LONG_NUMBER.sub(lambda word: "#" if len(word[0]) >= _SHORT else word[0], message)
