"""A flame graph in cells: the root on top, width is time, what is called below. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from textual.strip import Strip

from gputop.profile.stacks import Node
from gputop.profile.training_parts import Kind
from gputop.ui import draw
from gputop.ui.draw import Line
from gputop.ui.look import PLAIN, Look, Token

MOST_ROWS = 500
TOKENS: dict[Kind, Token] = {"waits": "warn", "own": "busy", "library": "dim"}
SIGNS: dict[Kind, str] = {"waits": "=", "own": "*", "library": ""}  # what a kind is without its colour


@dataclass(eq=False, slots=True)
class Box:
    """A frame that can be seen: its cells, and what called it."""

    node: Node
    row: int
    left: int
    right: int
    above: Box | None = None
    below: list[Box] = field(default_factory=list)


def boxes(focus: Node, width: int, most_rows: int = MOST_ROWS) -> list[list[Box]]:
    """The frames from one on, row by row, the widest first at the left; what is narrower than a cell is left out."""
    if not focus.count or width <= 0:
        return []
    scale = width / focus.count
    rows = [[Box(focus, 0, 0, width)]]
    edges = {id(rows[0][0]): 0.0}
    while len(rows) < most_rows:
        found: list[Box] = []
        for above in rows[-1]:
            left = edges[id(above)]
            for node in sorted(above.node.children.values(), key=lambda node: (-node.count, node.name)):
                start, left = left, left + node.count
                first, last = round(start * scale), round(left * scale)
                if last <= first:
                    if node.count * scale < 0.5:
                        break  # those after it are narrower still
                    continue
                box = Box(node, len(rows), first, min(last, above.right), above)
                edges[id(box)] = start
                above.below.append(box)
                found.append(box)
        if not found:
            break
        rows.append(found)
    return rows


def strips(
    rows: Sequence[Sequence[Box]],
    width: int,
    look: Look,
    *,
    selected: Box | None,
    kind: Callable[[str], Kind],
    hits: Collection[str] | None = None,
    of: float = 0.0,
) -> list[Strip]:
    """Rows of frames as lines; `of` is what shares are of, `hits` the names that were searched for."""
    return [_row(row, width, look, selected, kind, hits, of) for row in rows]


def _row(
    row: Sequence[Box],
    width: int,
    look: Look,
    selected: Box | None,
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
    """What stands on a frame, in exactly so many cells: the share goes before the name is cut."""
    name = f" {sign}{' ' if sign else ''}{name}"
    if len(name) + len(share) <= cells:
        return draw.fit(f"{name}{share}", cells, more=look.glyphs.more)
    if cells < 5:
        return draw.fit(sign, cells)
    return draw.fit(name, cells, more=look.glyphs.more)


def matching(root: Node, text: str) -> tuple[set[str], float]:
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
