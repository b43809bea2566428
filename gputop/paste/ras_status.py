"""Status texts of NCCL's RAS, as ncclras and `nc localhost 28028` print them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from gputop.collectives import ras
from gputop.collectives.local_server import NoReply
from gputop.paste.pasted import Pasted, TextKind
from gputop.report import Do, Point
from gputop.safe.files import Refused

_BEHIND = (
    "Take the status twice, 10 s apart: counts differ for a moment in a healthy job, too, but all of them grow.",
    Do(
        "If a count stays, the ranks that launched fewer hold up the others: compare their stacks. "
        "PID is that of any rank.",
        "gputop stack --job PID",
    ),
)
_GONE = (
    Do(
        "Check on their hosts whether the processes run; if not, read their logs and the kernel's.",
        "dmesg -T | tail -n 50",
    ),
)


def read(text: str) -> Pasted:
    """The report on a status."""
    try:
        status = ras.parse(text)
    except NoReply as refused:
        raise Refused(str(refused)) from None
    items = [
        *_points("crit", ras.unreachable_sentences(status), _GONE),
        *_points("warn", ras.mismatch_sentences(status, {}), _BEHIND),
    ]
    fine = Point(severity="fine", text="All ranks launched the same collectives, and all processes answered.")
    return Pasted(
        kind="nccl-ras",
        about=f"A status of NCCL's RAS, NCCL {status.version}",
        points=tuple(items) or (fine,),
        numbers=ras.as_json(status),
    )


def _points(severity: Literal["crit", "warn"], said: Sequence[str], steps: tuple[str | Do, ...]) -> Iterator[Point]:
    """A point for each sentence; the steps, which are the same for all of them, once."""
    for at, sentence in enumerate(said):
        yield Point(
            severity=severity,
            text=sentence[:1].upper() + sentence[1:],
            steps=steps if at == len(said) - 1 else (),
        )


KIND = TextKind("nccl-ras", "the status of NCCL's RAS", ras.looks_like, read)
