"""The table on the screen: draws the listing's lines, keeps the strips of those that did not change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from textual import events
from textual.strip import Strip

from gputop.columns import BY_ID, PRESETS, Preset
from gputop.labels import amount
from gputop.last_job import LastJob
from gputop.model import Frame, Identity, Role
from gputop.ui.commands.command import Names
from gputop.ui.gpus.state import State
from gputop.ui.panes.empty import no_gpu_process, nothing_matches, nothing_of, nothing_on
from gputop.ui.table import rows
from gputop.ui.table.listing import Listing
from gputop.ui.table.row import Key, TableRow, masked
from gputop.ui.table.rows import ColumnPlace
from gputop.ui.table.tree import Idle, TableView
from gputop.ui.theme import Ground, Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.cursor_list import WHEEL
from gputop.ui.widgets.key_bar import pressed
from gputop.ui.widgets.strip_pane import Lines

HEAD = 2  # the rule and the titles
SIGHT = 200  # processes that are read in more detail because they are on the screen, at most
Says = tuple[object, ...]  # all that a line is drawn from
NO_STATES: Mapping[str, State] = MappingProxyType({})
SHIFT = 8  # cells a key scrolls the commands of the flat list


class JobTable(Lines, can_focus=True):
    """Jobs and processes: a rule, titles, lines."""

    def __init__(
        self, look: Look, view: TableView, drawn: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`drawn` is called whenever what is selected may have changed."""
        super().__init__(id="processes")
        self.look = look
        self.listing = Listing(view)
        self.active = True  # the keys move its cursor
        self.records = False  # what is seen could be recorded
        self.names: Names = {}  # of the keys that it names
        self.shows_all: Callable[[], bool] = lambda: True  # whether Esc, pressed now, ends what hides processes
        self.overtaken: Callable[[], bool] = lambda: False  # whether the next key is here already, and draws it all
        self._drawn_anew = drawn
        self._clock = clock
        self._shift = 0
        self._frame: Frame | None = None
        self._last_job: LastJob | None = None
        self._states: Mapping[str, State] = {}
        self._marked: frozenset[Identity] = frozenset()
        self._drawn: dict[Key, tuple[Says, Strip]] = {}
        self._places: tuple[ColumnPlace, ...] = ()

    def feed(
        self, frame: Frame, idle: Idle, last_job: LastJob | None = None, states: Mapping[str, State] = NO_STATES
    ) -> None:
        """Show a frame; `states` are the words of the rules, by the key of a job."""
        self._frame, self._last_job, self._states = frame, last_job, states
        self.listing.feed(frame, self._clock(), idle)
        self.redraw()

    def mark(self, processes: frozenset[Identity]) -> None:
        """Mark the lines of these."""
        if processes != self._marked:
            self._marked = processes
            self.redraw()

    def restyle(self, look: Look) -> None:
        """Draw with other colours or glyphs."""
        self.look = look
        self._drawn.clear()
        self.redraw()

    def redraw(self) -> None:
        """Draw what the listing has in its window."""
        width, height = self.size
        if self._frame is None or not width or not height or not self._places or self.overtaken():
            return  # a frame may be here before the columns have their places: they are drawn with these
        listing, view = self.listing, self.listing.view
        only, facts = self._only(self._frame), self._facts(self._frame)
        back = pressed(self._names(), "back", "show all")
        top = drawing.rule(self._title(width), width, self.look, right=facts, mark=only, way=back)
        if not listing.rows:
            self.show([top, *self._empty(self._frame, width)][:height])
            self._drawn_anew()
            return
        titles = rows.header(self._places, view, width, self.look)
        self._drawn = {row.key: self._line(row, on) for row, on in self._window()}
        self.show([top, titles, *(strip for _, strip in self._drawn.values())][:height])
        self._drawn_anew()

    def _window(self) -> Iterator[tuple[TableRow, Ground]]:
        """The rows in sight, each with what it stands on."""
        listing = self.listing
        cursor: Ground = "selected" if self.active else "raised"
        for place, row in enumerate(listing.rows[listing.top : listing.top + listing.height], listing.top):
            yield row, cursor if place == listing.at else "background"

    def _line(self, row: TableRow, on: Ground) -> tuple[Says, Strip]:
        cells = rows.texts(row, self._places, self._state(row))
        tagged = row in self.listing.tags
        ending = self._marks(row), self._state(row)
        says = (row.kind, row.rails, row.open, row.label, rows.weight(row), on, tagged, cells, ending)
        kept = self._drawn.get(row.key)
        if kept and kept[0] == says:
            return kept
        return says, self._strip(row, cells, on)

    def _strip(self, row: TableRow, cells: Sequence[str], on: Ground) -> Strip:
        tagged = row in self.listing.tags
        return rows.line(
            row, cells, self._places, self.look, on=on, shift=self._shift, tagged=tagged,
            marked=self._marks(row), state=self._state(row),
        )  # fmt: skip

    def _state(self, row: TableRow) -> State | None:
        return self._states.get(str(row.key[1])) if row.kind == "job" else None

    def _marks(self, row: TableRow) -> bool:
        own = row.members if row.process is None else (row.process,)
        return bool(self._marked) and any(process.identity in self._marked for process in own)

    def _empty(self, frame: Frame, width: int) -> list[Strip]:
        view, names = self.listing.view, self._names()
        gpu = frame.by_uuid.get(view.gpu or "")
        if view.filter is not None:
            return nothing_matches(frame, view.filter, view.user, gpu, width, self.look, names)
        if gpu is not None and not self.listing.matching:
            return nothing_on(gpu, view.user, width, self.look, names)
        if view.user is not None:
            hidden = 0 if view.every_process else len(self.listing.matching or ())
            return nothing_of(view.user, hidden, width, self.look, names)
        hidden = 0 if view.every_process else len(frame.processes)
        return no_gpu_process(frame, width, self.look, self.names, hidden, self._last_job, records=self.records)

    def _names(self) -> Names:
        """The keys as they are called, without the one that would do something else now."""
        return self.names if self.shows_all() else {id: name for id, name in self.names.items() if id != "back"}

    def _only(self, frame: Frame) -> str:
        """What hides the others: it must not be overlooked."""
        view = self.listing.view
        gpu = frame.by_uuid.get(view.gpu or "")
        parts = [f"GPU {gpu.index} only"] if gpu is not None else []
        parts += [f"only {view.user}"] if view.user is not None else []
        if view.filter is not None:
            parts.append(f"{drawing.cut(view.filter.text, 40, self.look.glyphs.more)}  {self.found(frame)}")
        return "  ".join(parts)

    def found(self, frame: Frame) -> str:
        """How many processes are looked for, of all."""
        matching = self.listing.matching
        return f"{len(frame.processes if matching is None else matching)} of {len(frame.processes)}"

    def masked(self) -> list[Strip]:
        """What is drawn, with what looks like a secret in a command line masked."""
        strips = list(self.strips)
        for place, (row, on) in enumerate(self._window(), HEAD):
            if row.process is None or place >= len(strips):
                continue
            cells = rows.texts(row, self._places, self._state(row))
            safe = [
                masked(row).text if place.column.id == "command" else text
                for place, text in zip(self._places, cells, strict=True)
            ]
            if safe != list(cells):
                strips[place] = self._strip(row, safe, on)
        return strips

    def _title(self, width: int) -> str:
        return "jobs and processes" if width >= 100 else "jobs"

    def _facts(self, frame: Frame) -> str:
        listing, glyphs = self.listing, self.look.glyphs
        arrow = glyphs.down if listing.view.descending else glyphs.up
        shape = "tree" if listing.view.tree else "flat"
        preset = listing.view.preset
        parts = [] if preset == "main" else [PRESETS[preset]]
        parts += [shape, f"{BY_ID[listing.view.sort].title}{arrow}"]
        if not listing.follow:
            parts.append("not following")
        if listing.view.every_process:
            parts.append("all processes")
        if listing.tags:
            parts.append(f"{len(listing.tags)} tagged")
        if listing.matching is not None:
            return " · ".join(parts)
        inside = [process for process in frame.processes if process.job]
        # a notebook has no rank, and workers inherit that of their rank
        ranks = sum(process.role is Role.TRAINER and process.rank is not None for process in inside)
        workers = sum(process.role is Role.LOADER for process in inside)
        counts = ((len(frame.jobs), "job"), (ranks, "rank"), (workers, "worker"))
        parts.append(" ".join(amount(number, noun) for number, noun in counts if number) or "no jobs")
        return " · ".join(parts)

    def on_resize(self) -> None:
        """Fit the columns to the width and the window to the height."""
        self._fit()
        self.listing.resize(self.size.height - HEAD)
        self.redraw()

    @property
    def sight(self) -> frozenset[int]:
        """Pids of what is on the screen, where the columns ask for more than is read of every process."""
        listing = self.listing
        if all("main" in place.column.presets for place in self._places):
            return frozenset()
        window = listing.rows[listing.top : listing.top + listing.height]
        own = [row.process.pid for row in window if row.process is not None]
        folded = [process.pid for row in window if not row.open for process in row.members]
        return frozenset([*own, *folded][:SIGHT])

    @property
    def columns(self) -> tuple[str, ...]:
        """The ids of the columns that there is room for."""
        return tuple(place.column.id for place in self._places)

    def _fit(self) -> None:
        view = self.listing.view
        self._places = rows.places(self.size.width, view.preset, view.sort, view.columns)
        self._drawn.clear()

    def preset(self, preset: Preset) -> None:
        """Other columns; what sorts goes on sorting, seen or not."""
        self.listing.view = replace(self.listing.view, preset=preset)
        self._fit()
        self.redraw()

    def key(self) -> None:
        """A key was pressed: nothing changes places for a while."""
        self.listing.touch(self._clock())

    def fold(self, step: int) -> None:
        """Fold (-1) or unfold (1) the selected line; a flat list scrolls its commands."""
        if not self.listing.view.tree:
            self._shift = max(0, self._shift + SHIFT * step)
            self._drawn.clear()
        elif step < 0:
            self.listing.fold()
        else:
            self.listing.unfold()
        self.redraw()

    def sort(self, column: str) -> None:
        """Sort by a column, the most interesting end first."""
        self.see(sort=column, reverse=False)

    def see(self, **changes: Any) -> None:
        """Show the same frame in another way, sorted again: fields of the view."""
        self.listing.look(replace(self.listing.view, **changes), self._clock())
        if changes.keys() & {"sort", "columns"}:
            self._fit()
        self.redraw()

    def reverse(self) -> None:
        """Sort the other way round."""
        self.see(reverse=not self.listing.view.reverse)

    def nest(self) -> None:
        """A tree of jobs, or a flat list of processes."""
        self._shift = 0
        self.see(tree=not self.listing.view.tree)

    def on_click(self, event: events.Click) -> None:
        """Select the line; its fold mark folds, a title sorts."""
        event.stop()
        self.key()
        line = event.y - HEAD
        if line < -1:
            return
        if line == -1:
            self._click_title(event.x)
        elif self.listing.top + line < len(self.listing.rows):
            self.listing.at = self.listing.top + line
            row = self.listing.rows[self.listing.at]
            if row.kind == "more" or event.x == rows.fold_cell(row):
                self.fold(-1 if row.open else 1)
            self.redraw()

    def _click_title(self, x: int) -> None:
        for place in self._places:
            if place.left <= x < place.left + place.width and place.column.id != "command":
                if place.column.id == self.listing.view.sort:
                    self.reverse()
                else:
                    self.sort(place.column.id)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll; the cursor stays on its line."""
        self._wheel(event, WHEEL)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll; the cursor stays on its line."""
        self._wheel(event, -WHEEL)

    def _wheel(self, event: events.MouseEvent, lines: int) -> None:
        event.stop()
        self.listing.scroll(lines)
        self.redraw()
