"""A flame graph in cells: the root on top, width is time, what is called below. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from textual.strip import Strip

from gputop.frozen_dataclass import frozen_dataclass
from gputop.profile.stacks import Function, Profile, StackNode
from gputop.profile.training_parts import Kind, kind, loaders, main
from gputop.ui.theme import PLAIN, Look, Token
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line
from gputop.ui.widgets.tabs import Tab

MOST_ROWS = 500
TOKENS: dict[Kind, Token] = {"waits": "warn", "own": "busy", "library": "dim"}
SIGNS: dict[Kind, str] = {"waits": "=", "own": "*", "library": ""}  # what a kind is without its colour


@dataclass(eq=False, slots=True)
class FlameBox:
    """A frame that can be seen: its cells, and what called it."""

    node: StackNode
    row: int
    left: int
    right: int
    above: FlameBox | None = None
    below: list[FlameBox] = field(default_factory=list)


def boxes(focus: StackNode, width: int, most_rows: int = MOST_ROWS) -> list[list[FlameBox]]:
    """The frames from one on, row by row, the widest first at the left; what is narrower than a cell is left out."""
    if not focus.count or width <= 0:
        return []
    scale = width / focus.count
    rows = [[FlameBox(focus, 0, 0, width)]]
    edges = {id(rows[0][0]): 0.0}
    while len(rows) < most_rows:
        found: list[FlameBox] = []
        for above in rows[-1]:
            left = edges[id(above)]
            for node in sorted(above.node.children.values(), key=lambda node: (-node.count, node.name)):
                start, left = left, left + node.count
                first, last = round(start * scale), round(left * scale)
                if last <= first:
                    if node.count * scale < 0.5:
                        break  # those after it are narrower still
                    continue
                box = FlameBox(node, len(rows), first, min(last, above.right), above)
                edges[id(box)] = start
                above.below.append(box)
                found.append(box)
        if not found:
            break
        rows.append(found)
    return rows


def strips(
    rows: Sequence[Sequence[FlameBox]],
    width: int,
    look: Look,
    *,
    selected: FlameBox | None,
    kind: Callable[[str], Kind],
    hits: Collection[str] | None = None,
    of: float = 0.0,
) -> list[Strip]:
    """Rows of frames as lines; `of` is what shares are of, `hits` the names that were searched for."""
    return [_row(row, width, look, selected, kind, hits, of) for row in rows]


def _row(
    row: Sequence[FlameBox],
    width: int,
    look: Look,
    selected: FlameBox | None,
    kind: Callable[[str], Kind],
    hits: Collection[str] | None,
    of: float,
) -> Strip:
    line = Line(look)
    for box in row:
        line.to(box.left)
        cells, what = box.right - box.left, kind(box.node.name)
        token: Token = TOKENS[what]
        block = True
        if hits is not None:
            block = box.node.name in hits
            token = token if block else "faint"
        if box is selected:
            token, block = "bright", True
        if cells == 1:
            line.add("|" if look.glyphs.rule == "-" else "▌", token, bold=box is selected)
            continue
        sign = look.glyphs.cursor if box is selected else SIGNS[what]
        share = f" {100 * box.node.count / of:.0f}%" if of else ""
        text = label(box.node.name, sign, share, cells - 1, look)
        faded = "dim" if not block else token
        edge = "|" if look.palette is PLAIN and not block else " "
        line.add(text, faded, bold=box is selected, reverse=block).add(edge, "faint")
    return line.strip(width)


def label(name: str, sign: str, share: str, cells: int, look: Look) -> str:
    """What stands on a frame, in exactly `cells` cells: the share goes before the name is cut."""
    name = f" {sign}{' ' if sign else ''}{name}"
    if len(name) + len(share) <= cells:
        return drawing.fit(f"{name}{share}", cells, more=look.glyphs.more)
    if cells < 5:
        return drawing.fit(sign, cells)
    return drawing.fit(name, cells, more=look.glyphs.more)


def matching(root: StackNode, text: str) -> tuple[set[str], float]:
    """The names in which a text is, whatever its case, and the time in them or in what they call."""
    wanted = text.casefold()
    names: dict[str, bool] = {}
    total, waiting = 0.0, [root]
    while waiting:
        node = waiting.pop()
        hit = names.get(node.name)
        if hit is None:
            hit = names[node.name] = wanted in node.name.casefold()
        if hit:
            total += node.count
            waiting_below = [node]
            while waiting_below:  # names below are marked too, their time is in it already
                below = waiting_below.pop()
                names.setdefault(below.name, wanted in below.name.casefold())
                waiting_below += below.children.values()
        else:
            waiting += node.children.values()
    return {name for name, hit in names.items() if hit}, total


MOST = 24  # threads that can be chosen


@frozen_dataclass(frozen=True)
class Sampled:
    """One choice: its title, its call paths, what its functions are, in samples or microseconds."""

    title: str
    root: StackNode
    top: Sequence[Function]
    kind: Callable[[str], Kind]
    amount: Callable[[float], str]  # an amount in words: 38 samples, 12.4 ms
    unit: str  # of a column: SAMPLES, MS
    files: dict[str, str]
    lines: dict[str, str]
    number: Callable[[float], str]  # an amount in that column

    @cached_property
    def own(self) -> dict[str, float]:
        """The own part of each function."""
        return {each.name: each.self_count for each in self.top}


class FlameChoice:
    """Which of them is shown, in every tab."""

    def __init__(self, choices: Sequence[Sampled]) -> None:
        self.choices = choices
        self.at = 0

    @property
    def chosen(self) -> Sampled:
        """The one."""
        return self.choices[self.at]

    def turn(self, step: int = 1) -> str:
        """The next one; its title."""
        self.at = (self.at + step) % len(self.choices)
        return self.chosen.title


def of_profile(profile: Profile) -> list[Sampled]:
    """The main thread, its other processes, then each thread with samples, the busiest first; then all of it."""
    parts: list[tuple[str, Profile]] = []
    first, others = main(profile), loaders(profile)
    if first is not profile:
        parts.append(("main thread", first))
    if others.stacks:
        parts.append(("its workers", others))
    parts += _threads(profile)
    if len(parts) != 1:
        parts.append(("all threads" if parts else "all samples", profile))
    return [_sampled(title, part) for title, part in parts if part.stacks]


def _threads(profile: Profile) -> Iterator[tuple[str, Profile]]:
    counts: dict[str, float] = {}
    for stack, count in profile.stacks.items():
        counts[stack[0]] = counts.get(stack[0], 0.0) + count
    subject = profile.subject
    ranked = sorted((name for name in profile.threads if name in counts), key=lambda name: (-counts[name], name))
    for name in ranked[:MOST]:
        thread = profile.threads[name]
        if not (thread.main and thread.pid in (None, subject)):
            yield name, profile.only(lambda each, thread=thread: each == thread)  # type: ignore[misc]


def _sampled(title: str, profile: Profile) -> Sampled:
    found = profile.by_function()
    found.lines = profile.lines
    kinds: dict[str, Kind] = {}

    def known(name: str) -> Kind:
        what = kinds.get(name)
        if what is None:
            what = kinds[name] = kind(name, found.files)
        return what

    return Sampled(
        title=title, root=found.tree(), top=found.top(), kind=known, amount=_samples, unit="SAMPLES",
        files=found.files, lines=profile.lines, number=lambda count: f"{count:.0f}",
    )  # fmt: skip


def _samples(count: float) -> str:
    return f"{count:.0f} sample{'s' * (round(count) != 1)}"


class Flames(Tab):
    """A flame graph, a cursor in it, and what is under the cursor in words."""

    id, title, short = "flame", "Flame", "Flame"
    takes = "Zoom in"
    keys = frozenset({"take", "out", "left", "right", "find", "gap", "turn"})
    terms = ("flame graph", "own code", "waits")

    def __init__(self, choice: FlameChoice) -> None:
        self.choice = choice
        self._shown = choice.chosen
        self._zoomed: list[StackNode] = []  # from the outside in
        self._path: list[str] = []  # from the frame that is zoomed to, to the cursor
        self._rows: list[list[FlameBox]] = []
        self._selected: FlameBox | None = None
        self._top = 0
        self._height = 1
        self._text = ""
        self._hits: set[str] | None = None
        self._share = 0.0

    def facts(self, look: Look) -> Sequence[str]:  # noqa: ARG002
        """The thread it is of."""
        chosen = self.choice.chosen
        return (f"{chosen.title}, {chosen.amount(chosen.root.count)}",)

    @property
    def focus(self) -> StackNode:
        """The frame that is as wide as the screen."""
        return self._zoomed[-1] if self._zoomed else self.choice.chosen.root

    def _laid(self, width: int) -> list[list[FlameBox]]:
        """The rows that are shown: the root, which is no function, is left out."""
        rows = boxes(self.focus, max(1, width - 2))
        return rows if self._zoomed or len(rows) < 2 else rows[1:]

    def natural(self, width: int, look: Look) -> int:  # noqa: ARG002
        """As deep as the graph is, and the lines below it."""
        self._renew()
        return len(self._laid(width)) + 2

    def draw(self, width: int, height: int, look: Look) -> list[Strip]:
        """The rows around the cursor, then the frame under it."""
        self._renew()
        room = max(1, width - 2)
        self._rows = self._laid(width)
        self._selected = self._find_selected()
        foot = 2 if height >= min(6, len(self._rows) + 2) else 1 if height >= 3 else 0
        self._height = max(1, min(height - foot, len(self._rows)))
        row = self._rows.index(self._row_of(self._selected)) if self._selected else 0
        self._top = min(max(self._top, row - self._height + 1), row, max(0, len(self._rows) - self._height))
        chosen = self.choice.chosen
        shown = strips(
            self._rows[self._top : self._top + self._height], room, look,
            selected=self._selected, kind=chosen.kind, hits=self._hits, of=chosen.root.count,
        )  # fmt: skip
        edge = Line(look).add(" ").strip(1)
        lines = [Strip.join([edge, strip, edge]) for strip in shown]
        lines += self._foot(width, look)[:foot]
        return lines[: max(0, height)]

    def _renew(self) -> None:
        """Begin again where another thread was chosen."""
        if self._shown is not self.choice.chosen:
            self._shown, self._zoomed, self._path, self._top = self.choice.chosen, [], [], 0
            if self._text:
                self.find(self._text)

    def _row_of(self, box: FlameBox) -> list[FlameBox]:
        return self._rows[box.row - self._rows[0][0].row]

    def _find_selected(self) -> FlameBox | None:
        """The frame at the end of the path, or the nearest around it that can be seen."""
        if not self._rows:
            return None
        first, path = self._rows[0], list[str]()
        box = first[0] if first[0].above is None else first[0].above
        for name in self._path:
            found = next((below for below in box.below if below.node.name == name), None)
            if found is None:
                break
            box = found
            path.append(name)
        if box.row < first[0].row:
            box = first[0]
            path = [box.node.name]
        self._path = path
        return box

    def _foot(self, width: int, look: Look) -> list[Strip]:
        """What is under the cursor; what the colours mean, or what was searched for."""
        chosen, box = self.choice.chosen, self._selected
        if box is None:
            return [Line(look).add(" no samples", "dim").strip(width)]
        node, total = box.node, chosen.root.count or 1.0
        line = (
            Line(look).add(" ").add(drawing.cut(node.name, max(8, width // 2), look.glyphs.more), "bright", bold=True)
        )
        line.add(f"  {100 * node.count / total:.1f} %", "bright").add(f" of all, {chosen.amount(node.count)}", "dim")
        own = node.count - sum(below.count for below in node.children.values())
        if own >= 0.5:
            line.add(f", {100 * own / total:.1f} %", "text").add(" its own", "dim")
        if file := chosen.files.get(node.name):
            line.add("  ").add(drawing.tail(file, max(0, width - line.cells - 1), look.glyphs.more), "dim")
        return [line.strip(width), self._legend(width, look)]

    def _legend(self, width: int, look: Look) -> Strip:
        line = Line(look).add(f" {drawing.cut(self.choice.chosen.title, 40, look.glyphs.more)}  ", "text")
        if self._zoomed:
            line.add("zoomed: Backspace zooms out  ", "busy")
        if self._hits is not None:
            count = len(self._hits)
            line.add(f"{drawing.cut(self._text, 30, look.glyphs.more)}: ", "bright")
            line.add(f"{count} function{'s' * (count != 1)}, {self._share:.1f} % of the time  ", "text")
        shown = {self.choice.chosen.kind(box.node.name) for row in self._rows for box in row}
        legend: tuple[tuple[Kind, str], ...] = (("waits", "waits"), ("own", "your own code"), ("library", "libraries"))
        for sign, text in legend:
            if sign in shown:
                line.add(f" {SIGNS[sign]} ", TOKENS[sign], reverse=True).add(f" {text}  ", "dim")
        return line.strip(width)

    def move(self, lines: int) -> None:
        """To what called it (up), or to what it calls most (down)."""
        box = self._selected
        for _ in range(min(abs(lines), len(self._rows))):
            if box is None:
                break
            box = (box.below[0] if box.below else box) if lines > 0 else self._above(box)
        self._select(box)

    def _above(self, box: FlameBox) -> FlameBox:
        """What called it, where that is shown."""
        return box.above if box.above is not None and box.row > self._rows[0][0].row else box

    def _select(self, box: FlameBox | None) -> None:
        if box is None:
            return
        self._selected, path = box, []
        while box.above is not None:
            path.append(box.node.name)
            box = box.above
        self._path = path[::-1]

    def press(self, what: str, amount: int = 0) -> str:
        """What its keys do."""
        if what == "take":
            return self._zoom_in()
        if what == "out" and self._zoomed:
            left = self._zoomed.pop()
            self._path = [*_route(self.focus, left), *self._path]
        elif what == "sideways" and self._selected:
            row = self._row_of(self._selected)
            self._select(row[min(max(0, row.index(self._selected) + amount), len(row) - 1)])
        elif what == "next":
            return self._next()
        elif what == "turn":
            return self.choice.turn()
        return ""

    def _zoom_in(self) -> str:
        box = self._selected
        if box is None or box.node is self.focus:
            return ""
        self._zoomed.append(box.node)
        self._path, self._top = [], 0
        return ""

    def find(self, text: str) -> str:
        """Mark the frames with this text."""
        self._text = text.strip()
        if not self._text:
            self._hits = None
            return ""
        self._hits, total = matching(self.choice.chosen.root, self._text)
        self._share = 100 * total / (self.choice.chosen.root.count or 1.0)
        if not self._hits:
            return "nowhere"
        return f"{len(self._hits)} functions, {self._share:.1f} % of the time"

    def _next(self) -> str:
        """To the next frame that was found, row by row."""
        if not self._hits:
            return "nothing to search yet"
        marked = [box for row in self._rows for box in row if box.node.name in self._hits]
        if not marked:
            return "not in what is shown: zoom out"
        at = marked.index(self._selected) if self._selected in marked else -1
        self._select(marked[(at + 1) % len(marked)])
        return ""

    def click(self, x: int, y: int) -> None:
        """Select a frame; once more: zoom into it."""
        if not 0 <= y < self._height or self._top + y >= len(self._rows):
            return
        found = next((box for box in self._rows[self._top + y] if box.left <= x - 1 < box.right), None)
        if found is self._selected:
            self._zoom_in()
        else:
            self._select(found)


def _route(start: StackNode, end: StackNode) -> list[str]:
    """The names from below one frame down to another."""
    waiting: list[tuple[StackNode, list[str]]] = [(start, [])]
    while waiting:
        at, path = waiting.pop()
        if at is end:
            return path
        waiting += [(below, [*path, below.name]) for below in at.children.values()]
    return []
