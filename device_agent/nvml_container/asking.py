"""The work of the child: asks NVML again and again, and says what it said. NVML may never answer.

The child ends when there is no driver, or when NVML cannot be asked: it holds no device then, and a driver can go.
While the use of cards is followed it stays for a while without a driver of NVIDIA's, and looks at cards of others.
"""

import os
import select
import time
from collections.abc import Callable, Collection

from device_agent.boot import seconds_since_boot
from device_agent.gpu_state import mig_change
from device_agent.gpu_state.checks import is_word
from device_agent.gpu_state.ending import MOST_ENDED, Ended, EndRequest
from device_agent.gpu_state.mig_change import MigChange
from device_agent.gpu_state.requests import CHANGE_MIG, LOOK, MAKE_NODES, Request, parse_request
from device_agent.gpu_state.state import ABSENT, FAILED, MOST_CARDS, OK, CardState, MigChanged, NodeState
from device_agent.nvml_container.cards import card_states
from device_agent.nvml_container.child_process import Wanted
from device_agent.nvml_container.drm import is_pci, read_cards, uses_card
from device_agent.nvml_container.ending import end_process
from device_agent.nvml_container.log import Log
from device_agent.nvml_container.messages import Doing, Look, Message, XidSeen, dump_message
from device_agent.nvml_container.nodes import Nodes, unusable, usable
from device_agent.nvml_container.sampling import Sampling
from device_agent.nvml_container.settings import Places, Timing
from device_agent.nvml_container.sysfs import read_load, read_numa_node
from kube_api.text import first_few, printable
from nvml_inventory.errors import NvmlInventoryError
from nvml_inventory.session import Session, open_session
from nvml_inventory.values import Absent, Card, Unreadable, Xid

_SLICE = 1.0
"""Seconds after which a request is seen, while events are waited for."""
_MOMENT = 0.1
"""Seconds in which the rest of a request is waited for."""
_CHUNK = 1 << 16
_MOST_U32 = 2**32 - 1
_MOST_LEFT = 256
"""How many Xid events are said at the end of a session; one of a storm more or less changes nothing."""
_MOST_SHOWN = 3
_REFUSED = "the container nvml runs without --ends-processes=true"
_UNCHANGED = "the container nvml runs without --changes-mig=true"

ChangeMig = Callable[[MigChange, Callable[[str], None]], MigChanged]
"""Changes MIG of a card while NVML is initialised, and says each step that begins."""


class Asking:
    """Asks NVML, as long as there is a driver; ``requests`` and ``lines`` are the descriptors of both pipes.

    ``ends_processes``: where limits of memory want it. Else requests for that are refused, whoever sends them.
    ``change_mig``: None where MIG is not to be changed: those requests are refused as well.
    """

    ends_processes = False
    change_mig: ChangeMig | None = None

    def __init__(self, *, places: Places, timing: Timing, log: Log, requests: int, lines: int, wanted: Wanted) -> None:
        self._places = places
        self._timing = timing
        self._log = log
        self._requests = requests
        self._lines = lines
        self._nodes = Nodes(places, log, may_make=wanted.makes_nodes)
        self._sampling = Sampling(places, timing.use, wanted.use)
        self._endings: list[EndRequest] = []
        self._changes: dict[str, MigChange] = {}
        self._answers: tuple[MigChanged, ...] = ()
        self._received = b""
        self._unwatched: frozenset[str] = frozenset()

    def run(self) -> int:
        """Ask until there is nobody to ask, or nobody to answer to; returns the exit status."""
        try:
            while self._ask_in_a_session():
                pass
        except _SupervisorGone:
            pass
        return 0

    def _ask_in_a_session(self) -> bool:
        """Open a session of NVML's and follow it; returns whether to open another one."""
        nodes = self._nodes.read()
        try:
            session = open_session(self._places.root, self._places.library)
            if isinstance(session, Absent):
                self._give_up(_nothing(session.reason, nodes))
                return False
            try:
                if self.change_mig is not None and self._changes and not self._answers:
                    self._change(self.change_mig)
                else:
                    self._follow(session, nodes)
            finally:
                self._end(session)
        except NvmlInventoryError as error:
            self._give_up(Look(FAILED, printable(str(error)), nodes=nodes))
            return False
        return True

    def _give_up(self, look: Look) -> None:
        """Say why NVML cannot be asked, and look at the use of other drivers' cards until it is time to try again."""
        self._say(look)
        timing = self._timing
        pause = timing.absent_pause if read_load(self._places.root) else timing.unloaded_pause
        if look.status == FAILED:
            pause = timing.longest_pause if read_cards(self._places.root) else 0.0
        end = time.monotonic() + pause
        while not self._is_asked() and self._sampling.is_followed and (rest := end - time.monotonic()) > 0:
            self._sample(None)
            select.select([self._requests], [], [], min(rest, self._sampling.rest()))

    def _change(self, change_mig: ChangeMig) -> None:
        """Change one card, in a session that watches none. Then all is read anew in another one, and said."""
        change = self._changes.pop(next(iter(self._changes)))
        self._answers = (change_mig(change, lambda step: self._say(Doing(printable(step)))),)

    def _end(self, session: Session) -> None:
        """Say the Xid events that have arrived meanwhile, and close the session: the next one does not get them."""
        try:
            for _ in range(_MOST_LEFT):
                if (seen := session.wait(0)) is None:
                    break
                self._say(_xid(seen))
        finally:
            session.close()

    def _follow(self, session: Session, nodes: tuple[NodeState, ...]) -> None:
        """Say inventories and Xid events, until a new session may find more than this one.

        A card that was lost may be back only for a new session, and so is one that had no device node, or came later.
        """
        opened = time.monotonic()
        is_complete = True
        while is_complete or time.monotonic() < opened + self._timing.reopen:
            inventory = session.read()
            cards = self._cards(session, inventory.cards)
            answers, self._answers = self._answers, ()
            self._say(Look(OK, driver=inventory.driver, cards=cards, nodes=nodes, mig_changes=answers))
            self._report_unwatched(session, cards)
            is_complete = not any(card.why for card in cards)
            self._wait(session)
            before, nodes = nodes, self._nodes.read()
            if self._changes or usable(nodes) - usable(before):
                return

    def _cards(self, session: Session, cards: tuple[Card | Unreadable, ...]) -> tuple[CardState, ...]:
        conditions = {index: session.conditions(index) for index, card in enumerate(cards) if isinstance(card, Card)}
        addresses = [card.pci_bus_id for card in cards if isinstance(card, Card)]
        numa_nodes = {address: read_numa_node(self._places.root, address) for address in addresses}
        layouts = {
            card.uuid: session.mig_layout(card.uuid) for card in cards if isinstance(card, Card) and card.mig_mode
        }
        return card_states(cards, conditions, numa_nodes, layouts)

    def _wait(self, session: Session) -> None:
        """Say Xid events and samples until it is time for the next inventory, or something asks for one."""
        end = time.monotonic() + self._timing.look
        watched = session.watched
        while not self._is_asked() and session.watched == watched and (rest := end - time.monotonic()) > 0:
            self._sample(session)
            seen = session.wait(min(_SLICE, rest, self._sampling.rest()))
            if seen is not None:
                self._say(_xid(seen))

    def _sample(self, session: Session | None) -> None:
        requests, self._endings = self._endings, []
        for request in requests:
            self._sampling.note(self._end_process(request, session))
        if self._sampling.rest() <= 0:
            self._say(self._sampling.take(session.use if session is not None else tuple, session))
        self._sampling.lift_limits(session)

    def _end_process(self, request: EndRequest, session: Session | None) -> Ended:
        proc = self._places.proc

        def users(card: str) -> Collection[int] | None:
            if is_pci(card):
                return {request.pid} if uses_card(proc, request.pid, card) else ()
            listed = session.processes(card) if session is not None else None
            return None if listed is None else {one.pid for one in listed}

        why = end_process(request, users, proc) if self.ends_processes else _REFUSED
        self._log.warning(f"process {request.pid} of pod {request.uid} on {request.card}: {why or 'ended (SIGKILL)'}")
        return Ended(request.pid, request.start, request.at, printable(why))

    def _is_asked(self) -> bool:
        """Read requests; returns whether one asks for an inventory, or for a change."""
        names: set[str] = set()
        while select.select([self._requests], [], [], _MOMENT if self._received else 0)[0]:
            chunk = os.read(self._requests, _CHUNK)
            if not chunk:
                raise _SupervisorGone
            *lines, self._received = (self._received + chunk).split(b"\n")
            names |= {self._obey(parse_request(line)) for line in lines}
        return bool(self._changes or names & {LOOK, MAKE_NODES, CHANGE_MIG})

    def _obey(self, request: Request) -> str:
        if request.name == MAKE_NODES:
            self._nodes.may_make = True
        elif request.process is not None:
            self._endings = [*self._endings, request.process][-MOST_ENDED:]
        elif request.change is not None:
            self._note_change(request.change)
        elif request.name != LOOK:
            # Limits are set for those who may end processes: either is harm to a pod.
            self._sampling.follow(request if self.ends_processes else request._replace(limits=None))
        return request.name

    def _note_change(self, change: MigChange) -> None:
        """Keep a change until it is its turn, as the only one of its card, or refuse it."""
        if self.change_mig is None:
            refused = MigChanged(change.id, change.card, mig_change.FAILED, _UNCHANGED, seconds_since_boot())
            self._answers = (*self._answers, refused)[-MOST_CARDS:]
        elif change.card in self._changes or len(self._changes) < MOST_CARDS:
            self._changes[change.card] = change

    def _report_unwatched(self, session: Session, cards: tuple[CardState, ...]) -> None:
        unwatched = frozenset(card.uuid for card in cards if not card.why) - session.watched
        if unwatched != self._unwatched:
            self._unwatched = unwatched
            names = first_few(sorted(unwatched), _MOST_SHOWN) or "no GPU that can be read"
            self._log.warning(f"NVML reports no Xid errors of {names}")

    def _say(self, message: Message) -> None:
        rest = memoryview(dump_message(message))
        try:
            while rest:
                rest = rest[os.write(self._lines, rest) :]
        except BrokenPipeError:
            raise _SupervisorGone from None


class _SupervisorGone(Exception):
    """Nobody will read any more."""


def _nothing(reason: str, nodes: tuple[NodeState, ...]) -> Look:
    """Say why there is no session. A driver that is loaded and cannot be opened is not absent."""
    wrong = unusable(nodes)
    if not wrong:
        return Look(ABSENT, printable(reason), nodes=nodes)
    named = first_few((f"{node.path}: {node.why}" for node in wrong), _MOST_SHOWN, separator="; ")
    return Look(FAILED, printable(f"the driver is loaded, and its device nodes are not right: {named}; {reason}"),
                nodes=nodes)  # fmt: skip


def _xid(seen: Xid) -> XidSeen:
    """Make the message of an event. One whose UUID makes no sense may be any card's."""
    return XidSeen(seen.uuid if is_word(seen.uuid) else "", min(seen.xid, _MOST_U32), seen.gi, seen.ci)
