"""What the terminal shows, cell by cell, and what it should show: only the difference is written to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.cells import get_character_cell_size
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.app import App
from textual.timer import Timer

from gputop.ui.terminal.driver import behind

BRIDGE = 5  # unchanged cells of one style are cheaper written again than jumped over
_RESET = "\x1b[0m"


class Canvas:
    """A screen of cells. `put` says what should be there, `take` gives the bytes that bring the terminal up to it."""

    def __init__(self, width: int, height: int, colours: ColorSystem | None) -> None:
        self.size = (width, height)
        self._width = width
        self._inks = Inks(colours)
        self._wanted = [([" "] * width, [0] * width) for _ in range(height)]
        self._shown = [([""] * width, [0] * width) for _ in range(height)]  # "": what is there is unknown
        self._dirty: set[int] = set()

    def put(self, x: int, y: int, segments: Iterable[Segment], start: int, end: int) -> None:
        """Segments from column `x` on belong on line `y`; only the cells from `start` up to `end` count."""
        if not 0 <= y < len(self._wanted):
            return
        start, end = max(start, 0), min(end, self._width)
        chars, inks = self._wanted[y]
        for text, style, _ in segments:
            cells = _cells(text)
            after = x + len(cells)
            first, last = max(x, start), min(after, end)
            if first < last:
                cells = _whole(cells[first - x : last - x])
                ink, ground = self._inks.number(style)
                if chars[first] == "" and first:
                    chars[first - 1] = " "
                if chars[last : last + 1] == [""]:
                    chars[last] = " "
                chars[first:last] = cells
                inks[first:last] = [ground if cell == " " else ink for cell in cells]
            x = after
        self._dirty.add(y)

    def take(self) -> str:
        """The sequences that make the terminal show what it should; it is taken for shown from now on."""
        out: list[str] = []
        ink, step = 0, self._inks.step
        for y in sorted(self._dirty):
            wanted, shown = self._wanted[y], self._shown[y]
            if wanted == shown:
                continue
            chars, inks = wanted
            at = -BRIDGE - 1
            for x in _differences(wanted, shown):
                if at < x <= at + BRIDGE and not any(step(ink, inks[place])[0] for place in range(at, x)):
                    out.extend(chars[at:x])
                elif at != x:
                    out.append(f"\x1b[{y + 1};{x + 1}H")
                codes, ink = step(ink, inks[x])
                out.append(f"{codes}{chars[x]}")
                at = x + 1
            self._shown[y] = (chars[:], inks[:])
        self._dirty.clear()
        if ink:
            out.append(_RESET)
        return "".join(out)


def _differences(wanted: tuple[list[str], list[int]], shown: tuple[list[str], list[int]]) -> list[int]:
    """The columns to be written; a wide character is in its first cell, the second holds an empty string."""
    found = []
    chars = wanted[0]
    for x, (char, old, ink, old_ink) in enumerate(zip(chars, shown[0], wanted[1], shown[1], strict=True)):
        if char != old or ink != old_ink:
            if char or not x:
                found.append(x)
            elif not found or found[-1] != x - 1:
                found.append(x - 1)
    return found


def _cells(text: str) -> list[str]:
    """A string for each cell: marks go with the character before them, a wide character has an empty second cell."""
    if text.isascii():
        return list(text)
    cells: list[str] = []
    for char in text:
        width = get_character_cell_size(char)
        if width:
            cells.append(char)
            cells.extend([""] * (width - 1))
        elif cells:
            cells[-1 if cells[-1] else -2] += char
    return cells


def _whole(cells: list[str]) -> list[str]:
    """A wide character of which only one half is here becomes a blank."""
    if cells[0] == "":
        cells[0] = " "
    if not cells[-1].isascii() and get_character_cell_size(cells[-1][0]) > 1:
        cells[-1] = " "
    return cells


Codes = tuple[str, str, str]  # attributes, colour, ground; a blank has no colour


class Inks:
    """Styles by number, and the shortest sequence from one to another. 0 is the terminal's own."""

    def __init__(self, colours: ColorSystem | None) -> None:
        self._colours = colours
        self._numbers: dict[Style | None, tuple[int, int]] = {None: (0, 0)}
        self._codes: list[Codes] = [("", "39", "49")]
        self._known = {self._codes[0]: 0}
        self._steps: dict[tuple[int, int], tuple[str, int]] = {}

    def number(self, style: Style | None) -> tuple[int, int]:
        """The number of a style, and of a blank in it."""
        known = self._numbers.get(style)
        if known is None:
            assert style is not None
            flags = {
                "1": style.bold, "2": style.dim, "3": style.italic, "4": style.underline, "7": style.reverse,
                "9": style.strike,
            }  # fmt: skip
            attributes = ";".join(code for code, on in flags.items() if on)
            codes = (attributes, self._code(style, True), self._code(style, False))
            visible = style.reverse or style.underline or style.strike
            known = (self._intern(codes), self._intern(codes if visible else ("", "", codes[2])))
            self._numbers[style] = known
        return known

    def step(self, before: int, after: int) -> tuple[str, int]:
        """The sequence from one style to another, and the style then: a blank takes any colour."""
        if before == after:
            return "", before
        known = self._steps.get((before, after))
        if known is None:
            known = self._steps[before, after] = self._step(self._codes[before], self._codes[after])
        return known

    def _step(self, old: Codes, new: Codes) -> tuple[str, int]:
        if not new[1] and not set(old[0].split(";")) & {"4", "7", "9"}:
            new = (old[0], old[1], new[2])
        codes = []
        if new[0] != old[0]:
            if old[0]:
                codes, old = ["0"], self._codes[0]
            codes += [new[0]] if new[0] else []
        new = (new[0], new[1] or old[1], new[2])
        codes += [code for code, was in zip(new[1:], old[1:], strict=True) if code != was]
        return f"\x1b[{';'.join(codes)}m" if codes else "", self._intern(new)

    def _intern(self, codes: Codes) -> int:
        number = self._known.setdefault(codes, len(self._codes))
        if number == len(self._codes):
            self._codes.append(codes)
        return number

    def _code(self, style: Style, foreground: bool) -> str:
        colour = style.color if foreground else style.bgcolor
        if colour is None or self._colours is None:
            return "39" if foreground else "49"
        return ";".join(colour.downgrade(self._colours).get_ansi_codes(foreground))


LOOK_AGAIN_S = 0.05  # at a terminal that is behind
_SYNC = ("\x1b[?2026h", "\x1b[?2026l")  # shown at once, where the terminal can


class Painter:
    """Writes while the terminal takes it. While it is behind nothing is queued, so that what it gets next is newest."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._canvas: Canvas | None = None
        self._waiting: Timer | None = None

    def draw(self, update: ChopsUpdate | LayoutUpdate) -> None:
        """Show an update of Textual's compositor."""
        size = self._app.size
        if self._canvas is None or self._canvas.size != size:
            system = self._app.console.color_system
            self._canvas = Canvas(*size, ColorSystem[_SYSTEMS[system]] if system else None)
        put = self._canvas.put
        if isinstance(update, LayoutUpdate):
            left, right = update.region.x, update.region.right
            for y, line in enumerate(update.strips, update.region.y):
                x = left
                for strip in line:
                    put(x, y, strip, left, right)
                    x += strip.cell_length
        else:
            for y, left, right in update.spans:
                for x, chop in update.chops[y].items():
                    if chop is not None and x < right:
                        put(x, y, chop, left, right)
        self.flush()

    def flush(self) -> None:
        """Write what differs, now or as soon as the terminal has taken what it was given."""
        if self._waiting:
            self._waiting.stop()
            self._waiting = None
        driver = self._app._driver
        if self._canvas is None or driver is None:
            return
        if behind(self._app):
            self._waiting = self._app.set_timer(LOOK_AGAIN_S, self.flush)
            return
        text = self._canvas.take()
        if text:
            start, end = _SYNC if self._app._sync_available else ("", "")
            driver.write(f"{start}{text}{end}")
            driver.flush()

    def forget(self) -> None:
        """What the terminal shows is unknown: the next update is written whole."""
        self._canvas = None


_SYSTEMS = {"standard": "STANDARD", "256": "EIGHT_BIT", "truecolor": "TRUECOLOR", "windows": "WINDOWS"}
