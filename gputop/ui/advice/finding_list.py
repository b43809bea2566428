"""The findings as displayed: the worst first, without those muted, one of them chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gputop.diagnose import Finding, Step
from gputop.diagnose.finding import POSSIBLE, subject_key
from gputop.diagnose.steadying import RANKS
from gputop.monitor import Update

CALM_S = 5.0  # for so long its numbers stand
Key = tuple[str, object]  # the rule, and what distinguishes its subject


def key(finding: Finding) -> Key:
    """What it is called while it lasts."""
    return finding.rule, subject_key(finding.subject)


def urgency(finding: Finding) -> tuple[bool, int, bool]:
    """What it is sorted by: what is well last, else the worst first, of equals what leads."""
    return finding.healthy, -RANKS[finding.severity], not finding.primary


def troubles(findings: Sequence[Finding]) -> list[Finding]:
    """Those that ask for something to be done."""
    return [finding for finding in findings if finding.severity != "info" and not finding.healthy]


def host_leads(findings: Sequence[Finding]) -> bool:
    """Whether the first of them that is a trouble is about the host."""
    first = next(iter(troubles(findings)), None)
    if first is None:
        return False
    from gputop.diagnose.rules import RULES  # late: they are there once something was found

    rule = RULES.get(first.rule)  # that of a recording may be of another version
    return first.subject.kind == "host" or (rule is not None and rule.of_host)


def commands(finding: Finding | None) -> list[tuple[str, Step]]:
    """Its steps that have a command, with what they are called, the best first; then the one that verifies it."""
    if finding is None:
        return []
    steps = [(f"step {number}", step) for number, step in enumerate(finding.steps, 1)]
    steps += [("verify", finding.verify)] if finding.verify else []
    return [(name, step) for name, step in steps if step.command]


class FindingList:
    """The findings of the newest update that are shown."""

    def __init__(self) -> None:
        self.findings: tuple[Finding, ...] = ()
        self.muted: tuple[Finding, ...] = ()
        self._all: tuple[Finding, ...] = ()
        self._taken_s = -math.inf
        self._chosen: Key | None = None
        self._at = 0
        self._copied: tuple[Key | None, int] = (None, -1)  # the finding and which of its commands was copied last
        self._silenced: dict[Key, Finding] = {}  # as they were then

    def feed(self, update: Update) -> None:
        """Take in an update; what was muted and has changed since is shown again."""
        found, now_s = tuple(sorted(update.findings, key=urgency)), update.frame.mono_s
        # numbers that change every second cannot be read, and cost a slow link
        if [*map(_what, found)] != [*map(_what, self._all)] or not 0 <= now_s - self._taken_s < CALM_S:
            self._all, self._taken_s = found, now_s
        now = {key(finding): finding for finding in self._all}
        self._silenced = {name: then for name, then in self._silenced.items() if _same(now.get(name), then)}
        self._sort_out()

    def _sort_out(self) -> None:
        self.muted = tuple(finding for finding in self._all if key(finding) in self._silenced)
        self.findings = tuple(finding for finding in self._all if key(finding) not in self._silenced)
        places = {key(finding): place for place, finding in enumerate(self.listed)}
        self._at = places.get(self._chosen, self._at) if self._chosen else self._at
        self._at = min(max(0, self._at), max(0, len(places) - 1))
        if self._chosen not in places:
            self._chosen = None

    @property
    def shown(self) -> tuple[Finding, ...]:
        """Those in the pane; unlikely ones stand only in the full pane."""
        return tuple(finding for finding in self.findings if finding.confidence >= POSSIBLE)

    @property
    def listed(self) -> tuple[Finding, ...]:
        """All that can be selected: those shown, unlikely ones, those muted."""
        doubtful = [finding for finding in self.findings if finding.confidence < POSSIBLE]
        return (*self.shown, *doubtful, *self.muted)

    @property
    def calm(self) -> bool:
        """Whether no finding is shown that asks for something to be done, or that leads."""
        return not any(finding.primary and not finding.healthy for finding in self.shown) and not troubles(self.shown)

    @property
    def chosen(self) -> Finding | None:
        """The one that keys are about: the first until another is chosen."""
        listed = self.listed
        return listed[self._at] if listed else None

    @property
    def copy_place(self) -> int:
        """Which of the `commands` of the chosen one is copied next: the first, then each after it."""
        owner, last = self._copied
        chosen, count = self.chosen, len(commands(self.chosen))
        return (last + 1) % count if chosen and count and key(chosen) == owner else 0

    @property
    def next_copy(self) -> Step | None:
        """The step whose command is copied next: labels and the key that copies both ask here."""
        found = commands(self.chosen)
        return found[self.copy_place][1] if found else None

    def copied(self) -> None:
        """It was copied."""
        if chosen := self.chosen:
            self._copied = key(chosen), self.copy_place

    def is_muted(self, finding: Finding) -> bool:
        """Whether it is muted."""
        return key(finding) in self._silenced

    def move(self, lines: int) -> None:
        """Choose another one."""
        self.choose(self._at + lines)

    def choose(self, place: int) -> None:
        """Choose the one in this place; the nearest where there is none."""
        listed = self.listed
        self._at = min(max(0, place), max(0, len(listed) - 1))
        self._chosen = key(listed[self._at]) if listed else None

    def mute(self) -> bool | None:
        """Mute the selected one until it changes, or show it again; whether it is muted then."""
        chosen = self.chosen
        if chosen is None:
            return None
        muted = not self.is_muted(chosen)
        if muted:
            self._silenced[key(chosen)] = chosen
        else:
            del self._silenced[key(chosen)]
        self._chosen = None if muted else key(chosen)
        self._sort_out()
        return muted


def _what(finding: Finding) -> tuple[object, ...]:
    """What it says without its numbers."""
    return key(finding), finding.severity, finding.primary, finding.healthy, finding.causes


def _same(now: Finding | None, then: Finding) -> bool:
    """Whether it is what it was: there, no worse, and for no other cause."""
    return now is not None and RANKS[now.severity] <= RANKS[then.severity] and now.causes == then.causes
