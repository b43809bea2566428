"""What a signature says of a trace, and how one is declared.

The types are this layer's own: `diagnose` may import `trace`, not the other way round, and makes findings of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from math import inf

from gputop.frozen_dataclass import frozen_dataclass
from gputop.severity import Severity as Severity
from gputop.trace import launches
from gputop.trace.breakdown import Breakdown, StartUp, beginning, breakdown, host_spans
from gputop.trace.intervals import Spans
from gputop.trace.names import Mark
from gputop.trace.operators import Shaped, shaped
from gputop.trace.read import Trace
from gputop.trace.step_phases import Phase, Region, Row, phases, regions, rows

# two quantities: nothing runs at all and the next kernel is not launched; the same of the stream that computes most
GPU_WAITS = "GPU idle, waits for a launch, of the time"
STREAM_WAITS = "busiest compute stream waits for a launch, of the time"
_EXPLAINED = 0.5  # of the time that a catch-all is about: a warning that costs so much says why


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One number a verdict rests on, with the limit it was held against."""

    text: str
    value: float
    unit: str = ""
    limit: float | None = None


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One thing a trace shows. `lost_share` is the most that could be won, 0 to 1 of the time, where it is known."""

    severity: Severity
    headline: str
    numbers: tuple[Number, ...] = ()
    steps: tuple[str, ...] = ()  # what to do, best first
    lost_share: float | None = None
    idle: bool = False  # what could be won is time in which the GPU idles
    healthy: bool = False
    all_ranks: bool = False  # it is about the job, not about the rank whose trace says it
    rule: str = ""  # filled in by what runs the signatures


class View:
    """A trace and what was worked out from it, each when first asked for."""

    def __init__(self, trace: Trace, device: int | None = None) -> None:
        self.trace = trace
        self.device = device  # None: the GPU with most activity
        self.all_ranks = True  # none of the files of the job was left out
        self.ranks: Sequence[View] = (self,)  # the traces of the other ranks of the job too, where they are known

    @cached_property
    def found(self) -> Breakdown:
        """Where the time goes."""
        return breakdown(self.trace, self.device)

    @cached_property
    def start(self) -> StartUp:
        """What of it is the start of the program."""
        return beginning(self.trace, self.found)

    @cached_property
    def gpus(self) -> tuple[View, ...]:
        """Each GPU of a trace that has several, by its index; empty where there is one, or none.

        One that did nothing in the window is among them, where it did something before or after.
        """
        found = sorted(set(self.trace.activity.device))
        return tuple(View(self.trace, device) for device in found) if len(found) > 1 else ()

    @cached_property
    def shaped(self) -> tuple[Shaped, ...]:
        """Operators and shapes by GPU time."""
        return shaped(self.trace, self.found)

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """The parts of the steps."""
        return phases(self.trace, self.found)

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """What the program named itself."""
        return regions(self.trace, self.found)

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The steps."""
        return rows(self.trace, self.found)

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What all signatures say, the worst first."""
        return judged(self)

    @property
    def loads_itself(self) -> bool:
        """Whether its DataLoader works in the main process."""
        host = self.trace.host
        return any("_SingleProcess" in host.names.texts[name] for _, _, name in host.spans[Mark.DATA])

    @property
    def steps(self) -> int:
        """How many whole steps there are; 1 where nothing says it, so that a count a step is a count."""
        return max(1, len(self.found.window.steps))

    def host(self, mark: Mark) -> Spans:
        """What of the window the CPU spends on something."""
        return host_spans(self.trace, mark, self.found.window)

    def inside(self, times: Sequence[float]) -> int:
        """How many of some times lie in the window."""
        seen = self.found.window
        return sum(seen.start <= time < seen.end for time in times)


def stopped(view: View, stops: Spans) -> float:
    """How long the GPU idles because the CPU stops, in microseconds."""
    found = view.found
    return launches.stopped(view.trace, found.inside, found.launch_of, found.gaps, stops)


def memory_peak(view: View) -> tuple[int, int]:
    """The most memory that was allocated and reserved in the steps; without any in the whole trace."""
    memory, seen = view.trace.memory, view.found.window
    return memory.peak(seen.start, seen.end) if seen.steps else memory.peak(-inf, inf)


# one of several GPUs: whether it was meant to work then is not known
_NO_WORK = Verdict(
    severity="warn",
    headline="nothing ran on it in this time; it did before or after.",
    steps=("Give it work, or leave it out: CUDA_VISIBLE_DEVICES.",),
    rule="T24 idle",
)
Limits = Mapping[str, float]
Judge = Callable[[View, Limits], Iterator[Verdict]]


@frozen_dataclass(frozen=True, slots=True)
class Signature:
    """One declared signature: its id, its name, its question, its numbers."""

    id: str
    name: str
    question: str
    limits: Limits
    gpu: bool  # it says nothing of a trace without a GPU
    last: bool  # a catch-all: it speaks where no warning explains most of the idle time that it is about
    judge: Judge = field(repr=False)


SIGNATURES: dict[str, Signature] = {}


def signature(
    id: str, name: str, question: str, *, gpu: bool = True, last: bool = False, **limits: float
) -> Callable[[Judge], Judge]:
    """Declares a signature: a function of a view and its limits, which yields verdicts with their advice."""

    def declared(judge: Judge) -> Judge:
        assert id not in SIGNATURES, f"{id} is declared twice"
        SIGNATURES[id] = Signature(id, name, question, limits, gpu, last, judge)
        return judge

    return declared


def judged(view: View) -> tuple[Verdict, ...]:
    """What all signatures say of a trace, the worst first; what costs most first among those as bad.

    Nothing of one that was read in part: kernels are written last, and what is missing may say the opposite. Nothing of
    the start of a program, either.
    """
    if not view.trace.whole or view.start.alone:
        return ()
    if view.device is not None and not view.found.inside:
        return (_NO_WORK,)
    said: list[Verdict] = []
    for entry in sorted(SIGNATURES.values(), key=lambda one: one.last):
        if entry.gpu and not len(view.trace.activity):
            continue
        found = [replace(verdict, rule=f"{entry.id} {entry.name}") for verdict in entry.judge(view, entry.limits)]
        said += [verdict for verdict in found if not (entry.last and _explained(verdict, said))]
    if _warned(said):
        said = [verdict for verdict in said if not verdict.healthy]
    rank = {"crit": 0, "warn": 1, "info": 2}
    return tuple(sorted(said, key=lambda verdict: (rank[verdict.severity], -(verdict.lost_share or 0), verdict.rule)))


def said_of(view: View) -> tuple[Verdict, ...]:
    """What is said of a trace beside the others of its job: no GPU and no rank is well beside one that is not."""
    if any(_warned(one.verdicts) for rank in view.ranks for one in (rank, *rank.gpus)):
        return tuple(verdict for verdict in view.verdicts if not verdict.healthy)
    return view.verdicts


def _explained(verdict: Verdict, said: Sequence[Verdict]) -> bool:
    """Whether a warning about this very trace accounts for most of the idle time that a catch-all is about."""
    known = (one.lost_share or 0.0 for one in said if one.idle and one.severity != "info" and not one.all_ranks)
    return verdict.idle and max(known, default=0.0) >= _EXPLAINED * (verdict.lost_share or 0.0)


def _warned(said: Sequence[Verdict]) -> bool:
    return any(verdict.severity != "info" for verdict in said)
