"""Findings in few lines: as many as there is room for, the worst in most detail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from textual.strip import Strip

from gputop import finding_text, units
from gputop.diagnose import Evidence, Finding, Step
from gputop.diagnose.subject_overlap import names
from gputop.labels import amount
from gputop.safe.text import clean
from gputop.ui.advice.finding_list import troubles
from gputop.ui.advice.scene import AdviceScene, badge, counts, flow, sign
from gputop.ui.theme import Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, Run

if TYPE_CHECKING:
    from gputop.diagnose.state import JobState

TEXT = 11  # where evidence and steps begin
_HEAD = 10
_BETWEEN = Run(" · ", "dim")
_ROOMY = 60  # cells
_LEAST_TEXT = 8  # cells of a text beside its command, if that is whole then
_LEAST_COMMAND = 30  # cells of a command beside its text, if it is not


class _Detail(NamedTuple):
    """How much is shown of a finding below its head."""

    evidence: int = 0  # lines
    steps: int = 0
    unfolded: bool = False  # a command that does not fit beside its text has a separate line
    whole: int = 0  # what does not fit in a line goes on in the next one: 1 of the headline, 2 of steps too, 3 of all


_BRIEF = _Detail(1, 1)
_MORE = (_Detail(1, 2), _Detail(2, 2), _Detail(2, 3))


def one_line(scene: AdviceScene, width: int) -> list[Strip]:
    """The worst finding, or the selected one, where there is no room for more, and the key to the advice."""
    bad = troubles(scene.finding_list.shown)
    chosen = scene.finding_list.chosen if scene.focused else None
    waits = any(one.open for one in scene.update.jobs)
    if not bad and chosen is None and not scene.news and waits:
        return [_one_state(scene, width)]
    bad = bad or [finding for finding in scene.finding_list.shown if not finding.healthy]
    if chosen is None and (not bad or (scene.news and scene.finding_list.calm)):
        return [next(iter([*over(scene, width, whole=False), *calm(scene, width)])).strip(width)]
    one = chosen or bad[0]
    others = len({id(finding) for finding in bad} - {id(one)})
    more = [Run(f"+{others}  ", "dim")] if others else []
    right = [*more, *(scene.pressed("advice", "why, what to do") if width >= _ROOMY else [])]
    mark = sign(one, scene.look)
    line = scene.line().add(scene.cursor(one)).add(f"{mark.text} ", mark.token, bold=True)
    room = width - line.cells - drawing.cells(right) - 3
    line.runs(_sentence(one, scene, room))
    return [line.to(width - drawing.cells(right) - 1).runs(right).strip(width)]


def _one_state(scene: AdviceScene, width: int) -> Strip:
    """The first job that has no verdict yet, how many others there are, and the key to all of it."""
    why = "expand" if scene.finding_list.listed else "why"  # with findings, it opens on the first of them
    right = scene.pressed("advice", why) if width >= _ROOMY else []
    room = width - drawing.cells(right) - 3
    return standing(scene, room, 1)[0].to(width - drawing.cells(right) - 1).runs(right).strip(width)


def pane(scene: AdviceScene, width: int, height: int) -> list[Strip]:
    """A rule, then the findings; one that does not fit is counted on the rule."""
    strips = [rule(scene, width)]
    lines = calm(scene, width) if scene.finding_list.calm else []
    room = max(0, (height - 1) // (2 if scene.finding_list.calm else 3))
    news = over(scene, width)
    lines += news if len(news) <= room else over(scene, width, whole=False)[:room]
    most = max(1, (height - 1 - len(lines)) // (2 if scene.finding_list.calm else 4))
    states = standing(scene, width, most, due=True)
    room = height - 1 - len(lines)
    if scene.finding_list.calm:  # then why there is no verdict is worth more
        states = unfolded(states, scene, width, room - len(states), most, due=True)
    blocks = _blocks(scene, width, room - len(states))
    if not scene.finding_list.calm:
        states = unfolded(states, scene, width, room - len(states) - len(blocks), most, due=True)
    lines += [*states, *blocks] if scene.finding_list.calm else [*blocks, *states]
    if (room := height - 1 - len(lines)) > 0:
        rest = standing(scene, width, room, due=False)
        lines += unfolded(rest, scene, width, room - len(rest), room, due=False)
    return [*strips, *(line.strip(width) for line in lines)][:height]


def rule(scene: AdviceScene, width: int) -> Strip:
    """The first line of the pane: how many there are, and the key to all of it."""
    facts = [counts(scene.finding_list.shown)] if scene.finding_list.shown else []
    facts += [f"{len(scene.finding_list.muted)} muted"] if scene.finding_list.muted else []
    right = [Run(" · ".join(facts), "dim"), Run("  ")] if facts else []
    return drawing.rule("advice", width, scene.look, right=[*right, *scene.pressed("advice", "expand")])


def calm(scene: AdviceScene, width: int, *, whole: bool = False) -> list[Line]:
    """What is said while there is nothing to act on: the states of all jobs, counted.

    The key that says why rules could not judge is named where it does: not on the `whole` page that it opens, and
    not where that page is about a finding.
    """
    update, silent = scene.update, {one.rule for one in scene.update.abstained}
    if update.host is None:
        return [scene.line().add(" judging", "text").add("   the first verdict takes about a minute", "dim")]
    bad = troubles(scene.finding_list.muted)
    due = [one.state for one in update.jobs if one.due]
    token: Token = "good" if due and set(due) == {"healthy"} else "text"
    line = scene.line().add(f" {finding_text.state_counts(update.jobs)}", token)
    line.add(f", {len(bad)} muted" if bad else "", "text")
    gpus = [gpu for gpu in update.frame.gpus if gpu.parent_uuid is None]
    machine = f"   {amount(len(gpus), 'GPU')} · host {update.host.state}"
    more = scene.pressed("advice", "why") if silent and not whole and not scene.finding_list.listed else []
    cannot = f" · {amount(len(silent), 'check')} skipped{', ' if more else ''}" if silent else ""
    for text, runs in ((machine, []), (cannot, more)):
        if line.cells + len(text) + drawing.cells(runs) < width:
            line.add(text, "dim").runs(runs)
    return [line]


def unfolded(cut: list[Line], scene: AdviceScene, width: int, room: int, most: int, *, due: bool) -> list[Line]:
    """The same states in at most `most` lines, in whole where that takes no more than `room` lines besides."""
    whole = standing(scene, width, most, due=due, whole=True) if cut and room > 0 else cut
    return whole if len(whole) - len(cut) <= room else cut


def standing(
    scene: AdviceScene, width: int, most: int | None = None, *, due: bool | None = None, whole: bool = False
) -> list[Line]:
    """A line for each job, and other user of GPUs, without a shown finding; at most `most`, the rest counted.

    `due`: only those that a verdict is due of, or only the others. `whole`: why in as many lines as it takes.
    """
    said, of = scene.finding_list.shown, [one for one in scene.update.jobs if due is None or one.due == due]
    open_jobs = [one for one in of if not any(_tells(finding, one) for finding in said)]
    open_jobs.sort(key=lambda one: (not one.due, finding_text.STATES.index(one.state)))
    shown = open_jobs if most is None or len(open_jobs) <= most else open_jobs[: max(1, most - 1)]
    rest = open_jobs[len(shown) :]
    alone = f"  +{len(rest)}" if rest and most == 1 else ""
    lines = [line for one in shown for line in _standing(one, scene, width - len(alone), whole=whole)]
    if alone:
        lines[-1].add(alone, "dim")
    elif rest:
        counts = Counter(one.state for one in rest)
        text = ", ".join(f"{count} {state}" for state, count in counts.items())
        lines.append(scene.line().to(_HEAD).add(f"and {text}", "dim"))
    return lines


def _tells(finding: Finding, one: JobState) -> bool:
    """Whether a shown finding has all there is to say of a job."""
    subject = finding.subject
    of_it = one.key in subject.job_keys or names(subject, one.processes, one.gpus)
    of_it = of_it or (subject.kind == "host" and finding_text.headline(finding).removeprefix("is ") in one.why)
    return of_it and (one.state == "found" if not finding.healthy else one.state == "healthy")


def _standing(one: JobState, scene: AdviceScene, width: int, *, whole: bool) -> list[Line]:
    token: Token = "bright" if one.open else "dim"
    line = (
        scene.line().add(f"  {one.state}", token).to(_HEAD).add(finding_text.job_title(one, scene.update.frame), token)
    )
    why = f"  {clean(one.why)}" + ("; end of the recording" if scene.ended and one.state == "judging" else "")
    if whole:
        start = [Run(f"  {one.state}".ljust(_HEAD), token), Run(finding_text.job_title(one, scene.update.frame), token)]
        return flow(scene, width, [*start, Run(why)], _HEAD)
    return [line.add(drawing.cut_words(why, max(0, width - line.cells - 1), scene.look.glyphs.more), "text")]


def over(scene: AdviceScene, width: int, *, whole: bool = True) -> list[Line]:
    """What came of findings of earlier runs, `whole` or in a line each; a line for each finding that is over now."""
    lines, more = list[Line](), scene.look.glyphs.more
    for each in scene.proven:
        label = Run("proven", "busy", True) if each.faster else Run("fix", "text", True)
        line = scene.line().add("  ").runs([label]).to(_HEAD)
        said = Run(clean(each.whole if whole else each.brief), "text")
        if whole and width - _HEAD <= drawing.cells([said]):
            lines += flow(scene, width, [Run("  "), label, Run(" " * (_HEAD - 2 - len(label.text))), said], _HEAD)
        else:
            lines.append(line.runs(clipped([said], width - _HEAD - 1, more)))
    for one in scene.cleared:
        ago = units.roughly(max(0.0, scene.update.frame.mono_s - one.at_s))
        line = scene.line().add("  ").add("cleared", "busy", bold=True).to(_HEAD)
        runs = [Run(f"{one.name}: {one.rules}", "text"), Run(f"   {one.said}" if one.said else "", "bright")]
        line.runs(clipped([*runs, Run(f"   {ago} ago", "dim")], width - line.cells - 1, more))
        lines.append(line)
    return lines


def _blocks(scene: AdviceScene, width: int, height: int) -> list[Line]:
    """Each finding's head, then details as long as there is room, those of the chosen one first."""
    findings, chosen = list(scene.finding_list.shown), scene.finding_list.chosen
    if scene.focused and chosen in findings[height:]:
        findings = findings[findings.index(chosen) - height + 1 :]
    findings = findings[: max(0, height)]
    order = sorted(findings, key=lambda finding: not (scene.focused and finding is chosen))
    blocks: dict[int, tuple[_Detail, list[Line]]] = {}
    first, others = order[:1], order[1:]
    headline, steps, whole = (_BRIEF._replace(whole=part) for part in (1, 2, 3))
    # why and what to do of one is worth more than the heads of others, and a step that is not cut more than another one
    wanted = [(_Detail(), first), (_BRIEF, first), (_Detail(), others), (_BRIEF, others)]
    wanted += [(detail, some) for some in (first, others) for detail in (headline, steps, whole)]
    wanted += [(more._replace(whole=part), order) for more in _MORE for part in (3, 2, 1, 0)]
    for detail, some in (*wanted, (_MORE[-1]._replace(unfolded=True), order)):
        for finding in some if height > 0 else ():
            had, before = blocks.get(id(finding), (detail, []))
            block = [] if had.whole > detail.whole else _block(finding, scene, width, detail)
            if block and len(block) - len(before) <= height:
                blocks[id(finding)], height = (detail, block), height - len(block) + len(before)
    return [line for finding in findings for line in blocks.get(id(finding), (None, ()))[1]]


def brief(finding: Finding, scene: AdviceScene, width: int) -> list[Line]:
    """Why, and what to do: a line each, where it has them."""
    return _block(finding, scene, width, _BRIEF)[1:]


def _block(finding: Finding, scene: AdviceScene, width: int, detail: _Detail) -> list[Line]:
    lines = _whole_head(finding, scene, width) if detail.whole else [head(finding, scene, width)]
    lines += (
        _because(finding.evidence, scene, width, detail.evidence, whole=detail.whole > 2) if detail.evidence else []
    )
    for number, step in enumerate(finding.steps[: detail.steps], 1):
        label = "" if number > 1 else "try"
        several = detail.steps > 1 and len(finding.steps) > 1
        label = f"{label:4}{number if several else ''}"
        if detail.whole > 1:
            lines += _whole_step(finding, step, scene, width, label)
        else:
            lines += _step(finding, step, scene, width, label, unfolded=detail.unfolded)
    return lines


def _whole_head(finding: Finding, scene: AdviceScene, width: int) -> list[Line]:
    """The head in one line where that has all of it, else in several."""
    line = head(finding, scene, width)
    frame = scene.update.frame
    name, aside, said = (
        finding_text.subject_name(finding.subject, frame),
        finding_text.subject_owner(finding.subject, frame),
        finding_text.headline(finding),
    )
    aside = f" ({aside})" if aside else ""
    start = scene.line().add(scene.cursor(finding)).runs(badge(finding, scene.look)).cells
    if max(_HEAD, start) + len(f"{name}{aside}: {said}") + 2 <= width:
        return [line]
    bold = finding.severity != "info"
    runs = [Run(scene.cursor(finding)), *badge(finding, scene.look), Run(" " * max(1, _HEAD - start))]
    return flow(
        scene, width, [*runs, Run(name, "bright", bold), Run(aside, "dim"), Run(f": {said}", "bright", bold)], _HEAD
    )


def head(finding: Finding, scene: AdviceScene, width: int) -> Line:
    """Its badge, its subject, what it says, for how long, and what it costs; where both have no room, the cost."""
    line = scene.line().add(scene.cursor(finding)).runs(badge(finding, scene.look)).to(_HEAD)
    said = _sentence(finding, scene, width - line.cells - 1)
    line.runs(said)
    if said[-1].text.endswith(scene.look.glyphs.more):
        return line
    since = finding_text.duration_text(finding, units.roughly(finding.since_s)) if finding.since_s >= 10 else ""
    cost, dot = finding_text.cost(finding), f" {scene.look.glyphs.dot} "
    lost = finding_text.cost(finding, with_gain=False)
    told = ((since, cost), (cost,), (since, lost), (lost,), (since,))
    asides = ("".join(f"{dot}{text}" for text in texts if text) for texts in told)
    fitting = next((aside for aside in asides if aside and line.cells + len(aside) < width), "")
    return line.add(fitting, "dim")


def _sentence(finding: Finding, scene: AdviceScene, room: int) -> list[Run]:
    """The subject and the headline; what stands in parentheses goes before a word of the headline does."""
    frame, more = scene.update.frame, scene.look.glyphs.more
    name, aside, said = (
        finding_text.subject_name(finding.subject, frame),
        finding_text.subject_owner(finding.subject, frame),
        finding_text.headline(finding),
    )
    bold = finding.severity != "info"
    aside = f" ({aside})" if aside else ""
    if drawing.cells([Run(name), Run(aside), Run(said)]) + 2 > room:
        return [Run(drawing.cut_words(f"{name}: {said}", max(0, room), more), "bright", bold)]
    return [Run(name, "bright", bold), Run(aside, "dim"), Run(f": {said}", "bright", bold)]


def evidence(item: Evidence, more: str = "", room: int | None = None) -> list[Run]:
    """One number the verdict rests on: it is bright, its limit is not.

    Where it does not fit, what follows the limit goes first, then the limit. `more`: the sign that something is gone.
    """
    whole = _runs(finding_text.referenced(item))
    if room is None or drawing.cells(whole) <= room:
        return whole
    short = [*_runs(finding_text.referenced(item, rest=False)), Run(more, "dim")]
    return short if drawing.cells(short) <= room else _runs(finding_text.parts(item))


def _runs(parts: Sequence[finding_text.TextPart]) -> list[Run]:
    return [Run(part.text, "bright" if part.strong else "dim" if part.aside else "text") for part in parts]


def _because(
    items: Sequence[Evidence], scene: AdviceScene, width: int, most: int, *, whole: bool = False
) -> list[Line]:
    lines: list[Line] = []
    for item in items:
        runs = evidence(item, scene.look.glyphs.more, None if whole else width - TEXT - 1)
        if lines and lines[-1].cells + drawing.cells(runs) + 3 < width:
            lines[-1].runs([_BETWEEN, *runs])
        elif most:
            most -= 1
            label = Run(f"{'  because' if not lines else '':{TEXT}}", "dim")
            kept = runs if whole else clipped(runs, width - TEXT - 1, scene.look.glyphs.more)
            lines += flow(scene, width, [label, *kept], TEXT) if whole else [scene.line().runs([label, *kept])]
        else:
            break
    return lines


def clipped(runs: Sequence[Run], room: int, more: str) -> list[Run]:
    """Runs in a number of cells; what does not fit ends in `…`."""
    kept: list[Run] = []
    for run in runs:
        left = room - drawing.cells(kept)
        if left <= 0:
            break
        kept.append(run._replace(text=drawing.cut_words(run.text, left, more)))
    return kept


def _step(finding: Finding, step: Step, scene: AdviceScene, width: int, label: str, *, unfolded: bool) -> list[Line]:
    line, more = scene.line().add(f"  {label}", "dim").to(TEXT), scene.look.glyphs.more
    after = _after(finding, step, scene)
    room = max(0, width - TEXT - 1 - drawing.cells(after))
    command, text = clean(step.command or ""), clean(step.text)
    if command and unfolded and len(text) + 2 + len(command) > room:
        line.add(drawing.cut_words(text, max(0, width - TEXT - 1), more), "text")
        return [line, scene.line().to(TEXT).add(drawing.cut_words(command, room, more), "command").runs(after)]
    line.add(drawing.cut_words(text, _beside(text, command, room), more), "text")
    if command and room - line.cells + TEXT > 4:
        line.add("  ").add(drawing.cut_words(command, room - line.cells + TEXT, more), "command")
    return [line.runs(after)]


def _whole_step(finding: Finding, step: Step, scene: AdviceScene, width: int, label: str) -> list[Line]:
    """The same in as many lines as it takes; its command beside it where that is whole there."""
    after, command = _after(finding, step, scene), clean(step.command or "")
    lines = flow(scene, width, [Run(f"  {label}".ljust(TEXT), "dim"), Run(clean(step.text), "text")], TEXT)
    if command and lines[-1].cells + 2 + len(command) + drawing.cells(after) < width:
        lines[-1].add("  ").add(command, "command")
    elif command:
        lines += flow(scene, width, [Run(" " * TEXT), Run(command, "command")], TEXT + 2)
    if after and lines[-1].cells + drawing.cells(after) >= width:
        lines.append(scene.line().add(" " * (TEXT - 3)))
    return [*lines[:-1], lines[-1].runs(after)]


def _beside(text: str, command: str, room: int) -> int:
    """Cells of a text beside its command: it yields to one that is whole then, else it says what that is for."""
    if not command:
        return room
    left = room - len(command) - 2
    return min(room, left if left >= min(len(text), _LEAST_TEXT) else min(len(text), room - _LEAST_COMMAND))


def _after(finding: Finding, step: Step, scene: AdviceScene) -> list[Run]:
    """What the user must know before doing it, and the keys that copy or do it."""
    after = [Run(f"   {warnings}", "dim")] if (warnings := finding_text.warnings(step)) else []
    for keys in scene.acts(finding, step):
        after += [Run("   "), *keys]
    return after
