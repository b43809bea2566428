"""What was seen inside a process, as facts: from stacks, a trace, or the program itself. Facts raise confidence."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop import step_report, units
from gputop.diagnose.finding import Evidence, Finding
from gputop.model import Fact, Frame, Identity, Process, Witness

if TYPE_CHECKING:
    from gputop.profile import Profile
    from gputop.trace.verdict import TraceView as Trace

    Said = Profile | Trace | Iterable[Fact]

CONFIDENCE_LIMIT, CONFIDENCE_GAIN = 0.98, 0.15
KEPT_S = 900.0
MOST = 256  # facts; the newest stay
LOADS_IN_MAIN, WAITS_FOR_DATA = "loads-in-main", "waits-for-data"
_A_TRACE_SAYS = "trace: "
_RECORDED = "(recorded)"


class Testimony:
    """Recent facts about processes, added to every frame so that a recording has them wherever it starts."""

    def __init__(self) -> None:
        self._arrived: deque[tuple[Identity, Witness, tuple[Fact, ...]]] = deque(maxlen=MOST)
        self._kept: dict[tuple[Identity, Witness], tuple[float, tuple[Fact, ...]]] = {}
        self._newest_s = -math.inf

    def record(self, process: Identity, said: Said, *, recorded: bool = False, witness: Witness = "notes") -> None:
        """Take in what was seen inside a process; thread-safe. It replaces earlier facts of the same kind of source.

        `recorded` facts come with a demo, and say so; `witness`: the source of facts that are given as such. Facts from
        stacks have the names of `profile.parts.PARTS`, those from traces the names of their signatures.
        """
        # imported late: most runs profile no process
        from gputop.profile import Profile
        from gputop.trace.verdict import TraceView as Trace

        if isinstance(said, Profile):
            witness, facts = "stack", tuple(_stack_facts(process, said))
        elif isinstance(said, Trace):
            witness, facts = "trace", tuple(_trace_facts(process, said))
        else:
            facts = tuple(replace(fact, process=process, witness=witness, age_s=0.0) for fact in said)
        if recorded:
            facts = tuple(replace(fact, text=f"{fact.text.rstrip('.')} {_RECORDED}") for fact in facts)
        self._arrived.append((process, witness, facts))

    def attach(self, frame: Frame) -> Frame:
        """The frame with all facts so far; those of a recorded frame stay unless newer ones replace them."""
        if frame.mono_s < self._newest_s:
            self._kept.clear()  # a recording was rewound
        self._newest_s = frame.mono_s
        while self._arrived:
            process, witness, facts = self._arrived.popleft()
            self._kept.pop((process, witness), None)
            self._kept[process, witness] = (frame.mono_s, facts)
        if not self._kept:
            return frame
        self._kept = {key: kept for key, kept in self._kept.items() if frame.mono_s - kept[0] < KEPT_S}
        brought = [fact for fact in frame.facts if (fact.process, fact.witness) not in self._kept]
        kept_facts = [replace(fact, age_s=frame.mono_s - at_s) for at_s, facts in self._kept.values() for fact in facts]
        return replace(frame, facts=(*brought, *kept_facts)[-MOST:])


def claim(fact: Fact) -> str:
    """The claim of a fact as part of a sentence, without its source."""
    return fact.text.removeprefix(_A_TRACE_SAYS).rstrip(".")


def measured_facts(process: Process, least: float, now_s: float) -> Iterator[Fact]:
    """What the step meter of a process reports, if at least this share of a step waits for data."""
    wait, step_s = process.data_wait_percent, process.step_s
    if wait is None or step_s is None or wait < 100 * least:
        return
    rest_s = step_s * (1 - wait / 100)
    text = f"step meter: step {units.took_text(step_s)}, {units.took_text(rest_s)} without data wait; "
    text += f"data wait {wait:.0f} % of the step"
    if slow := step_report.slow(process, now_s):
        text += f"; {slow}"
    for name in (WAITS_FOR_DATA, LOADS_IN_MAIN):  # without loaders it loads in the main thread
        yield Fact(process=process.identity, witness="meter", name=name, text=text, share=wait / 100)


def contradicted(finding: Finding, by: tuple[str, ...], frame: Frame, most: float) -> bool:
    """Whether it claims that steps wait for data while the step meters of all its processes report less than `most`."""
    if WAITS_FOR_DATA not in by:
        return False
    found = [frame.by_identity.get(one) for one in finding.subject.processes]
    waits = [one.data_wait_percent for one in found if one is not None and one.step_s is not None]
    return bool(waits) and all(wait is not None and wait < 100 * most for wait in waits)


def confirmed(finding: Finding, by: tuple[str, ...], facts: Iterable[Fact], least: float) -> Finding:
    """The finding with higher confidence if such a fact is known of one of its processes; `least`: share of samples."""
    about = finding.subject.processes
    for fact in sorted(facts, key=lambda fact: fact.witness != "recorder"):  # these name a collective
        enough = fact.witness != "stack" or (fact.share or 0.0) >= least
        if fact.name in by and fact.process in about and enough:
            share = None if fact.share is None else 100 * fact.share
            seen = Evidence(text=fact.text, value=share, unit="" if share is None else "%")
            return replace(
                finding,
                confidence=max(finding.confidence, min(CONFIDENCE_LIMIT, finding.confidence + CONFIDENCE_GAIN)),
                grade="profile" if fact.witness in ("stack", "trace") else "job",
                # next to the decisive evidence, where the result of a profile is expected
                evidence=(*finding.evidence[:1], seen, *finding.evidence[1:]),
            )
    return finding


def _stack_facts(process: Identity, profile: Profile) -> Iterator[Fact]:
    from gputop.profile.training_parts import LINALG, loaders, main, share, shares

    if not profile.stacks:
        return
    seen = main(profile)
    for part, some in shares(seen).items():
        if some:
            of = f"{100 * some:.0f} % of {seen.total:.0f} samples" if seen.total > 1 else "the sampled stack"
            text = f"main thread {part.text} in {of}"
            yield Fact(process=process, witness="stack", name=part.name, text=text, share=some)
    if some := share(loaders(profile), LINALG):
        text = f"workers {LINALG.text} in {100 * some:.0f} % of their samples"
        yield Fact(process=process, witness="stack", name=LINALG.name, text=text, share=some)


def _trace_facts(process: Identity, trace: Trace) -> Iterator[Fact]:
    for verdict in trace.verdicts:
        name = verdict.rule.partition(" ")[2]
        if verdict.severity != "info" or verdict.healthy:
            text = f"{_A_TRACE_SAYS}{verdict.headline}"
            names = (name, LOADS_IN_MAIN) if name == "input-bound" and trace.loads_itself else (name,)
            for each in names:
                yield Fact(process=process, witness="trace", name=each, text=text, share=verdict.lost_share)
