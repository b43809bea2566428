"""What a result says, drawn: its worst trouble first, what is seen live beside it, what could be won, what next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from textual.strip import Strip

from gputop import finding_text, phrases, units
from gputop.diagnose import Finding
from gputop.diagnose.rules import RULES
from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe.text import clean
from gputop.ui.theme import Look, Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, Run, wrap

Severity = Literal["crit", "warn", "info", "fine"]
_WORDS: dict[Severity, str] = {"crit": "CRIT", "warn": "WARN", "info": "INFO", "fine": "OK"}
_TOKENS: dict[Severity, Token] = {"crit": "crit", "warn": "warn", "info": "dim", "fine": "busy"}
_LEAST_GAIN = 1.05
_INDENT = 10
_MOST_LIVE = 3
_LEAST_HEADLINE = 12  # cells
_HEADLINE_LINES, _MOST_HEADLINE = 2, 4  # as it is planned for, and at most: it is shown in whole before all else
_NEXT_LINES, _ROOMY = 3, 4  # lines of the next step, where there are as many for all of it


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Saying:
    """One thing that a result says."""

    severity: Severity
    text: str
    name: str = ""  # of the fact it states, if the live rules know that
    facts: str = ""
    steps: tuple[str, ...] = ()
    lost_share: float | None = None  # the most that could be won, 0 to 1 of the time


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Says:
    """All that it says. `names` are those of facts that the live rules know; `known` those it could have."""

    sayings: tuple[Saying, ...] = ()
    words: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()
    action: str = ""  # that took it: advice to take it again is none


def strips(says: Says, live: Sequence[Finding], width: int, most: int, look: Look) -> list[Strip]:
    """It in at most `most` lines; `live` are the findings of its process."""
    troubles = [saying for saying in says.sayings if saying.severity in ("crit", "warn")]
    first = next(iter(troubles), next(iter(says.sayings), None))
    lines: list[Line] = []
    if first is not None:
        lines += _headline(first, width, look)
    gain = list(_gain(says, first, live, width, _NEXT_LINES if most >= _ROOMY else 1, look))
    # what is wrong and what to do next are worth more than the lines below
    most += max(0, len(lines) - _HEADLINE_LINES) + max(0, len(gain) - 1)
    rest = [*_live(says, live, width, look), *gain]
    others = [saying for saying in troubles if saying is not first]
    sentences = [word for word in says.words if first is None or first.text != word]
    room = most - len(lines) - len(rest)
    for left, saying in zip(range(len(others), 0, -1), others[: max(0, room)], strict=False):
        rest += _other(saying, width, 1 + max(0, most - len(lines) - len(rest) - left), look)
    for sentence in sentences:
        rest += _sentence(sentence, first is None, not rest, most - len(lines) - len(rest), width, look)
    return [line.strip(width) for line in [*lines, *rest][: max(0, most)]]


def _sentence(text: str, alone: bool, leads: bool, room: int, width: int, look: Look) -> Iterator[Line]:
    """A sentence in the lines that are left for it, cut where it needs more."""
    indent = 1 if alone else _INDENT
    parts = wrap(text, max(20, width - indent - 1))
    if len(parts) > room > 0:
        parts = [*parts[: room - 1], drawing.cut(" ".join(parts[room - 1 :]), width - indent - 1, look.glyphs.more)]
    for part in parts[: max(0, room)]:
        yield Line(look).to(indent).add(part, "text" if alone and leads else "dim")


def badge(severity: Severity, look: Look) -> list[Run]:
    """Its sign and word, reversed."""
    sign = getattr(look.glyphs, "info" if severity == "fine" else severity)
    return [Run(f" {sign} {_WORDS[severity]} ", _TOKENS[severity], True, True)]


def _headline(saying: Saying, width: int, look: Look) -> list[Line]:
    """What is wrong, bright; what it rests on beside it, or below where that does not fit."""
    line = Line(look).add(" ").runs(badge(saying.severity, look))
    line.to(max(_INDENT, line.cells + 1))
    parts = wrap(saying.text, max(20, width - _INDENT - 1))
    lines = [line.add(parts[0], "bright", bold=True)]
    if len(parts) > _MOST_HEADLINE:
        rest = " ".join(parts[_MOST_HEADLINE - 1 :])
        parts = [*parts[: _MOST_HEADLINE - 1], drawing.cut(rest, max(20, width - _INDENT - 1), look.glyphs.more)]
    lines += [Line(look).to(_INDENT).add(part, "bright", bold=True) for part in parts[1:]]
    if saying.facts:
        if lines[-1].cells + 3 + len(saying.facts) > width:
            lines.append(Line(look).to(_INDENT))
        else:
            lines[-1].add("   ")
        lines[-1].add(drawing.cut(saying.facts, max(0, width - lines[-1].cells - 1), look.glyphs.more), "text")
    return lines


def _live(says: Says, live: Sequence[Finding], width: int, look: Look) -> Iterator[Line]:
    """How it agrees with what the rules see from outside."""
    agreeing = [each for each in live if says.names.intersection(RULES[each.rule].confirmed_by)]
    against = [each for each in live if each not in agreeing and says.known.intersection(RULES[each.rule].confirmed_by)]
    if agreeing:
        yield _findings("agrees with  ", agreeing, "seen live", width, look)
    if against:
        yield _findings("not seen here  ", against, "reported live", width, look)
    if live and not agreeing and not against:
        yield _findings("seen live  ", live[:1], "", width, look)


def _findings(said: str, found: Sequence[Finding], how: str, width: int, look: Look) -> Line:
    """Their headlines, and for how long they have been found; as many as the line has room for."""
    line = Line(look).to(_INDENT).add(said, "dim")
    for place, finding in enumerate(found[:_MOST_LIVE]):
        lasted = f"{f'  {how}' if how else ''} for {units.roughly(finding.since_s)}"
        text, between = finding_text.headline(finding), "; " if place else ""
        room = width - line.cells - len(between) - len(lasted) - 1
        if place and len(text) > room:
            break
        text = drawing.cut(text, max(_LEAST_HEADLINE, room), look.glyphs.more)
        line.add(between, "dim").add(text, _TOKENS[finding.severity], bold=True).add(lasted, "dim")
    return line


def _next(says: Says, saying: Saying, live: Sequence[Finding]) -> str:
    """What to do: as the advice says where a live finding is confirmed by it, so that both agree."""
    for finding in live:
        steps = [step for step in finding.steps if step.action != says.action or not step.action]
        if saying.name in RULES[finding.rule].confirmed_by and steps:
            warnings = finding_text.warnings(steps[0])
            text = f"{steps[0].text} ({warnings})" if warnings else steps[0].text
            return clean(": ".join(part for part in (text, steps[0].command) if part))
    return next(iter(saying.steps), "")


def _gain(
    says: Says, saying: Saying | None, live: Sequence[Finding], width: int, most: int, look: Look
) -> Iterator[Line]:
    """What could be won at most, and the best thing to do, which is cut only where it needs more than `most` lines."""
    if saying is None:
        return
    line = Line(look).to(_INDENT)
    share = saying.lost_share
    if share is not None and share < 0.99 and 1 / (1 - share) >= _LEAST_GAIN:
        line.add(phrases.at_most(share), "bright", bold=True).add(" if fixed.  ", "dim")
    if step := _next(says, saying, live):
        line.add("Next: ", "dim")
        start = line.cells
        first, *others = _wrapped(step, width - start - 1, width - _INDENT - 1, most, look)
        line.add(first, "text")
        yield line
        for text in others:
            yield Line(look).to(_INDENT).add(text, "text")
    elif line.cells > _INDENT:
        yield line


def _wrapped(text: str, first: int, others: int, most: int, look: Look) -> list[str]:
    """Words in at most `most` lines, the first one shorter; what is left over is cut."""
    text = " ".join(text.split())
    top = wrap(text, max(1, first))[0]
    if top == text or most == 1:
        return [drawing.cut(text, max(0, first), look.glyphs.more)]
    rest = wrap(text[len(top) :].strip(), max(20, others))
    if len(rest) > most - 1:
        rest = [*rest[: most - 2], drawing.cut(" ".join(rest[most - 2 :]), max(20, others), look.glyphs.more)]
    return [top, *rest]


def _other(saying: Saying, width: int, most: int, look: Look) -> list[Line]:
    """Another trouble: what to do about it, else what it rests on; in two lines where it needs and has them."""
    line = Line(look).add(" ").runs(badge(saying.severity, look))
    line.to(max(_INDENT, line.cells + 1)).add(saying.text, "text")
    label, text = ("  Next: ", saying.steps[0]) if saying.steps else ("  ", saying.facts)
    room = width - line.cells - len(label) - 1
    if room <= 0 or not text:
        return [line]
    first, *others = _wrapped(text, room, width - _INDENT - 1, min(most, 2), look)
    line.add(label, "dim").add(first, "text")
    return [line, *(Line(look).to(_INDENT).add(more, "text") for more in others)]
