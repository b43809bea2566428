"""The flame tab: one walks through the frames, zooms into one and out again, searches, chooses a thread."""

from __future__ import annotations

from textual.strip import Strip

from gputop.profile.stacks import Node
from gputop.ui import draw
from gputop.ui.draw import Line
from gputop.ui.look import Look
from gputop.ui.result.flame import SIGNS, TOKENS, Box, boxes, matching, strips
from gputop.ui.result.sampled import Choice
from gputop.ui.result.tab import Tab


class Flames(Tab):
    """A flame graph, a cursor in it, and what is under the cursor in words."""

    id, title, short = "flame", "Flame", "Flame"
    takes = "Zoom in"
    keys = frozenset(
        {"result-take", "result-out", "result-left", "result-right", "result-find", "result-gap", "result-turn"}
    )

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self._shown = choice.chosen
        self._zoomed: list[Node] = []  # from the outside in
        self._path: list[str] = []  # from the frame that is zoomed to, to the cursor
        self._rows: list[list[Box]] = []
        self._selected: Box | None = None
        self._top = 0
        self._height = 1
        self._text = ""
        self._hits: set[str] | None = None
        self._share = 0.0

    @property
    def facts(self) -> str:
        """Whose it is."""
        chosen = self.choice.chosen
        return f"{chosen.title}, {chosen.told(chosen.root.count)}"

    @property
    def focus(self) -> Node:
        """The frame that is as wide as the screen."""
        return self._zoomed[-1] if self._zoomed else self.choice.chosen.root

    def _laid(self, width: int) -> list[list[Box]]:
        """The rows that are shown: who is not a function, but all of them, is left out."""
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
        """Begin anew where another thread was chosen."""
        if self._shown is not self.choice.chosen:
            self._shown, self._zoomed, self._path, self._top = self.choice.chosen, [], [], 0
            if self._text:
                self.find(self._text)

    def _row_of(self, box: Box) -> list[Box]:
        return self._rows[box.row - self._rows[0][0].row]

    def _find_selected(self) -> Box | None:
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
        line = Line(look).add(" ").add(draw.cut(node.name, max(8, width // 2), look.glyphs.more), "bright", bold=True)
        line.add(f"  {100 * node.count / total:.1f}%", "bright").add(f" of all, {chosen.told(node.count)}", "dim")
        own = node.count - sum(below.count for below in node.children.values())
        if own >= 0.5:
            line.add(f", {100 * own / total:.1f}%", "text").add(" its own", "dim")
        if file := chosen.files.get(node.name):
            line.add("  ").add(draw.tail(file, max(0, width - line.cells - 1), look.glyphs.more), "dim")
        return [line.strip(width), self._legend(width, look)]

    def _legend(self, width: int, look: Look) -> Strip:
        line = Line(look).add(f" {draw.cut(self.choice.chosen.title, 40, look.glyphs.more)}  ", "text")
        if self._zoomed:
            line.add("zoomed: Backspace zooms out  ", "busy")
        if self._hits is not None:
            count = len(self._hits)
            line.add(f"{draw.cut(self._text, 30, look.glyphs.more)}: ", "bright")
            line.add(f"{count} function{'s' * (count != 1)}, {self._share:.1f}% of the time  ", "text")
        for kind, text in (("waits", "waits"), ("own", "your own code"), ("library", "libraries")):
            line.add(f" {SIGNS[kind]} ", TOKENS[kind], reverse=True).add(f" {text}  ", "dim")  # type: ignore[index]
        return line.strip(width)

    def move(self, lines: int) -> None:
        """To what called it (up), or to what it calls most (down)."""
        box = self._selected
        for _ in range(min(abs(lines), len(self._rows))):
            if box is None:
                break
            box = (box.below[0] if box.below else box) if lines > 0 else self._above(box)
        self._select(box)

    def _above(self, box: Box) -> Box:
        """What called it, where that is shown."""
        return box.above if box.above is not None and box.row > self._rows[0][0].row else box

    def _select(self, box: Box | None) -> None:
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
        return f"{len(self._hits)} functions, {self._share:.1f}% of the time"

    def _next(self) -> str:
        """To the next frame that was found, row by row."""
        if not self._hits:
            return "nothing to find yet"
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


def _route(start: Node, end: Node) -> list[str]:
    """The names from below one frame down to another."""
    waiting: list[tuple[Node, list[str]]] = [(start, [])]
    while waiting:
        at, path = waiting.pop()
        if at is end:
            return path
        waiting += [(below, [*path, below.name]) for below in at.children.values()]
    return []
