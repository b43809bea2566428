"""Status texts of NCCL's RAS, as ncclras and `nc localhost 28028` print them."""

from __future__ import annotations

from gputop.collectives import ras
from gputop.collectives.local_server import NoReply
from gputop.paste.pasted import Pasted, TextKind
from gputop.report import Do, Point
from gputop.safe.files import Refused

_STACKS = Do("Compare the stacks of the job's ranks. PID is that of any rank.", "gputop stack --job PID")


def read(text: str) -> Pasted:
    """The report on a status."""
    try:
        status = ras.parse(text)
    except NoReply as refused:
        raise Refused(str(refused)) from None
    said = ras.sentences(status, {})
    items = [
        Point(
            severity="crit",
            text=sentence.removeprefix("NCCL RAS: ")[:1].upper() + sentence.removeprefix("NCCL RAS: ")[1:],
            steps=("Find out why it is behind: its log, its stack, its host.", _STACKS),
        )
        for sentence in said
    ]
    fine = Point(severity="fine", text="All ranks launched the same collectives, and all processes answered.")
    return Pasted(
        kind="nccl-ras",
        about=f"A status of NCCL's RAS, NCCL {status.version}",
        points=tuple(items) or (fine,),
        notes=("counts of ranks that advance differ for a moment: take the status twice",) if items else (),
        numbers=ras.as_json(status),
    )


KIND = TextKind("nccl-ras", "the status of NCCL's RAS", ras.looks_like, read)
