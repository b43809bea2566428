"""Findings with all that is known of them, where there is room: evidence line by line, every step with its command."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence

from rich.cells import cell_len
from textual.strip import Strip

from gputop import finding_text, phrases, thresholds, units
from gputop.diagnose import Evidence, Finding, Step
from gputop.diagnose.further_reading import choice, guides
from gputop.safe.text import clean
from gputop.ui.advice import compact
from gputop.ui.advice.scene import WIDEST, AdviceScene, badge, flow
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, Run


def profile_signs(finding: Finding, scene: AdviceScene) -> Iterator[list[Run]]:
    """For each key that profiles its process what that would have to find; nothing where nothing is to be found."""
    from gputop.profile.training_parts import LINALG, PARTS  # late: with all that reads profiles and traces
    from gputop.trace.signatures import SIGNATURES

    wanted = _confirming(finding)
    parts = [part.text for part in (*PARTS, LINALG) if part.name in wanted]
    asked = [one.question for one in SIGNATURES.values() if one.name in wanted]
    if parts and (key := scene.pressed("profile", "py-spy profile, expected: ")):
        yield [*key, Run(f"often {', or '.join(parts)}", "text")]
    if asked and (key := scene.pressed("torch", "torch.profiler trace, should answer yes: ")):
        yield [*key, Run(" ".join(asked), "text")]


def _confirming(finding: Finding) -> frozenset[str]:
    from gputop.diagnose.rules import RULES  # late

    rules = (RULES[id] for id in (finding.rule, *finding.causes) if id in RULES)
    return frozenset(name for rule in rules for name in rule.confirmed_by)


def clearing_values(finding: Finding, limits: Mapping[str, tuple[float, float]]) -> Iterator[list[Run]]:
    """What its evidence measures, with the values at which it clears: `GPU busy, share of time: above 85 %`."""
    written = {f"{table}.{one.name}": one for table, numbers in thresholds.written().items() for one in numbers}
    known = {name: both for name, both in limits.items() if name in written}
    for item in finding.evidence:
        fits = {name for name in known if phrases.threshold_unit(name) in (item.unit, None)}
        same = [name for name, (limit, _) in known.items() if limit == item.limit and name in fits]
        shares = [name for name, (limit, _) in known.items() if item.unit == "%" and _is_percent(limit, item.limit)]
        for name in (*same, *shares)[:1]:
            limit, clearing = known.pop(name)
            value = phrases.threshold_value(name, clearing) if same else f"{100 * clearing:.3g} %"
            side = "above" if clearing > limit else "below"
            yield [Run(f"{written[name].measure}: ", "text"), Run(f"{side} {value}", "dim")]


def _is_percent(share: float, percent: float | None) -> bool:
    return percent is not None and share <= 1 and math.isclose(100 * share, percent)


_INDENT, _TEXT = 3, 5
_STATES_PART = 4  # the states of jobs get at most this part of the height
_STEPS = (3, 1)  # of a finding as there is room for its other lines


def column(scene: AdviceScene, width: int, height: int) -> list[Strip]:
    """A rule, the findings: the chosen one, else the worst, in full, of the others what there is room for."""
    findings = scene.finding_list.shown
    first = scene.finding_list.chosen if scene.focused and scene.finding_list.chosen in findings else None
    first = first or next(iter(findings), None)
    over = [[*compact.over(scene, width), scene.line()]] if scene.news else []
    heads = {id(finding): _head(finding, scene, width) for finding in findings}
    rests = sum(map(len, heads.values()))
    most = max(1, height // _STATES_PART)
    states = compact.standing(scene, width, most, due=True)
    lines = [[*compact.calm(scene, width), *states, scene.line()]] if scene.finding_list.calm else []
    lines += over
    last = [states] if states and not scene.finding_list.calm else []
    below = _below(findings, first, scene, width, height - 1 - rests - sum(map(len, (*lines, *last))))
    lines += [[*heads[id(finding)], *below.get(id(finding), ())] for finding in findings]
    spare = height - 1 - sum(map(len, (*lines, *last)))
    last = [compact.unfolded(each, scene, width, spare, most, due=True) for each in last]
    room = max(0, height - 1 - sum(map(len, last)))
    drawn = [*[line for block in lines for line in block][:room], *(line for block in last for line in block)]
    if len(drawn) < height - 1:
        room = height - 1 - len(drawn)
        rest = compact.standing(scene, width, room, due=False)
        drawn += compact.unfolded(rest, scene, width, room - len(rest), room, due=False)
    return [compact.rule(scene, width), *(line.strip(width) for line in drawn)]


def _below(
    findings: Sequence[Finding], first: Finding | None, scene: AdviceScene, width: int, spare: int
) -> dict[int, list[Line]]:
    """What stands below each head: of the others what each costs, then why and what to do, before more of one."""
    others = [finding for finding in findings if finding is not first]
    below = {id(finding): _cost(finding, scene, width) for finding in others}
    spare -= sum(map(len, below.values()))
    if first:
        most = _STEPS[:1] if scene.focused else _STEPS  # in use, its commands can be copied: the others yield
        rests = _rests(first, scene, width, most)
        below[id(first)] = next((rest for rest in rests if len(rest) <= spare), rests[-1])
        spare -= len(below[id(first)])
    for more in (_brief, _brief_with_cost, _rests):
        for finding in others:
            spare = _grown(below, finding, more(finding, scene, width), spare)
    return below


def _grown(below: dict[int, list[Line]], finding: Finding, wanted: Sequence[list[Line]], spare: int) -> int:
    """Put the first of these that there is room for below its head; returns the room that is left."""
    for lines in wanted:
        more = len(lines) - len(below[id(finding)])
        if more <= spare:
            below[id(finding)] = lines
            return spare - more
    return spare


def _rests(finding: Finding, scene: AdviceScene, width: int, most: Sequence[int] = _STEPS) -> list[list[Line]]:
    """All of it, with so many steps or fewer."""
    return [[*_rest(finding, scene, width, steps), scene.line()] for steps in most]


def _brief_with_cost(finding: Finding, scene: AdviceScene, width: int) -> list[list[Line]]:
    """What it costs, why, and what to do."""
    return [[*_cost(finding, scene, width), *lines] for lines in _brief(finding, scene, width)]


def _brief(finding: Finding, scene: AdviceScene, width: int) -> list[list[Line]]:
    """Why, and what to do."""
    return [[*compact.brief(finding, scene, width), scene.line()]]


def _cost(finding: Finding, scene: AdviceScene, width: int) -> list[Line]:
    """What it costs, in one line, so that it can be weighed against the others."""
    cost = finding_text.cost(finding)
    return flow(scene, width, [Run(" " * _INDENT), Run(cost, "dim")], _INDENT)[:1] if cost else []


def whole(finding: Finding, scene: AdviceScene, width: int) -> list[Line]:
    """All of one finding: what was found, evidence, cost, fix, how to confirm it, when it clears, references."""
    lines = [*_head(finding, scene, width), *_rest(finding, scene, width, len(finding.steps))]
    for part in (_confirm, _clears, _read):
        lines += part(finding, scene, width)
    return lines


def _head(finding: Finding, scene: AdviceScene, width: int) -> list[Line]:
    frame = scene.update.frame
    bold = finding.severity != "info"
    name, said = finding_text.subject_name(finding.subject, frame), finding_text.headline(finding)
    start = [Run(scene.cursor(finding)), *badge(finding, scene.look), Run(" ")]
    return flow(scene, width, [*start, Run(f"{name}: {said}", "bright", bold)], drawing.cells(start))


def _rest(finding: Finding, scene: AdviceScene, width: int, most: int) -> list[Line]:
    lines = _about(finding, scene, width)
    if finding.evidence:
        lines += _title("because", scene)
        for item in finding.evidence:
            lines += _item(item, scene, width)
    if steps := finding.steps[:most]:
        lines += _title("try, in this order" if len(steps) > 1 else "try", scene)
        for number, step in enumerate(steps, 1):
            lines += _step(finding, step, number, scene, width)
    return lines


def _title(text: str, scene: AdviceScene) -> list[Line]:
    return [scene.line().add(" " * _INDENT).add(text, "dim")]


def _about(finding: Finding, scene: AdviceScene, width: int) -> list[Line]:
    """Owner, start, cost, confidence: each whole on one line, where the line has room for it."""
    frame = scene.update.frame
    began = time.strftime("%H:%M", time.localtime(frame.wall_s - finding.since_s))
    since = f"since {began} ({units.roughly(finding.since_s)})" if finding.since_s >= 10 else ""
    sure = finding_text.confidence(finding)
    pieces = [finding_text.subject_owner(finding.subject, frame), since, finding_text.cost(finding), sure]
    between, texts = f" {scene.look.glyphs.dot} ", [""]
    for piece in filter(None, pieces):
        text = f"{texts[-1]}{between if texts[-1] else ''}{piece}"
        if texts[-1] and _INDENT + cell_len(text) >= min(width, WIDEST):
            texts.append(piece)
        else:
            texts[-1] = text
    return [line for text in texts for line in flow(scene, width, [Run(" " * _INDENT), Run(text, "dim")], _INDENT)]


def _item(item: Evidence, scene: AdviceScene, width: int) -> list[Line]:
    return flow(scene, width, [Run(" " * _TEXT), *compact.evidence(item)], _TEXT + 2)


def _step(finding: Finding, step: Step, number: int, scene: AdviceScene, width: int) -> list[Line]:
    lines = flow(scene, width, [Run(f"{number:>{_TEXT}} ", "dim"), Run(clean(step.text), "text")], _TEXT + 1)
    command, warnings = clean(step.command or ""), finding_text.warnings(step)
    if command:
        lines += flow(scene, width, [Run(" " * (_TEXT + 1)), Run(command, "command")], _TEXT + 3)
    _beside(lines, [Run(warnings, "dim")] if warnings else [], scene, width)
    for keys in scene.acts(finding, step):
        _beside(lines, keys, scene, width)
    return lines


def _confirm(finding: Finding, scene: AdviceScene, width: int) -> list[Line]:
    """How to confirm it: the command that measures it, and what a profile or a trace would show."""
    lines = _verify(finding, scene, width)
    for runs in () if finding.confirmed else profile_signs(finding, scene):
        lines += flow(scene, width, [Run(" " * _TEXT), *runs], _TEXT + 2)
    return [*_title("to confirm", scene), *lines] if lines else []


def _verify(finding: Finding, scene: AdviceScene, width: int) -> list[Line]:
    """The command that measures it, with the keys that copy and run it, and its latest result."""
    step = finding.verify
    if step is None:
        return []
    lines = flow(scene, width, [Run(" " * _TEXT), Run(clean(step.text), "text")], _TEXT)
    lines += flow(scene, width, [Run(" " * _TEXT), Run(clean(step.command or ""), "command")], _TEXT + 2)
    runs = [scene.pressed("measure", "run it")] if scene.focused and scene.measures else []
    for keys in (*scene.acts(finding, step), *runs):
        _beside(lines, keys, scene, width)
    if text := scene.measured.get(step.command or ""):
        lines += flow(scene, width, [Run(" " * _TEXT), Run(text, "bright")], _TEXT + 2)
    return lines


def _beside(lines: list[Line], runs: Sequence[Run], scene: AdviceScene, width: int) -> None:
    """Behind what was said, where there is room, else below it: what ends something is never cut."""
    if runs and lines[-1].cells + 3 + drawing.cells(runs) >= width:
        lines.append(scene.line().add(" " * _TEXT))
    if runs:
        lines[-1].add("   ").runs(runs)


def _clears(finding: Finding, scene: AdviceScene, width: int) -> list[Line]:
    """When the finding clears, and the values at which it does."""
    seconds, limits = scene.leaving(finding.rule)
    if not seconds:
        return []
    rows = list(clearing_values(finding, limits))
    which = {0: "its evidence is below threshold", 1: "this holds"}.get(len(rows), "one of these holds")
    lines = _title(f"clears once {which} for {units.ago_text(seconds)}", scene)
    for row in rows:
        lines += flow(scene, width, [Run(" " * _TEXT), *row], _TEXT + 2)
    return lines


def _read(finding: Finding, scene: AdviceScene, width: int) -> list[Line]:
    """Where the advice comes from if guides differ; then guides, the rule, and the causes merged into it."""
    chosen = choice(finding)
    lines = _title("where the advice comes from", scene) if chosen else []
    lines += flow(scene, width, [Run(" " * _TEXT), Run(chosen, "text")], _TEXT) if chosen else []
    lines += _title("references", scene)
    read = [(f"gputop rules {rule}", finding_text.question(rule)) for rule in (finding.rule, *finding.causes)]
    read += [(guide.title, guide.address) for guide in guides(finding)]
    for name, about in read:
        lines += flow(scene, width, [Run(" " * _TEXT), Run(name, "text"), Run(f"  {about}", "dim")], _TEXT + 2)
    return lines
