"""Verdicts of signatures on a trace, and the declaration of a signature.

The types belong to this layer: `diagnose` may import `trace`, not the reverse, and converts them to findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from math import inf

from gputop.frozen_dataclass import frozen_dataclass
from gputop.phrases import Sense
from gputop.severity import Severity as Severity
from gputop.trace import launches
from gputop.trace.breakdown import Breakdown, StartUp, breakdown, host_spans, startup
from gputop.trace.intervals import Spans
from gputop.trace.names import SpanMeaning
from gputop.trace.operators import OperatorShape, operator_shapes
from gputop.trace.read import Trace
from gputop.trace.step_phases import Phase, Region, StepRow, phases, regions, rows

# two measures: nothing runs at all while the next kernel is not launched; the same for the busiest compute stream
GPU_WAITS = "GPU idle, next kernel not launched"
STREAM_WAITS = "busiest compute stream, next kernel not launched"
_EXPLAINED = 0.5  # of the time a fallback covers: a warning with this cost explains it


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class VerdictNumber:
    """One number a verdict rests on, with the limit it is compared with and which side of it is meant."""

    text: str
    value: float
    unit: str = ""
    of: str = ""  # the whole of which a percentage is a part
    limit: float | None = None
    sense: Sense | None = None


def percentage(
    text: str, share: float, of: str, limit: float | None = None, sense: Sense | None = None
) -> VerdictNumber:
    """A share (0-1) as a percentage of a whole."""
    return VerdictNumber(
        text=text,
        value=100 * share,
        unit="%",
        of=of,
        limit=None if limit is None else 100 * limit,
        sense=sense,
    )


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class TraceVerdict:
    """One observation in a trace. `lost_share` is the largest possible gain as a share of time (0-1), if known."""

    severity: Severity
    headline: str
    numbers: tuple[VerdictNumber, ...] = ()
    steps: tuple[str, ...] = ()  # advice, best first
    lost_share: float | None = None
    idle: bool = False  # the possible gain is GPU idle time
    healthy: bool = False
    all_ranks: bool = False  # about the job rather than the rank of this trace
    rule: str = ""  # set by the caller of the signatures


class TraceView:
    """A trace with derived results, each computed on first access."""

    def __init__(self, trace: Trace, device: int | None = None) -> None:
        self.trace = trace
        self.device = device  # None: the GPU with most activity
        self.all_ranks = True  # no file of the job was omitted
        self.ranks: Sequence[TraceView] = (self,)  # the traces of the other ranks, if known

    @cached_property
    def found(self) -> Breakdown:
        """The time breakdown."""
        return breakdown(self.trace, self.device)

    @cached_property
    def startup(self) -> StartUp:
        """Program startup in it."""
        return startup(self.trace, self.found)

    @cached_property
    def gpus(self) -> tuple[TraceView, ...]:
        """A view of each GPU by index if there are several; otherwise empty.

        Includes GPUs active only before or after the window.
        """
        found = sorted(set(self.trace.activity.device))
        return tuple(TraceView(self.trace, device) for device in found) if len(found) > 1 else ()

    @cached_property
    def shaped(self) -> tuple[OperatorShape, ...]:
        """Operators and shapes by GPU time."""
        return operator_shapes(self.trace, self.found)

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """The parts of the steps."""
        return phases(self.trace, self.found)

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """The program's own regions."""
        return regions(self.trace, self.found)

    @cached_property
    def rows(self) -> tuple[StepRow, ...]:
        """The steps."""
        return rows(self.trace, self.found)

    @cached_property
    def verdicts(self) -> tuple[TraceVerdict, ...]:
        """Verdicts of all signatures, the worst first."""
        return all_verdicts(self)

    @property
    def loads_itself(self) -> bool:
        """Whether its DataLoader works in the main process."""
        host = self.trace.host
        return any("_SingleProcess" in host.names.texts[name] for _, _, name in host.spans[SpanMeaning.DATA])

    @property
    def steps(self) -> int:
        """Number of complete steps; 1 if unknown, so that a count per step is a total."""
        return max(1, len(self.found.window.steps))

    def host(self, mark: SpanMeaning) -> Spans:
        """CPU spans of this meaning within the window."""
        return host_spans(self.trace, mark, self.found.window)

    def inside(self, times: Sequence[float]) -> int:
        """Number of these times within the window."""
        seen = self.found.window
        return sum(seen.start <= time < seen.end for time in times)


def stopped(view: TraceView, stops: Spans) -> float:
    """GPU idle time because the CPU stops, in microseconds."""
    found = view.found
    return launches.stop_idle_us(view.trace, found.inside, found.launch_of, found.gaps, stops)


def memory_peak(view: TraceView) -> tuple[int, int]:
    """Peak allocated and reserved bytes in the steps; without steps, in the whole trace."""
    memory, seen = view.trace.memory, view.found.window
    return memory.peak(seen.start, seen.end) if seen.steps else memory.peak(-inf, inf)


# one of several GPUs: it is unknown whether it was meant to work then
_NO_WORK = TraceVerdict(
    severity="warn",
    headline="no work in this window, only before or after it",
    steps=("Give this GPU work, or exclude it with CUDA_VISIBLE_DEVICES.",),
    rule="T24 idle",
)
Limits = Mapping[str, float]
Judge = Callable[[TraceView, Limits], Iterator[TraceVerdict]]


@frozen_dataclass(frozen=True, slots=True)
class Signature:
    """One declared signature."""

    id: str
    name: str
    question: str
    limits: Limits
    gpu: bool  # needs a GPU in the trace
    last: bool  # a fallback: reported if no warning explains most of the idle time that it covers
    judge: Judge = field(repr=False)


SIGNATURES: dict[str, Signature] = {}


def signature(
    id: str, name: str, question: str, *, gpu: bool = True, last: bool = False, **limits: float
) -> Callable[[Judge], Judge]:
    """Declare a signature: a function of a view and its limits that yields verdicts with advice."""

    def declared(judge: Judge) -> Judge:
        assert id not in SIGNATURES, f"{id} is declared twice"
        SIGNATURES[id] = Signature(id, name, question, limits, gpu, last, judge)
        return judge

    return declared


def all_verdicts(view: TraceView) -> tuple[TraceVerdict, ...]:
    """Verdicts of all signatures on a trace, the worst first, then by cost.

    None on a partly read trace: kernels are written last, and the missing part may say the opposite. None on program
    startup, either.
    """
    if not view.trace.whole or view.startup.alone:
        return ()
    if view.device is not None and not view.found.inside:
        return (_NO_WORK,)
    said: list[TraceVerdict] = []
    for entry in sorted(SIGNATURES.values(), key=lambda one: one.last):
        if entry.gpu and not len(view.trace.activity):
            continue
        found = [replace(verdict, rule=f"{entry.id} {entry.name}") for verdict in entry.judge(view, entry.limits)]
        said += [verdict for verdict in found if not (entry.last and _is_explained(verdict, said))]
    if _has_warning(said):
        said = [verdict for verdict in said if not verdict.healthy]
    rank = {"crit": 0, "warn": 1, "info": 2}
    return tuple(sorted(said, key=lambda verdict: (rank[verdict.severity], -(verdict.lost_share or 0), verdict.rule)))


def said_of(view: TraceView) -> tuple[TraceVerdict, ...]:
    """Verdicts on a trace within its job: no GPU or rank is called healthy beside one that is not."""
    if any(_has_warning(one.verdicts) for rank in view.ranks for one in (rank, *rank.gpus)):
        return tuple(verdict for verdict in view.verdicts if not verdict.healthy)
    return view.verdicts


def _is_explained(verdict: TraceVerdict, said: Sequence[TraceVerdict]) -> bool:
    """Whether a warning on this trace accounts for most of the idle time that a fallback covers."""
    known = (one.lost_share or 0.0 for one in said if one.idle and one.severity != "info" and not one.all_ranks)
    return verdict.idle and max(known, default=0.0) >= _EXPLAINED * (verdict.lost_share or 0.0)


def _has_warning(said: Sequence[TraceVerdict]) -> bool:
    return any(verdict.severity != "info" for verdict in said)
