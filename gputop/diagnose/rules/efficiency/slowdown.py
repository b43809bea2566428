"""A rule on a training run that has become slower, and what changed at that time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from gputop.diagnose.contention import consumers_beside
from gputop.diagnose.estimators import change_point
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.neighbours import CORES
from gputop.diagnose.program_kind import is_auxiliary, is_notebook, serves
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.steps import profile, stack
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.phrases import Sense
from gputop.units import ago_text

_STEP_S = 15.0  # between two values
_KEPT = 240  # values: one hour
_NAMED = 3  # programs that appeared with a change
_LEAST = 5  # values on either side of a change
_NOW = 4  # values that show whether it lasts
_LEAST_CORRELATION, _SAMPLES = 0.5, 6  # of a certain rhythm, with as many samples in it [M]
_OUTSIDE = Step(text="Check the changes listed as evidence first")
_INSIDE = (
    Step(text="Check the usual causes: longer samples, growing lists, logging, garbage collection"),
    Step(text="Ignore this if steps intentionally do more now: layers unfrozen, a larger batch"),
)
_SEE = "Profile where time is spent now"


class SpeedChange(NamedTuple):
    """One lasting change of a speed measure."""

    what: str
    before: float
    after: float
    slower: float  # 0-1 of the speed
    ago_s: float
    unit: str


@rule(
    "slowdown",
    "Is a training run slower than before?",
    level=Level.BESIDE,
    state="slower",
    short="SLOW",
    needs=("busy_percent",),
)
def slowdown(view: View) -> Iterator[Finding]:
    """Ten minutes at a steady speed, then at least five at a lower one: by step time, GPU busy or SM clock.

    Each trainer is tested every 15 s, in turn.
    """
    for trainer in view.trainers():
        notes, now_s = view.notes(trainer), view.frame.mono_s
        due_s = notes.setdefault("due_s", now_s + trainer.process.pid % _STEP_S)
        if trainer.peers or serves(trainer):
            notes.clear()  # the others affect its speed, or it has less work
        elif now_s >= due_s and view.knows(trainer, "duty"):
            notes["due_s"] = max(due_s + _STEP_S, now_s + _STEP_S / 2)
            _note_step(trainer, notes.setdefault("steps", deque(maxlen=_KEPT)))
            notes["found"], notes["found_s"] = _found(view, trainer, list(notes["steps"])), now_s
        found = notes.get("found")
        if found is not None:
            yield replace(found, onset_s=(found.onset_s or 0.0) + now_s - notes["found_s"])


def _note_step(trainer: Trainer, steps: deque[float | None]) -> None:
    """Record the current step time, if it is certain."""
    rhythm = trainer.period
    sure = rhythm is not None and rhythm.correlation >= _LEAST_CORRELATION
    sure = sure and rhythm is not None and rhythm.seconds >= _SAMPLES * trainer.spacing_s
    steps.append(rhythm.seconds if sure and rhythm is not None else None)


def _found(view: View, trainer: Trainer, steps: Sequence[float | None]) -> Finding | None:
    known_s = min(_KEPT * _STEP_S, trainer.context_s or 0.0)
    if known_s < view.limit("before_s") + view.limit("after_s"):
        return None
    change = _change(view, trainer, steps, known_s)
    if change is None or not view.above(change.slower, "slower") or _loaders_restarted(trainer, change.ago_s):
        return None
    if change.what == "GPU busy" and (is_auxiliary(trainer) or is_notebook(trainer)):
        return None  # it only has less work
    others = tuple(_other_changes(view, trainer, change.ago_s))
    evidence, vouched = tuple(item for item, _ in others), any(vouches for _, vouches in others)
    if change.what == "GPU busy" and not vouched:
        return _possible_finding(view, trainer, change, evidence)
    return _finding(view, trainer, change, evidence, vouched)


def _change(view: View, trainer: Trainer, steps: Sequence[float | None], known_s: float) -> SpeedChange | None:
    """The change of the step time; if that is not visible, of GPU busy or of its clock."""
    if 2 * sum(step is not None for step in steps) > len(steps):
        found = _single_change(view, steps)
        return found and SpeedChange("step time", *found[:2], 1 - found[0] / found[1], found[2], "s")
    busy = _single_change(view, _past(view, trainer.key, "busy_percent", known_s))
    if busy is not None and busy[1] < busy[0]:
        return SpeedChange("GPU busy", *busy[:2], 1 - busy[1] / busy[0], busy[2], "%")
    full = (trainer.duty or 0.0) >= view.limit("full")
    clock = (
        _single_change(view, _past(view, trainer.works_on[0].uuid, "sm_clock_mhz", known_s))
        if full and trainer.works_on
        else None
    )
    if clock is not None and clock[1] < clock[0]:
        return SpeedChange("SM clock", *clock[:2], 1 - clock[1] / clock[0], clock[2], "MHz")
    return None


def _past(view: View, key: str, metric: str, seconds: float) -> Sequence[float | None]:
    return view.history.values(key, metric, max(seconds, 901.0), _STEP_S)


def _single_change(view: View, series: Sequence[float | None]) -> tuple[float, float, float] | None:
    """Level before, level after, and seconds since; None unless it changed exactly once and stayed."""
    values = [value for value in series if value is not None]
    most, least = int(view.limit("before_s") / _STEP_S), int(view.limit("after_s") / _STEP_S)
    if len(values) < most + least:
        return None
    now = median(values[-_NOW:])
    if _is_near(view, median(values[:least]), now):  # cheap tests first
        return None
    place = change_point(values, _LEAST)
    if place is None or place < most or len(values) - place < least:
        return None
    before, after = values[:place], values[place:]
    first, second = median(before), median(after)
    spread = max(median(abs(value - first) for value in before), median(abs(value - second) for value in after))
    if not first or not second or abs(first - second) < view.limit("spreads") * spread:
        return None
    return None if _is_near(view, first, now) else (first, second, len(after) * _STEP_S)


def _is_near(view: View, one: float, other: float) -> bool:
    return abs(one - other) < view.limit("slower_exit") * max(one, other)


def _loaders_restarted(trainer: Trainer, ago_s: float) -> bool:
    """Whether its loaders started with the change: it does something else then, such as evaluation."""
    ages = [process.age_s for process in trainer.tree[1:] if process.age_s is not None]
    return any(abs(age_s - ago_s) <= 4 * _STEP_S for age_s in ages)


def _other_changes(view: View, trainer: Trainer, ago_s: float) -> Iterator[tuple[Evidence, bool]]:
    """Other changes at that time, each with whether it slows any kind of work."""
    for key, metric, text, share, more in _WITNESSES:
        about = key or (trainer.key if metric in _OF_TREE else trainer.works_on[0].uuid if trainer.works_on else "")
        values = _past(view, about, metric, _KEPT * _STEP_S)
        count = max(1, round(ago_s / _STEP_S))
        before = [value for value in values[-3 * count : -count - 1] if value is not None]
        after = [value for value in values[-count + 1 :] if value is not None]
        if len(before) < 4 or len(after) < 4:
            continue
        was, now = median(before), median(after)
        if (now - was if more else was - now) >= max(share[0], share[1] * abs(was)):
            unit, scale = ("%", 100) if metric in _SHARES else ("", 1)
            was, now = scale * was, scale * now
            sense: Sense = "healthy_to" if more else "healthy_from"
            item = Evidence(text=text.format(was=was, now=now), value=now, unit=unit, limit=was, sense=sense)
            yield item, metric not in _ITS_DOING
    for program in _new_programs(view, trainer, ago_s):
        yield program, True


_OF_TREE = {"loader_cpu", "loader_blocked", "run_wait"}
_SHARES = {"loader_blocked", "run_wait"}  # 0-1
_ITS_DOING = {"loader_cpu", "cpu_percent"}  # an evaluation changes these, too
# subject (empty: the trainer, or its GPU), metric, format, least change (absolute, relative), and whether it grows
_BLOCKED = "workers blocked on storage {now:.0f} % of the time (before {was:.0f} %)"
_RUN_WAIT = "CPU wait {now:.0f} % of runnable time (before {was:.0f} %)"
_WITNESSES = (
    ("", "sm_clock_mhz", "SM clock fell from {was:.0f} to {now:.0f} MHz", (50.0, 0.05), False),
    ("", "throttled_heat_percent", "thermal slowdown {now:.0f} % of the time", (5.0, 0.5), True),
    ("", "power_limit_watts", "power limit fell from {was:.0f} to {now:.0f} W", (5.0, 0.02), False),
    ("", "loader_cpu", "workers use {now:.1f} cores each (before {was:.1f})", (0.2, 0.2), True),
    ("", "loader_blocked", _BLOCKED, (0.15, 0.0), True),
    ("", "run_wait", _RUN_WAIT, (0.15, 0.0), True),
    ("host", "cpu_percent", "host CPU busy {now:.0f} % (before {was:.0f} %)", (20.0, 0.2), True),
    ("host", "refaults_per_s", "page cache refaults {now:.0f}/s (before {was:.0f}/s)", (500.0, 1.0), True),
    ("host", "swap_in_per_s", "swap-in {now:.0f} pages/s", (50.0, 1.0), True),
)  # fmt: skip


def _new_programs(view: View, trainer: Trainer, ago_s: float) -> Iterator[Evidence]:
    """Programs that began to use more CPU at that time, together a large share.

    By the history of their job or group: the compilers of a build live for seconds.
    """
    total = view.frame.host.cpus_total
    if not total:
        return
    count, rose = max(1, round(ago_s / _STEP_S)), []
    for one in consumers_beside(view, trainer, "cpu", float(total)):
        values = [value or 0.0 for value in _past(view, one.group, CORES, _KEPT * _STEP_S)]
        before, after = values[-3 * count : -count - 1], values[-count + 1 :]
        if len(before) >= 4 and len(after) >= 4:
            more = median(after) - median(before)
            if more >= view.limit("neighbour.named") * total:
                rose.append((more, one))
    if sum(more for more, _ in rose) < max(1.0, view.limit("neighbour.share") * total):
        return
    for _, one in sorted(rose, key=lambda each: -each[0])[:_NAMED]:
        user = one.command.user
        owner = f" of user {user}" if user and one.command.uid != trainer.process.uid else ""
        yield Evidence(text=f"{one.name}{owner} started then and uses {one.used:.1f} CPUs", value=one.used)


def _finding(
    view: View, trainer: Trainer, change: SpeedChange, changes: tuple[Evidence, ...], vouched: bool
) -> Finding:
    """`vouched`: an external change explains it, unlike longer samples, which keep its loaders busy."""
    see = profile(view, trainer.process, _SEE)
    meant = change.what == "step time" and not vouched  # perhaps: steps may do more since then
    severity: Severity = "crit" if change.slower >= view.limit("crit_slower") and not meant else "warn"
    why = "external change" if vouched else "cause inside the program"
    return view.found(
        trainer,
        severity,
        f"{100 * change.slower:.0f} % slower for {ago_text(change.ago_s)}, {why}",
        evidence=_evidence(view, change, changes),
        steps=(_OUTSIDE, see) if vouched else (see, *_INSIDE),
        confidence=view.confidence(0.6),
        lost_share=change.slower,
        onset_s=change.ago_s,
    )


def _possible_finding(view: View, trainer: Trainer, change: SpeedChange, changes: tuple[Evidence, ...]) -> Finding:
    """Steps are not visible: a GPU with less to do does not show that the same work takes longer."""
    less = f"{100 * change.slower:.0f} % less busy than {ago_text(change.ago_s)} ago"
    return view.found(
        trainer,
        "info",
        f"GPU {less}, slower or different work",
        evidence=_evidence(view, change, changes),
        steps=(
            stack(view, trainer.process, "Check whether it is evaluating: then this is expected"),
            profile(view, trainer.process, _SEE),
            *_INSIDE,
        ),
        confidence=view.confidence(0.4),
        onset_s=change.ago_s,
        state="less busy",
    )


def _evidence(view: View, change: SpeedChange, changes: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    digits = 2 if change.unit == "s" else 0
    amount = f"{change.before:.{digits}f} {change.unit}, now {change.after:.{digits}f} {change.unit}"
    less = f"{100 * change.slower:.0f} % {'fewer steps/s' if change.unit == 's' else 'lower'}"
    others = "CPUs and other programs" if view.frame.host.cpus_total else "CPUs"
    return (
        Evidence(
            text=f"{change.what} was {amount} ({less})",
            value=change.after,
            unit=change.unit,
            limit=change.before,
            sense="healthy_to" if change.unit == "s" else "healthy_from",
        ),
        *(changes or (Evidence(text=f"no change in clocks, workers, memory, {others}"),)),
    )
