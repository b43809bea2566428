"""Steadying: a finding appears when it has held long enough and clears when it is clearly over."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from gputop.diagnose.finding import Evidence, Finding, Severity, subject_key
from gputop.diagnose.limits import DEFAULTS, Limits
from gputop.diagnose.phases import PhaseChange
from gputop.diagnose.rule import RULES, Level
from gputop.model import Identity

HELD_SHARE = 0.8  # of the on-window
OFF_FACTOR = 1.5  # the off-window, in on-windows
_LEAST_LOOKS = 1.5  # samples in an on-window at least: with rare samples, a single one proves nothing
LEAST_SHOWN_S = 15.0
_STALE_S = 6.0  # seconds without holding after which a shown finding marks its evidence as old
_TO_JUDGE = 0.5  # of its window that a rule must know of a phase
_MORE_LOOKS = 3  # after that, in which the same finding may return
_EVALUATES = "measured during training; checks are paused during evaluation"
_WITHDRAWALS, _WITHIN_S = 2, 240.0  # withdrawn and shown again so often recently: alternating phases are its rhythm
RANKS: dict[Severity, int] = {"info": 0, "warn": 1, "crit": 2}
_BY_RANK: tuple[Severity, ...] = ("info", "warn", "crit")


@dataclass(slots=True)
class Candidate:
    """A finding that is pending, shown, or about to clear."""

    on_s: float
    newest: Finding
    hits: deque[tuple[float, float, int]] = field(default_factory=deque)  # (time, seconds it stands for, severity)
    first_s: float = 0.0  # holds since
    began_s: float | None = None  # start of the cause, where the rule knows an earlier time
    last_s: float = 0.0  # last held at
    shown_s: float | None = None  # shown since
    rank: int = 0
    moved_s: float = 0.0  # last change of severity
    higher_s: float = 0.0  # last time it was as severe as shown
    paused_s: float = 0.0  # seconds not judged because its trainer was in another phase
    doubt_s: float | None = None  # deadline to hold again for a finding of an earlier phase

    def held_for(self, on_s: float, rank: int) -> bool:
        """Whether it was at least this severe for most of the on-window."""
        return sum(seconds for _, seconds, as_bad in self.hits if as_bad >= rank) >= HELD_SHARE * on_s - 1e-6

    def pause(self, seconds: float) -> None:
        """Let time pass in which it cannot be judged."""
        self.last_s, self.moved_s, self.higher_s = (
            self.last_s + seconds,
            self.moved_s + seconds,
            self.higher_s + seconds,
        )
        self.hits = deque((when + seconds, length_s, rank) for when, length_s, rank in self.hits)
        self.paused_s += seconds
        self.doubt_s = None

    def clear(self) -> None:
        """Remove it from the screen."""
        self.shown_s = self.doubt_s = None
        self.hits.clear()


class Steadying:
    """All candidates of an engine.

    `window_s` gives the measuring window of a rule, `crit_s` how long a finding must last before it may be critical.
    """

    def __init__(
        self, window_s: Callable[[str], float] = lambda _: 30.0, crit_s: Callable[[str], float] = lambda _: 0.0
    ) -> None:
        self._window_s, self._crit_s = window_s, crit_s
        self._taken_back: dict[tuple[str, object], deque[float]] = {}  # time of each withdrawal, by key
        self._known: dict[tuple[str, object], Candidate] = {}  # by rule and subject key

    def shown(self) -> dict[str, set[object]]:
        """Subjects of the shown findings by rule."""
        found: dict[str, set[object]] = {}
        for (rule, about), one in self._known.items():
            if one.shown_s is not None:
                found.setdefault(rule, set()).add(about)
        return found

    def pending(self, now_s: float) -> list[tuple[Finding, float]]:
        """Findings that held at the last evaluation but are not shown, each with the seconds until they can be."""
        return [
            (one.newest, max(0.0, HELD_SHARE * one.on_s - sum(seconds for _, seconds, _ in one.hits)))
            for one in self._known.values()
            if one.shown_s is None and one.last_s == now_s
        ]

    def update(
        self,
        found: Iterable[tuple[Finding, float]],
        now_s: float,
        stands_for_s: float,
        unjudged: Collection[Identity] = (),
    ) -> list[Finding]:
        """Take in what holds now, each with its on-window; return what is to be shown, the oldest first.

        `unjudged`: trainers not judged in their current phase: their findings do not change.
        """
        for finding, on_s in found:
            one = self._known.setdefault(
                (finding.rule, subject_key(finding.subject)), Candidate(on_s, finding, first_s=now_s - stands_for_s)
            )
            one.newest, one.last_s = finding, now_s
            one.began_s = None if finding.onset_s is None else now_s - finding.onset_s
            one.hits.append((now_s, stands_for_s, RANKS[finding.severity]))
        shown = []
        for key, one in list(self._known.items()):
            if unjudged and one.shown_s is not None and _of_phase(one.newest) and _is_only_about(one.newest, unjudged):
                one.pause(stands_for_s)
                shown.append(_as_shown(one, now_s))
                continue
            self._step(key, one, now_s, max(one.on_s, _LEAST_LOOKS * stands_for_s))
            if one.shown_s is not None:
                shown.append(_as_shown(one, now_s))
            elif not one.hits:
                del self._known[key]
        return sorted(shown, key=lambda finding: -finding.since_s)

    def restart(self, turns: Mapping[Identity, PhaseChange], now_s: float, stands_for_s: float) -> None:
        """These trainers changed phase: pending findings restart, and shown ones must hold again soon.

        A finding that contradicts the new phase clears at once. Alternating phases are a rhythm, in which findings
        persist.
        """
        for key, one in self._known.items():
            subject = one.newest.subject
            turned = [turns[process] for process in subject.processes if process in turns]
            # a finding on the machine does not end with the phase of one of many trainers
            if not turned or subject.kind == "host":
                continue
            if one.shown_s is None:
                one.hits.clear()
            elif _of_phase(one.newest) and self._alternates(key, now_s):
                self._withdraw(key, now_s)
            elif _of_phase(one.newest):
                judged_s = max(turn.at_s for turn in turned) + _TO_JUDGE * self._window_s(one.newest.rule)
                impossible = any(_contradicts(one.newest, turn) for turn in turned)
                one.doubt_s = now_s if impossible else max(now_s, judged_s) + _MORE_LOOKS * stands_for_s

    def _withdraw(self, key: tuple[str, object], now_s: float) -> None:
        """Note that a phase change withdrew it, or put it in doubt."""
        recent = {about: when for about, when in self._taken_back.items() if when[-1] > now_s - _WITHIN_S}
        recent.setdefault(key, deque(maxlen=_WITHDRAWALS)).append(now_s)
        self._taken_back = recent

    def _alternates(self, key: tuple[str, object], now_s: float) -> bool:
        before = self._taken_back.get(key, ())
        return sum(when > now_s - _WITHIN_S for when in before) >= _WITHDRAWALS

    def _step(self, key: tuple[str, object], one: Candidate, now_s: float, on_s: float) -> None:
        while one.hits and one.hits[0][0] <= now_s - on_s:
            one.hits.popleft()
        if one.shown_s is None:
            if one.hits:
                one.first_s = max(one.first_s, one.hits[0][0] - one.hits[0][1])
            if one.last_s == now_s and one.held_for(on_s, 0):
                one.shown_s = one.moved_s = one.higher_s = now_s
                one.rank = max(rank for rank in RANKS.values() if one.held_for(on_s, rank))
                one.rank = min(one.rank, self._rank_limit(one, now_s))
        elif one.doubt_s is not None and one.last_s < now_s >= one.doubt_s:
            self._withdraw(key, now_s)
            one.clear()
        elif now_s - one.last_s >= OFF_FACTOR * one.on_s and now_s - one.shown_s >= LEAST_SHOWN_S:
            one.clear()
        else:
            if one.last_s == now_s:
                one.doubt_s, one.paused_s = None, 0.0
            self._move(one, RANKS[one.newest.severity], now_s, on_s)

    def _rank_limit(self, one: Candidate, now_s: float) -> int:
        """The highest severity allowed: a new finding is not critical yet."""
        return RANKS["crit" if now_s - one.first_s >= self._crit_s(one.newest.rule) else "warn"]

    def _move(self, one: Candidate, wanted: int, now_s: float, on_s: float) -> None:
        """Raise severity by at most one level per on-window held; lower it if unseen for the off-window."""
        if one.last_s == now_s and wanted >= one.rank:
            one.higher_s = now_s
        higher = one.rank + 1 <= self._rank_limit(one, now_s) and one.held_for(on_s, one.rank + 1)
        if higher and now_s - one.moved_s >= one.on_s:
            one.rank, one.moved_s = one.rank + 1, now_s
        elif wanted < one.rank and now_s - one.higher_s >= OFF_FACTOR * one.on_s:
            one.rank, one.moved_s, one.higher_s = wanted, now_s, now_s


def crit_after(rule: str, limits: Limits) -> float:
    """How long a finding of a rule must last before it is critical: the current activity may be a short phase."""
    known = RULES.get(rule)
    if known is None or not known.of_phase or known.level is Level.RANKS:
        return 0.0
    return limits["engine"]["crit_windows"] * limits.get(rule, {}).get("window_s", DEFAULTS["window_s"])


def _since(one: Candidate) -> float:
    """Start of the finding: its onset where the rule knows it, which precedes any detection."""
    return one.first_s if one.began_s is None else one.began_s


def _as_shown(one: Candidate, now_s: float) -> Finding:
    """The finding as shown; outdated evidence says so first."""
    finding = replace(one.newest, severity=_BY_RANK[one.rank], since_s=max(0.0, now_s - _since(one)))
    if one.paused_s:
        return replace(finding, evidence=(Evidence(text=_EVALUATES), *finding.evidence))
    ago_s = now_s - one.last_s
    if ago_s < _STALE_S:
        return finding
    stale = Evidence(text=f"not confirmed for {ago_s:.0f} s; clears after {OFF_FACTOR * one.on_s:.0f} s")
    return replace(finding, evidence=(stale, *finding.evidence))


def _is_only_about(finding: Finding, trainers: Collection[Identity]) -> bool:
    """Whether it is only about these trainers."""
    processes = finding.subject.processes
    return bool(processes) and finding.subject.kind != "host" and all(one in trainers for one in processes)


def _of_phase(finding: Finding) -> bool:
    return finding.rule in RULES and RULES[finding.rule].of_phase


def _contradicts(finding: Finding, turn: PhaseChange) -> bool:
    """Whether it contradicts the GPU activity of a phase: they no longer wait, or are less busy."""
    level = RULES[finding.rule].level
    if level is Level.STARVED or (finding.lost_share and level is not Level.RANKS):
        return turn.stops_waiting
    return level in (Level.HEALTHY, Level.EFFICIENCY) and turn.is_less
