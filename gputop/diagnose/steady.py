"""Steadying: a finding comes when it held long enough and leaves when it is clearly over. There is no other."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from gputop.diagnose.finding import Finding, Severity, told_apart
from gputop.model import Identity

HELD_SHARE = 0.8  # of the on-window
OFF_FACTOR = 1.5  # the off-window, in on-windows
_LEAST_LOOKS = 1.5  # that an on-window is long: where looks are rare, one alone shows nothing
LEAST_SHOWN_S = 15.0
RANKS: dict[Severity, int] = {"info": 0, "warn": 1, "crit": 2}
_BY_RANK: tuple[Severity, ...] = ("info", "warn", "crit")


@dataclass(slots=True)
class Candidate:
    """A finding on its way in, on the screen, or on its way out."""

    on_s: float
    newest: Finding
    hits: deque[tuple[float, float, int]] = field(default_factory=deque)  # (when, seconds it stands for, how bad)
    first_s: float = 0.0  # since when it holds
    began_s: float | None = None  # since when its cause lasts, where the rule knows better
    last_s: float = 0.0  # when it held last
    shown_s: float | None = None  # since when it is on the screen
    rank: int = 0
    moved_s: float = 0.0  # when its severity changed last
    higher_s: float = 0.0  # when it was last as bad as shown

    def held(self, on_s: float, rank: int) -> bool:
        """Whether it was as bad for most of the on-window."""
        return sum(seconds for _, seconds, as_bad in self.hits if as_bad >= rank) >= HELD_SHARE * on_s - 1e-6


class Steady:
    """Every candidate of an engine."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, object], Candidate] = {}  # by rule and what tells its subject from others

    def shown(self) -> dict[str, set[object]]:
        """The subjects of the findings on the screen, by rule."""
        found: dict[str, set[object]] = {}
        for (rule, about), one in self._known.items():
            if one.shown_s is not None:
                found.setdefault(rule, set()).add(about)
        return found

    def coming(self, now_s: float) -> list[tuple[Finding, float]]:
        """What held at the last look and is not shown yet, each with the seconds until it can be."""
        return [
            (one.newest, max(0.0, HELD_SHARE * one.on_s - sum(seconds for _, seconds, _ in one.hits)))
            for one in self._known.values()
            if one.shown_s is None and one.last_s == now_s
        ]

    def take(self, found: Iterable[tuple[Finding, float]], now_s: float, stands_for_s: float) -> list[Finding]:
        """What holds now, each with its on-window; returns what is to be shown, the longest standing first."""
        for finding, on_s in found:
            one = self._known.setdefault(
                (finding.rule, told_apart(finding.subject)), Candidate(on_s, finding, first_s=now_s - stands_for_s)
            )
            one.newest, one.last_s = finding, now_s
            one.began_s = None if finding.onset_s is None else now_s - finding.onset_s
            one.hits.append((now_s, stands_for_s, RANKS[finding.severity]))
        shown = []
        for key, one in list(self._known.items()):
            self._step(one, now_s, max(one.on_s, _LEAST_LOOKS * stands_for_s))
            if one.shown_s is not None:
                since_s = max(0.0, now_s - (one.first_s if one.began_s is None else one.began_s))
                shown.append(replace(one.newest, severity=_BY_RANK[one.rank], since_s=since_s))
            elif not one.hits:
                del self._known[key]
        return sorted(shown, key=lambda finding: -finding.since_s)

    def restart(self, trainers: Iterable[Identity]) -> None:
        """These do something else now: what has not come in yet begins anew."""
        fresh = set(trainers)
        for one in self._known.values():
            subject = one.newest.subject
            # of the machine it is not over because one of many does something else
            if one.shown_s is None and subject.kind != "host" and fresh.intersection(subject.processes):
                one.hits.clear()

    def _step(self, one: Candidate, now_s: float, on_s: float) -> None:
        while one.hits and one.hits[0][0] <= now_s - on_s:
            one.hits.popleft()
        if one.shown_s is None:
            if one.hits:
                one.first_s = max(one.first_s, one.hits[0][0] - one.hits[0][1])
            if one.last_s == now_s and one.held(on_s, 0):
                one.shown_s = one.moved_s = one.higher_s = now_s
                one.rank = max(rank for rank in RANKS.values() if one.held(on_s, rank))
        elif now_s - one.last_s >= OFF_FACTOR * one.on_s and now_s - one.shown_s >= LEAST_SHOWN_S:
            one.shown_s = None
            one.hits.clear()
        else:
            self._move(one, RANKS[one.newest.severity], now_s, on_s)

    def _move(self, one: Candidate, wanted: int, now_s: float, on_s: float) -> None:
        """Severity rises by one level an on-window at most, if it held so long, and falls when nothing was as bad for
        the off-window."""
        if one.last_s == now_s and wanted >= one.rank:
            one.higher_s = now_s
        if one.held(on_s, one.rank + 1) and now_s - one.moved_s >= one.on_s:
            one.rank, one.moved_s = one.rank + 1, now_s
        elif wanted < one.rank and now_s - one.higher_s >= OFF_FACTOR * one.on_s:
            one.rank, one.moved_s, one.higher_s = wanted, now_s, now_s
