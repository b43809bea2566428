"""Reports on pasted texts: profiler tables, nvidia-smi, CSV, logs, NCCL RAS; and on pickles that PyTorch writes.

Every kind is declared here.
"""

from __future__ import annotations

from gputop.paste import (
    flight_dump,
    gpu_csv_advice,
    log_tail,
    memory_snapshot,
    nvidia_smi_advice,
    nvidia_smi_box,
    operator_advice,
    ras_status,
)
from gputop.paste.flight_dump import FlightDump
from gputop.paste.pasted import Pasted, TextKind, lines
from gputop.safe.files import Refused
from gputop.trace.text import Text

__all__ = ["KINDS", "FlightDump", "Pasted", "TextKind", "memory_snapshot", "read", "recognise"]

MOST_TEXT = 16 << 20  # characters of a text; a longer one is cut at its start
MOST_PICKLE = 256 << 20  # bytes

# those with a distinctive form come first: a log may quote any of them
KINDS = (
    operator_advice.KIND,
    nvidia_smi_advice.KIND,
    nvidia_smi_box.KIND,
    ras_status.KIND,
    gpu_csv_advice.KIND,
    log_tail.KIND,
)


def read(text: str) -> Pasted | None:
    """The report on a text; None if its kind is unknown."""
    plain = "\n".join(lines(text))
    kind = next((kind for kind in KINDS if kind.looks_like(plain)), None)
    return kind.read(plain) if kind else None


def recognise(file: Text) -> Pasted | FlightDump | None:
    """The report on a file that is a pickle of PyTorch or one of these texts; Refused if it is one but unreadable."""
    beginning = file.beginning()
    if memory_snapshot.looks_like(beginning):
        data = file.last(MOST_PICKLE + 1)
        if len(data) > MOST_PICKLE:
            raise Refused(f"larger than {MOST_PICKLE >> 20} MiB: record fewer events")
        return flight_dump.pickled(data) or memory_snapshot.read(data)
    if flight_dump.looks_like(beginning):
        return flight_dump.from_text(file.last(MOST_TEXT + 1))
    text, longer = file.tail(MOST_TEXT)
    found = read(text)
    if found is None or not (longer or file.notes):
        return found
    long = (f"Only the last {MOST_TEXT >> 20} MiB of it were read.",) if longer else ()
    return found.with_problems((*long, *(f"{note[0].upper()}{note[1:]}." for note in file.notes)))
