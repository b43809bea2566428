"""Failed collectives in a log: NCCL timeouts by rank, operation and sequence number; NCCL errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from gputop import pytorch
from gputop.frozen_dataclass import frozen_dataclass
from gputop.paste.pasted import LimitTable, torch_version
from gputop.report import Do, Point
from gputop.safe.text import clean

_LIMITS = LimitTable("paste-log")

_TIMEOUT = re.compile(
    r"(?:Watchdog caught collective operation timeout|Timeout(?: at NCCL work| waiting for)|"
    r"collective operation timeout|wait timeout after \d+ms|Timed out waiting \d+ms for (?:recv|send) operation)"
)
_RANK = re.compile(r"\[?[Rr]ank[ =:]?(\d{1,6})\]?")
_GROUP = re.compile(r"\[PG (?:ID )?(\w{1,40})")
_SEQUENCE = re.compile(r"SeqNum=(\d{1,12})")
_OPERATION = re.compile(r"OpType=(\w{1,40})")
_LIMIT = re.compile(r"Timeout\(ms\)=(\d{1,12})|wait timeout after (\d{1,12})ms")
_RAN = re.compile(r"ran for (\d{1,12}) milliseconds")
_DONE = re.compile(r"last completed (?:NCCL )?work: (-?\d{1,12})")
_ERROR = re.compile(
    r"ncclSystemError|ncclRemoteError|ncclInternalError|ncclUnhandledCudaError|NCCL error|NCCL WARN|"
    r"NET/IB : Got completion .* error|Connection closed by (?:remote )?peer"
)
_NCCL = re.compile(r"nccl", re.IGNORECASE)
_MOST_RANKS = 100_000
_WAITED_FOR = "it is slow, stuck or dead"
_ALIVE = "pgrep -af python; dmesg -T | grep -iE 'xid|killed process'"


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Timeout:
    """One rank's report on the collective that timed out."""

    rank: int | None
    group: str | None  # process group: each numbers its own collectives
    sequence: int | None
    operation: str | None
    limit_ms: int | None
    done: int | None  # its last completed one


def find(text: Sequence[str]) -> Iterator[tuple[int, str, Point, dict[str, Any]]]:
    """The timeouts of all ranks as one item; else the first NCCL error."""
    at = [number for number, line in enumerate(text) if _TIMEOUT.search(line)]
    version = torch_version(text)
    if at:
        reports = list(timeouts(text, at))
        yield (at[0], "collective timeout", _point(reports, version), _numbers(reports))
        return
    errors = [number for number, line in enumerate(text) if _ERROR.search(line) and _NCCL.search(line)]
    if errors:
        line = clean(" ".join(text[errors[0]].split()), 160)
        yield errors[0], "NCCL error", _error(line), {"message": line}


def timeouts(text: Sequence[str], at: Sequence[int]) -> Iterator[Timeout]:
    """The first one of each rank; its last completed collective may be on another line."""
    done: dict[int | None, int] = {}
    for line in text:
        if found := _DONE.search(line):
            done.setdefault(_number(_RANK, line), int(found[1]))
    seen: set[int | None] = set()
    for number in at:
        line = text[number] + (" " + text[number + 1] if number + 1 < len(text) else "")
        rank = _number(_RANK, text[number])
        if rank in seen or len(seen) >= _MOST_RANKS:
            continue
        seen.add(rank)
        operation = _OPERATION.search(line)
        yield Timeout(
            rank=rank,
            group=group[1] if (group := _GROUP.search(text[number])) else None,
            sequence=_number(_SEQUENCE, line),
            operation=operation[1] if operation else None,
            limit_ms=_number(_LIMIT, line) or _number(_RAN, line),
            done=done.get(rank),
        )


def _number(pattern: re.Pattern[str], line: str) -> int | None:
    found = pattern.search(line)
    return next((int(group) for group in found.groups() if group), None) if found else None


def late_ranks(reports: Sequence[Timeout]) -> list[Timeout]:
    """The ranks at an earlier collective than the others."""
    known = [one for one in reports if one.sequence is not None]
    if len({one.group for one in known}) > 1:
        return []
    least, most = (choose((one.sequence or 0 for one in known), default=0) for choose in (min, max))
    return [one for one in known if one.sequence == least] if least < most else []


def _point(reports: Sequence[Timeout], version: str | None) -> Point:
    behind = late_ranks(reports)
    kinds = {one.operation for one in reports if one.operation}
    ranks = _ranks([one.rank for one in reports])
    text = f"Hang: {_collective(reports[0])} timed out{f' on {ranks}' if ranks else ''}."
    if behind:
        late = _ranks([one.rank for one in behind]) or "a rank"
        verb = "are" if len(behind) > 1 else "is"
        text = f"Hang: {late} {verb} behind the others, at {_collective(behind[0])}."
    elif len(kinds) > 1:
        text = f"Hang: ranks call different collectives: {', '.join(sorted(kinds)).lower()}."
    steps = tuple(_steps(reports, behind, version))
    return Point(severity="crit", text=text, facts=tuple(_facts(reports)), steps=steps)


def _collective(one: Timeout) -> str:
    """`allreduce #42`: the operation and its sequence number."""
    name = (one.operation or "a collective").lower().replace("_", "-")
    return name if one.sequence is None else f"{name} #{one.sequence}"


def _facts(reports: Sequence[Timeout]) -> Iterator[str]:
    if reports[0].limit_ms:
        yield f"timeout {reports[0].limit_ms / 1000:.0f} s"
    places: dict[str, list[int | None]] = {}
    for one in reports:
        done = "" if one.done is None else f", last completed #{one.done}"
        places.setdefault(f"at {_collective(one)}{done}", []).append(one.rank)
    if len(places) > 1 or reports[0].done is not None:
        yield from (f"{_ranks(ranks) or 'a rank'} {place}" for place, ranks in [*places.items()][:8])
    if any(one.sequence is not None for one in reports):
        yield "# is the sequence number of a collective"
    if len(reports) > 1:
        yield "the log does not show how many ranks there are"


def _steps(reports: Sequence[Timeout], behind: Sequence[Timeout], version: str | None) -> Iterator[str | Do]:
    waiting = _ranks([one.rank for one in reports])
    if behind:
        yield f"Check {_ranks([one.rank for one in behind]) or 'that rank'} first: its log before the timeout."
    elif waiting and len(reports) == 1:  # its own log: what the others did is not in it
        yield f"Compare the logs of all ranks: this log has {waiting} alone, which may be late or have waited."
        yield f"Find the rank without a timeout, or with the lowest sequence number: {_WAITED_FOR}."
    elif waiting:
        yield f"Find the ranks missing in this log: {waiting} waited for them. A missing rank is slow, stuck or dead."
    else:
        yield f"Find the rank that did not time out, or has the lowest sequence number: {_WAITED_FOR}."
    yield Do("On that rank's host, check that its process is alive, its log, and the kernel's messages.", _ALIVE)
    if len(reports) > 1 and not behind:
        yield "If no rank is missing, suspect the network: run with NCCL_DEBUG=INFO."
    yield Do("At the next hang, compare the stacks of all ranks. PID is that of any rank.", "gputop stack --job PID")
    yield Do("Record collectives, so that a timeout dumps them.", pytorch.flight_recorder(version))
    yield Do("Then compare the ranks' files.", "gputop explain nccl_trace_rank_*")
    if any(one.sequence is not None and one.sequence <= _LIMITS["first"] for one in reports):
        yield Do(
            "No collective completed before: check the network interface.",
            "export NCCL_DEBUG=INFO NCCL_SOCKET_IFNAME=eth0",
        )
    yield "Check uneven batches per rank, collectives inside if rank == 0, and slow checkpoints or evaluation."
    yield "Raise the timeout only for work known to be long: init_process_group(timeout=timedelta(minutes=60))."


def _ranks(ranks: Sequence[int | None]) -> str:
    known = sorted({rank for rank in ranks if rank is not None})
    if not known:
        return ""
    shown = ", ".join(map(str, known[:8])) + (f" and {len(known) - 8} more" if len(known) > 8 else "")
    return f"rank{'s' if len(known) > 1 else ''} {shown}"


def _error(line: str) -> Point:
    remote = re.search("Remote|remote|peer|completion", line)
    return Point(
        severity="crit",
        text="NCCL failed: a peer or the network was lost." if remote else "NCCL failed.",
        facts=(line,),
        steps=(
            "Find the rank that failed first: its log names the cause, the others lost their peer."
            if remote
            else "Read the NCCL WARN line above it: it names the call that failed.",
            Do("Log what NCCL does.", "export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET"),
            Do("Check GPUs and links for errors.", "nvidia-smi -q -d ECC,PCI; dmesg | grep -i xid"),
        ),
    )


def _numbers(reports: Sequence[Timeout]) -> dict[str, Any]:
    return {
        "ranks": [
            {
                "rank": one.rank,
                "operation": one.operation,
                "sequence": one.sequence,
                "timeout_s": one.limit_ms / 1000 if one.limit_ms else None,
                "last_completed": one.done,
            }
            for one in reports[:1000]
        ],
        "behind": [one.rank for one in late_ranks(reports)],
    }
