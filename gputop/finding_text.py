"""A finding as text: subject, confidence, cost. The same on the screen and in reports."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gputop import labels, phrases, units
from gputop.diagnose import Abstained, Evidence, Finding, Step, Subject
from gputop.diagnose.finding import Grade
from gputop.model import Frame, Identity, Job, Process
from gputop.model.metric_title import metric_title
from gputop.safe.text import clean

if TYPE_CHECKING:
    from gputop.diagnose.state import JobState

LEAST_S = 40.0  # rules use half a minute of data, and findings must hold for as long
NO_JOB = "no job is running on the GPUs"
STATES = ("found", "judging", "unknown", "healthy")  # what needs attention first
_NUMBER = re.compile(
    r"(?<![\w.])(-?\d+(?:,\d{3})*(?:\.\d+)?)(?: ?(%|(?:cores|[GMk]B(?:/s)?|Gb/s|°C|W|MHz|ms|s|min|h|d)\b))?"
)
_LONGER = re.compile(r"[\w.]\d|[KMGTP]\b")  # after an apparent number: a version, a name, a size
_TIME = r"\d+ (?:s|min|h|d)"
_TIMED = re.compile(rf"\b(?:for|over|every|about) {_TIME}\b|\b{_TIME} ago\b")
_CLAUSE_END = re.compile(r"[,;:] | \(")
_AGO = re.compile(rf"{_TIME} ago$")
_UNITS = {"1/s": "/s", "1/min": "/min", "C": "°C", "loaders": "workers"}
_BASES: Mapping[Grade, str] = {
    "driver": "reported by the driver or kernel",
    "correlation": "inferred",
    "profile": "profiled",
    "job": "reported by the job",
}
_LONGEST = 40  # characters of a name
_ASKED = 512  # the screen asks every second, and rules change their text now and then


class TextPart(NamedTuple):
    """A part of a sentence; the strong one is the decisive number, the aside what it is held against."""

    text: str
    strong: bool = False
    aside: bool = False


def subject_name(about: Subject, frame: Frame) -> str:
    """The name of a subject: a job, a rank, a program, GPUs, or the machine. Ended ones keep their name."""
    if about.kind == "host":
        return clean(frame.hostname, _LONGEST)
    if about.jobs:
        return f"each of {len(about.jobs)} jobs"
    if about.kind == "gpu" or not (about.job or about.processes):
        return gpus(about.gpus, frame) or "a GPU"
    if about.job is not None:
        job = _job(about.job, frame)
        return clean(job.name if job else about.name or about.job, _LONGEST)
    if about.name and about.processes[0] not in frame.by_identity:
        return clean(about.name, _LONGEST)
    return program(about.processes[0], frame)


def program(identity: Identity, frame: Frame) -> str:
    """Display name of a process: job and rank, else its program."""
    process = frame.by_identity.get(identity)
    if process is None:
        return f"process {identity.pid}"
    job = _job(process.job, frame)
    if job is None:
        return clean(labels.script(process), _LONGEST)
    ranked = process.rank is not None and len(job.ranks) > 1
    return clean(f"{job.name} rank{process.rank}" if ranked else job.name, _LONGEST)


def _job(key: str | None, frame: Frame) -> Job | None:
    return next((job for job in frame.jobs if job.key == key), None)


def subject_owner(about: Subject, frame: Frame) -> str:
    """What distinguishes it from others of its name: user, process, GPUs; for a GPU, the processes on it."""
    if about.kind == "host":
        return ""
    if about.kind == "gpu":
        users = {job.name: None for job in frame.jobs for one in _members(job, frame) if _uses(one, about.gpus)}
        return ", ".join(clean(name, _LONGEST) for name in users)
    known = [frame.by_identity[one] for one in about.processes if one in frame.by_identity]
    job = _job(about.job, frame)
    user = (job.user if job else None) or next((one.user for one in known), about.user)
    pid = f"pid {about.processes[0].pid}" if about.kind == "process" and about.processes else ""
    return ", ".join(clean(part, _LONGEST) for part in (user, pid, gpus(about.gpus, frame)) if part)


def _members(job: Job, frame: Frame) -> list[Process]:
    return [frame.by_identity[one] for one in job.members if one in frame.by_identity]


def _uses(process: Process, uuids: Sequence[str]) -> bool:
    return any(share.uuid in uuids for share in process.gpus)


def gpus(uuids: Sequence[str], frame: Frame) -> str:
    """GPUs by number: `GPU 0-3`; empty if there are none. A departed one keeps its uuid."""
    found = frame.by_uuid
    names = [found[uuid].index if uuid in found else clean(uuid, 12) for uuid in uuids]
    return f"GPU {labels.numbers(names)}" if names else ""


def job_title(one: JobState, frame: Frame) -> str:
    """The name of a job, or of another GPU user, with what distinguishes it."""
    numbered = gpus(one.gpus, frame)
    aside = ", ".join(part for part in (clean(one.user or "", _LONGEST), numbered) if part and part != one.name)
    return f"{clean(one.name, _LONGEST)}{f' ({aside})' if aside else ''}"


def state_line(one: JobState, frame: Frame) -> str:
    """The state of a job and its reason in one line."""
    return f"{job_title(one, frame)}: {one.state}: {clean(one.why)}"


def state_counts(jobs: Sequence[JobState]) -> str:
    """Number of jobs per state: `2 jobs healthy`, `3 jobs: 1 healthy, 2 judging`."""
    return counts_text(Counter(one.state for one in jobs if one.due))


def counts_text(counts: Mapping[str, int]) -> str:
    """The same from the number of jobs in each state."""
    by = {state: count for state in STATES if (count := counts.get(state, 0))}
    if not by:
        return NO_JOB
    total = labels.amount(sum(by.values()), "job")
    if len(by) == 1:
        (state,) = by
        return f"{total} (judging)" if state == "judging" else f"{total} {state}"  # no job judges
    return f"{total}: {', '.join(f'{count} {state}' for state, count in by.items())}"


def severity(finding: Finding) -> str:
    """The severity as a word of the badge's length; what is healthy is `OK`."""
    return "OK" if finding.healthy else finding.severity.upper()


def headline(finding: Finding) -> str:
    """The text that follows the subject's name."""
    return clean(finding.headline)


def sentence(finding: Finding, frame: Frame) -> str:
    """Subject and headline: `llama-7b (alice, GPU 0-3): dataloader-bound, 2 workers are too few`."""
    return f"{qualified_name(finding.subject, frame)}: {headline(finding)}"


def qualified_name(about: Subject, frame: Frame) -> str:
    """The name of a subject with what distinguishes it."""
    aside = subject_owner(about, frame)
    return f"{subject_name(about, frame)}{f' ({aside})' if aside else ''}"


def duration_text(finding: Finding, so_long: str) -> str:
    """How long it has lasted; empty for healthy findings, single events, and headlines with a time."""
    once = any(_AGO.search(item.text) for item in finding.evidence[:1])
    return "" if finding.healthy or once or _TIMED.search(finding.headline) else f"for {so_long}"


def grade(finding: Finding) -> str:
    """The basis of a finding."""
    return _BASES[finding.grade]


def confidence(finding: Finding) -> str:
    """How sure it is, and on what basis: `confidence 0.70 · inferred`."""
    return f"confidence {finding.confidence:.2f} · {grade(finding)}"


def cost(finding: Finding, *, with_gain: bool = True) -> str:
    """Its cost in GPU time, and the largest gain; empty if unknown, or if nobody would win it back."""
    lost = finding.lost_share
    if lost is None or finding.healthy or finding.cost == "none" or not 0.01 <= lost <= 1:
        return ""
    if finding.cost == "idle":
        return f"GPU idle {100 * lost:.0f} % of the time"
    gain = f" · {phrases.at_most(lost)} if fixed" if with_gain and lost <= 0.9 else ""
    return f"{100 * lost:.0f} % of GPU time lost{gain}"


@lru_cache(maxsize=_ASKED)
def limit(item: Evidence) -> str:
    """The limit of the evidence with its unit; empty if there is none, or if the text has it."""
    if item.limit is None:
        return ""
    if item.unit == "B":
        return _without_repetition(_size(item.limit), item)
    if item.unit == "s" and item.limit >= 60:
        return _without_repetition(units.ago_text(item.limit), item)
    if item.unit == "B/s":
        return _without_repetition(_per_second(item.limit), item)
    if not item.unit:  # a version or a count, which is not rounded
        return _without_repetition(f"{item.limit:.4g}", item)
    number = f"{item.limit:.0f}" if abs(item.limit) >= 10 or item.limit == int(item.limit) else f"{item.limit:.2g}"
    unit = _unit_text(item.unit, number)
    return _without_repetition(f"{number}{unit}" if unit.startswith("/") else f"{number} {unit}".rstrip(), item)


def _unit_text(unit: str, number: str) -> str:
    """A unit in a sentence: 1000/s, 1 core."""
    counted, name = unit in ("cores", "loaders", "threads", "years"), _UNITS.get(unit, unit)
    return name[:-1] if counted and number == "1" else name


def _without_repetition(limit: str, item: Evidence) -> str:
    around = "".join(part.text for part in parts(item) if not part.strong)
    return "" if re.search(rf"(?<![\d.]){re.escape(limit)}(?!\d)", around) else limit


def _size(amount: float) -> str:
    """A size in decimal units (64 kB, 100 MB), as limits are written; computed ones in binary units."""
    for step, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if amount >= step and amount % step == 0:
            return f"{amount / step:.0f} {name}"
    return units.size(amount)


def _per_second(rate: float) -> str:
    """Bytes/s in the units of the rules' texts: 1.04 GB/s, 50 MB/s, 1.5 MB/s, 20 kB/s."""
    for step, name in ((1e9, "GB/s"), (1e6, "MB/s")):
        if rate >= step:
            return f"{rate / step:.{2 if step == 1e9 else 0 if rate >= 1e7 else 1}f} {name}"
    return f"{rate / 1e3:.0f} kB/s"


@lru_cache(maxsize=_ASKED)
def reference(item: Evidence) -> str:
    """What a number is held against, and which way: `healthy ≥ 80 %`; empty if nothing, or if the text has it.

    A limit without a unit is that of a count: it stands beside a number only.
    """
    found = limit(item)
    if not item.unit and not any(part.strong for part in parts(item)):
        return ""
    if item.limit == 0 and item.sense == "healthy_to":
        return f"healthy {found}"
    return phrases.held_against(found, item.sense) if found else ""


@lru_cache(maxsize=_ASKED)
def referenced(item: Evidence, *, rest: bool = True) -> Sequence[TextPart]:
    """Its parts, with the reference value behind the decisive number, before what else the text says.

    `rest`: with that; without it the text ends with its reference, for a narrow line.
    """
    found, held = parts(item), reference(item)
    if not held:
        return found
    at = next((place for place, part in enumerate(found, 1) if part.strong), 0)
    if not at:  # without a number it is about the whole text
        return (*found, TextPart(f" ({held})", aside=True))
    head, tail = found[:at], "".join(part.text for part in found[at:])
    before = "".join(part.text for part in head)
    close = tail.find(")") if before.count("(") > before.count(")") else -1
    if close >= 0:  # the number stands in brackets: so does its reference
        said, opens, after = tail[:close], "; ", tail[close + 1 :]
    else:
        end = _CLAUSE_END.search(tail)
        said, opens, after = tail[: end.start()] if end else tail, " (", tail[end.start() :] if end else ""
    if not rest:
        after = ""
    closes = ")"
    if after.startswith(" (") and close < 0:  # one pair of brackets for both
        closes, after = "; ", after[2:]
    pieces = (*head, TextPart(said), TextPart(f"{opens}{held}{closes}", aside=True), TextPart(after))
    return tuple(part for part in pieces if part.text)


@lru_cache(maxsize=_ASKED)
def parts(item: Evidence) -> Sequence[TextPart]:
    """Its text, with the decisive number and its unit marked strong."""
    text = clean(item.text)
    if item.value is None or not math.isfinite(item.value):
        return (TextPart(text),)
    number = _number(item.value, item.unit, text) or _quantity(item.value, item.unit, text)
    if number is None:
        return (TextPart(text),)
    cut = TextPart(text[: number.start()]), TextPart(number.group(), True), TextPart(text[number.end() :])
    return tuple(part for part in cut if part.text)


def _number(value: float, unit: str, text: str) -> re.Match[str] | None:
    """A value as a text has it: the most exact spelling, with its unit rather than without, never with another one."""
    spelled = (f"{value:,.0f}", f"{value:g}", *(f"{value:.{places}f}" for places in (2, 1, 0)))
    found = [one for one in _NUMBER.finditer(text) if one[1] in spelled and not _LONGER.match(text, one.end(1))]
    own = _UNITS.get(unit, unit)
    fitting = [one for one in found if not unit or one[2] in (None, own)]
    return max(fitting, key=lambda one: (len(one[1]), one[2] == own or not unit, -one.start()), default=None)


def _quantity(value: float, unit: str, text: str) -> re.Match[str] | None:
    """A value where a text has it in a larger unit: 1950 s as `32 min 30 s`, 2.4e6 B/s as `2.4 MB/s`."""
    if unit == "s":
        spelled = [units.ago_text(value), units.roughly(value), units.took_text(value)]
    elif unit in ("B", "B/s"):
        ending = unit.removeprefix("B")
        steps = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
        spelled = [f"{value / step:.{places}f} {name}{ending}" for step, name in steps for places in (2, 1, 0)]
        spelled.append(f"{units.size(value)}{ending}")
    else:
        return None
    apart = r"(?<![\w.,])(?<!\d [hd] )(?<!\d min )", r"(?!\w)(?! \d+ (?:s|min|h)\b)"  # from more of one time
    patterns = (apart[0] + re.escape(one) + apart[1] for one in sorted(spelled, key=len, reverse=True))
    return next((found for pattern in patterns if (found := re.search(pattern, text))), None)


def warnings(step: Step) -> str:
    """What the user must know before taking a step."""
    said = [*(["needs root"] if step.needs_root else []), *(["destructive"] if step.destroys else [])]
    return ", ".join(said)


def command(finding: Finding) -> str | None:
    """The command of its best step that has one."""
    return next((step.command for step in finding.steps if step.command), None)


def question(rule: str) -> str:
    """The question of a rule; its id if the rule no longer exists."""
    # imported late: rules are loaded on demand
    from gputop.diagnose.rules import RULES

    return RULES[rule].question if rule in RULES else rule


def missing_text(silent: Abstained) -> str:
    """What a rule lacked, and why."""
    return ", ".join(f"{metric_title(one.metric)} ({one.reason})" for one in silent.missing)
