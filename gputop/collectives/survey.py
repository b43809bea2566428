"""Ask the ranks of a running job for their collectives: debug servers, dumps of flight recorders, NCCL's RAS.

Read-only, on demand, and bounded: every rank is asked at the same time, and what has not answered by then is left out.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from threading import Thread

from gputop.agent_client import environment
from gputop.collectives import debug_server, dump_file, ras
from gputop.collectives.comparison import Comparison, Position, RankRecord, compare
from gputop.collectives.debug_server import NoServer
from gputop.collectives.dump_file import NoDump
from gputop.collectives.flight_record import FlightRecord
from gputop.collectives.local_server import NoReply
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Process
from gputop.safe.deadline import NoAnswer, within
from gputop.safe.identity import identity

MOST_RANKS = 128  # asked
SECONDS = 7.0  # for all of them together
_READS_S = 2.0
_SERVER = "debug server"
_SILENT = "did not answer in time"


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class RankAnswer:
    """What one rank's recorder contains, and where that is from; else why it is unknown."""

    process: Process
    label: str
    record: FlightRecord | None = None
    source: str = ""
    why: str = ""


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The answers of all ranks, in their order."""

    answers: tuple[RankAnswer, ...]
    ras: ras.RasStatus | None = None
    ras_why: str = ""

    @property
    def records(self) -> list[RankRecord]:
        """The records there are."""
        return [RankRecord(one.process.rank, one.label, one.record) for one in self.answers if one.record is not None]

    @property
    def answered(self) -> bool:
        """Whether there was anything to ask: without it there is nothing to report."""
        return bool(self.records or self.ras or self.ras_why or any(one.why for one in self.answers))

    def comparison(self, before: Survey | None = None, now: Mapping[str, Position] | None = None) -> Comparison | None:
        """What the records say together; None if there are none.

        `before`: an earlier survey, to tell progress; `now`: where ranks are, by label, from their stacks.
        """
        records = self.records
        return compare(records, before.records if before else (), now) if records else None


def label(process: Process) -> str:
    """`rank 3`; the PID of a process without a rank."""
    return str(process.pid) if process.rank is None else f"rank {process.rank}"


def ask(ranks: Sequence[Process], *, seconds: float = SECONDS) -> Survey:
    """Ask all ranks of a job on this machine."""
    asked = [_RankQuestion(process) for process in ranks[:MOST_RANKS]]
    status = _RasQuestion(asked)
    for each in (*asked, status):
        each.start()
    until_s = time.monotonic() + seconds
    for each in (*asked, status):
        each.wait(until_s)
    return Survey(answers=tuple(one.answer for one in asked), ras=status.status, ras_why=status.why)


class _Question(ABC):
    """A question that is asked in a thread, which nothing waits for beyond a deadline."""

    def __init__(self, about: str) -> None:
        self._thread = Thread(target=self._ask, name=f"collectives of {about}", daemon=True)
        self._started = False

    def start(self) -> None:
        """Start it; without a thread to spare it stays unanswered."""
        try:
            self._thread.start()
        except RuntimeError:
            return
        self._started = True

    def wait(self, until_s: float) -> None:
        """Wait for its end until then."""
        if self._started:
            self._thread.join(max(0.0, until_s - time.monotonic()))

    @abstractmethod
    def _ask(self) -> None:
        """Ask, and keep the answer."""


class _RankQuestion(_Question):
    """The question to one rank. `environ` is known before the answer."""

    def __init__(self, process: Process) -> None:
        super().__init__(str(process.pid))
        self.process = process
        self.answer = RankAnswer(process=process, label=label(process), why=_SILENT)
        self.environ: Mapping[str, str] = {}

    def _ask(self) -> None:
        record, source, why = None, "", ""
        try:
            record, source = self._record()
        except NoAnswer:
            why = "its environment cannot be read"
        except (NoReply, NoDump) as refused:
            why = str(refused)
        except Exception as error:  # an answer is hostile: nothing in it may end more than this question
            why = f"its answer cannot be read ({type(error).__name__})"
        self.answer = RankAnswer(process=self.process, label=label(self.process), record=record, source=source, why=why)

    def _record(self) -> tuple[FlightRecord, str]:
        """Its record, and where that is from."""
        process = self.process
        if os.geteuid() not in (0, process.uid):
            raise NoReply("it belongs to another user")
        self._exists()
        self.environ = within(f"/proc/{process.pid}/environ", environment, process.pid, seconds=_READS_S)
        why = ""
        try:
            record = debug_server.record(process.pid, process.uid, self.environ)
        except NoServer:
            pass
        except NoReply as refused:
            why = f"{_SERVER}: {refused}"
        else:
            self._exists()
            return record, _SERVER
        try:
            path, record = dump_file.record(process.pid, process.uid, process.rank, process.started_ticks, self.environ)
        except NoDump as refused:
            raise NoDump(why or str(refused)) from None
        return record, path

    def _exists(self) -> None:
        """NoReply if the PID is not this process's any more."""
        if identity(self.process.pid) != (self.process.pid, self.process.started_ticks):
            raise NoReply("it has exited")


class _RasQuestion(_Question):
    """The question to NCCL's RAS of the job, once the environments of its ranks are known."""

    def __init__(self, ranks: Sequence[_RankQuestion]) -> None:
        super().__init__("RAS")
        self.status: ras.RasStatus | None = None
        self.why = ""
        self._ranks = ranks

    def _ask(self) -> None:
        until_s = time.monotonic() + _READS_S
        for one in self._ranks:
            one.wait(until_s)
        environs = {one.process.pid: one.environ for one in self._ranks if one.environ}
        try:
            self.status = ras.status(environs) if environs else None
        except NoReply as refused:
            self.why = f"NCCL RAS: {refused}"
        except Exception as error:
            self.why = f"NCCL RAS: its answer cannot be read ({type(error).__name__})"
