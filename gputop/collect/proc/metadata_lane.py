"""The names lane: asks what may never be answered. Only its own threads wait for that, and a few may hang."""

from __future__ import annotations

import pwd
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Literal, NamedTuple

from gputop.collect.kernel_files import slurp_all
from gputop.collect.proc.builds import Builds
from gputop.collect.proc.metadata import ProcessMetadata
from gputop.collect.proc.proc_files import Values
from gputop.model import Identity
from gputop.safe.text import clean, decode

STUCK_S = 2.0  # a read that takes longer gets a substitute thread
AGAIN_S = 3.0  # asked again after this, since it may have been between fork and exec,
MORE_RARELY = 3.0  # then after this many times that,
LONGEST_S = 300.0  # and so on up to this: libraries appear as imports go on
WEIGH_EVERY_S = 30.0  # PSS: the kernel walks every page for it,
WEIGH_SHARE = 0.01  # so no more of the time than this goes into it;
SAVED_S = 1.0  # of so long it may be used at once, or quick ones would wait for a tick each
SHM_EVERY_S = 10.0
MOST_STUCK = 8  # threads that do not come back; with more of them no process is named any more
LOOK_AGAIN_S = 0.01
MOST_USERS, PASSWD = 4096, 1 << 18
MOST_ASKS = 100_000  # that wait, when nothing answers


class MetadataRequest(NamedTuple):
    """A process to be named. A changed `comm` means that it runs another program now, so it is asked again."""

    identity: Identity
    comm: str
    deep: bool = True  # environment, folder and libraries too
    weigh: bool = False  # PSS too
    shm: bool = False  # its /dev/shm too


class _Ask(NamedTuple):
    subject: Identity | int  # a process, or the uid of a user
    about: Literal["names", "weight", "shm", "build"] = "names"
    build: Values | None = None


@dataclass(slots=True)
class _Visit:
    """What was asked of one process, and when it is asked next."""

    dossier: ProcessMetadata
    comm: str
    deep: bool
    again_s: float
    pause_s: float = AGAIN_S
    weigh_s: float = 0.0
    shm_s: float = 0.0
    package: str | None = None  # whose build was asked for


@dataclass(slots=True)
class _LaneWorker:
    """A thread of the lane and what it is at."""

    ask: _Ask | None = None
    since_s: float = 0.0


def user_name(uid: int) -> str | None:
    """The name of a user, None if there is none; may wait for a network directory."""
    try:
        return clean(pwd.getpwuid(uid).pw_name, 64)
    except KeyError:
        return None


def local_users(path: str) -> dict[int, str]:
    """Names by uid from a passwd file; this never waits, so the first table has most of them."""
    try:
        lines = [line.split(b":") for line in slurp_all(path, PASSWD).splitlines()]
    except OSError:
        return {}
    found = [(int(words[2]), decode(words[0], 64)) for words in lines if len(words) > 2 and words[2].isdigit()]
    return dict(reversed(found))  # the first of a uid counts


class MetadataLane:
    """Answers come when they come: asking, and reading what is known, never blocks."""

    def __init__(
        self,
        root: str = "/proc",
        clock: Callable[[], float] = time.monotonic,
        find_user: Callable[[int], str | None] = user_name,
        passwd: str = "/etc/passwd",
    ) -> None:
        self._root, self._clock, self._find_user = root, clock, find_user
        self._cards: dict[Identity, _Visit] = {}
        self._users = local_users(passwd)
        self._asked_users = set(self._users)
        self._asks: SimpleQueue[_Ask | None] = SimpleQueue()
        self._fresh: deque[Identity | int] = deque()
        self._active = _LaneWorker()
        self._stuck: list[_LaneWorker] = []  # swapped whole: threads that do not come back
        self._builds = Builds()
        self._weigh_after_s = 0.0
        self._stopped = False

    def start(self) -> None:
        """Begin to answer."""
        self._builds.start()
        self._hire()

    def _hire(self) -> None:
        Thread(target=self._run, args=(self._active,), name="names", daemon=True).start()

    def stop(self) -> None:
        """Let the thread end when it comes back."""
        self._stopped = True
        self._asks.put(None)
        self._builds.stop()

    def want(self, wanted: Iterable[MetadataRequest]) -> None:
        """Ask about processes; what is known, or asked already, is not asked again before its time."""
        now_s = self._clock()
        self._watch(now_s)
        self._builds.watch(now_s)
        if self._asks.qsize() > MOST_ASKS:
            return
        heavy: list[_Visit] = []
        idle = self._asks.empty()
        for want in wanted:
            card = self._cards.get(want.identity)
            if card is None:
                card = _Visit(ProcessMetadata(want.identity, self._root), "", False, 0.0)
                self._cards[want.identity] = card
                card.weigh_s = now_s  # behind those that have waited longer
            if card.comm != want.comm or (want.deep and not card.deep):
                card.comm, card.deep = want.comm, card.deep or want.deep
                card.pause_s, card.again_s = AGAIN_S, now_s + AGAIN_S
                self._asks.put(_Ask(want.identity))
            elif now_s >= card.again_s:
                card.pause_s *= MORE_RARELY
                card.again_s = now_s + card.pause_s if card.pause_s <= LONGEST_S else float("inf")
                self._asks.put(_Ask(want.identity))
            elif want.weigh and now_s >= max(card.weigh_s, self._weigh_after_s):
                heavy.append(card)
            elif want.shm and now_s >= card.shm_s:
                card.shm_s = now_s + SHM_EVERY_S
                self._asks.put(_Ask(want.identity, "shm"))
        if idle:  # else they are asked already
            for card in sorted(heavy, key=lambda card: card.weigh_s):  # there may be time for few: none waits forever
                self._asks.put(_Ask(card.dossier.identity, "weight"))

    def known(self, identity: Identity) -> ProcessMetadata | None:
        """What is known of a process so far; None before it was asked for."""
        card = self._cards.get(identity)
        return None if card is None else card.dossier

    def user(self, uid: int) -> str:
        """The name of a user, or the number until it is known or if there is none."""
        if len(self._asked_users) > MOST_USERS:
            self._asked_users.clear()
            self._users.clear()
        if uid not in self._asked_users:
            self._asked_users.add(uid)
            self._asks.put(_Ask(uid))
        return self._users.get(uid, str(uid))

    def fresh(self) -> list[Identity | int]:
        """Processes and uids of which something new is known since the last call."""
        found: list[Identity | int] = []
        while self._fresh:
            found.append(self._fresh.popleft())
        return found

    def settled(self, until_s: float) -> bool:
        """Wait until all that was asked is answered, no longer than until this time of the clock."""
        while not (self._asks.empty() and self._active.ask is None):
            if self._clock() >= until_s:
                return False
            time.sleep(LOOK_AGAIN_S)
        return True

    def hangs(self) -> list[tuple[str, float]]:
        """What does not answer, and for how long."""
        now_s = self._clock()
        asks = [(worker.ask, now_s - worker.since_s) for worker in (*self._stuck, self._active)]
        found = [(self._place(ask), waited_s) for ask, waited_s in asks if ask is not None and waited_s >= STUCK_S]
        return [*found, *((clean(path), waited_s) for path, waited_s in self._builds.hangs(now_s))]

    def _place(self, ask: _Ask) -> str:
        if not isinstance(ask.subject, Identity):
            return f"name of user {ask.subject}"
        card = self._cards.get(ask.subject)
        return f"{self._root}/{ask.subject.pid}/{card.dossier.file if card else ''}"

    def forget(self, identity: Identity) -> None:
        """Drop what is known of a process that ended."""
        self._cards.pop(identity, None)

    def _watch(self, now_s: float) -> None:
        """Let a substitute take over from a thread that does not come back, unless that happened already."""
        self._stuck = [worker for worker in self._stuck if worker.ask is not None]
        ask = self._active.ask
        if ask is None or now_s - self._active.since_s < STUCK_S or len(self._stuck) >= MOST_STUCK:
            return
        self._stuck, self._active = [*self._stuck, self._active], _LaneWorker()
        if isinstance(ask.subject, Identity) and ask.subject in self._cards:
            self._cards[ask.subject].dossier.lose()
            self._fresh.append(ask.subject)
        self._hire()

    def _run(self, worker: _LaneWorker) -> None:
        while worker is self._active and not self._stopped:
            ask = self._asks.get()
            if ask is None or self._hopeless(ask):
                continue
            worker.since_s = self._clock()
            worker.ask = ask
            try:
                self._answer(ask)
            except (OSError, ValueError):
                pass  # it has ended since
            worker.ask = None

    def _hopeless(self, ask: _Ask) -> bool:
        """Whether another thread hangs at the same process, or at a user: those are all looked up in one place."""
        hangs = [stuck.subject for worker in self._stuck if (stuck := worker.ask) is not None]
        if isinstance(ask.subject, Identity):
            return ask.subject in hangs
        if not any(isinstance(subject, int) for subject in hangs):
            return False
        self._asked_users.discard(ask.subject)
        return True

    def _answer(self, ask: _Ask) -> None:
        if not isinstance(ask.subject, Identity):
            name = self._find_user(ask.subject)
            if name is not None:
                self._users[ask.subject] = name
                self._fresh.append(ask.subject)
            return
        card = self._cards.get(ask.subject)
        if card is None:
            return
        identity = ask.subject

        def tell() -> None:
            self._fresh.append(identity)

        if ask.about == "names":
            card.dossier.ask(card.deep, tell)
            self._ask_build(card)
        elif ask.build is not None:
            card.dossier.learn(ask.build, tell)
        elif ask.about == "shm":
            card.dossier.ask_shm(tell)
        elif self._clock() >= self._weigh_after_s:  # else at a later tick
            self._weigh(card, tell)

    def _weigh(self, card: _Visit, tell: Callable[[], None]) -> None:
        began_s = self._clock()
        card.weigh_s = began_s + WEIGH_EVERY_S  # before it hangs, if it does
        card.dossier.weigh(tell)
        ended_s = self._clock()
        self._weigh_after_s = max(self._weigh_after_s, ended_s - SAVED_S) + (ended_s - began_s) / WEIGH_SHARE

    def _ask_build(self, card: _Visit) -> None:
        """Which PyTorch it has mapped, once it has."""
        package, identity = card.dossier.package, card.dossier.identity
        if package is not None and package != card.package:
            card.package = package
            self._builds.read(package, lambda build: self._asks.put(_Ask(identity, "build", build)))
