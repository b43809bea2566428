"""The advice on the whole screen: every finding, the workload class of each trainer, skipped checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from textual.strip import Strip

from gputop import finding_text
from gputop.diagnose import Abstained, Class, Finding
from gputop.diagnose.workload_class import class_text
from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe.text import clean
from gputop.ui.advice import compact, full
from gputop.ui.advice.experiments import experiments
from gputop.ui.advice.finding_list import FindingList
from gputop.ui.advice.scene import AdviceScene, flow
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, Run

_LIST_SHARE = 3  # the list of findings gets this part of the height
_ALIKE = 3  # rules skipped for the same reason are listed one by one; more are listed together
_ANSWER = 20  # cells: where there are fewer it goes on below its question
_ROOM = {  # what there is to be had from each class
    "small/simple": "underuses its GPU: use a larger model or batch, or a smaller GPU",
    "small/complex": "limited by CPU preprocessing",
    "large/simple": "limited by the GPU",
    "large/complex": "limited by CPU preprocessing or the GPU, in turn",
}


@frozen_dataclass(frozen=True, slots=True)
class AdvicePage:
    """One page: lines that stay, and lines that scroll."""

    name: str
    body: Callable[[AdviceScene, int], Sequence[Line]]
    top: Callable[[AdviceScene, int, int], list[Line]] = lambda *_: []


@frozen_dataclass(frozen=True, slots=True)
class DrawnPages:
    """The pane, and how far it can be scrolled."""

    strips: Sequence[Strip]
    furthest: int


def expanded(scene: AdviceScene, page: AdvicePage, first: int, width: int, height: int) -> DrawnPages:
    """A page from its line `first` on, or the nearest that fills the pane."""
    top = page.top(scene, width, max(0, height - 1))
    room = max(0, height - 1 - len(top))
    body = page.body(scene, width)
    furthest = max(0, len(body) - room)
    first = min(max(0, first), furthest)
    seen = f"{first + 1}-{first + room} of {len(body)}" if furthest and room else ""
    strips = [_rule(scene, page, seen, width)]
    strips += [line.strip(width) for line in (*top, *body[first : first + room])]
    return DrawnPages(strips[:height], furthest)


def _rule(scene: AdviceScene, page: AdvicePage, seen: str, width: int) -> Strip:
    """The names of the pages, the one that is open in brackets; where there is no room for all, it alone."""
    names: list[Run] = []
    for each in PAGES:
        here = each is page
        names.append(Run(f"[{each.name}]" if here else f" {each.name} ", "bright" if here else "dim", here))
    line = Line(scene.look).add(f"{scene.look.glyphs.rule} ", "faint").add("advice", "text", bold=True).add("  ")
    line.runs(names if line.cells + drawing.cells(names) + 2 < width else [run for run in names if run.bold])
    turn = scene.pressed("unfold", "next page")
    scroll = [*scene.pressed("page-down", seen), Run("  ")] if seen else []
    right = [*scroll, *turn]
    if scroll and line.cells + drawing.cells(right) + 4 > width:
        right = scroll[:-1]  # that there is more of this page comes before that there are others
    line.add(" ").add(scene.look.glyphs.rule * (width - line.cells - drawing.cells(right) - 2), "faint")
    return line.add(" ").runs(right).strip(width)


def _listed(scene: AdviceScene, width: int, height: int) -> list[Line]:
    """A line for each finding, the chosen one among them, and a blank."""
    listed = scene.finding_list.listed
    if len(listed) < 2:  # it is shown in full below
        return [] if listed else [*compact.over(scene, width)]
    start, room = _window(scene.finding_list, height)
    lines = [_row(finding, scene, width) for finding in listed[start : start + room]]
    return [*lines, scene.line()] if height > room + 2 else lines


def _window(finding_list: FindingList, height: int) -> tuple[int, int]:
    """The first finding of the list in a number of lines, and how many there are."""
    listed, chosen = finding_list.listed, finding_list.chosen
    if len(listed) < 2:
        return 0, 0
    room = min(len(listed), max(1, height // _LIST_SHARE))
    at = listed.index(chosen) if chosen in listed else 0
    return min(max(0, at - room // 2), len(listed) - room), room


def place_of(finding_list: FindingList, height: int, y: int) -> int | None:
    """The finding on a line of the pane; None where there is none."""
    start, room = _window(finding_list, height - 1)
    return start + y - 1 if 0 <= y - 1 < room else None


def _row(finding: Finding, scene: AdviceScene, width: int) -> Line:
    line = compact.head(finding, scene, width - 8)
    if scene.finding_list.is_muted(finding):
        line.to(width - 7).add("muted", "dim")
    return line


def _findings(scene: AdviceScene, width: int) -> list[Line]:
    chosen = scene.finding_list.chosen
    if chosen is None:
        silent = _silent(scene, width) if scene.update.abstained else []
        return [
            scene.line(),
            *compact.calm(scene, width, whole=True),
            *compact.standing(scene, width, whole=True),
            *silent,
        ]
    lines = full.whole(chosen, scene, width)
    keys = [
        *scene.pressed("advice-mute", "unmute  " if scene.finding_list.is_muted(chosen) else "mute  "),
        *scene.pressed("details", "open its latest profile" if scene.profiled else "go to its process"),
    ]
    over = compact.over(scene, width)
    states = compact.standing(scene, width)
    rest = [each for each in (over, states) if each]
    lines += [scene.line(), scene.line().add("   ").runs(keys)]
    return [*lines, *(line for each in rest for line in (scene.line(), *each))]


def _classes(scene: AdviceScene, width: int) -> list[Line]:
    """Each trainer's class, and the questions that led there."""
    found = scene.update.classes
    if not found:
        text = "No trainer with exclusive GPUs has run steadily for a minute yet."
        return [scene.line(), *flow(scene, width, [Run(f"   {text}", "dim")], 3)]
    return [line for one in found for line in (scene.line(), *_class(one, scene, width))]


def _class(one: Class, scene: AdviceScene, width: int) -> list[Line]:
    frame = scene.update.frame
    process = next((process for process in frame.processes if process.pid == one.pid), None)
    name = finding_text.program(process.identity, frame) if process else f"process {one.pid}"
    sure = "" if one.margin is None else f"   {one.margin:+.2f} from the nearest threshold"
    room = _ROOM.get(one.name, "between two classes" if one.path else "")
    start = [Run(f"   {name}", "bright", True), Run(f" ({one.pid})  ", "dim"), Run(class_text(one.name), "text", True)]
    start += [Run("  "), Run(one.regime, "busy", True)] if one.regime else []
    lines = flow(scene, width, [*start, Run(f"   {room}{sure}", "dim")], 5)
    widest = max((len(question) for question, _ in one.path), default=0)
    for question, answer in one.path:
        asked = [Run(f"     {question:{widest}}  ", "dim"), Run(clean(answer), "text")]
        lines += flow(scene, width, asked, widest + 7 if widest + 7 + _ANSWER <= width else 7)
    return lines


def _silent(scene: AdviceScene, width: int) -> list[Line]:
    """Skipped checks, the missing metrics, and how to get them."""
    abstained = scene.update.abstained
    if not abstained:
        return [scene.line(), scene.line().add("   No check was skipped.", "dim")]
    alike: dict[object, list[Abstained]] = {}
    for one in abstained:
        alike.setdefault((one.subject, one.unlock or one.missing), []).append(one)
    lines, by = list[Line](), dict[str, list[Abstained]]()
    for ones in alike.values():
        if len({one.rule for one in ones}) > _ALIKE:
            lines += [scene.line(), *_unjudged_alike(ones, scene, width)]
        else:
            for one in ones:
                by.setdefault(one.rule, []).append(one)
    lines += [line for rule, ones in by.items() for line in (scene.line(), *_unjudged(rule, ones, scene, width))]
    return lines


def _unjudged_alike(ones: Sequence[Abstained], scene: AdviceScene, width: int) -> list[Line]:
    """Rules skipped for one subject and one reason: their names, what is missing, how to get it."""
    name, unlock = finding_text.qualified_name(ones[0].subject, scene.update.frame), ones[0].unlock
    rules = list(dict.fromkeys(one.rule for one in ones))
    head = [Run(f"   {len(rules)} checks skipped", "text", True), Run(f"  {name}", "dim")]
    lines = flow(scene, width, head, 5)
    lines += flow(scene, width, [Run(f"     {', '.join(rules)}", "text")], 5)
    missing = tuple(dict.fromkeys(missing for one in ones for missing in one.missing))
    if lacks := finding_text.missing_text(replace(ones[0], missing=missing)):
        lines += flow(scene, width, [Run("     missing   ", "dim"), Run(clean(lacks), "text")], 15)
    if unlock:
        lines += flow(scene, width, [Run("       to fix  ", "dim"), Run(clean(unlock), "text")], 15)
    return lines


def _unjudged(rule: str, ones: Sequence[Abstained], scene: AdviceScene, width: int) -> list[Line]:
    asked = [Run(f"   {rule}", "text", True), Run(f"  {finding_text.question(rule)}", "dim")]
    lines = flow(scene, width, asked, 5)
    for one in ones:
        name = finding_text.qualified_name(one.subject, scene.update.frame)
        lacks = finding_text.missing_text(one)
        lines += flow(
            scene, width, [Run(f"     {name}", "text"), Run(f"  missing: {lacks}" if lacks else "", "dim")], 7
        )
        if one.unlock:
            lines += flow(scene, width, [Run("       to fix  ", "dim"), Run(clean(one.unlock), "text")], 15)
    return lines


EXPERIMENTS = AdvicePage("experiments", experiments)
PAGES: tuple[AdvicePage, ...] = (
    AdvicePage("findings", _findings, _listed),
    EXPERIMENTS,
    AdvicePage("classes", _classes),
    AdvicePage("skipped checks", _silent),
)
