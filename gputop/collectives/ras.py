"""NCCL's RAS: how many collectives each rank of a communicator has launched, as its client port reports it.

NCCL 2.24 and newer listen on localhost:28028, or where NCCL_RAS_ADDR says, and answer in text (NCCL user guide, RAS;
src/ras/client_support.cc). Only ranks whose count differs from the others' are listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gputop.collectives.comparison import names
from gputop.collectives.local_server import Listener, NoReply, connect, exchange, listeners, listening
from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe.text import clean, decode

ADDRESS = "NCCL_RAS_ADDR"
PORT = 28028
ANSWERS_S = 6.0
LIMIT = 4 << 20  # bytes
_GATHERS_S = 2  # that NCCL may wait for other processes, in whole seconds
_REQUEST = f"CLIENT PROTOCOL 2\nTIMEOUT {_GATHERS_S}\nVERBOSE STATUS\n"
_MOST_LINES, _LONGEST_LINE = 100_000, 400
_MOST_RANKS = 10_000
_MOST_UNREACHABLE = 4  # listed

_VERSION = re.compile(r"NCCL version (\S{1,40}) compiled with CUDA")
_COMMUNICATOR = re.compile(r"#(\d{1,9})-(\d{1,9}) \(([0-9a-f]{1,16})\) (\w{1,40})")
_COUNTS = re.compile(r"  Communicator ranks have different (\w{1,40}) operation counts")
_MOST = re.compile(r"  (\d{1,9}) ranks have (?:launched up to operation (\d{1,18})|(not launched any operations))")
_RANK = re.compile(
    r"  Rank (\d{1,9})(?: has (?:launched up to operation (\d{1,18})|(not launched any operations)))? -- "
    r"(?:GPU (.{1,60}?) managed by process (\d{1,10}) on node (\S{1,100})|\[process information not found\])"
)
_MISSING = re.compile(r"  Missing communicator data from (\d{1,9}) job process(?:es)?")
_DEAD = re.compile(r"  (\d{1,9}) job process(?:es are| is) considered dead")
_PROCESS = re.compile(r"  Process (\d{1,10}) on node (\S{1,100}) managing GPU")


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class RasRank:
    """A rank of a communicator whose count differs from most. `pid` and `node` are None if RAS does not know them."""

    rank: int
    launched: int
    pid: int | None = None
    node: str | None = None
    gpu: str | None = None


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class RasMismatch:
    """Ranks of one communicator that launched different numbers of one operation.

    `counts`: by number of operations launched, how many ranks; `ranks`: those that RAS lists one by one.
    """

    communicator: str
    operation: str  # AllReduce; `collective` in NCCL 2.24, which counts all of them together
    counts: Mapping[int, int]
    ranks: tuple[RasRank, ...]

    @property
    def launched(self) -> int:
        """The highest number launched."""
        return max(self.counts, default=0)

    @property
    def behind(self) -> tuple[RasRank, ...]:
        """The listed ranks that launched fewer."""
        return tuple(one for one in self.ranks if one.launched < self.launched)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class RasStatus:
    """What RAS reported. `unreachable`: processes that did not answer it, as text."""

    version: str
    mismatches: tuple[RasMismatch, ...] = ()
    unreachable: tuple[str, ...] = ()


def looks_like(text: str) -> bool:
    """Whether a text is a status of RAS."""
    return _VERSION.search(text[:4000]) is not None and "\nCommunicators..." in text


def parse(text: str) -> RasStatus:
    """The status in the answer of RAS to STATUS or VERBOSE STATUS; NoReply if it is none, or ends early."""
    version = _VERSION.search(text[:4000])
    if version is None:
        raise NoReply("not a status of NCCL's RAS")
    if not re.search(r"^Warnings$", text, re.MULTILINE) and "No communicator data collected!" not in text:
        raise NoReply("its status is incomplete: processes did not answer it in time")
    lines = [line[:_LONGEST_LINE] for line in text.split("\n")[:_MOST_LINES]]
    return RasStatus(
        version=clean(version[1]),
        mismatches=tuple(_mismatches(lines)),
        unreachable=tuple(_unreachable(lines)),
    )


def _mismatches(lines: Sequence[str]) -> Iterator[RasMismatch]:
    communicator = ""
    for at, line in enumerate(lines):
        if found := _COMMUNICATOR.match(line):
            communicator = found[3] if found[4] == "MISMATCH" else ""
        elif communicator and (found := _COUNTS.match(line)):
            yield _mismatch(communicator, found[1], lines[at + 1 :])


def _mismatch(communicator: str, operation: str, lines: Sequence[str]) -> RasMismatch:
    """The ranks after the line that names an operation: how many launched each number, and the few listed."""
    launched = 0
    counts: dict[int, int] = {}
    ranks: list[RasRank] = []
    for line in lines:
        if found := _MOST.match(line):
            launched = 0 if found[3] else int(found[2])
            counts[launched] = int(found[1])
        elif (found := _RANK.match(line)) and len(ranks) < _MOST_RANKS:
            alone = found[2] or found[3]
            own = launched if not alone else 0 if found[3] else int(found[2])
            if alone:
                counts[own] = 1
            gpu, pid, node = found[4], found[5], found[6]
            ranks.append(
                RasRank(
                    rank=int(found[1]),
                    launched=own,
                    pid=int(pid) if pid else None,
                    node=clean(node) if node else None,
                    gpu=clean(gpu) if gpu else None,
                )
            )
        else:
            break
    return RasMismatch(communicator=communicator, operation=clean(operation), counts=counts, ranks=tuple(ranks))


def _unreachable(lines: Sequence[str]) -> Iterator[str]:
    """Processes that did not answer RAS: listed with GPUs and nodes if they are few."""
    for at, line in enumerate(lines):
        missing, dead = _MISSING.match(line), _DEAD.match(line)
        number = dead[1] if dead else missing[1] if missing else None
        if number is None:
            continue
        what = "considered dead" if dead else "not answering"
        listed = list(_processes(lines[at + 1 :]))
        yield from (f"{one} is {what}" for one in listed)
        if not listed:
            yield f"{number} {'process is' if number == '1' else 'processes are'} {what}"


def _processes(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        found = _PROCESS.match(line)
        if found is None:
            return
        yield f"process {found[1]} on {clean(found[2])}"


def sentences(status: RasStatus, labels: Mapping[int, str]) -> list[str]:
    """What the status says of ranks that are behind, one sentence each; `labels` of this job's ranks by PID."""
    return [f"NCCL RAS: {each}" for each in (*mismatch_sentences(status, labels), *unreachable_sentences(status))]


def mismatch_sentences(status: RasStatus, labels: Mapping[int, str]) -> list[str]:
    """A sentence for each operation that ranks launched unequally often.

    RAS collects the counts while the job runs, and ranks are not in lockstep: only counts that stay the same from one
    status to the next show a hang (NCCL user guide, RAS).
    """
    return [_sentence(one, labels) for one in status.mismatches if len(one.counts) > 1]


def unreachable_sentences(status: RasStatus) -> list[str]:
    """A sentence for each of the first processes that did not answer RAS."""
    return [f"{each}." for each in status.unreachable[:_MOST_UNREACHABLE]]


def _sentence(one: RasMismatch, labels: Mapping[int, str]) -> str:
    most = max(one.counts, key=lambda launched: (one.counts[launched], launched))
    odd = [rank for rank in one.ranks if rank.launched != most]
    if len(odd) < sum(one.counts.values()) - one.counts[most]:
        each = ", ".join(f"{count} ranks {launched:,}" for launched, count in sorted(one.counts.items()))
        return f"ranks launched different numbers of {_what(one)}: {each}, in communicator {one.communicator}."
    numbers = sorted({rank.launched for rank in odd})
    some = f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,}"
    listed = names([labels.get(rank.pid or 0, f"rank {rank.rank}") for rank in odd])
    where = f" (process {odd[0].pid} on {odd[0].node})" if len(odd) == 1 and odd[0].pid else ""
    launched = f"launched {some} {_what(one, numbers == [1])}, the others {most:,}"
    return f"{listed}{where} {launched}, in communicator {one.communicator}."


def _what(one: RasMismatch, single: bool = False) -> str:
    """`AllReduce operations`."""
    text = "collectives" if one.operation == "collective" else f"{one.operation} operations"
    return text[:-1] if single else text


def as_json(status: RasStatus) -> dict[str, Any]:
    """The status as one object."""
    return {
        "nccl": status.version,
        "mismatches": [
            {
                "communicator": one.communicator,
                "operation": one.operation,
                "launched": one.launched,
                "counts": [{"launched": launched, "ranks": count} for launched, count in sorted(one.counts.items())],
                "behind": [
                    {"rank": rank.rank, "launched": rank.launched, "pid": rank.pid, "node": rank.node}
                    for rank in one.behind
                ],
            }
            for one in status.mismatches
        ],
        "unreachable": list(status.unreachable),
    }


def port(environ: Mapping[str, str]) -> int:
    """The port of RAS in a process with this environment."""
    given = environ.get(ADDRESS, "").rpartition(":")[2]
    return int(given) if given.isdecimal() and len(given) <= 5 else PORT


def status(pids: Mapping[int, Mapping[str, str]]) -> RasStatus | None:
    """The status from RAS of a job, given its processes and their environments; None if none of them listens.

    NoReply if it does not answer, or if the port may lead to another job.
    """
    at: dict[int, list[Listener]] = {}
    for pid, environ in pids.items():
        for one in listeners(pid):
            if one.port == port(environ) and one.loopback and not one.wildcard:
                at.setdefault(pid, []).append(one)
    if not at:
        return None
    pid = next(iter(at))
    asked = at[pid][0]
    own = {one.inode for some in at.values() for one in some}
    # NCCL shares the port: the kernel chooses one of the processes that listen on it
    if any(one.inode not in own for one in listening(pid) if one.port == asked.port):
        raise NoReply(f"port {asked.port} is shared with another job; set {ADDRESS} for each job")
    answer = exchange(connect(asked, ANSWERS_S), _REQUEST.encode("ascii"), seconds=ANSWERS_S, limit=LIMIT)
    return parse("\n".join(decode(line, _LONGEST_LINE) for line in answer.split(b"\n")[:_MOST_LINES]))
